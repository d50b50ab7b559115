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

// sqlFacts are what doctor learned of the database.
type sqlFacts struct {
	err error
	// absent: SQLite's file is not there yet.
	absent  bool
	version string
	number  int // PostgreSQL's server_version_num

	// Of PostgreSQL.
	settings                                  map[string]string
	standby, mayCreate                        bool
	schema                                    string
	mostConns, keptConns, usedConns, ownConns int
	roleConns, databaseConns                  int // limits; negative: none
	ahead, precision                          time.Duration

	// Of SQLite.
	journal string
	damage  string // what quick_check said; "ok": nothing
	size    int64
	// checkErr is why quick_check did not end.
	checkErr error

	// applied are the hashes of the migrations that the database has; none: it was never migrated.
	applied map[int64]string
	meta    *store.IndexMeta
	sealed  []store.SealedRow
	// readErr is why the tables could not be read.
	readErr error
}

// readSQL asks the database.
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

// findSQLite returns how the file is opened to be read only, and takes the journal mode from its header.
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
	// SQLite's file format: the versions for writers and readers
	if n == len(header) && header[18] == 2 && header[19] == 2 {
		f.journal = "wal"
	}
	name = "file:" + (&url.URL{Path: path}).EscapedPath() +
		"?mode=ro&_pragma=busy_timeout(2000)&_pragma=query_only(1)"
	if isMissing(path + "-wal") {
		// Nobody has it open, and nothing waits to be read beside it: it is read without making the files for
		// sharing it.
		name += "&immutable=1"
	}
	return name, nil
}

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
			pg_is_in_recovery(), current_schema(), coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),
			CAST(current_setting('max_connections') AS integer), CAST(current_setting('superuser_reserved_connections') AS integer),
			(SELECT CAST(sum(numbackends) AS bigint) FROM pg_stat_database),
			(SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dispatcher'),
			(SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user),
			(SELECT datconnlimit FROM pg_database WHERE datname = current_database())`).
		Scan(&f.version, &f.number, &f.standby, &schema, &f.mayCreate, &f.mostConns, &f.keptConns, &used,
			&f.ownConns, &f.roleConns, &f.databaseConns)
	if err != nil {
		return fmt.Errorf("ask PostgreSQL about itself: %w", err)
	}
	f.schema, f.usedConns = schema.String, int(used.Int64)
	for try := range 3 {
		var at time.Time
		sent := time.Now()
		if err := conn.QueryRowContext(ctx, "SELECT clock_timestamp()").Scan(&at); err != nil {
			return fmt.Errorf("ask PostgreSQL for its clock: %w", err)
		}
		if trip := time.Since(sent); try == 0 || trip/2 < f.precision {
			f.ahead, f.precision = at.Sub(sent.Add(trip/2)), trip/2
		}
	}
	return nil
}

func (f *sqlFacts) readSQLite(ctx context.Context, conn *sql.Conn) error {
	if err := conn.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&f.version); err != nil {
		return fmt.Errorf("open the file: %w", err)
	}
	if err := conn.QueryRowContext(ctx, "SELECT page_count * page_size FROM pragma_page_count(), "+
		"pragma_page_size()").Scan(&f.size); err != nil {
		return fmt.Errorf("read the size: %w", err)
	}
	// A large file takes longer than anybody waits; what is left of the time is for the tables.
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(doctorPatience)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Until(deadline)*3/5)
	defer cancel()
	f.checkErr = conn.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&f.damage)
	return nil
}

// readTables reads what the program keeps in the database, as far as it is there.
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

func judgeDatabase(f *facts) diagnosis {
	err := f.sql.err
	switch {
	case f.Postgres() && err != nil:
		return fails(cureOfPostgres(err)+"; until then nothing is accepted (503)",
			"PostgreSQL cannot be used: %s", err)
	case f.Postgres() && f.sql.number < 150000:
		return warns("upgrade to PostgreSQL 15 or newer, which the tests run on", "PostgreSQL %s",
			f.sql.version)
	case f.Postgres():
		return fine("PostgreSQL %s", f.sql.version)
	case f.sql.absent:
		return warns("none needed if this is the first start: serve makes it; otherwise mend data_dir or "+
			"database_url", "%s is not there", f.SQLitePath())
	case err != nil:
		return fails("mend its rights or its path; if it is damaged, stop the server and restore a backup",
			"SQLite cannot open %s: %s", f.SQLitePath(), err)
	}
	return fine("SQLite %s, %s, %s", f.sql.version, f.SQLitePath(), console.SizeText(uint64(f.sql.size)))
}

// cureOfPostgres tells a server that is down from one that is well and refuses us, by the code that it says.
func cureOfPostgres(err error) string {
	pg, _ := errors.AsType[*pgconn.PgError](err)
	switch {
	case pg == nil:
		return "start PostgreSQL, or mend database_url: host, port, sslmode"
	case pg.Code == "53300":
		return "the server is well and out of connections: end some, lower database_max_conns of the " +
			"processes, or raise max_connections (or the limit of the role or the database)"
	case pg.Code == "57P03":
		return "wait: the server starts, stops, or replays its log"
	case pg.Code == "3D000":
		return "mend the name of the database in database_url, or create it"
	case strings.HasPrefix(pg.Code, "28"):
		return "mend user and password in database_url, or the server's pg_hba.conf"
	case pg.Code == "42501":
		return "grant the role of database_url what it lacks"
	}
	return "mend what the server says"
}

func judgeDurability(f *facts) (d diagnosis) {
	set := f.sql.settings
	found := fmt.Sprintf("fsync %s, synchronous_commit %s, full_page_writes %s", set["fsync"],
		set["synchronous_commit"], set["full_page_writes"])
	switch {
	case f.sql.err != nil:
		return d
	case !f.Postgres() && f.sql.journal == "wal":
		return fine("journal mode wal; the server commits with synchronous FULL")
	case !f.Postgres():
		return warns("none needed: serve turns the file to wal when it opens it", "journal mode %s",
			f.sql.journal)
	case set["fsync"] != "on":
		return fails("set fsync = on in postgresql.conf: without it a power cut loses accepted callbacks, "+
			"or the whole database", "%s", found)
	case set["synchronous_commit"] == "off":
		return fails("set synchronous_commit = on for the server, or for this role (ALTER ROLE … SET): "+
			"without it a crash loses what was just accepted", "%s", found)
	case set["full_page_writes"] != "on":
		return warns("set full_page_writes = on unless the file system never tears a page", "%s", found)
	}
	return fine("%s", found)
}

func judgeWrites(facts *facts) (d diagnosis) {
	f := &facts.sql
	switch {
	case !facts.Postgres() || f.err != nil:
		return d
	case f.standby:
		return fails("name the primary in database_url, or promote this server",
			"the server is a standby: it takes no writes")
	case f.settings["default_transaction_read_only"] == "on":
		return fails("set default_transaction_read_only = off for the server, the database and the role",
			"transactions are read-only by default")
	case f.schema == "":
		return fails("make a schema that search_path names, or set search_path in database_url",
			"no schema of search_path exists")
	}
	return fine("schema %s, transactions may write", f.schema)
}

// judgeConns compares what a process opens with what the server has. A server of ours that runs already
// counts as this one.
func judgeConns(s *facts) (d diagnosis) {
	f := &s.sql
	if !s.Postgres() || f.err != nil {
		return d
	}
	const beside = 2 // beside the pool: the lock of an embedded index, migrations
	most := f.mostConns - f.keptConns
	for _, limit := range []int{f.roleConns, f.databaseConns} {
		if limit >= 0 {
			most = min(most, limit)
		}
	}
	need := s.DatabaseMaxConns + beside
	found := fmt.Sprintf("%d for everybody, %d used, %d of them by dispatchers; a process takes up to %d",
		most, f.usedConns, f.ownConns, need)
	switch {
	case need > most:
		return fails("raise max_connections (and the limits of the role and the database), or lower "+
			"database_max_conns", "%s", found)
	case most-f.usedConns+f.ownConns < need:
		return warns("raise max_connections or lower database_max_conns: with so few left, bursts wait for "+
			"connections", "%s", found)
	}
	return fine("%s", found)
}

func judgeIntegrity(f *facts) (d diagnosis) {
	const cure = "stop the server, keep the file, and restore a backup"
	switch err := f.sql.checkErr; {
	case f.Postgres() || f.sql.err != nil:
		return d
	case err != nil && (errors.Is(err, context.DeadlineExceeded) ||
		strings.Contains(err.Error(), "interrupt")):
		return fine("the file is too large to be checked in %s; PRAGMA quick_check on a copy checks it whole",
			doctorPatience)
	case err != nil:
		return fails(cure, "quick_check: %s", err)
	case f.sql.damage != "ok":
		return fails(cure, "quick_check: %s", f.sql.damage)
	}
	return fine("quick_check found nothing")
}

func judgeMigrations(s *facts) (d diagnosis) {
	f := &s.sql
	if f.err != nil {
		return d
	}
	known, _, err := migrations.For(s.Engine())
	if err == nil {
		err = f.readErr
	}
	if errors.Is(err, sqlstore.ErrOtherSchema) {
		return fails("run the version of dispatcher that made the database, or start this one on an empty "+
			"database",
			"the database was made by another version, whose schema differs")
	}
	if err != nil {
		return fails("give the role the right to read its tables, or mend the schema",
			"the program's tables cannot be read: %s", err)
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
			"as one that may", "%d of %d are not applied, and the role may not create tables", pending,
			len(known))
	case pending > 0:
		return warns("none needed: serve applies them at its start", "%d of %d are not applied", pending,
			len(known))
	case newer > 0:
		return warns("none needed during an upgrade: schemas only grow; start the newer program for what "+
			"is new", "all applied, and %d that only a newer program knows", newer)
	}
	return fine("all %d applied", len(known))
}
