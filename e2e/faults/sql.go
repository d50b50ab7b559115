package faults

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// sqlFaults are a database that ends, hangs, is locked, cannot write, or has no room. While it cannot commit
// nothing is accepted and nothing is sent; what was in flight is recorded once it can; and no one has to
// help.
func sqlFaults() []fault {
	hangs := func(processes int) func(*trial) { return func(tr *trial) { postgresHangs(tr, processes) } }
	return []fault{
		{id: "F34", title: "PostgreSQL stopped, killed, and a session killed", apart: true, on: onlyPostgresRedis,
			run: postgresEnds},
		{id: "F34", title: "sessions ended every second", on: onlyPostgres, run: sessionsEnded},
		{id: "F35", title: "PostgreSQL hangs", quick: true, on: onlyPostgres, run: hangs(1)},
		{id: "F35", title: "PostgreSQL hangs for two dispatchers", quick: true, on: onlyPostgresRedis,
			run: hangs(2)},
		{id: "F36", title: "table locked by another session", on: onlyPostgresRedis, run: lockedOut},
		{id: "F37", title: "database read-only", on: onlyPostgres, run: readOnly},
		{id: "F38", title: "PostgreSQL's disk full", apart: true, on: onlyPostgresRedis, run: postgresDiskFull},
		{id: "F39", title: "SQLite locked by another process", on: onlySQLite, run: lockedOut},
		{id: "F39", title: "SQLite's disk full", apart: true, on: onlySQLite, run: sqliteDiskFull},
		{id: "F55", title: "log of SQLite cut off", on: onlySQLite, run: logCutOff},
	}
}

// ownServer starts a PostgreSQL of the trial's own and puts the trial on it.
func (tr *trial) ownServer(pg *testserver.Postgres) {
	tr.Helper()
	name := tr.Backend.Name
	b := harness.Backend{Name: name, DataDir: tr.TempDir(), Prefix: "e2e", Postgres: pg.Database(tr)}
	if strings.HasSuffix(name, "+redis") {
		b.Redis = testserver.StartRedis(tr)
	}
	tr.UseBackend(b)
}

// throughProxy puts a proxy between the program and PostgreSQL; the test goes on to look at it directly.
func (tr *trial) throughProxy() *harness.Proxy {
	tr.Helper()
	tr.Backend.Direct = tr.Backend.Postgres
	proxy, through := harness.InFrontOf(tr, tr.Backend.Postgres)
	tr.Backend.Postgres = through
	return proxy
}

// databaseName is that of the trial's database.
func (tr *trial) databaseName() string {
	tr.Helper()
	u, err := url.Parse(tr.Backend.Postgres)
	if err != nil {
		tr.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

// session is a connection to the server's first database, which no fault here touches.
func (tr *trial) session() *sql.DB {
	tr.Helper()
	address := tr.Backend.Postgres
	if tr.Backend.Direct != "" {
		address = tr.Backend.Direct
	}
	u, err := url.Parse(address)
	if err != nil {
		tr.Fatal(err)
	}
	u.Path = "/postgres"
	db, err := sql.Open("pgx", u.String())
	if err != nil {
		tr.Fatal(err)
	}
	tr.Cleanup(func() { db.Close() })
	return db
}

// endSessions ends those of the program on the trial's database, and says how many there were.
func endSessions(ctx context.Context, db *sql.DB, database string) (int, error) {
	var n int
	err := db.QueryRowContext(ctx,
		`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = $1 AND pid <> pg_backend_pid()`, database).Scan(&n)
	return n, err
}

// sqlRate is the callbacks a second of the trials that break SQL.
const sqlRate = 40

// underWay starts a process, the load and a watch, and returns when callbacks are sent.
func (tr *trial) underWay() (*harness.Load, *watch) {
	tr.Helper()
	p := tr.Serve("--workers", "128")
	ld := tr.Load(sqlRate, tr.Mixed)
	tr.awaitSends(sqlRate)
	return ld, tr.watch(p)
}

// awaitSends waits until that many more requests have arrived.
func (tr *trial) awaitSends(n int) {
	tr.Helper()
	from := tr.Recorder.Count()
	harness.Eventually(tr, time.Minute, "the load arrives", func() error {
		if got := tr.Recorder.Count() - from; got < n {
			return fmt.Errorf("%d of %d requests", got, n)
		}
		return nil
	})
}

// conclude ends the load, waits for everything to be terminal, and judges. A fault that the process outlives
// costs no duplicate: its results wait in memory until they can be committed.
func (tr *trial) conclude(ld *harness.Load, w *watch, began time.Time, b judge.Bounds) judge.Verdict {
	tr.Helper()
	tr.moderate(w, time.Since(began))
	got := ld.Finish()
	tr.Settle(3 * time.Minute)
	if b.Heal == 0 {
		b.Heal = 2 * time.Minute
	}
	v := tr.Verdict(b)
	tr.Remark("accepts took p50 %s, p99 %s; %d requests were made again; unknown %d, stale %d",
		got.Took.P50.Round(time.Millisecond),
		got.Took.P99.Round(time.Millisecond), got.Again, v.Uncertain, v.Stale)
	return v
}

// postgresEnds ends the whole server at once, then kills it, then one of its sessions, which costs all
// sessions a second.
func postgresEnds(tr *trial) {
	pg := testserver.NewPostgres(tr)
	tr.ownServer(pg)
	began := time.Now()
	ld, w := tr.underWay()
	start := func() error { pg.Start(tr); return nil }
	tr.blackout(w, "stopped at once", 4*time.Second, pg.Stop, start)
	tr.awaitSends(sqlRate)
	tr.blackout(w, "killed", 4*time.Second, pg.Kill, start)
	tr.awaitSends(sqlRate)
	for range 2 {
		tr.MarkFault()
		if err := pg.KillBackend(tr.Context(), tr.databaseName()); err != nil {
			tr.Fatal(err)
		}
		tr.MarkFault()
		harness.Eventually(tr, 30*time.Second, "the server has recovered",
			func() error { return pg.Exec(tr.Context(), "SELECT 1") })
		tr.awaitSends(sqlRate)
	}
	if pg.HasEnded() {
		tr.Error("the server has ended with one of its sessions")
	}
	tr.conclude(ld, w, began, judge.Bounds{})
}

// sessionsEnded ends every session of ours once a second: no group may be committed twice, nor be given up.
func sessionsEnded(tr *trial) {
	began := time.Now()
	ld, w := tr.underWay()
	db := tr.session()
	ended := 0
	for range 6 {
		tr.MarkFault()
		n, err := endSessions(tr.Context(), db, tr.databaseName())
		if err != nil {
			tr.Fatal(err)
		}
		ended += n
		time.Sleep(time.Second) // the fault's own period
	}
	tr.MarkFault()
	if ended == 0 {
		tr.Error("there were no sessions to end")
	}
	if err := w.p.AwaitReady(30 * time.Second); err != nil {
		tr.Error(err)
	}
	tr.Remark("%d sessions ended; %s", ended, w.during(began, time.Now()))
	tr.conclude(ld, w, began, judge.Bounds{})
}
