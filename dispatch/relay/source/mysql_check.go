package source

import (
	"context"
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// mysqlServer checks the server and the settings of the session.
func (c *checker) mysqlServer(ctx context.Context) error {
	rows, err := c.rows(ctx, "SHOW VARIABLES WHERE Variable_name IN ('version', 'read_only', ",
		"'super_read_only', 'innodb_read_only', 'transaction_read_only', 'tx_read_only', 'log_bin', ",
		"'binlog_format', 'innodb_flush_log_at_trx_commit')")
	if err != nil {
		return err
	}
	is := map[string]string{}
	for _, row := range rows {
		is[strings.ToLower(row[0])] = row[1]
	}
	for _, name := range []string{
		"read_only", "super_read_only", "innodb_read_only", "transaction_read_only", "tx_read_only",
	} {
		if v := is[name]; v != "" && v != "OFF" && v != "0" {
			c.wrong("connect to the primary, or set "+name+" = OFF", "the server is read-only: %s is %s",
				name, v)
			break
		}
	}
	if is["log_bin"] == "ON" && is["binlog_format"] == "STATEMENT" {
		c.wrong("SET GLOBAL binlog_format = 'ROW'", "binlog_format is STATEMENT: the server refuses the "+
			"relay's changes, which need READ COMMITTED")
	}
	if v := is["innodb_flush_log_at_trx_commit"]; v != "" && v != "1" {
		c.warn("SET GLOBAL innodb_flush_log_at_trx_commit = 1", "innodb_flush_log_at_trx_commit is %s: a "+
			"crash of the server may undo a transaction whose callback was sent", v)
	}
	if strings.Contains(is["version"], "TiDB") {
		c.warn("set tail: false for this source", "TiDB does not number rows in the order of their INSERTs: "+
			"rows may be found up to a minute late")
	}
	return nil
}

// mysqlTable reads a table.
func (c *checker) mysqlTable(ctx context.Context, t spec) (*found, error) {
	database, name, qualified := strings.Cut(t.name, ".")
	if !qualified {
		database, name = c.database, t.name
	}
	where := []any{" WHERE TABLE_SCHEMA = ", value{database}, " AND TABLE_NAME = ", value{name}}
	rows, err := c.rows(ctx, "SELECT TABLE_TYPE, COALESCE(ENGINE, ''), COALESCE((SELECT MAX(TRANSACTIONS) ",
		"FROM information_schema.ENGINES e WHERE e.ENGINE = t.ENGINE), '') ",
		"FROM information_schema.TABLES t", where)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		c.missing(t)
		return nil, nil
	}
	row := rows[0]
	if row[0] != "BASE TABLE" {
		c.wrong("create a table with the output of: "+c.ddl(), "%s is not a table", t.name)
		return nil, nil
	}
	if row[2] != "YES" {
		c.wrong("ALTER TABLE "+t.quoted+" ENGINE = InnoDB",
			"table %s has the engine %s, which knows no transactions", t.name, row[1])
	}
	f := &found{types: map[string]string{}}
	rows, err = c.rows(ctx, "SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS", where)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		f.types[strings.ToLower(row[0])] = strings.ToLower(row[1])
	}
	rows, err = c.rows(ctx, "SELECT COLUMN_NAME FROM information_schema.STATISTICS", where,
		" AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX")
	if err != nil {
		return nil, err
	}
	var key []string
	for _, row := range rows {
		key = append(key, strings.ToLower(row[0]))
	}
	f.key = strings.Join(key, ", ")
	for _, right := range t.rights {
		may, err := c.mysqlMay(ctx, right, t.quoted)
		if err != nil {
			return nil, err
		}
		if !may {
			f.lacks = append(f.lacks, right)
		}
	}
	return f, nil
}

// mysqlMay reports whether the user has a right on a table. There is no function for this, so it asks for the
// plan of a statement that needs the right and would do nothing.
func (c *checker) mysqlMay(ctx context.Context, right, table string) (bool, error) {
	statement := map[string]string{
		"SELECT": "SELECT seq FROM " + table,
		"INSERT": "INSERT INTO " + table + " SELECT * FROM " + table,
		"UPDATE": "UPDATE " + table + " SET id = ''",
		"DELETE": "DELETE FROM " + table,
	}[right]
	_, err := c.rows(ctx, "EXPLAIN "+statement+" WHERE 1 = 0")
	if server, ok := errors.AsType[*mysql.MySQLError](err); ok {
		switch server.Number {
		case 1044, 1142, 1143: // access denied to a database, table or column
			return false, nil
		}
	}
	return true, err
}
