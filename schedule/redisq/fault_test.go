package redisq_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// A claim whose reply is lost is an error, is not repeated behind the caller's back, and gives the same batch
// when the caller repeats it.
func TestLostReplyToAClaim(t *testing.T) {
	needsServer(t)
	p := startProxy(t, testserver.SharedRedis(t))
	ix := open(t, p.url, 1)
	reset(t, ix, 1)
	ctx := context.Background()
	n, token := 0, 0
	fill(t, ix, &n, 20, 1, 1)
	claim(t, ix, &token, 0)
	req := schedule.ClaimRequest{Owner: "o", Token: "lost", Max: 2, MaxUncertain: 2, MaxTimingOut: 2, Lease: time.Minute, LaneLimit: 10}
	p.lose.Store(1)
	if _, err := ix.Claim(ctx, 0, req); err == nil || p.lost.Load() != 1 {
		t.Fatalf("a claim whose reply was lost: %v, %d lost", err, p.lost.Load())
	}
	p.lose.Store(0)
	s, err := ix.Stats(ctx, 0)
	if err != nil || s.Leased != 2 || s.Counters["claimed"] != 2 {
		t.Fatalf("after the lost reply %d are leased and %d were claimed, %v; want 2 and 2", s.Leased, s.Counters["claimed"], err)
	}
	again, err := ix.Claim(ctx, 0, req)
	if err != nil || len(again.Leases) != 2 || again.Leases[0].Token != "lost" {
		t.Fatalf("the repeated claim: %+v, %v", again, err)
	}
	if s, err = ix.Stats(ctx, 0); err != nil || s.Leased != 2 {
		t.Fatalf("the repeated claim left %d leased, %v", s.Leased, err)
	}
}

// Everything else is repeated by the client, and is the same when it was done twice.
func TestLostRepliesToOthers(t *testing.T) {
	needsServer(t)
	p := startProxy(t, testserver.SharedRedis(t))
	ix := open(t, p.url, 1)
	reset(t, ix, 1)
	ctx := context.Background()
	n, token := 0, 0
	losing := func(what string, f func() error) {
		t.Helper()
		before := p.lost.Load()
		p.lose.Store(1)
		if err := f(); err != nil || p.lost.Load() != before+1 {
			t.Fatalf("%s with a lost reply: %v, %d lost", what, err, p.lost.Load()-before)
		}
	}
	losing("ensure", func() error { _, err := ix.Ensure(ctx, itemsOf(&n, 6, 1, 1)); return err })
	leases := claim(t, ix, &token, 3).Leases
	losing("acquire", func() error {
		got, err := ix.Acquire(ctx, []schedule.LockRequest{{Lock: "k", ID: leases[0].ID, Lane: 1, Token: "t", Until: leases[0].Until}})
		if err == nil && !got[0].Acquired {
			t.Error("the lock was not taken")
		}
		return err
	})
	losing("extend", func() error {
		held, err := ix.Extend(ctx, []schedule.Extension{{Ref: leases[0].Ref(), Token: leases[0].Token, Until: leases[0].Until + 1000}})
		if err == nil && !held[0] {
			t.Error("the lease was not held")
		}
		return err
	})
	later := time.Now().Add(time.Hour).UnixMilli()
	losing("settle", func() error {
		var done []schedule.Settlement
		for _, l := range leases {
			l.Due = later
			done = append(done, schedule.Settlement{Item: l.Item, Token: l.Token, Outcome: schedule.Reschedule, Won: true})
		}
		got, err := ix.Settle(ctx, done)
		for i, reply := range got {
			if reply != schedule.Applied {
				t.Errorf("settlement %d, repeated: %d", i, reply)
			}
		}
		return err
	})
	losing("move", func() error {
		_, err := ix.Move(ctx, []schedule.Movement{{Ref: leases[0].Ref(), Due: later + 5}})
		return err
	})
	losing("cancel", func() error { _, err := ix.Cancel(ctx, []schedule.Ref{leases[1].Ref()}); return err })
	losing("set lanes", func() error { return ix.SetLanes(ctx, []schedule.LaneSetting{{Lane: 1, Limit: 3, Version: 1}}) })
	losing("release", func() error {
		_, err := ix.Release(ctx, []schedule.Unlock{{Lock: "k", ID: leases[0].ID, Token: "t"}})
		return err
	})
	s, err := ix.Stats(ctx, 0)
	if err != nil || s.Delayed != 2 || s.Leased != 0 || s.Locks != 0 || s.Delayed+s.Ready != 5 {
		t.Errorf("in the end: %+v, %v", s, err)
	}
	audit(t, ix, 0)
}

// garbled changes replies before the program reads them.
type garbled struct{ from, to string }

func (garbled) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g garbled) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if values, ok := cmd.(interface{ Val() []any }); ok {
			for i, v := range values.Val() {
				if v == g.from {
					values.Val()[i] = g.to
				}
			}
		}
		return err
	}
}

