package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// onPostgres are the combinations whose SQL is a server.
var onPostgres = []combination{postgresOnly, full}

// sqlFaults are a database that ends, hangs, is locked, cannot write, or has no room. While it cannot commit nothing is accepted and
// nothing is sent; what was in flight is recorded once it can; and no one has to help.
func sqlFaults() []fault {
	return []fault{
		{id: "F34", title: "PostgreSQL stopped, killed, and a session killed", apart: true, short: []combination{full}, full: onPostgres, run: postgresEnds},
		{id: "F34", title: "sessions ended every second", short: []combination{postgresOnly}, full: onPostgres, run: sessionsEnded},
		{id: "F35", title: "PostgreSQL hangs", short: []combination{full}, full: onPostgres, run: func(l *lab) { postgresHangs(l, 1) }},
		{id: "F35", title: "PostgreSQL hangs for two dispatchers", full: []combination{full}, run: func(l *lab) { postgresHangs(l, 2) }},
		{id: "F35", title: "no connection is let in", full: onPostgres, run: noConnection},
		{id: "F36", title: "table locked by another session", short: []combination{full}, full: onPostgres, run: tableLocked},
		{id: "F37", title: "database read-only", short: []combination{postgresOnly}, full: onPostgres, run: readOnly},
		{id: "F38", title: "PostgreSQL's disk full", apart: true, full: []combination{full}, run: postgresDiskFull},
		{id: "F39", title: "SQLite locked by another process", short: []combination{embedded}, full: []combination{embedded, sqliteRedis}, run: sqliteLocked},
		{id: "F39", title: "SQLite cannot grow", short: []combination{embedded}, full: []combination{embedded, sqliteRedis}, run: sqliteCannotGrow},
		{id: "F39", title: "SQLite's disk full", apart: true, full: []combination{embedded}, run: sqliteDiskFull},
		{id: "F39", title: "killed in the middle of transactions", short: []combination{embedded}, full: []combination{embedded, sqliteRedis}, run: killedInTransactions},
		{id: "F55", title: "log of SQLite cut off", full: []combination{embedded}, run: logCutOff},
	}
}

// ownServer starts a PostgreSQL of the lab's own and puts the lab on it.
func (l *lab) ownServer(pg *testserver.Postgres) {
	l.Helper()
	name := l.on.name
	b := backend{name: name, dataDir: l.TempDir(), prefix: "e2e", postgres: pg.Database(l)}
	if strings.HasSuffix(name, "+redis") {
		b.redis = testserver.StartRedis(l)
	}
	l.use(b)
}

// throughProxy puts a proxy between the program and PostgreSQL; the test goes on to look at it directly.
func (l *lab) throughProxy() *proxy {
	l.Helper()
	l.on.direct = l.on.postgres
	proxy, through := inFrontOf(l, l.on.postgres)
	l.on.postgres = through
	return proxy
}

