package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// sharedFaults are four dispatchers on one index: idle, under little load, under some, with two of them killed, and with a
// new one.
func sharedFaults() []fault {
	return []fault{
		{id: "F11", title: "one shard shared by four dispatchers", short: []combination{full}, full: []combination{full}, run: func(l *lab) { sharedByFour(l, 1) }},
		{id: "F11", title: "cluster shards shared by four dispatchers", full: []combination{full}, run: func(l *lab) {
			l.on.redis = newCluster(l).URL()
			sharedByFour(l, clusterShards)
		}},
	}
}

const (
	sharers = 4
	// idleScripts is how many scripts a second an idle dispatcher may have a shard run: it asks once a second, and looks after
	// the index now and then.
	idleScripts = 3
	// claimsEach is how many claims a callback may cost under little load: each dispatcher is woken when it becomes due, and
	// again when its lane has room, and one of them gets it.
	claimsEach = 2 * sharers
	// sharedRate is the load that two of four are killed under.
	sharedRate = 80
)

func sharedByFour(l *lab, shards int) {
	for range sharers {
		l.serve()
	}
	all := l.alive()
	idle := l.idle(shards)
	l.littleLoad(all, idle)

	ld := l.load(sharedRate, l.shared)
	before := attemptsOf(l, all)
	l.wait("the load goes on", long(l, 8, 4)*sharedRate)
	l.even(all, before)

	l.struck()
	all[0].kill()
	all[1].kill()
	killed := time.Now()
	t := l.toll()
	t.take(killed, 5*time.Second)
	l.wait("the two that are left go on", long(l, 10, 3)*sharedRate)
	joined := l.serve()
	eventually(l, 30*time.Second, "the new dispatcher takes its part", func() error {
		if n := attemptsOf(l, []*process{joined})[0]; n < 20 {
			return fmt.Errorf("it has made %.0f attempts", n)
		}
		return nil
	})
	l.remark("a new dispatcher had its part %s after two of four were killed", time.Since(killed).Round(100*time.Millisecond))
	report := ld.finish()
	l.settle(2 * time.Minute)
	// Nothing hit the index: what the dead had claimed comes back when its leases run out.
	v := l.verdict(t.bounds(time.Minute))
	if v.LockOverlaps > 0 {
		l.Errorf("%d sends on one lock key overlap", v.LockOverlaps)
	}
	l.remark("%d requests were made again by their callers; accepts took p99 %s", report.again, report.took.P99.Round(time.Millisecond))
}

// shared is the usual load over some lanes. In the short form nothing has a lock: one whose release is lost is waited for half
// a minute. Its time-out is long, because these labs start many servers at once.
func (l *lab) shared(i int) submission {
	s := l.mixed(i)
	s["lane"] = laneName(i)
	s["policy"].(submission)["timeout"] = "10s"
	if !l.full {
		delete(s, "lock_key")
	}
	return s
}

// finishUnhindered ends a load whose accepts no fault was to hinder, because accepting needs no index: half of them took less
// than a second, on however busy a machine.
func (l *lab) finishUnhindered(ld *load) {
	l.Helper()
	report := ld.finish()
	if report.took.P50 > time.Second {
		l.Errorf("accepts took p50 %s: they do not need the index", report.took.P50)
	}
	l.remark("accepts took p50 %s p99 %s most %s, %d requests were made again", report.took.P50.Round(time.Millisecond),
		report.took.P99.Round(time.Millisecond), report.took.Most.Round(time.Millisecond), report.again)
}

// wait waits until n more callbacks were accepted.
func (l *lab) wait(what string, n int) {
	l.Helper()
	want := l.count() + n
	eventually(l, 2*time.Minute, what, func() error {
		if got := l.count(); got < want {
			return fmt.Errorf("%d of %d were accepted", got, want)
		}
		return nil
	})
}

