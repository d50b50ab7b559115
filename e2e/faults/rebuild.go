package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// scaleFaults lose the index of many open callbacks, whole or while it is being filled, and break
// destinations by the thousand. The open callbacks are seeded in SQL: see harness.Seeding.
func scaleFaults() []fault {
	return []fault{
		{id: "F49", title: "started cold with many open", heavy: true, on: harness.BothEnds, run: startedCold},
		{id: "F49", title: "emptied while it is filled", heavy: true, on: onlySQLiteRedis, run: emptiedWhileFilled},
		{id: "F49", title: "leader of the rebuild killed", heavy: true, quick: true, on: onlyPostgresRedis,
			run: leaderKilled},
		{id: "F44", title: "a black hole with a long backlog", heavy: true, on: harness.BothEnds, run: blackHole},
		{id: "F44", title: "a black hole with many due", heavy: true, on: onlyPostgresRedis,
			run: blackHoleWithManyDue},
		{id: "F43", title: "a crowd of endpoints down and up again", heavy: true, on: harness.BothEnds,
			run: crowdFails},
	}
}

// What a million open callbacks may cost, on two cores that the databases and the receivers share.
const (
	rebuildGoal = 30 * time.Second
	// firstSendGoal counts from the moment that the index is lost.
	firstSendGoal = 2 * time.Second
	// memoryGoal is for a process whose index is in Redis; embeddedGoal, for one whose index holds a million.
	memoryGoal   = 256 << 20
	embeddedGoal = 1 << 30
)

// scaleSeed is what these trials find in SQL.
func (tr *trial) scaleSeed() harness.Seeding {
	n := sized(50_000, 100_000, 1_000_000)
	return harness.Seeding{N: n, Overdue: n / 50, Lanes: 100, Shape: func(lane int) harness.Submission {
		c := tr.Callback("plain", harness.SeedRef(lane))
		c["lane"] = harness.SeedRef(lane)
		return c
	}}
}

// startedCold starts a process that finds an index without anything in it, and then, if it can be, empties
// the index.
func startedCold(tr *trial) {
	s := tr.scaleSeed()
	tr.Seed(tr.Serve(), s)
	tr.flush() // the seeding's own process has left a few

	tr.MarkFault()
	m := tr.measure("started cold", s.N)
	p := tr.Serve()
	m.ready = time.Since(m.lost)
	fresh := tr.Load(20, func(i int) harness.Submission { return tr.Callback("plain", fmt.Sprint("fresh-", i)) })
	m.judge(p, tr.awaitRebuilt(p, 0, 3*time.Minute))
	fresh.Finish()
	tr.settleDue(time.Minute)

	if tr.Backend.Redis != "" {
		if err := harness.ForgetPeak(p.Cmd.Process.Pid); err != nil {
			tr.Fatal(err)
		}
		// These fall due when the index has just been lost. Nothing is due before.
		tr.AcceptMany(1000, func(i int) harness.Submission {
			c := tr.Callback("plain", fmt.Sprint("due-", i))
			c["delay"] = "3s"
			return c
		})
		due := time.Now().Add(3 * time.Second)
		time.Sleep(time.Until(due.Add(-time.Second))) // the fault comes at a time, not upon a condition
		tr.MarkFault()
		m = tr.measure("emptied", s.N-s.Overdue)
		tr.flush()
		fresh = tr.Load(20, func(i int) harness.Submission { return tr.Callback("plain", fmt.Sprint("later-", i)) })
		m.judge(p, tr.awaitRebuilt(p, 1, 3*time.Minute))
		report := fresh.Finish()
		tr.Remark("accepts meanwhile p99 %s, most %s", report.Took.P99.Round(time.Millisecond),
			report.Took.Most.Round(time.Millisecond))
		tr.settleDue(time.Minute)
	}
	tr.Verdict(judge.Bounds{MayBeOpen: true, SharedRefs: true})
}

// flush empties the trial's Redis, if it has one.
func (tr *trial) flush() {
	tr.Helper()
	if tr.Backend.Redis == "" {
		return
	}
	if err := tr.Backend.EachRedis(tr.Context(),
		func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }); err != nil {
		tr.Fatal(err)
	}
}

