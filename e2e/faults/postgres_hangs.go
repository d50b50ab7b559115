package faults

import (
	"net/http"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// postgresHangs forwards nothing for longer than a lease, so that every connection of every pool waits in
// vain. A process commits its own results before it claims again; with two of them, what one holds the other
// may claim first.
func postgresHangs(tr *trial, processes int) {
	const lasts = quickLease + 2*time.Second
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

// tableLocked holds the table of callbacks, as a careless change of the schema does. Readiness writes
// elsewhere and says nothing of it; accepts are refused in time, and nothing piles up.
func tableLocked(tr *trial) {
	const lasts = 6 * time.Second
	began := time.Now()
	ld, w := tr.underWay()
	db := tr.Database()
	held, err := db.Conn(tr.Context())
	if err != nil {
		tr.Fatal(err)
	}
	defer held.Close()
	tx, err := held.BeginTx(tr.Context(), nil)
	if err != nil {
		tr.Fatal(err)
	}
	tr.MarkFault()
	if _, err := tx.ExecContext(tr.Context(), "LOCK TABLE callbacks IN ACCESS EXCLUSIVE MODE"); err != nil {
		tr.Fatal(err)
	}
	from := time.Now()
	time.Sleep(lasts / 2) // the fault lasts, by the clock
	sent := tr.Recorder.Count()
	time.Sleep(lasts / 2)
	g := w.during(from, time.Now())
	if now := tr.Recorder.Count(); now != sent {
		tr.Errorf("%d requests were sent while nothing could be stamped", now-sent)
	}
	if err := tx.Rollback(); err != nil {
		tr.Fatal(err)
	}
	tr.MarkFault()
	if g.accepts[http.StatusAccepted] > 0 || g.accepts[http.StatusServiceUnavailable] == 0 || g.bare > 0 ||
		g.slowest > refusedWithin {
		tr.Errorf("want every accept refused in time with 503 and Retry-After: %s", g)
	}
	tr.awaitSends(1)
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