func (garbled) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A lease that the scripts can read and the program cannot, as after an upgrade of the one and not of the
// other, is set aside, and stops nothing else: neither the others of its claim nor its lane.
func TestALeaseThatOnlyTheScriptReads(t *testing.T) {
	needsServer(t)
	const foreign = "of-26-characters-and-no-id"
	for what, bad := range map[string]string{"record": id(2), "id": foreign} {
		t.Run(what, func(t *testing.T) {
			ix := openNew(t)
			ctx := context.Background()
			n, token := 0, 0
			fill(t, ix, &n, 6, 1, 1)
			if err := ix.SetLanes(ctx, []schedule.LaneSetting{{Lane: 1, Limit: 3, Version: 1}}); err != nil {
				t.Fatal(err)
			}
			record := "000000003f1" // that of the second
			if what == "record" {
				ix.Client().AddHook(garbled{record, record + "?"})
			} else {
				do(t, ix, "zrem", ix.Key(0, "DELAY"), id(2))
				do(t, ix, "hdel", ix.Key(0, "RECORDS"), id(2))
				do(t, ix, "hset", ix.Key(0, "RECORDS"), bad, record)
				do(t, ix, "zadd", ix.Key(0, "DELAY"), 3, bad)
			}
			for _, want := range [][]string{{id(1), id(3)}, {id(4), id(5), id(6)}} {
				c := claim(t, ix, &token, 3)
				ids := make([]string, len(c.Leases))
				for i, l := range c.Leases {
					ids[i] = l.ID
				}
				if !slices.Equal(ids, want) || c.Quarantined != 3-len(want) {
					t.Fatalf("claimed %v beside %d that were set aside, want %v", ids, c.Quarantined, want)
				}
				settleAll(t, ix, c.Leases)
			}
			if s := stats(t, ix); s.Quarantined != 1 || s.Delayed+s.Ready+s.Leased != 0 {
				t.Errorf("in the end %+v", s)
			}
			if got := do(t, ix, "hget", ix.Key(0, "QUARANTINE"), bad); got != record {
				t.Errorf("set aside: %v", got)
			}
			audit(t, ix, 0)
		})
	}
}

// A record that cannot be read is set aside where people find it, and stops nothing else.
func TestUnreadableRecords(t *testing.T) {
	needsServer(t)
	ix := openNew(t)
	ctx := context.Background()
	n, token := 0, 0
	fill(t, ix, &n, 6, 1, 1)
	if err := ix.SetLanes(ctx, []schedule.LaneSetting{{Lane: 1, Limit: 100, Version: 1}}); err != nil {
		t.Fatal(err)
	}
	broken := "what is this?"
	do(t, ix, "hset", ix.Key(0, "RECORDS"), id(1), broken) // while it is delayed
	first := claim(t, ix, &token, 2)
	if first.Quarantined != 1 || len(first.Leases) != 2 || first.Leases[0].ID != id(2) {
		t.Fatalf("beside an unreadable record %+v", first)
	}
	do(t, ix, "hset", ix.Key(0, "RECORDS"), id(4), broken) // while it is ready
	do(t, ix, "hset", ix.Key(0, "RECORDS"), id(2), broken) // while it is leased
	second := claim(t, ix, &token, 10)
	if second.Quarantined != 1 || len(second.Leases) != 1 || second.Leases[0].ID != id(5) {
		t.Fatalf("beside an unreadable ready record %+v", second)
	}
	settleAll(t, ix, append(first.Leases, second.Leases...))
	if third := claim(t, ix, &token, 10); len(third.Leases) != 1 || third.Leases[0].ID != id(6) {
		t.Fatalf("in the end %+v", third)
	}
	do(t, ix, "hset", ix.Key(0, "RECORDS"), id(6), broken)
	pass(t, ix, time.Minute)
	if c := claim(t, ix, &token, 10); c.Reaped != 1 || c.Quarantined != 1 {
		t.Fatalf("an unreadable leased record: %+v", c)
	}
	s, err := ix.Stats(ctx, 0)
	if err != nil || s.Quarantined != 3 || s.Delayed+s.Ready+s.Leased != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if got := do(t, ix, "hget", ix.Key(0, "QUARANTINE"), id(4)); got != broken {
		t.Errorf("set aside: %v", got)
	}
	// SQL still knows the items: an ensure brings them back.
	positions, err := ix.Ensure(ctx, []schedule.Item{{ID: id(4), Lane: 1, Due: 1}})
	if err != nil || positions[0].Place != schedule.Absent {
		t.Errorf("ensure of what was set aside: %v, %v", positions, err)
	}
	audit(t, ix, 0)
}

// Hints of one process reach another, and a broken subscription is made anew with a hint for every shard.
func TestHintsBetweenProcesses(t *testing.T) {
	needsServer(t)
	o := redisq.Options{URL: testserver.StartRedis(t), Shards: 3} // whose subscriptions are cut
	writer, reader := openAs(t, o), openAs(t, o)
	reset(t, writer, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- reader.Run(ctx) }()
	all := func(what string) {
		t.Helper()
		missing := map[int]bool{0: true, 1: true, 2: true}
		for len(missing) > 0 {
			select {
			case shard := <-reader.Hints():
				delete(missing, shard)
			case <-time.After(time.Minute):
				t.Fatalf("%s: no hint for %v", what, missing)
			}
		}
	}
	all("the first subscription")
	n := 0
	fill(t, writer, &n, 100, 100, 1)
	all("an earlier head")
	for range 2 {
		do(t, writer, "client", "kill", "type", "pubsub")
		all("a subscription that was cut")
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Run did not return")
	}
}