// A measurement is what the loss of an index costs, from that moment on.
type measurement struct {
	l    *trial
	what string
	open int // that the rebuild must find, at least
	lost time.Time
	// all and ours are the CPU seconds of the machine and of the trial.
	all, ours float64
	// ready is how long a process took to start.
	ready time.Duration
}

func (tr *trial) measure(what string, open int) *measurement {
	tr.Helper()
	all, ours, err := harness.CPUUse()
	if err != nil {
		tr.Fatal(err)
	}
	return &measurement{l: tr, what: what, open: open, lost: time.Now(), all: all, ours: ours}
}

// judge holds a rebuild against its goals.
func (m *measurement) judge(p *harness.Process, r harness.Rebuilt) {
	m.l.Helper()
	peak, err := harness.PeakMemory(p.Cmd.Process.Pid)
	if err != nil {
		m.l.Fatal(err)
	}
	stretch, err := harness.CPUStretch(m.all, m.ours)
	if err != nil {
		m.l.Fatal(err)
	}
	first := m.firstSend().Sub(m.lost)
	m.l.Remark("%s with %d open (seeded): rebuilt in %s, first send %s after the loss (ready after %s), peak "+
		"memory of the dispatcher %s; others made the machine %.1f times as slow",
		m.what, r.Open, r.Took.Round(time.Millisecond), first.Round(time.Millisecond),
		m.ready.Round(time.Millisecond), harness.Megabytes(peak), stretch)
	if r.Open < m.open {
		m.l.Errorf("%s: the rebuild found %d open callbacks, at least %d are", m.what, r.Open, m.open)
	}
	by := func(goal time.Duration) time.Duration { return time.Duration(float64(goal) * stretch) }
	if r.Took > by(rebuildGoal) {
		m.l.Errorf("%s: the rebuild took %s, the goal is %s", m.what, r.Took, by(rebuildGoal))
	}
	// A process that starts has its SQL to open first.
	if limit := by(firstSendGoal) + m.ready; first > limit {
		m.l.Errorf("%s: the first send came %s after the loss, the goal is %s", m.what, first, limit)
	}
	goal := int64(memoryGoal)
	if m.l.Backend.Redis == "" {
		goal = embeddedGoal
	}
	if peak > goal {
		m.l.Errorf("%s: the process had %s at its peak, the goal is %s", m.what, harness.Megabytes(peak),
			harness.Megabytes(goal))
	}
}

// firstSend is when the first request arrived after the loss. Nothing was due when it came.
func (m *measurement) firstSend() time.Time {
	m.l.Helper()
	arrivals, err := m.l.Recorder.Journal.Read()
	if err != nil {
		m.l.Fatal(err)
	}
	for _, a := range arrivals {
		if a.At.After(m.lost) {
			return a.At
		}
	}
	m.l.Fatal("nothing arrived after the index was lost")
	return time.Time{}
}

// settleDue waits until nothing that is due is open.
func (tr *trial) settleDue(limit time.Duration) {
	tr.Helper()
	now := time.Now().UnixMilli()
	harness.Eventually(tr, limit, "everything that was due has ended", func() error {
		var n int
		err := tr.Database().QueryRowContext(tr.Context(),
			`SELECT count(*) FROM callbacks WHERE state = 'scheduled' AND due_at <= $1`, now).Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d are open", n)
		}
		return err
	})
}

// awaitRebuilt waits until the process has finished more than n rebuilds, and returns the next one.
func (tr *trial) awaitRebuilt(p *harness.Process, n int, limit time.Duration) harness.Rebuilt {
	tr.Helper()
	var all []harness.Rebuilt
	harness.Eventually(tr, limit, "the index is rebuilt", func() error {
		var err error
		if all, err = p.Rebuilds(); err == nil && len(all) <= n {
			err = fmt.Errorf("%d rebuilds are finished", len(all))
		}
		return err
	})
	return all[n]
}

// filled is how many callbacks the trial's Redis holds in its delay sets.
func (tr *trial) filled() (int64, error) {
	var sum int64
	err := tr.Backend.EachRedis(tr.Context(), func(ctx context.Context, c *redis.Client) error {
		keys, err := c.Keys(ctx, tr.Backend.Prefix+":{*:delay").Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			n, err := c.ZCard(ctx, key).Result()
			if err != nil {
				return err
			}
			sum += n
		}
		return nil
	})
	return sum, err
}

