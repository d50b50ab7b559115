package e2e

import (
	"net/http"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// postgresHangs forwards nothing for longer than a lease (in the long form), so that every connection of every pool waits in vain.
// A process commits its own results before it claims again; with two of them, what one holds the other may claim first.
func postgresHangs(l *lab, processes int) {
	lasts := long(l, 32*time.Second, 8*time.Second)
	proxy := l.throughProxy()
	began := time.Now()
	ld, w := l.underWay()
	for range processes - 1 {
		l.serve("--workers", "128")
	}
	l.awaitSends(l.sqlRate())
	// What was claimed and could not be committed is what may come again, and only if another process may claim it meanwhile.
	t := l.toll()
	l.blackout(w, "PostgreSQL hangs", lasts,
		func() error { proxy.hang(); return nil },
		func() error { t.take(time.Now(), 0); proxy.pass(); return nil })
	bounds := judge.Bounds{}
	if processes > 1 {
		bounds = t.bounds(0)
	}
	l.conclude(ld, w, began, bounds)
}

// tableLocked holds the table of callbacks, as a careless change of the schema does. Readiness writes elsewhere and says nothing of
// it; accepts are refused in time, and nothing piles up.
func tableLocked(l *lab) {
	lasts := long(l, 30*time.Second, 6*time.Second)
	began := time.Now()
	ld, w := l.underWay()
	db := l.database()
	held, err := db.Conn(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	defer held.Close()
	tx, err := held.BeginTx(l.Context(), nil)
	if err != nil {
		l.Fatal(err)
	}
	l.struck()
	if _, err := tx.ExecContext(l.Context(), "LOCK TABLE callbacks IN ACCESS EXCLUSIVE MODE"); err != nil {
		l.Fatal(err)
	}
	from := time.Now()
	time.Sleep(lasts / 2) // the fault lasts, by the clock
	sent := l.w.count()
	time.Sleep(lasts / 2)
	g := w.during(from, time.Now())
	if now := l.w.count(); now != sent {
		l.Errorf("%d requests were sent while nothing could be stamped", now-sent)
	}
	if err := tx.Rollback(); err != nil {
		l.Fatal(err)
	}
	l.struck()
	if g.accepts[http.StatusAccepted] > 0 || g.accepts[http.StatusServiceUnavailable] == 0 || g.bare > 0 || g.slowest > refusedWithin {
		l.Errorf("want every accept refused in time with 503 and Retry-After: %s", g)
	}
	l.awaitSends(1)
	l.remark("locked for %s: %s", lasts, g)
	l.conclude(ld, w, began, judge.Bounds{})
}

// readOnly lets nobody write, as after a failover to a standby. Sessions that were opened meanwhile stay read-only after the
// setting is gone: the program has to open others by itself.
func readOnly(l *lab) {
	began := time.Now()
	ld, w := l.underWay()
	db := l.session()
	set := func(change string) error {
		_, err := db.ExecContext(l.Context(), "ALTER DATABASE "+l.databaseName()+" "+change)
		return err
	}
	reads, unread := 0, error(nil)
	l.blackout(w, "read-only", long(l, 20*time.Second, 4*time.Second), func() error {
		if err := set("SET default_transaction_read_only = on"); err != nil {
			return err
		}
		_, err := endSessions(l.Context(), db, l.databaseName())
		return err
	}, func() error {
		for range 20 {
			if _, err := l.one().list(l.Context(), nil); err != nil {
				unread = err
				continue
			}
			reads++
		}
		return set("RESET default_transaction_read_only")
	})
	if unread != nil {
		l.Errorf("%d of 20 lists were read, the others not: %v", reads, unread)
	}
	l.conclude(ld, w, began, judge.Bounds{})
}
