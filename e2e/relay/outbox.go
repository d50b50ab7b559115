package relay

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A database is a kind of server that applications keep their data on.
type database struct {
	name, dialect string
	// shared returns the server of all trials that do not disturb it. own starts a server for one trial.
	shared func(testing.TB) server
	own    func(tb testing.TB, settings ...string) server
	// process is the name of the server's processes.
	process string
	// createUser creates the user of the relay, unless the server has it.
	createUser string
	relayUser  *url.Userinfo
	// orders is the statement that creates the table of orders.
	orders string
	// endSession is a statement that ends its own session.
	endSession string
}

// A server is a database server that a test can break.
type server interface {
	Database(testing.TB) string
	Exec(context.Context, string) error
	Kill() error
	SetClock(testing.TB, time.Duration)
	Start(testing.TB)
}

// The databases of applications.
var (
	postgres = &database{
		name: "postgres", dialect: "postgres", process: "postgres",
		shared: func(tb testing.TB) server { return testserver.SharedPostgres(tb) },
		own: func(tb testing.TB, settings ...string) server {
			return testserver.NewPostgres(tb, append([]string{"-c", "fsync=off"}, settings...)...)
		},
		createUser: `DO $$ BEGIN CREATE ROLE relay LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation
			THEN NULL; END $$`,
		orders:    `CREATE TABLE orders (id TEXT NOT NULL PRIMARY KEY)`,
		relayUser: url.User("relay"), endSession: `SELECT pg_terminate_backend(pg_backend_pid())`,
	}
	mariadb = &database{
		name: "mariadb", dialect: "mysql", process: "mariadbd",
		shared: func(tb testing.TB) server { return testserver.SharedMariaDB(tb) },
		own: func(tb testing.TB, settings ...string) server {
			// A commit is written to the system's cache, so it survives the end of the process.
			return testserver.NewMariaDB(tb, append([]string{"--innodb-flush-log-at-trx-commit=2"},
				settings...)...)
		},
		createUser: `CREATE USER IF NOT EXISTS relay@'127.0.0.1' IDENTIFIED BY 'relay-secret'`,
		orders: `CREATE TABLE orders (
			id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY)`,
		relayUser: url.UserPassword("relay", "relay-secret"), endSession: `KILL CONNECTION_ID()`,
	}
	both = []*database{postgres, mariadb}
)

// relayRights are all rights of the relay's user. The tables exist.
var relayRights = []string{
	"SELECT, DELETE ON dispatcher_outbox",
	"SELECT, INSERT, UPDATE, DELETE ON dispatcher_outbox_refused",
	"SELECT, INSERT, DELETE ON dispatcher_outbox_done",
}

// relayName is the user of the relay in statements.
func (d *database) relayName() string {
	if d == mariadb {
		return "relay@'127.0.0.1'"
	}
	return "relay"
}

// An outbox is the database of an application: its orders, and the outbox table that it writes in the same
// transactions. The table orders is the ledger: a row in it is a committed row of the outbox.
type outbox struct {
	tr     *trial
	on     *database
	server server
	name   string // of the source
	url    string // for the application
	dsn    string // for the relay
	db     *sql.DB
	// settings are those of the source beside its name and DSN.
	settings harness.Submission
}

// newOutbox creates an empty outbox on a server.
func (tr *trial) newOutbox(name string, on *database, s server) *outbox {
	tr.Helper()
	o := &outbox{tr: tr, on: on, server: s, name: name, url: s.Database(tr),
		settings: harness.Submission{"poll": pollEvery.String(), "batch": page, "keep": "1h"}}
	o.db = testserver.DB(tr, o.url)
	o.db.SetMaxIdleConns(16)
	u, err := url.Parse(o.url)
	tr.Check(err)
	u.User = on.relayUser
	o.dsn = u.String()
	o.exec(on.orders)
	o.exec(tr.ddl(on))
	o.exec(on.createUser)
	for _, right := range relayRights {
		o.exec("GRANT " + right + " TO " + on.relayName())
	}
	tr.sources = append(tr.sources, o)
	return o
}

// ddl returns the statements that create the tables of an outbox, as the program prints them.
func (tr *trial) ddl(on *database) string {
	tr.Helper()
	made := harness.Command(tr, time.Minute, nil, "relay", "ddl", "--dialect", on.dialect, "--keep")
	if made.Code != 0 {
		tr.Fatalf("relay ddl ended with %d: %s", made.Code, made.Stderr)
	}
	return made.Stdout
}

// exec runs a statement as the owner of the database.
func (o *outbox) exec(statement string) {
	o.tr.Helper()
	if _, err := o.db.ExecContext(context.Background(), statement); err != nil {
		o.tr.Fatalf("%.300s: %v", statement, err)
	}
}

// count reads one number.
func (o *outbox) count(query string) (n int) {
	o.tr.Helper()
	if err := o.db.QueryRowContext(context.Background(), query).Scan(&n); err != nil {
		o.tr.Fatalf("%s: %v", query, err)
	}
	return n
}

// waiting returns the number of committed rows that the relay has not removed.
func (o *outbox) waiting() int {
	o.tr.Helper()
	return o.count(`SELECT count(*) FROM dispatcher_outbox`)
}

