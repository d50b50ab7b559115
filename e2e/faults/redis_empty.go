package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// redisLosses are a Redis that is emptied while it runs, and one that is away for long.
func redisLosses() []fault {
	return []fault{
		{id: "F21", title: "flushall under load", on: bothWithRedis, run: redisFlushed},
		{id: "F21", title: "flushall while locks are held", on: bothWithRedis, run: redisFlushedUnderLocks},
		{id: "F24", title: "redis down for long under load", on: onlyPostgresRedis, heavy: true,
			run: redisDownForLong},
	}
}

// errNotYet is what a poll says whose condition has no figure.
var errNotYet = errors.New("not yet")

// redisFlushed empties Redis twice while callbacks are accepted, wait for retries and hold locks.
func redisFlushed(tr *trial) {
	p := tr.Serve()
	const times = 2
	rebuilt := 0
	a := tr.suffer(outage{strike: func(*harness.Process) {
		before := tr.rebuilds(p)
		for i := range times {
			tr.flush()
			if i < times-1 {
				tr.lasting(2 * time.Second)
			}
		}
		harness.Eventually(tr, time.Minute, "the index is rebuilt as often as it was emptied", func() error {
			if rebuilt = tr.rebuilds(p) - before; rebuilt < times {
				return fmt.Errorf("rebuilt %d times", rebuilt)
			}
			return nil
		})
	}})
	arrived := tr.firstArrivals(a.began)
	tr.Remark("emptied %d times at %d/s, rebuilt %d times; accept to first arrival: p50 %s, p99 %s, most %s",
		times, outageRate, rebuilt,
		arrived.waits.P50.Round(time.Millisecond), arrived.waits.P99.Round(time.Millisecond),
		arrived.waits.Most.Round(time.Millisecond))
	tr.Verdict(exact())
}

// redisFlushedUnderLocks empties Redis whenever locks are held and others wait for them: each lock must be
// there again before anybody may take it.
func redisFlushedUnderLocks(tr *trial) {
	const keys, each, times = 3, 8, 4
	var arrived atomic.Int64
	var last atomic.Int64 // Unix milliseconds of the last arrival
	tr.Recorder.SetScript(func(*harness.Request) harness.Reply {
		arrived.Add(1)
		last.Store(time.Now().UnixMilli())
		return harness.Reply{Status: 200, After: time.Second}
	})
	p := tr.Serve()
	if left := tr.AcceptAll(harness.Numbers(keys*each), func(i int) harness.Submission {
		s := tr.Callback("plain", fmt.Sprint("plain-", i))
		s["lock_key"] = fmt.Sprint("order-", i%keys)
		s["policy"] = harness.Submission{"tiers": []string{"500ms", "1s"}, "timeout": "10s"}
		return s
	}); len(left) > 0 {
		tr.Fatalf("%d callbacks were not accepted", len(left))
	}
	before := tr.rebuilds(p)
	for i := range times {
		harness.Eventually(tr, time.Minute, "a lock is held, and others wait", func() error {
			if since := time.Now().UnixMilli() - last.Load(); tr.Recorder.InFlight() == 0 || since > 300 ||
				arrived.Load() > keys*(each-1) {
				return fmt.Errorf("%d of %d have arrived, the last one %d ms ago", arrived.Load(), keys*each, since)
			}
			return nil
		})
		tr.flush()
		tr.MarkFault()
		harness.Eventually(tr, time.Minute, "the index is rebuilt", func() error {
			if n := tr.rebuilds(p) - before; n <= i {
				return fmt.Errorf("%d times", n)
			}
			return nil
		})
	}
	tr.Settle(2 * time.Minute)
	v := tr.Verdict(exact())
	tr.Remark("emptied %d times while %d locks were held and waited for: %d sends on one lock overlap", times,
		keys, v.LockOverlaps)
}

