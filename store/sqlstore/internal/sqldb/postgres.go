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
	// connectLimit bounds the time to open a connection.
	connectLimit    = 2 * time.Second
	defaultMaxConns = 20
	// spareConns is the lowest number of connections in addition to those of the writers.
	spareConns = 3
)

// openPostgres creates the pools, and a writer for each kind of group. It does not connect.
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
	db.Groups = openPool(config, writers, db.era.options(prepareWriter)...)
	db.Pool = openPool(config, conns-writers, db.era.options(limitIdleTx)...)
	db.Reads = db.Pool
	db.migrate = func() (*sql.DB, error) { return stdlib.OpenDB(*config), nil }
	for _, k := range o.Kinds {
		db.writers[k.Name] = db.addWriter(k.Name, k.Parallel)
	}
	return nil
}

// openPool creates a pool. Idle connections are closed after five minutes.
func openPool(config *pgx.ConnConfig, conns int, options ...stdlib.OptionOpenDB) *sql.DB {
	pool := stdlib.OpenDB(*config, options...)
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	return pool
}

// limitIdleTx makes the server end a session that is idle in a transaction for 10 s. Otherwise a stopped
// process or machine would keep its row locks, and every group of another process with one of these rows
// would fail. Transactions of this program are idle for milliseconds only. 10 s are shorter than a claim, so
// the rows are unlocked before they are claimed again.
func limitIdleTx(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "SET idle_in_transaction_session_timeout = '10s'"); err != nil {
		return fmt.Errorf("set idle_in_transaction_session_timeout: %w", err)
	}
	return nil
}

// prepareWriter makes a connection of a group writer find rows by indexes. All statements of a writer find
// their rows by id. But PostgreSQL plans each statement once, often while the tables are nearly empty. A scan
// of the whole table, the cheapest plan at that time, would stay in use until the statistics change.
func prepareWriter(ctx context.Context, conn *pgx.Conn) error {
	if err := limitIdleTx(ctx, conn); err != nil {
		return err
	}
	for _, path := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin"} {
		if _, err := conn.Exec(ctx, "SET "+path+" = off"); err != nil {
			return fmt.Errorf("set %s: %w", path, err)
		}
	}
	return nil
}

// ByIndex makes the later statements of this transaction find their rows by indexes. Purges need it: with
// thousands of new and removed rows a second, PostgreSQL's statistics are out of date, and a plan based on
// them may read and sort a whole table for each batch. On SQLite it does nothing, because plans there do not
// depend on statistics.
func (t *Tx) ByIndex() error {
	if t.lite != nil {
		return nil
	}
	return t.Later(`SELECT set_config(name, 'off', true) FROM pg_settings
		WHERE name IN ('enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin')`)
}

// An era is a period in which the connections that were opened in it may be reused. The era ends when a
// connection turns out to be read-only: its server has become a standby, or new sessions are read-only by a
// setting. A session stays read-only, so all open connections are replaced. A new connection may reach a
// server that accepts writes.
type era struct {
	number atomic.Int64
	// began is the start of the era in Unix nanoseconds.
	began atomic.Int64
}

// eraLength is the shortest length of an era. Without it, each read would open a new connection while all
// sessions are read-only.
const eraLength = time.Second

// eraKey is the key of the era's number in the custom data of a connection.
const eraKey = "dispatcher.era"

// end begins a new era, so the pools close each older connection when they would reuse it.
func (e *era) end() {
	began, now := e.began.Load(), time.Now().UnixNano()
	if now-began >= eraLength.Nanoseconds() && e.began.CompareAndSwap(began, now) {
		e.number.Add(1)
	}
}

// options returns the options of a pool: they record the era of each new connection and prepare it.
func (e *era) options(prepare func(context.Context, *pgx.Conn) error) []stdlib.OptionOpenDB {
	return []stdlib.OptionOpenDB{
		stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
			conn.PgConn().CustomData()[eraKey] = e.number.Load()
			return prepare(ctx, conn)
		}),
		stdlib.OptionResetSession(func(_ context.Context, conn *pgx.Conn) error {
			if conn.PgConn().CustomData()[eraKey] != e.number.Load() {
				return driver.ErrBadConn // the pool closes it and uses another one
			}
			return nil
		}),
	}
}
