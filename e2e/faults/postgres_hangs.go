package faults

import (
	"net/http"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// postgresHangs forwards nothing for longer than a lease, so that every connection of every pool waits in
// vain. A process commits its own results before it claims again; with two of them, what one holds the other
// may claim first.
func postgresHangs(tr *trial, processes int) {
	const lasts = harness.QuickLease + 2*time.Second
	proxy := tr.throughProxy()
	began := time.Now()
	ld, w := tr.underWay()
	for range processes - 1 {
		tr.Serve("--workers", "128")
	}
	tr.awaitSends(sqlRate)
	// What was claimed and could not be committed is what may come again, and only if another process may
	// claim it meanwhile.
	t := tr.UncommittedClaims()
	tr.blackout(w, "PostgreSQL hangs", lasts,
		func() error { proxy.Hang(); return nil },
		func() error { t.Take(time.Now(), 0); proxy.Pass(); return nil })
	bounds := judge.Bounds{}
	if processes > 1 {
		bounds = t.Bounds(0)
	}
	tr.conclude(ld, w, began, bounds)
}

// lockedOut holds SQLite's lock, as a second program that writes to the file does, or the table of callbacks,
// as a careless change of the schema does. Accepts are refused in time, and nothing piles up.
func lockedOut(tr *trial) {
	const lasts = 7 * time.Second
	lock := "BEGIN EXCLUSIVE"
	if tr.Backend.Postgres != "" {
		lock = "BEGIN; LOCK TABLE callbacks IN ACCESS EXCLUSIVE MODE"
	}
	began := time.Now()
	ld, w := tr.underWay()
	held, err := tr.Database().Conn(tr.Context())
	if err != nil {
		tr.Fatal(err)
	}
	defer held.Close()
	execute := func(text string) {
		if _, err := held.ExecContext(tr.Context(), text); err != nil {
			tr.Fatal(err)
		}
	}
	tr.MarkFault()
	execute(lock)
	from := time.Now()
	time.Sleep(lasts / 2) // the fault lasts, by the clock
	sent := tr.Recorder.Count()
	time.Sleep(lasts / 2)
	g := w.during(from, time.Now())
	if now := tr.Recorder.Count(); now != sent {
		tr.Errorf("%d requests were sent while nothing could be stamped", now-sent)
	}
	execute("ROLLBACK")
	tr.MarkFault()
	if refused := g.accepts[http.StatusServiceUnavailable]; g.accepts[http.StatusAccepted] > 0 ||
		refused == 0 && tr.Backend.Postgres != "" || g.bare > 0 || g.slowest > refusedWithin {
		tr.Errorf("want every accept refused in time with 503 and Retry-After: %s", g)
	}
	if err := w.p.AwaitReady(30 * time.Second); err != nil {
		tr.Error(err)
	}
	tr.awaitSends(sqlRate)
	tr.Remark("locked for %s: %s", lasts, g)
	tr.conclude(ld, w, began, judge.Bounds{})
}

// readOnly makes the database read-only, as after a failover to a standby. Sessions that were opened
// meanwhile stay read-only after the setting is gone: the program has to open others by itself.
func readOnly(tr *trial) {
	began := time.Now()
	ld, w := tr.underWay()
	db := tr.session()
	set := func(change string) error {
		_, err := db.ExecContext(tr.Context(), "ALTER DATABASE "+tr.databaseName()+" "+change)
		return err
	}
	reads, unread := 0, error(nil)
	tr.blackout(w, "read-only", 4*time.Second, func() error {
		if err := set("SET default_transaction_read_only = on"); err != nil {
			return err
		}
		_, err := endSessions(tr.Context(), db, tr.databaseName())
		return err
	}, func() error {
		for range 20 {
			if _, err := tr.AnyProcess().List(tr.Context(), nil); err != nil {
				unread = err
				continue
			}
			reads++
		}
		return set("RESET default_transaction_read_only")
	})
	if unread != nil {
		tr.Errorf("%d of 20 lists were read, the others not: %v", reads, unread)
	}
	tr.conclude(ld, w, began, judge.Bounds{})
}
