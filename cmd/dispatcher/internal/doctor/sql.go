package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/migrations"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
)

// sqlFacts are the facts of the database.
type sqlFacts struct {
	err error
	// absent: the SQLite file does not exist.
	absent  bool
	version string
	number  int // PostgreSQL's server_version_num

	// Only with PostgreSQL.
	settings                                     map[string]string
	standby, mayCreate                           bool
	schema                                       string
	maxConns, reservedConns, usedConns, ownConns int
	roleConns, databaseConns                     int // limits; negative: none
	ahead, precision                             time.Duration

	// Only with SQLite.
	journal string
	damage  string // the result of quick_check; "ok": no damage
	size    int64
	// checkErr is why quick_check did not finish.
	checkErr error

	// applied are the hashes of the applied migrations; empty: the database was never migrated.
	applied map[int64]string
	meta    *store.IndexMeta
	sealed  []store.SealedRow
	// readErr is why the tables could not be read.
	readErr error
}

// readSQL queries the database.
func readSQL(ctx context.Context, s *config.Settings) sqlFacts {
	var f sqlFacts
	driver, name := "pgx", s.DatabaseURL
	if !s.Postgres() {
		driver = "sqlite"
		name, f.err = f.findSQLite(s.SQLitePath())
		if f.err != nil {
			f.absent = errors.Is(f.err, fs.ErrNotExist)
			return f
		}
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		f.err = err
		return f
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		f.err = err
		return f
	}
	defer conn.Close()
	if s.Postgres() {
		f.err = f.readPostgres(ctx, conn)
	} else {
		f.err = f.readSQLite(ctx, conn)
	}
	if f.err == nil {
		f.readErr = f.readTables(ctx, conn, s)
	}
	return f
}

// findSQLite returns the name that opens the SQLite file read-only. It reads the journal mode from the file's
// header.
func (f *sqlFacts) findSQLite(path string) (name string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	header := make([]byte, 20)
	n, err := file.ReadAt(header, 0)
	err = errors.Join(file.Close(), err)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	f.journal = "rollback"
	// SQLite file format: bytes 18 and 19 are the write and read versions.
	if n == len(header) && header[18] == 2 && header[19] == 2 {
		f.journal = "wal"
	}
	name = "file:" + (&url.URL{Path: path}).EscapedPath() +
		"?mode=ro&_pragma=busy_timeout(2000)&_pragma=query_only(1)"
	if isMissing(path + "-wal") {
		// No process has the file open, and no WAL must be read. immutable=1 stops SQLite from creating its
		// -shm file.
		name += "&immutable=1"
	}
	return name, nil
}

// readPostgres reads settings, connections and the clock. It asks for the clock three times and uses the
// answer with the shortest round trip, whose half is the precision.
func (f *sqlFacts) readPostgres(ctx context.Context, conn *sql.Conn) error {
	f.settings = map[string]string{}
	for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit",
		"default_transaction_read_only"} {
		var value string
		if err := conn.QueryRowContext(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return fmt.Errorf("read the setting %s: %w", name, err)
		}
		f.settings[name] = value
	}
	var schema sql.NullString
	var used sql.NullInt64
	err := conn.QueryRowContext(ctx,
		`SELECT current_setting('server_version'), CAST(current_setting('server_version_num') AS integer),
			pg_is_in_recovery(), current_schema(),
			coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),
			CAST(current_setting('max_connections') AS integer),
			CAST(current_setting('superuser_reserved_connections') AS integer),
			(SELECT CAST(sum(numbackends) AS bigint) FROM pg_stat_database),
			(SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dispatcher'),
			(SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user),
			(SELECT datconnlimit FROM pg_database WHERE datname = current_database())`).
		Scan(&f.version, &f.number, &f.standby, &schema, &f.mayCreate, &f.maxConns, &f.reservedConns, &used,
			&f.ownConns, &f.roleConns, &f.databaseConns)
	if err != nil {
		return fmt.Errorf("query PostgreSQL's state: %w", err)
	}
	f.schema, f.usedConns = schema.String, int(used.Int64)
	for try := range 3 {
		var at time.Time
		sent := time.Now()
		if err := conn.QueryRowContext(ctx, "SELECT clock_timestamp()").Scan(&at); err != nil {
			return fmt.Errorf("query PostgreSQL's clock: %w", err)
		}
		if trip := time.Since(sent); try == 0 || trip/2 < f.precision {
			f.ahead, f.precision = at.Sub(sent.Add(trip/2)), trip/2
		}
	}
	return nil
}

