package faults

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// sharedFaults are four dispatchers on one index: idle, under little load, under some, with two of them
// killed, and with a new one.
func sharedFaults() []fault {
	one := func(tr *trial) { sharedByFour(tr, 1) }
	cluster := func(tr *trial) {
		tr.Backend.Redis = newCluster(tr).URL()
		sharedByFour(tr, clusterShards)
	}
	return []fault{
		{id: "F11", title: "one shard shared by four dispatchers", quick: true, on: onlyPostgresRedis, run: one},
		{id: "F11", title: "cluster shards shared by four dispatchers", quick: true, on: onlyPostgresRedis,
			run: cluster},
	}
}

const (
	sharers = 4
	// idleScripts is how many scripts a second an idle dispatcher may have a shard run: it asks once a second,
	// and looks after the index now and then.
	idleScripts = 3
	// claimsEach is how many claims a callback may cost under little load: each dispatcher is woken when it
	// becomes due, and again when its lane has room, and one of them gets it.
	claimsEach = 2 * sharers
	// sharedRate is the load that two of four are killed under.
	sharedRate = 80
)

func sharedByFour(tr *trial, shards int) {
	for range sharers {
		tr.Serve()
	}
	all := tr.Alive()
	idle := tr.idle(shards)
	tr.littleLoad(all, idle)

	ld := tr.Load(sharedRate, tr.shared)
	before := attemptsOf(tr, all)
	tr.awaitMore(4 * sharedRate)
	tr.even(all, before)

	tr.MarkFault()
	all[0].Kill()
	all[1].Kill()
	killed := time.Now()
	t := tr.UncommittedClaims()
	t.Take(killed, 5*time.Second)
	tr.awaitMore(3 * sharedRate) // by the two that are left
	joined := tr.Serve()
	harness.Eventually(tr, 30*time.Second, "the new dispatcher takes its part", func() error {
		if n := attemptsOf(tr, []*harness.Process{joined})[0]; n < 20 {
			return fmt.Errorf("it has made %.0f attempts", n)
		}
		return nil
	})
	tr.Remark("a new dispatcher had its part %s after two of four were killed",
		time.Since(killed).Round(100*time.Millisecond))
	report := ld.Finish()
	tr.Settle(2 * time.Minute)
	// Nothing hit the index: what the dead had claimed comes back when its leases run out.
	v := tr.Verdict(t.Bounds(time.Minute))
	if v.LockOverlaps > 0 {
		tr.Errorf("%d sends on one lock key overlap", v.LockOverlaps)
	}
	tr.Remark("%d requests were made again by their callers; accepts took p99 %s", report.Again,
		report.Took.P99.Round(time.Millisecond))
}

// shared is the usual load over some lanes. Its timeout is long, because these trials start many servers at
// once.
func (tr *trial) shared(i int) harness.Submission {
	s := tr.Mixed(i)
	s["lane"] = laneName(i)
	s["policy"].(harness.Submission)["timeout"] = "10s"
	return s
}

// finishUnhindered ends a load whose accepts no fault was to hinder, because accepting needs no index: half
// of them took less than a second, on however busy a machine.
func (tr *trial) finishUnhindered(ld *harness.Load) {
	tr.Helper()
	report := ld.Finish()
	if report.Took.P50 > time.Second {
		tr.Errorf("accepts took p50 %s: they do not need the index", report.Took.P50)
	}
	tr.Remark("accepts took p50 %s p99 %s most %s, %d requests were made again",
		report.Took.P50.Round(time.Millisecond),
		report.Took.P99.Round(time.Millisecond), report.Took.Most.Round(time.Millisecond), report.Again)
}

// idle leaves the dispatchers alone for a while, and returns how many scripts a second all of them have the
// index run.
func (tr *trial) idle(shards int) float64 {
	tr.Helper()
	span := 5 * time.Second
	began := time.Now()
	scripts, commands := tr.commands()
	time.Sleep(span) // this is what is measured: nothing happens
	moreScripts, moreCommands := tr.commands()
	took := time.Since(began).Seconds()
	rate := (moreScripts - scripts) / took
	each := rate / sharers / float64(shards)
	tr.Remark("idle, %d dispatchers on %d shards have Redis run %.1f scripts/s, %.2f for each dispatcher and "+
		"shard (%.0f commands/s with those inside)",
		sharers, shards, rate, each, (moreCommands-commands)/took)
	if each > idleScripts {
		tr.Errorf("an idle dispatcher has a shard run %.2f scripts/s, at most %d are allowed", each, idleScripts)
	}
	return rate
}