// awaitFilled waits until the index holds at least n.
func (tr *trial) awaitFilled(n int64, limit time.Duration) {
	tr.Helper()
	harness.Eventually(tr, limit, fmt.Sprintf("the index holds %d callbacks", n), func() error {
		got, err := tr.filled()
		if err == nil && got < n {
			err = fmt.Errorf("it holds %d", got)
		}
		return err
	})
}

// emptiedWhileFilled empties the index in the middle of the rebuild of an emptied one, and then twice in a
// row.
func emptiedWhileFilled(tr *trial) {
	s := tr.scaleSeed()
	tr.Seed(tr.Serve(), s)
	tr.flush()
	tr.Serve()
	tr.Serve()
	fresh := tr.Load(20, func(i int) harness.Submission { return tr.Callback("plain", fmt.Sprint("fresh-", i)) })
	for _, part := range []int64{4, 3, 1000} {
		tr.awaitFilled(int64(s.N)/part, time.Minute)
		tr.MarkFault()
		tr.flush()
	}
	emptied := time.Now()
	harness.Eventually(tr, 3*time.Minute, "the index is as SQL says", func() error { return tr.whole() })
	whole := time.Since(emptied)
	fresh.Finish()
	tr.settleDue(time.Minute)
	finished := 0
	for _, p := range tr.Alive() {
		all, err := p.Rebuilds()
		if err != nil {
			tr.Fatal(err)
		}
		finished += len(all)
	}
	tr.Remark("emptied three times, the last time while the index held a thousandth of %d: whole again %s "+
		"later; two processes finished %d rebuilds",
		s.N, whole.Round(time.Millisecond), finished)
	tr.Verdict(judge.Bounds{MayBeOpen: true, SharedRefs: true})
}

// whole says whether the index was filled to the end, as SQL knows it, and no process is rebuilding.
func (tr *trial) whole() error {
	var generation, built int64
	err := tr.Database().QueryRowContext(tr.Context(),
		`SELECT generation, built FROM index_meta`).Scan(&generation, &built)
	if err != nil {
		return err
	}
	if generation != built {
		return fmt.Errorf("generation %d is being filled", generation)
	}
	for _, p := range tr.Alive() {
		status, body, err := p.Readyz()
		if err != nil {
			return err
		}
		var answer struct {
			Degraded []string `json:"degraded"`
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			return fmt.Errorf("/readyz %d %.100s: %w", status, body, err)
		}
		if len(answer.Degraded) > 0 {
			return fmt.Errorf("degraded: %v", answer.Degraded)
		}
	}
	return nil
}

// leaderKilled kills the process that fills the index, in the middle of it. Another one must take over.
func leaderKilled(tr *trial) {
	s := tr.scaleSeed()
	tr.Seed(tr.Serve(), s)
	tr.flush()
	leader := tr.ServeUntil(fmt.Sprint("during_rebuild:", s.N/4000))
	other := tr.Serve()
	fresh := tr.Load(20, func(i int) harness.Submission { return tr.Callback("plain", fmt.Sprint("fresh-", i)) })
	awaitDeath(tr.T, leader, "during_rebuild", time.Minute)
	died := time.Now()
	tr.MarkFault()
	t := tr.UncommittedClaims()
	t.Take(died, 4*time.Second)
	r := tr.awaitRebuilt(other, 0, 3*time.Minute)
	fresh.Finish()
	tr.settleDue(time.Minute)
	t.Account()
	takeover := r.Time.Add(-r.Took).Sub(died)
	tr.Remark("the leader of a rebuild of %d open (seeded) was killed after a quarter: another began %s "+
		"later and took %s",
		r.Open, takeover.Round(10*time.Millisecond), r.Took.Round(time.Millisecond))
	if takeover > 6*time.Second {
		tr.Errorf("another process took over %s after the leader's death, its lease is 4 s", takeover)
	}
	bounds := t.Bounds(0)
	bounds.MayBeOpen, bounds.SharedRefs = true, true
	tr.Verdict(bounds)
}