// readSQLite reads version and size, and runs quick_check as far as the time allows.
func (f *sqlFacts) readSQLite(ctx context.Context, conn *sql.Conn) error {
	if err := conn.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&f.version); err != nil {
		return fmt.Errorf("open the file: %w", err)
	}
	if err := conn.QueryRowContext(ctx, "SELECT page_count * page_size FROM pragma_page_count(), "+
		"pragma_page_size()").Scan(&f.size); err != nil {
		return fmt.Errorf("read the size: %w", err)
	}
	// quick_check of a large file takes too long. Leave 2/5 of the time for reading the tables.
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(queryTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Until(deadline)*3/5)
	defer cancel()
	f.checkErr = conn.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&f.damage)
	return nil
}

// readTables reads the program's tables, as far as they exist.
func (f *sqlFacts) readTables(ctx context.Context, conn *sql.Conn, s *config.Settings) error {
	var err error
	f.applied, err = sqlstore.AppliedMigrations(ctx, conn, s.Engine())
	if err != nil || len(f.applied) == 0 {
		return err
	}
	known, _, err := migrations.For(s.Engine())
	if err == nil {
		err = sqlstore.CheckSchema(known, f.applied)
	}
	if err != nil {
		return err
	}
	var m store.IndexMeta
	err = conn.QueryRowContext(ctx, "SELECT generation, built, shards, prefix FROM index_meta WHERE id = 1").
		Scan(&m.Generation, &m.Built, &m.Shards, &m.Prefix)
	if err == nil {
		f.meta = &m
	} else if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	f.sealed, err = sqlstore.ReadSealedKeys(ctx, conn, time.Now().UnixMilli())
	return err
}

// checkDatabase checks that the database can be opened, and its version.
func checkDatabase(f *facts) diagnosis {
	err := f.sql.err
	switch {
	case f.Postgres() && err != nil:
		return fails(cureOfPostgres(err)+"; until then requests get 503",
			"PostgreSQL cannot be used: %s", err)
	case f.Postgres() && f.sql.number < 150000:
		return warns("upgrade to PostgreSQL 15 or newer; older versions are not tested", "PostgreSQL %s",
			f.sql.version)
	case f.Postgres():
		return fine("PostgreSQL %s", f.sql.version)
	case f.sql.absent:
		return warns("nothing before the first start, which creates it; otherwise fix data_dir or "+
			"database_url", "%s does not exist", f.SQLitePath())
	case err != nil:
		return fails("fix its permissions or path; if it is damaged, stop the server and restore a backup",
			"SQLite cannot open %s: %s", f.SQLitePath(), err)
	}
	return fine("SQLite %s, %s, %s", f.sql.version, f.SQLitePath(), console.SizeText(uint64(f.sql.size)))
}

// cureOfPostgres returns what to do about a connection error, by its SQLSTATE: the server may be down, or be
// healthy and refuse the connection.
func cureOfPostgres(err error) string {
	pg, _ := errors.AsType[*pgconn.PgError](err)
	switch {
	case pg == nil:
		return "start PostgreSQL, or fix host, port and sslmode in database_url"
	case pg.Code == "53300":
		return "the server has no free connections: close some, lower database_max_conns, " +
			"or raise max_connections (or the limit of the role or the database)"
	case pg.Code == "57P03":
		return "wait: the server is starting, stopping or recovering"
	case pg.Code == "3D000":
		return "fix the database name in database_url, or create the database"
	case strings.HasPrefix(pg.Code, "28"):
		return "fix user and password in database_url, or the server's pg_hba.conf"
	case pg.Code == "42501":
		return "grant the missing privilege to the role of database_url"
	}
	return "fix what the server reports"
}

// checkDurability checks that a commit survives a crash and a power failure. Accepted callbacks depend on it.
func checkDurability(f *facts) (d diagnosis) {
	set := f.sql.settings
	found := fmt.Sprintf("fsync %s, synchronous_commit %s, full_page_writes %s", set["fsync"],
		set["synchronous_commit"], set["full_page_writes"])
	switch {
	case f.sql.err != nil:
		return d
	case !f.Postgres() && f.sql.journal == "wal":
		return fine("journal mode wal; serve commits with synchronous FULL")
	case !f.Postgres():
		return warns("nothing: serve switches the file to wal when it opens it",
			"journal mode %s", f.sql.journal)
	case set["fsync"] != "on":
		return fails("set fsync = on in postgresql.conf; otherwise a power failure can lose accepted "+
			"callbacks or the whole database", "%s", found)
	case set["synchronous_commit"] == "off":
		return fails("set synchronous_commit = on for the server, or for this role (ALTER ROLE … SET); "+
			"otherwise a crash loses callbacks that were just accepted", "%s", found)
	case set["full_page_writes"] != "on":
		return warns("set full_page_writes = on, unless the file system writes pages atomically", "%s", found)
	}
	return fine("%s", found)
}