var (
	scriptCalls  = regexp.MustCompile(`cmdstat_(?:evalsha|eval):calls=(\d+)`)
	commandCount = regexp.MustCompile(`total_commands_processed:(\d+)`)
)

// commands are how many scripts and how many commands all masters have run, by their own counters.
func (tr *trial) commands() (scripts, commands float64) {
	tr.Helper()
	var mu sync.Mutex
	err := tr.Backend.EachRedis(tr.Context(), func(ctx context.Context, c *redis.Client) error {
		stats, err := c.Info(ctx, "commandstats").Result()
		if err != nil {
			return err
		}
		total, err := c.Info(ctx, "stats").Result()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, found := range append(scriptCalls.FindAllStringSubmatch(stats, -1), []string{"", "0"}) {
			n, err := strconv.ParseFloat(found[1], 64)
			if err != nil {
				return err
			}
			scripts += n
		}
		found := commandCount.FindStringSubmatch(total)
		if found == nil {
			return fmt.Errorf("INFO has no count of commands")
		}
		n, err := strconv.ParseFloat(found[1], 64)
		commands += n
		return err
	})
	if err != nil {
		tr.Fatal(err)
	}
	return scripts, commands
}

// littleLoad sends a few callbacks a second, and counts the claims that each costs beyond those of an idle
// index.
func (tr *trial) littleLoad(all []*harness.Process, idleRate float64) {
	tr.Helper()
	const rate = 5
	n := 25
	before, began := claimsOf(tr, all), time.Now()
	arrived := tr.Recorder.Count()
	for i := range n {
		s := tr.Callback("plain", fmt.Sprint("little-", i))
		s["lane"], s["delay"] = laneName(i), "1s"
		id, err := tr.Ask(s)
		if err != nil {
			tr.Fatal(err)
		}
		tr.NoteAccepted(id, s["ref"].(string))
		time.Sleep(time.Second / rate) // the load's rate
	}
	harness.Eventually(tr, 30*time.Second, "the little load is sent", func() error {
		if got := tr.Recorder.Count() - arrived; got < n {
			return fmt.Errorf("%d of %d", got, n)
		}
		return nil
	})
	after, took := claimsOf(tr, all), time.Since(began).Seconds()
	each := (after - before - idleRate*took) / float64(n)
	tr.Remark("one callback that becomes due costs %.1f claims of %d dispatchers", max(each, 0), len(all))
	if each > claimsEach {
		tr.Errorf("one callback that becomes due costs %.1f claims, at most %d are allowed", each, claimsEach)
	}
}

// claimsOf is how many claims the processes have made.
func claimsOf(tr *trial, all []*harness.Process) float64 {
	tr.Helper()
	sum := 0.0
	for _, p := range all {
		n, err := p.Metric("dispatcher_index_call_seconds_count", `op="claim"`)
		if err != nil {
			tr.Fatal(err)
		}
		sum += n
	}
	return sum
}

// attemptsOf is how many attempts each of the processes has made.
func attemptsOf(tr *trial, all []*harness.Process) []float64 {
	tr.Helper()
	var each []float64
	for _, p := range all {
		n, err := p.Metric("dispatcher_attempts_total")
		if err != nil {
			tr.Fatal(err)
		}
		each = append(each, n)
	}
	return each
}

// even fails the trial if one of the processes made less than a quarter of its share.
func (tr *trial) even(all []*harness.Process, before []float64) {
	tr.Helper()
	after := attemptsOf(tr, all)
	total := 0.0
	for i := range after {
		after[i] -= before[i]
		total += after[i]
	}
	share := total / float64(len(all))
	tr.Remark("of %.0f attempts the dispatchers made %.0f", total, after)
	if least := slices.Min(after); least < share/4 {
		tr.Errorf("one dispatcher made %.0f attempts of %.0f: less than a quarter of its share", least, total)
	}
}