// idle leaves the dispatchers alone for a while, and returns how many scripts a second all of them have the index run.
func (l *lab) idle(shards int) float64 {
	l.Helper()
	span := long(l, 10*time.Second, 5*time.Second)
	began := time.Now()
	scripts, commands := l.commands()
	time.Sleep(span) // this is what is measured: nothing happens
	moreScripts, moreCommands := l.commands()
	took := time.Since(began).Seconds()
	rate := (moreScripts - scripts) / took
	each := rate / sharers / float64(shards)
	l.remark("idle, %d dispatchers on %d shards have Redis run %.1f scripts/s, %.2f for each dispatcher and shard (%.0f commands/s with those inside)",
		sharers, shards, rate, each, (moreCommands-commands)/took)
	if each > idleScripts {
		l.Errorf("an idle dispatcher has a shard run %.2f scripts/s, at most %d are allowed", each, idleScripts)
	}
	return rate
}

var (
	scriptCalls  = regexp.MustCompile(`cmdstat_(?:evalsha|eval):calls=(\d+)`)
	commandCount = regexp.MustCompile(`total_commands_processed:(\d+)`)
)

// commands are how many scripts and how many commands all masters have run, by their own counters.
func (l *lab) commands() (scripts, commands float64) {
	l.Helper()
	var mu sync.Mutex
	err := l.on.eachRedis(l.Context(), func(ctx context.Context, c *redis.Client) error {
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
		l.Fatal(err)
	}
	return scripts, commands
}

// littleLoad sends a few callbacks a second, and counts the claims that each costs beyond those of an idle index.
func (l *lab) littleLoad(all []*process, idleRate float64) {
	l.Helper()
	const rate = 5
	n := long(l, 50, 25)
	before, began := claimsOf(l, all), time.Now()
	arrived := l.w.count()
	for i := range n {
		s := l.callback("plain", fmt.Sprint("little-", i))
		s["lane"], s["delay"] = laneName(i), "1s"
		id, err := l.ask(s)
		if err != nil {
			l.Fatal(err)
		}
		l.note(id, s["ref"].(string))
		time.Sleep(time.Second / rate) // the load's rate
	}
	eventually(l, 30*time.Second, "the little load is sent", func() error {
		if got := l.w.count() - arrived; got < n {
			return fmt.Errorf("%d of %d", got, n)
		}
		return nil
	})
	after, took := claimsOf(l, all), time.Since(began).Seconds()
	each := (after - before - idleRate*took) / float64(n)
	l.remark("one callback that becomes due costs %.1f claims of %d dispatchers", max(each, 0), len(all))
	if each > claimsEach {
		l.Errorf("one callback that becomes due costs %.1f claims, at most %d are allowed", each, claimsEach)
	}
}

// claimsOf is how many claims the processes have made.
func claimsOf(l *lab, all []*process) float64 {
	l.Helper()
	sum := 0.0
	for _, p := range all {
		n, err := p.metric("dispatcher_index_call_seconds_count", `op="claim"`)
		if err != nil {
			l.Fatal(err)
		}
		sum += n
	}
	return sum
}

// attemptsOf is how many attempts each of the processes has made.
func attemptsOf(l *lab, all []*process) []float64 {
	l.Helper()
	var each []float64
	for _, p := range all {
		n, err := p.metric("dispatcher_attempts_total")
		if err != nil {
			l.Fatal(err)
		}
		each = append(each, n)
	}
	return each
}

// even wants that nobody makes less than a quarter of its share.
func (l *lab) even(all []*process, before []float64) {
	l.Helper()
	after := attemptsOf(l, all)
	total := 0.0
	for i := range after {
		after[i] -= before[i]
		total += after[i]
	}
	share := total / float64(len(all))
	l.remark("of %.0f attempts the dispatchers made %.0f", total, after)
	if least := slices.Min(after); least < share/4 {
		l.Errorf("one dispatcher made %.0f attempts of %.0f: less than a quarter of its share", least, total)
	}
}