// refused returns the number of refused rows with a code.
func (o *outbox) refused(code string) int {
	o.tr.Helper()
	return o.count(`SELECT count(*) FROM dispatcher_outbox_refused WHERE code = '` + code + `'`)
}

// A row is a row of an outbox table. Empty kind and nil body are those of the table's defaults.
type row struct {
	id, kind, request string
	body              []byte
}

// orderRow makes the row of an order. Rows with an even number have their payload in the column body, the
// others in the request.
func (tr *trial) orderRow(kind, ref string, even bool) row {
	s := tr.Callback(kind, ref)
	delete(s, "idempotency_key")
	r := row{id: ref}
	if even {
		delete(s, "payload")
		s["content_type"], r.body = "application/json", harness.Payload(ref)
	}
	request, err := json.Marshal(s)
	tr.Check(err)
	r.request = string(request)
	return r
}

// plain makes the row of order number i.
func (o *outbox) plain(i int) row {
	return o.tr.orderRow("plain", fmt.Sprintf("%s-%d", o.name, i), i%2 == 0)
}

// An execer runs a statement in a transaction or on a connection.
type execer interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}

// insert adds rows to a table of the outbox with one statement.
func (d *database) insert(ctx context.Context, to execer, table string, rows ...row) error {
	var text strings.Builder
	text.WriteString(`INSERT INTO ` + table + ` (id, kind, request, body) VALUES `)
	args := make([]any, 0, 4*len(rows))
	for i, r := range rows {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString(d.places(len(args), 4))
		if r.kind == "" {
			r.kind = "callback"
		}
		args = append(args, r.id, r.kind, r.request, r.body)
	}
	_, err := to.ExecContext(ctx, text.String(), args...)
	return err
}

// places returns n placeholders in parentheses, after the first `before` ones of the statement.
func (d *database) places(before, n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = "?"
		if d == postgres {
			names[i] = fmt.Sprint("$", before+i+1)
		}
	}
	return "(" + strings.Join(names, ", ") + ")"
}

// business does a business transaction: the orders and their rows in the outbox. The caller commits it.
func (d *database) business(ctx context.Context, to execer, rows ...row) error {
	var text strings.Builder
	text.WriteString(`INSERT INTO orders (id) VALUES `)
	var args []any
	for i, r := range rows {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString(d.places(i, 1))
		args = append(args, r.id)
	}
	if _, err := to.ExecContext(ctx, text.String(), args...); err != nil {
		return err
	}
	return d.insert(ctx, to, "dispatcher_outbox", rows...)
}

// try commits a business transaction, and returns its error.
func (o *outbox) try(ctx context.Context, rows ...row) error {
	tx, err := o.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := o.on.business(ctx, tx, rows...); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// commit commits a business transaction.
func (o *outbox) commit(rows ...row) {
	o.tr.Helper()
	if err := o.try(context.Background(), rows...); err != nil {
		o.tr.Fatalf("a business transaction: %v", err)
	}
}

// bare inserts rows that belong to no order, because the dispatcher must refuse them.
func (o *outbox) bare(rows ...row) {
	o.tr.Helper()
	if err := o.on.insert(context.Background(), o.db, "dispatcher_outbox", rows...); err != nil {
		o.tr.Fatalf("insert into the outbox: %v", err)
	}
}

// fill commits the orders first to end-1, at most 500 in a transaction.
func (o *outbox) fill(first, end int) {
	o.tr.Helper()
	o.fillWith(first, end, o.plain)
}

func (o *outbox) fillWith(first, end int, shape func(int) row) {
	o.tr.Helper()
	for first < end {
		var rows []row
		for ; first < end && len(rows) < 500; first++ {
			rows = append(rows, shape(first))
		}
		o.commit(rows...)
	}
}

// open begins a business transaction and returns it before its commit.
func (o *outbox) open(rows ...row) *sql.Tx {
	o.tr.Helper()
	tx, err := o.db.BeginTx(context.Background(), nil)
	o.tr.Check(err)
	o.tr.Cleanup(func() { tx.Rollback() }) // fails after a commit
	o.tr.Check(o.on.business(context.Background(), tx, rows...))
	return tx
}

// drained waits until the relay has removed all rows.
func (o *outbox) drained(limit time.Duration) {
	o.tr.Helper()
	o.tr.Eventually(limit, "the outbox "+o.name+" is empty", func() error {
		if n := o.waiting(); n > 0 {
			return fmt.Errorf("%d rows wait", n)
		}
		return nil
	})
}

// A load commits orders at a rate until its end, as an application does.
type load struct {
	took []time.Duration // of each business transaction
	stop func()
	next int
}

// load starts to commit orders from number first on, one a transaction.
func (o *outbox) load(first, rate int) *load {
	l := &load{next: first}
	started := time.Now()
	ctx := context.Background()
	l.stop = o.tr.Repeat(2*time.Millisecond, func(int) {
		for due := first + int(time.Since(started).Seconds()*float64(rate)); l.next < due; l.next++ {
			began := time.Now()
			if err := o.try(ctx, o.plain(l.next)); err != nil {
				o.tr.Errorf("a business transaction: %v", err)
				return
			}
			l.took = append(l.took, time.Since(began))
		}
	})
	return l
}

// end ends the load and returns the durations of its transactions.
func (l *load) end() []time.Duration {
	l.stop()
	return l.took
}