// checkWrites checks that PostgreSQL accepts writes: a standby or read-only transactions refuse them.
func checkWrites(facts *facts) (d diagnosis) {
	f := &facts.sql
	switch {
	case !facts.Postgres() || f.err != nil:
		return d
	case f.standby:
		return fails("put the primary into database_url, or promote this server",
			"the server is a read-only standby")
	case f.settings["default_transaction_read_only"] == "on":
		return fails("set default_transaction_read_only = off for the server, the database and the role",
			"transactions are read-only by default")
	case f.schema == "":
		return fails("create a schema of search_path, or set search_path in database_url",
			"no schema in search_path exists")
	}
	return fine("schema %s, writable", f.schema)
}

// checkConns compares the connections of one process with those that the server has left. Connections of a
// running dispatcher count as free, because it may be the process that these settings are for.
func checkConns(s *facts) (d diagnosis) {
	f := &s.sql
	if !s.Postgres() || f.err != nil {
		return d
	}
	const extra = 2 // not from the pool: the lock of an embedded index, migrations
	most := f.maxConns - f.reservedConns
	for _, limit := range []int{f.roleConns, f.databaseConns} {
		if limit >= 0 {
			most = min(most, limit)
		}
	}
	need := s.DatabaseMaxConns + extra
	found := fmt.Sprintf("%d in total, %d used, %d of them by dispatchers; a process needs up to %d",
		most, f.usedConns, f.ownConns, need)
	switch {
	case need > most:
		return fails("raise max_connections (and the limits of the role and the database), or lower "+
			"database_max_conns", "%s", found)
	case most-f.usedConns+f.ownConns < need:
		return warns("raise max_connections or lower database_max_conns; otherwise bursts wait for "+
			"connections", "%s", found)
	}
	return fine("%s", found)
}

// checkIntegrity reports damage of the SQLite file. A file that is too large for a check in time is fine.
func checkIntegrity(f *facts) (d diagnosis) {
	const cure = "stop the server, keep the file, and restore a backup"
	switch err := f.sql.checkErr; {
	case f.Postgres() || f.sql.err != nil:
		return d
	case err != nil && (errors.Is(err, context.DeadlineExceeded) ||
		strings.Contains(err.Error(), "interrupt")):
		return fine("too large to check in %s; run PRAGMA quick_check on a copy", queryTimeout)
	case err != nil:
		return fails(cure, "quick_check: %s", err)
	case f.sql.damage != "ok":
		return fails(cure, "quick_check: %s", f.sql.damage)
	}
	return fine("quick_check found no damage")
}

// checkMigrations compares the applied migrations with those of this version. A newer schema is only a
// warning: during an upgrade, old processes keep running on it.
func checkMigrations(s *facts) (d diagnosis) {
	f := &s.sql
	if f.err != nil {
		return d
	}
	known, _, err := migrations.For(s.Engine())
	if err == nil {
		err = f.readErr
	}
	if errors.Is(err, sqlstore.ErrOtherSchema) {
		return fails("run the version of dispatcher that created the database, or use an empty database",
			"the schema is from another version of dispatcher")
	}
	if err != nil {
		return fails("grant the role access to the tables, or fix the schema",
			"the tables cannot be read: %s", err)
	}
	pending := 0
	for _, m := range known {
		if _, applied := f.applied[m.Version]; !applied {
			pending++
		}
	}
	newer := len(f.applied) - (len(known) - pending)
	switch {
	case pending > 0 && !s.Migrate:
		return fails(`run "dispatcher migrate", or serve without --migrate=false`, "%d of %d are not applied",
			pending, len(known))
	case pending > 0 && s.Postgres() && !f.mayCreate:
		return fails("let the role create tables (GRANT CREATE ON SCHEMA), or run \"dispatcher migrate\" "+
			"with another role",
			"%d of %d are not applied, and the role cannot create tables", pending, len(known))
	case pending > 0:
		return warns("nothing: serve applies them when it starts",
			"%d of %d are not applied", pending, len(known))
	case newer > 0:
		return warns("nothing during an upgrade: a newer schema works with this version",
			"all applied, and %d of a newer version", newer)
	}
	return fine("all %d applied", len(known))
}
