package source

import (
	"context"
	"strconv"
	"strings"
)

// postgresServer checks the server and the settings of the session.
func (c *checker) postgresServer(ctx context.Context) error {
	names := []string{
		"server_version_num", "server_encoding", "transaction_read_only", "transaction_isolation",
		"synchronous_commit", "fsync",
	}
	query := []any{"SELECT CASE WHEN pg_is_in_recovery() THEN 'on' ELSE 'off' END"}
	for _, name := range names {
		query = append(query, ", current_setting('"+name+"')")
	}
	rows, err := c.rows(ctx, query...)
	if err != nil {
		return err
	}
	is := map[string]string{}
	for i, name := range names {
		is[name] = rows[0][i+1]
	}
	primary := "connect to the primary; a DSN may name several hosts, and the primary is found"
	switch {
	case rows[0][0] == "on":
		c.wrong(primary, "the server is a standby")
	case is["transaction_read_only"] == "on":
		c.wrong("unset default_transaction_read_only for "+c.user+", or "+primary, "the session is read-only")
	}
	if n, err := strconv.Atoi(is["server_version_num"]); err != nil || n < 12_00_00 {
		c.wrong("upgrade to PostgreSQL 12 or newer", "the server is older than PostgreSQL 12")
	}
	if e := is["server_encoding"]; e != "UTF8" && e != "SQL_ASCII" {
		c.wrong("use a database with the encoding UTF8", "the encoding of the database is %s", e)
	}
	if is["transaction_isolation"] == "serializable" {
		c.wrong("ALTER ROLE "+c.dialect.quoteUser(c.user)+" SET default_transaction_isolation = "+
			"'read committed'", "transactions are serializable: reads could make INSERTs fail")
	}
	for _, name := range []string{"synchronous_commit", "fsync"} {
		if is[name] == "off" {
			c.warn("set "+name+" = on", "%s is off: a crash of the server may undo a transaction whose "+
				"callback was sent", name)
		}
	}
	return nil
}

// postgresTable reads a table.
func (c *checker) postgresTable(ctx context.Context, t spec) (*found, error) {
	const key = `(SELECT string_agg(a.attname, ', ' ORDER BY k.n) FROM pg_index i,
		unnest(i.indkey) WITH ORDINALITY k(number, n), pg_attribute a
		WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid AND a.attnum = k.number)`
	query := []any{"SELECT c.relkind::text, c.relpersistence::text, ",
		"CASE WHEN row_security_active(c.oid) THEN 'on' ELSE '' END, coalesce(", key, ", '')"}
	for _, right := range t.rights {
		query = append(query, ", CASE WHEN has_table_privilege(c.oid, '"+right+"') THEN '' ELSE 'lacks' END")
	}
	rows, err := c.rows(ctx, append(query, " FROM pg_class c WHERE c.oid = to_regclass(", value{t.quoted},
		")")...)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		c.missing(t)
		return nil, nil
	}
	row := rows[0]
	if !strings.Contains("rp", row[0]) {
		c.wrong("create a table with the output of: "+c.ddl(), "%s is not a table", t.name)
		return nil, nil
	}
	if row[1] != "p" {
		c.wrong("ALTER TABLE "+t.quoted+" SET LOGGED", "table %s is not logged: a crash empties it", t.name)
	}
	if row[2] != "" {
		c.wrong("ALTER ROLE "+c.dialect.quoteUser(c.user)+" BYPASSRLS, or disable row security for the table",
			"row-level security is active on table %s: it hides rows", t.name)
	}
	f := &found{types: map[string]string{}, key: row[3]}
	for i, right := range t.rights {
		if row[4+i] != "" {
			f.lacks = append(f.lacks, right)
		}
	}
	rows, err = c.rows(ctx, "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attnum > 0 "+
		"AND NOT attisdropped AND attrelid = to_regclass(", value{t.quoted}, ")")
	for _, row := range rows {
		f.types[row[0]] = row[1]
	}
	if err != nil || t.quoted != c.tables.outbox || f.types["seq"] == "" {
		return f, err
	}
	return f, c.postgresSequence(ctx, t)
}

// postgresSequence checks the numbers of rows.
func (c *checker) postgresSequence(ctx context.Context, t spec) error {
	rows, err := c.rows(ctx, "SELECT seqrelid::regclass::text, seqcache::text FROM pg_sequence "+
		"WHERE seqrelid = pg_get_serial_sequence(", value{t.quoted}, ", 'seq')::regclass")
	for _, row := range rows {
		if row[1] != "1" {
			c.warn("ALTER SEQUENCE "+row[0]+" CACHE 1", "the sequence %s caches %s numbers in a session: "+
				"rows may be found up to a minute late", row[0], row[1])
		}
	}
	return err
}
