package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// randomFaults is the promise of the whole in one trial: dispatchers die at random and the index is emptied,
// under load.
func randomFaults() []fault {
	return []fault{{
		id: "F11", title: "random kills and an emptied index", quick: true, heavy: true, on: onlyPostgresRedis,
		run: randomKills,
	}}
}

const (
	// killGap and killSpread are the least time between two kills, and how much more it may be.
	killGap    = 3 * time.Second
	killSpread = 7 * time.Second
)

// randomKills has three dispatchers under load, kills one of them every 3 to 10 seconds, and empties Redis
// now and then.
func randomKills(tr *trial) {
	span := sized(25*time.Second, 45*time.Second, 5*time.Minute)
	for range 3 {
		tr.Serve()
	}
	tr.idle()
	rate := sized(150, 300, 500)
	ld := tr.Load(rate, func(i int) harness.Submission {
		s := tr.Mixed(i)
		// As of many merchants: what a dead process has in flight counts against its lanes until its leases
		// run out.
		s["lane"] = fmt.Sprint("merchant-", i%60)
		if _, locked := s["lock_key"]; locked {
			s["lock_key"] = fmt.Sprint("order-", i/40) // five callbacks an order
		}
		return s
	})
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	emptied := 0
	var group errgroup.Group
	group.Go(func() error {
		ticker := time.NewTicker(14 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
			// Not with ctx: a FLUSHALL that was sent counts.
			if err := tr.Backend.EachRedis(context.Background(),
				func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }); err != nil {
				return err
			}
			emptied++
			tr.MarkFault()
		}
	})
	t := tr.UncommittedClaims()
	for ctx.Err() == nil {
		next := time.Now().Add(killGap + rand.N(killSpread))
		victim := tr.Alive()[rand.N(len(tr.Alive()))]
		at := time.Now()
		victim.Kill()
		tr.MarkFault()
		// Each attempt has a timeout of two seconds: after three, what was claimed before and is not over is
		// the victim's.
		t.Take(at, killGap)
		tr.Serve()
		gap := time.NewTimer(time.Until(next))
		select {
		case <-gap.C:
		case <-ctx.Done():
			gap.Stop()
		}
	}
	if err := group.Wait(); err != nil {
		tr.Errorf("FLUSHALL: %v", err)
	}
	report := ld.Finish()
	tr.Settle(5 * time.Minute)
	tr.awaitEmptyIndex(harness.IndexSettles)
	t.Account()
	v := tr.Verdict(t.Bounds(2 * time.Minute))
	if least := float64(rate) * span.Seconds() * 0.8; float64(v.Accepted) < least {
		tr.Errorf("%d were accepted, %.0f were to be", v.Accepted, least)
	}
	if t.Faults() < int(span/(10*time.Second)) || emptied < int(span/(20*time.Second)) {
		tr.Errorf("%d kills and %d FLUSHALL are too few to show anything", t.Faults(), emptied)
	}
	tr.Remark("%d accepted in %s (%.0f/s) by three dispatchers, %d kills, %d FLUSHALL: %d lost, %d "+
		"duplicates; %s; accepts p50 %s p99 %s most %s, %d requests made again; lateness p50 %s p99 %s",
		v.Accepted, span, float64(v.Accepted)/span.Seconds(), t.Faults(), emptied, v.Lost, v.Duplicates, t,
		report.Took.P50.Round(time.Millisecond), report.Took.P99.Round(time.Millisecond),
		report.Took.Most.Round(time.Millisecond), report.Again, v.Lateness.P50, v.Lateness.P99)
}

// idleScripts is how many scripts a second an idle dispatcher may have Redis run: it asks once a second, and
// looks after the index now and then.
const idleScripts = 3

// idle leaves the dispatchers alone for a while: none of them may wake the others.
func (tr *trial) idle() {
	tr.Helper()
	c := tr.Backend.RedisClient(tr)
	scripts := func() (n int) {
		stats, err := c.InfoMap(tr.Context(), "commandstats").Result()
		if err != nil {
			tr.Fatal(err)
		}
		for _, name := range []string{"cmdstat_eval", "cmdstat_evalsha"} {
			var calls int
			if _, err := fmt.Sscanf(stats["Commandstats"][name], "calls=%d", &calls); err == nil {
				n += calls
			}
		}
		return n
	}
	const span = 5 * time.Second
	before := scripts()
	time.Sleep(span) // this is what is measured: nothing happens
	each := float64(scripts()-before) / span.Seconds() / float64(len(tr.Alive()))
	tr.Remark("an idle dispatcher has Redis run %.2f scripts a second", each)
	if each == 0 || each > idleScripts {
		tr.Errorf("an idle dispatcher has Redis run %.2f scripts a second, more than %d", each, idleScripts)
	}
}