// databaseName is that of the lab's database.
func (l *lab) databaseName() string {
	l.Helper()
	u, err := url.Parse(l.on.postgres)
	if err != nil {
		l.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

// session is a connection to the server's first database, which no fault here touches.
func (l *lab) session() *sql.DB {
	l.Helper()
	address := l.on.postgres
	if l.on.direct != "" {
		address = l.on.direct
	}
	u, err := url.Parse(address)
	if err != nil {
		l.Fatal(err)
	}
	u.Path = "/postgres"
	db, err := sql.Open("pgx", u.String())
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { db.Close() })
	return db
}

// endSessions ends those of the program on the lab's database, and says how many there were.
func endSessions(ctx context.Context, db *sql.DB, database string) (int, error) {
	var n int
	err := db.QueryRowContext(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()`, database).Scan(&n)
	return n, err
}

// sqlRate is the callbacks a second of the labs that break SQL.
func (l *lab) sqlRate() int { return long(l, 100, 40) }

// underWay starts a process, the load and a watch, and returns when callbacks are sent.
func (l *lab) underWay() (*load, *watch) {
	l.Helper()
	p := l.serve("--workers", "128")
	ld := l.load(l.sqlRate(), l.mixed)
	l.awaitSends(l.sqlRate())
	return ld, l.watch(p)
}

// awaitSends waits until that many more requests have arrived.
func (l *lab) awaitSends(n int) {
	l.Helper()
	from := l.w.count()
	eventually(l, time.Minute, "the load arrives", func() error {
		if got := l.w.count() - from; got < n {
			return fmt.Errorf("%d of %d requests", got, n)
		}
		return nil
	})
}

// conclude ends the load, waits for everything to be terminal, and judges. A fault that the process outlives costs no duplicate: its
// results wait in memory until they can be committed.
func (l *lab) conclude(ld *load, w *watch, began time.Time, b judge.Bounds) judge.Verdict {
	l.Helper()
	l.moderate(w, time.Since(began))
	got := ld.finish()
	l.settle(3 * time.Minute)
	if b.Heal == 0 {
		b.Heal = 2 * time.Minute
	}
	v := l.verdict(b)
	l.remark("accepts took p50 %s, p99 %s; %d requests were made again; unknown %d, stale %d", got.took.P50.Round(time.Millisecond),
		got.took.P99.Round(time.Millisecond), got.again, v.Uncertain, v.Stale)
	return v
}

// postgresEnds ends the whole server at once, then kills it, then one of its sessions, which costs all sessions a second.
func postgresEnds(l *lab) {
	pg := testserver.NewPostgres(l)
	l.ownServer(pg)
	began := time.Now()
	ld, w := l.underWay()
	start := func() error { pg.Start(l); return nil }
	l.blackout(w, "stopped at once", long(l, 20*time.Second, 4*time.Second), pg.Stop, start)
	l.awaitSends(l.sqlRate())
	l.blackout(w, "killed", long(l, 10*time.Second, 4*time.Second), pg.Kill, start)
	l.awaitSends(l.sqlRate())
	for range long(l, 5, 2) {
		l.struck()
		if err := pg.KillBackend(l.Context(), l.databaseName()); err != nil {
			l.Fatal(err)
		}
		l.struck()
		eventually(l, 30*time.Second, "the server has recovered", func() error { return pg.Exec(l.Context(), "SELECT 1") })
		l.awaitSends(l.sqlRate())
	}
	if pg.HasEnded() {
		l.Error("the server has ended with one of its sessions")
	}
	l.conclude(ld, w, began, judge.Bounds{})
}

// sessionsEnded ends every session of ours once a second: no group may be committed twice, nor be given up.
func sessionsEnded(l *lab) {
	began := time.Now()
	ld, w := l.underWay()
	db := l.session()
	ended := 0
	for range long(l, 30, 6) {
		l.struck()
		n, err := endSessions(l.Context(), db, l.databaseName())
		if err != nil {
			l.Fatal(err)
		}
		ended += n
		time.Sleep(time.Second) // the fault's own period
	}
	l.struck()
	if ended == 0 {
		l.Error("there were no sessions to end")
	}
	if err := w.p.awaitReady(30 * time.Second); err != nil {
		l.Error(err)
	}
	l.remark("%d sessions ended; %s", ended, w.during(began, time.Now()))
	l.conclude(ld, w, began, judge.Bounds{})
}

// noConnection lets nobody connect to the database any more, and ends the sessions that there are.
func noConnection(l *lab) {
	began := time.Now()
	ld, w := l.underWay()
	db := l.session()
	let := func(in string) error {
		_, err := db.ExecContext(l.Context(), "ALTER DATABASE "+l.databaseName()+" ALLOW_CONNECTIONS "+in)
		return err
	}
	l.blackout(w, "nobody is let in", 15*time.Second, func() error {
		if err := let("false"); err != nil {
			return err
		}
		_, err := endSessions(l.Context(), db, l.databaseName())
		return err
	}, func() error { return let("true") })
	l.conclude(ld, w, began, judge.Bounds{})
}
