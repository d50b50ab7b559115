package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// locked holds the lock of a row, and later that of the whole table. The relay removes what it can, and the
// rest when the lock is gone.
func locked(tr *trial) {
	lasts := testserver.Sized(0, 8*time.Second, time.Minute)
	o := tr.src
	o.fill(0, killRows)
	lock := o.session()
	lock(`BEGIN`)
	lock(`SELECT id FROM dispatcher_outbox WHERE seq = 50 FOR UPDATE`)
	p := tr.relay("")
	tr.Eventually(resumedBusy, "only the locked row is left",
		func() error { return wantCount(o.waiting(), 1) })
	if n := tr.replays(p); n > 5*page {
		tr.Errorf("%d rows were replayed while one was locked", n)
	}
	time.Sleep(lasts) // the fault lasts for a fixed time
	lock(`ROLLBACK`)
	tr.MarkFault()
	o.drained(skippedFor + 30*time.Second)
	unlock := `UNLOCK TABLES`
	if tr.on == postgres {
		unlock = `ROLLBACK`
		lock(`BEGIN`)
		lock(`LOCK TABLE dispatcher_outbox IN ACCESS EXCLUSIVE MODE`)
	} else {
		lock(`LOCK TABLES dispatcher_outbox WRITE`)
	}
	time.Sleep(lasts) // the fault lasts for a fixed time
	lock(unlock)
	tr.MarkFault()
	o.fill(killRows, 2*killRows)
	tr.healedIn(backoffLimit)
}

// session returns a function that runs statements on one connection of the application.
func (o *outbox) session() func(statement string) {
	o.tr.Helper()
	conn, err := o.db.Conn(o.tr.Context())
	o.tr.Check(err)
	o.tr.Cleanup(func() { conn.Close() }) // the server may have ended it
	return func(statement string) {
		o.tr.Helper()
		_, err := conn.ExecContext(context.Background(), statement)
		o.tr.Check(err)
	}
}

// replays returns the number of rows that a relay has replayed.
func (tr *trial) replays(p *harness.Process) int {
	tr.Helper()
	return p.Count("dispatcher_relay_rows_total", `result="replayed"`)
}

func wantCount(n, want int) error {
	if n != want {
		return fmt.Errorf("it is %d, want %d", n, want)
	}
	return nil
}

// A lateCommit is a transaction that stays open while others commit.
type lateCommit struct {
	open, found time.Duration // how long it is open; the limit until its row is accepted
	rate        int           // of the others, orders a second
}

// lateCommits are transactions that stay open for some time. Their rows have smaller numbers than those that
// the relay has read.
func lateCommits(tr *trial) {
	tr.late(lateCommit{time.Second, 3 * pollEvery, 200}, lateCommit{10 * time.Second, 5 * time.Second, 200},
		lateCommit{75 * time.Second, time.Minute, 50})
}

// veryLateCommit is a transaction that stays open for 20 minutes.
func veryLateCommit(tr *trial) {
	tr.late(lateCommit{20 * time.Minute, time.Minute + 10*time.Second, 1000})
}

func (tr *trial) late(commits ...lateCommit) {
	tr.Helper()
	o := tr.src
	p := tr.relay("")
	o.held(p, resumed)
	next := 0
	for i, c := range commits {
		order := fmt.Sprint("late-", i)
		tx := o.open(o.order(order, nil))
		began := time.Now()
		var loads []*load
		for k := range max(1, c.rate/250) {
			loads = append(loads, o.load(next+10_000_000*k, min(c.rate, 250)))
		}
		time.Sleep(time.Until(began.Add(c.open))) // the transaction is open for a fixed time
		tr.Check(tx.Commit())
		committed := time.Now()
		tr.Eventually(c.found+resumedBusy, order+" is accepted", func() error {
			return wantCount(len(tr.listed(order)), 1)
		})
		took := time.Since(committed)
		for _, l := range loads {
			l.end()
			next = max(next, l.next%10_000_000)
		}
		tr.Remark("a transaction that was open for %s: its row is accepted %s after its commit", c.open, took)
		if limit := c.found + time.Second; took > limit {
			tr.Errorf("open for %s: the row is accepted %s after its commit, at most %s is allowed", c.open,
				took, limit)
		}
	}
	tr.MarkFault()
	tr.conclude(resumedBusy)
	if n := p.Count("dispatcher_relay_late_rows_total"); n == 0 {
		tr.Error("no late row is counted")
	}
}

// listed returns the ids of an order's callbacks.
func (tr *trial) listed(order string) []string {
	tr.Helper()
	return harness.Rows(tr.Trial, func(id *string) []any { return []any{id} },
		`SELECT id FROM requests WHERE ref = $1`, order)
}

// rollbacks rolls every second transaction back, after the relay had time to read its row.
func rollbacks(tr *trial) {
	if tr.src == nil {
		tr.src = tr.newOutbox("pay", tr.on, tr.on.own(tr, "--transaction-isolation=READ-UNCOMMITTED"))
	}
	o := tr.src
	p := tr.relay("")
	o.held(p, resumed)
	const rounds = 10
	for i := range rounds {
		kept, undone := o.open(o.plain(2*i)), o.open(o.plain(2*i+1))
		before := tr.Receiver.Count()
		o.commit(o.plain(1000 + i))
		tr.AtLeast(time.Minute, "a scan after the inserts", before+1, tr.Receiver.Count)
		tr.Check(undone.Rollback())
		tr.Check(kept.Commit())
	}
	tr.conclude(resumedBusy)
	if n := tr.Count(); n != 2*rounds {
		tr.Errorf("%d callbacks, want %d", n, 2*rounds)
	}
}

// sequenceSetBack empties the table, so that its numbers begin again. New rows are found again.
func sequenceSetBack(tr *trial) {
	o := tr.src
	tr.relay("")
	o.fill(0, killRows)
	o.drained(resumedBusy)
	// After a minute no scan begins at the first number, except one in each minute.
	const rate = 20
	l := o.load(killRows, rate)
	tr.AtLeast(2*time.Minute, "the load arrives", killRows+rate*65, tr.Receiver.Count)
	l.end()
	o.drained(resumedBusy)
	o.restartNumbers()
	tr.MarkFault()
	o.fill(100_000, 100_001)
	began := time.Now()
	o.drained(time.Minute + 20*time.Second)
	first := time.Since(began)
	o.fill(100_001, 100_002)
	began = time.Now()
	o.drained(resumedBusy)
	tr.Remark("numbers begin again: the first row is removed after %s, the next one after %s", first,
		time.Since(began))
	if took := time.Since(began); took > 3*time.Second {
		tr.Errorf("after the first row the next one took %s", took)
	}
	if first > time.Minute+5*time.Second {
		tr.Errorf("the first row took %s, at most a minute is allowed", first)
	}
	tr.conclude(resumedBusy)
}