// redisDownForLong is Redis away under a steady load for longer than any call waits.
func redisDownForLong(tr *trial) {
	tr.Serve()
	rate, lasts := 200, sized(10*time.Second, 20*time.Second, time.Minute)
	// What an accept costs on this machine under this load: an outage must not add to it.
	usual := tr.Load(rate, tr.Mixed)
	tr.awaitAccepted(rate * 3)
	baseline := usual.Finish().Took
	// Unless this machine takes longer without any fault.
	limit := max(time.Second, 2*baseline.Most)

	const apart = 1_000_000 // the second load's numbers do not meet the first's
	var down, back time.Time
	a := tr.suffer(outage{rate: rate, shape: func(i int) harness.Submission { return tr.Mixed(apart + i) },
		before: tr.Count() + rate, after: rate * 3, acceptLimit: limit,
		strike: func(p *harness.Process) {
			tr.Backend.Server.Kill()
			down = tr.awaitDegraded(p)
			<-time.After(lasts)
			back = time.Now()
			tr.Backend.Server.Start()
		}})
	if a.load.Took.Most > limit {
		tr.Errorf("an accept took %s, at most %s is allowed", a.load.Took.Most, limit)
	}
	tr.degradedThroughout(&a, down, back)
	arrived := tr.firstArrivals(back)
	tr.Remark("down for %s at %d/s: degraded after %s; accepts before p99 %s, most %s, and meanwhile p99 %s, "+
		"most %s; back to the first send %s, to the end of the backlog of %d %s",
		back.Sub(a.began).Round(100*time.Millisecond), rate, down.Sub(a.began).Round(time.Millisecond),
		baseline.P99.Round(time.Millisecond), baseline.Most.Round(time.Millisecond),
		a.load.Took.P99.Round(time.Millisecond), a.load.Took.Most.Round(time.Millisecond),
		arrived.first.Round(time.Millisecond), arrived.backlog, arrived.drained.Round(time.Millisecond))
	tr.Verdict(exact())
}

// Arrivals say how first sends stand to accepts, and to a moment.
type arrivals struct {
	waits judge.Quantiles // accept to first arrival, of all that were accepted after the moment
	// first is how long after the moment anything arrived; backlog is how many had been accepted before it and
	// had not arrived; drained is when the last of them did.
	first, drained time.Duration
	backlog        int
}

// firstArrivals compares the receiver's journal with the times at which SQL accepted.
func (tr *trial) firstArrivals(moment time.Time) arrivals {
	tr.Helper()
	accepted, err := acceptedAt(tr.Context(), tr.Database())
	if err != nil {
		tr.Fatal(err)
	}
	journal, err := tr.Recorder.Journal.Read()
	if err != nil {
		tr.Fatal(err)
	}
	var a arrivals
	first := map[string]time.Time{}
	for i := range journal {
		at := journal[i].At
		if known, ok := first[journal[i].ID]; !ok || at.Before(known) {
			first[journal[i].ID] = at
		}
		if after := at.Sub(moment); after > 0 && (a.first == 0 || after < a.first) {
			a.first = after
		}
	}
	var waits []time.Duration
	for id, created := range accepted {
		at, ok := first[id]
		if !ok {
			continue // the judge knows why
		}
		if created.After(moment) {
			waits = append(waits, at.Sub(created))
		} else if at.After(moment) {
			a.backlog++
			a.drained = max(a.drained, at.Sub(moment))
		}
	}
	a.waits = judge.QuantilesOf(slices.Clip(waits))
	return a
}

// acceptedAt is when each callback was accepted.
func acceptedAt(ctx context.Context, db *sql.DB) (map[string]time.Time, error) {
	found, err := db.QueryContext(ctx, `SELECT id, created_at FROM callbacks`)
	if err != nil {
		return nil, fmt.Errorf("read when callbacks were accepted: %w", err)
	}
	defer found.Close()
	at := map[string]time.Time{}
	for found.Next() {
		var id string
		var created int64
		if err := found.Scan(&id, &created); err != nil {
			return nil, fmt.Errorf("read when a callback was accepted: %w", err)
		}
		at["cb_"+id] = harness.Moment(created)
	}
	return at, found.Err()
}
