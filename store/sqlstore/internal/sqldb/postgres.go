package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	// connectLimit bounds making a connection.
	connectLimit    = 2 * time.Second
	defaultMaxConns = 20
	// spareConns is how many connections there are at least beside the writers'.
	spareConns = 3
)

// openPostgres prepares the pools and a writer for each kind of group.
func (db *DB) openPostgres(o Options) error {
	config, err := pgx.ParseConfig(o.URL)
	if err != nil {
		// pgx masks the password in its own message.
		return fmt.Errorf("parse database URL: %w", err)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectLimit
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "dispatcher"
	}
	db.Dialect = postgresDialect()
	writers := 0
	for _, k := range o.Kinds {
		writers += k.Parallel
	}
	conns := o.MaxConns
	if conns <= 0 {
		conns = defaultMaxConns
	}
	conns = max(conns, writers+spareConns)
	db.Groups = openPool(config, writers, db.era.options(byID)...)
	db.Pool = openPool(config, conns-writers, db.era.options(letGo)...)
	db.Reads = db.Pool
	db.migrate = func() (*sql.DB, error) { return stdlib.OpenDB(*config), nil }
	for _, k := range o.Kinds {
		db.writers[k.Name] = db.addWriter(k.Name, k.Parallel)
	}
	return nil
}

// openPool makes a pool that keeps its connections while they are used now and then.
func openPool(config *pgx.ConnConfig, conns int, options ...stdlib.OptionOpenDB) *sql.DB {
	pool := stdlib.OpenDB(*config, options...)
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	return pool
}

// letGo has the server end a session that does nothing within a transaction: a process that was stopped
// there, or its machine, would hold the locks of its rows for as long as it is away, and every group of the
// others that has one of them would wait in vain. Ours go on within milliseconds; 10 s are less than a claim
// lives, so the rows are free when they are claimed again.
func letGo(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "SET idle_in_transaction_session_timeout = '10s'"); err != nil {
		return fmt.Errorf("set idle_in_transaction_session_timeout: %w", err)
	}
	return nil
}

// byID has a connection of a group writer find rows by their ids. All that it runs does; but plans are made
// once, often while the tables are nearly empty, and a scan of the whole table that was cheapest then would
// be kept until statistics change.
func byID(ctx context.Context, conn *pgx.Conn) error {
	if err := letGo(ctx, conn); err != nil {
		return err
	}
	for _, path := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin"} {
		if _, err := conn.Exec(ctx, "SET "+path+" = off"); err != nil {
			return fmt.Errorf("set %s: %w", path, err)
		}
	}
	return nil
}

// ByIndex makes the statements after it in this transaction find their rows by indexes. It is for purges:
// where rows come and go by the thousand a second, PostgreSQL's statistics are out of date, and a plan that
// is made from them may read and sort a whole table for each batch. On SQLite, whose plans do not depend on
// statistics, it does nothing.
func (t *Tx) ByIndex() error {
	if t.lite != nil {
		return nil
	}
	return t.Later(`SELECT set_config(name, 'off', true) FROM pg_settings
		WHERE name IN ('enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin')`)
}

// An era is the time in which connections to PostgreSQL may be used again. It ends when one of them turns out
// to be read-only: its server has become a standby, or the setting was given for new sessions. A session
// keeps that for as long as it lives; one that is opened anew may meet a server, or a setting, that lets it
// write.
type era struct {
	number atomic.Int64
	// began is when it did, in Unix nanoseconds.
	began atomic.Int64
}

// eraLength is the least that an era lasts: while no session can write, reads must not open a connection
// each.
const eraLength = time.Second

// eraKey is where a connection carries the era that it was opened in.
const eraKey = "dispatcher.era"

// end makes every connection that is open now be closed when it is next wanted.
func (e *era) end() {
	began, now := e.began.Load(), time.Now().UnixNano()
	if now-began >= eraLength.Nanoseconds() && e.began.CompareAndSwap(began, now) {
		e.number.Add(1)
	}
}

// options have connections know their era, and prepare them.
func (e *era) options(prepare func(context.Context, *pgx.Conn) error) []stdlib.OptionOpenDB {
	return []stdlib.OptionOpenDB{
		stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
			conn.PgConn().CustomData()[eraKey] = e.number.Load()
			return prepare(ctx, conn)
		}),
		stdlib.OptionResetSession(func(_ context.Context, conn *pgx.Conn) error {
			if conn.PgConn().CustomData()[eraKey] != e.number.Load() {
				return driver.ErrBadConn // the pool closes it and takes another
			}
			return nil
		}),
	}
}
