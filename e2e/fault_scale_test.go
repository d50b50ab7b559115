package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// scaleFaults lose the index of a million open callbacks, whole or while it is being filled, and break destinations by the
// thousand. The open callbacks are seeded in SQL: see seeding.
func scaleFaults() []fault {
	return []fault{
		{id: "F49", title: "started cold with open callbacks by the million", heavy: true, short: []combination{full}, full: []combination{full, embedded}, run: startedCold},
		{id: "F49", title: "emptied while it is filled", heavy: true, short: []combination{sqliteRedis}, full: []combination{full}, run: emptiedWhileFilled},
		{id: "F49", title: "leader of the rebuild killed", heavy: true, short: []combination{full}, full: []combination{full}, run: leaderKilled},
		{id: "F44", title: "a black hole with a long backlog", heavy: true, short: []combination{full}, full: bothEnds, run: blackHole},
		{id: "F44", title: "a black hole with a million due", heavy: true, full: []combination{full}, run: blackHoleOfAMillion},
		{id: "F43", title: "origins by the thousand down and up again", heavy: true, short: []combination{full}, full: []combination{full, embedded}, run: manyOriginsDown},
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

// scaleSeed is what these labs find in SQL.
func (l *lab) scaleSeed() seeding {
	return seeding{n: long(l, 1_000_000, 100_000), overdue: long(l, 20_000, 2_000), lanes: 100, shape: func(lane int) submission {
		c := l.callback("plain", seedRef(lane))
		c["lane"] = seedRef(lane)
		return c
	}}
}

// startedCold starts a process that finds an index without anything in it, and then, if it can be, empties the index.
func startedCold(l *lab) {
	s := l.scaleSeed()
	l.seed(l.serve(), s)
	l.flush() // the seeding's own process has left a few

	l.struck()
	m := l.measure("started cold", s.n)
	p := l.serve()
	m.ready = time.Since(m.lost)
	fresh := l.load(20, func(i int) submission { return l.callback("plain", fmt.Sprint("fresh-", i)) })
	m.judge(p, l.awaitRebuilt(p, 0, 3*time.Minute))
	fresh.finish()
	l.settleDue(time.Minute)

	if l.on.redis != "" {
		if err := forgetPeak(p.cmd.Process.Pid); err != nil {
			l.Fatal(err)
		}
		// These fall due when the index has just been lost. Nothing is due before.
		l.acceptMany(1000, func(i int) submission {
			c := l.callback("plain", fmt.Sprint("due-", i))
			c["delay"] = "3s"
			return c
		})
		due := time.Now().Add(3 * time.Second)
		time.Sleep(time.Until(due.Add(-time.Second))) // the fault comes at a time, not upon a condition
		l.struck()
		m = l.measure("emptied", s.n-s.overdue)
		l.flush()
		fresh = l.load(20, func(i int) submission { return l.callback("plain", fmt.Sprint("later-", i)) })
		m.judge(p, l.awaitRebuilt(p, 1, 3*time.Minute))
		report := fresh.finish()
		l.remark("accepts meanwhile p99 %s, most %s", report.took.P99.Round(time.Millisecond), report.took.Most.Round(time.Millisecond))
		l.settleDue(time.Minute)
	}
	l.verdict(judge.Bounds{MayBeOpen: true, SharedRefs: true})
}

// flush empties the lab's Redis, if it has one.
func (l *lab) flush() {
	l.Helper()
	if l.on.redis == "" {
		return
	}
	if err := l.on.eachRedis(l.Context(), func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }); err != nil {
		l.Fatal(err)
	}
}

// A measurement is what the loss of an index costs, from that moment on.
type measurement struct {
	l    *lab
	what string
	open int // that the rebuild must find, at least
	lost time.Time
	cpu  map[string]float64
	// all and ours are the CPU seconds of the machine and of the lab.
	all, ours float64
	// ready is how long a process took to start.
	ready time.Duration
}

func (l *lab) measure(what string, open int) *measurement {
	l.Helper()
	cpu, err := cpuByName()
	if err != nil {
		l.Fatal(err)
	}
	all, ours, err := cpuUse()
	if err != nil {
		l.Fatal(err)
	}
	return &measurement{l: l, what: what, open: open, lost: time.Now(), cpu: cpu, all: all, ours: ours}
}

// judge holds a rebuild against its goals.
func (m *measurement) judge(p *process, r rebuilt) {
	m.l.Helper()
	cpu, err := cpuByName()
	if err != nil {
		m.l.Fatal(err)
	}
	peak, err := peakMemory(p.cmd.Process.Pid)
	if err != nil {
		m.l.Fatal(err)
	}
	stretch, err := stretched(m.all, m.ours)
	if err != nil {
		m.l.Fatal(err)
	}
	first := m.firstSend().Sub(m.lost)
	spent := func(name string) float64 { return cpu[name] - m.cpu[name] }
	m.l.remark("%s with %d open (seeded): rebuilt in %s, first send %s after the loss (ready after %s), CPU seconds of the dispatcher %.1f, of Redis %.1f, of PostgreSQL %.1f (others made the machine %.1f times as slow), peak memory of the dispatcher %s, of Redis %s",
		m.what, r.Open, r.took.Round(time.Millisecond), first.Round(time.Millisecond), m.ready.Round(time.Millisecond),
		spent("dispatcher"), spent("redis-server"), spent("postgres"), stretch, megabytes(peak), megabytes(m.l.redisPeak()))
	if r.Open < m.open {
		m.l.Errorf("%s: the rebuild found %d open callbacks, at least %d are", m.what, r.Open, m.open)
	}
	by := func(goal time.Duration) time.Duration { return time.Duration(float64(goal) * stretch) }
	if r.took > by(rebuildGoal) {
		m.l.Errorf("%s: the rebuild took %s, the goal is %s", m.what, r.took, by(rebuildGoal))
	}
	// A process that starts has its SQL to open first.
	if limit := by(firstSendGoal) + m.ready; first > limit {
		m.l.Errorf("%s: the first send came %s after the loss, the goal is %s", m.what, first, limit)
	}
	goal := int64(memoryGoal)
	if m.l.on.redis == "" {
		goal = embeddedGoal
	}
	if peak > goal {
		m.l.Errorf("%s: the process had %s at its peak, the goal is %s", m.what, megabytes(peak), megabytes(goal))
	}
}

// firstSend is when the first request arrived after the loss. Nothing was due when it came.
func (m *measurement) firstSend() time.Time {
	m.l.Helper()
	arrivals, err := m.l.w.journal.read()
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
func (l *lab) settleDue(limit time.Duration) {
	l.Helper()
	now := time.Now().UnixMilli()
	eventually(l, limit, "everything that was due has ended", func() error {
		var n int
		err := l.database().QueryRowContext(l.Context(), `SELECT count(*) FROM callbacks WHERE state = 'scheduled' AND due_at <= $1`, now).Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d are open", n)
		}
		return err
	})
}

// A rebuilt is what a process logs of a rebuild.
type rebuilt struct {
	Message string    `json:"msg"`
	Time    time.Time `json:"time"` // of its end
	Open    int       `json:"open"`
	TookAs  string    `json:"took"`

	took time.Duration
}

// rebuilds are those that the process has finished.
func (p *process) rebuilds() ([]rebuilt, error) {
	f, err := os.Open(p.logFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []rebuilt
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r rebuilt
		// A line that is no JSON, such as the last one while it is written, is none of ours.
		if json.Unmarshal(lines.Bytes(), &r) != nil || r.Message != "index rebuilt" {
			continue
		}
		if r.took, err = time.ParseDuration(r.TookAs); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// awaitRebuilt waits until the process has finished more than n rebuilds, and returns the next one.
func (l *lab) awaitRebuilt(p *process, n int, limit time.Duration) rebuilt {
	l.Helper()
	var all []rebuilt
	eventually(l, limit, "the index is rebuilt", func() error {
		var err error
		if all, err = p.rebuilds(); err == nil && len(all) <= n {
			err = fmt.Errorf("%d rebuilds are finished", len(all))
		}
		return err
	})
	return all[n]
}

// filled is how many callbacks the lab's Redis holds in its delay sets.
func (l *lab) filled() (int64, error) {
	var sum int64
	err := l.on.eachRedis(l.Context(), func(ctx context.Context, c *redis.Client) error {
		keys, err := c.Keys(ctx, l.on.prefix+":{*:delay").Result()
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
func (l *lab) awaitFilled(n int64, limit time.Duration) {
	l.Helper()
	eventually(l, limit, fmt.Sprintf("the index holds %d callbacks", n), func() error {
		got, err := l.filled()
		if err == nil && got < n {
			err = fmt.Errorf("it holds %d", got)
		}
		return err
	})
}

// emptiedWhileFilled empties the index in the middle of the rebuild of an emptied one, and then twice in a row.
func emptiedWhileFilled(l *lab) {
	s := l.scaleSeed()
	l.seed(l.serve(), s)
	l.flush()
	l.serve()
	l.serve()
	fresh := l.load(20, func(i int) submission { return l.callback("plain", fmt.Sprint("fresh-", i)) })
	for _, part := range []int64{4, 3, 1000} {
		l.awaitFilled(int64(s.n)/part, time.Minute)
		l.struck()
		l.flush()
	}
	emptied := time.Now()
	eventually(l, 3*time.Minute, "the index is as SQL says", func() error { return l.whole() })
	whole := time.Since(emptied)
	fresh.finish()
	l.settleDue(time.Minute)
	finished := 0
	for _, p := range l.alive() {
		all, err := p.rebuilds()
		if err != nil {
			l.Fatal(err)
		}
		finished += len(all)
	}
	l.remark("emptied three times, the last time while the index held a thousandth of %d: whole again %s later; two processes finished %d rebuilds",
		s.n, whole.Round(time.Millisecond), finished)
	l.verdict(judge.Bounds{MayBeOpen: true, SharedRefs: true})
}

// whole says whether the index was filled to the end, as SQL knows it, and no process is rebuilding.
func (l *lab) whole() error {
	var generation, built int64
	err := l.database().QueryRowContext(l.Context(), `SELECT generation, built FROM index_meta`).Scan(&generation, &built)
	if err != nil {
		return err
	}
	if generation != built {
		return fmt.Errorf("generation %d is being filled", generation)
	}
	for _, p := range l.alive() {
		status, body, err := p.readyz()
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
func leaderKilled(l *lab) {
	s := l.scaleSeed()
	l.seed(l.serve(), s)
	l.flush()
	leader := l.serveUntil(fmt.Sprint("during_rebuild:", s.n/4000))
	other := l.serve()
	fresh := l.load(20, func(i int) submission { return l.callback("plain", fmt.Sprint("fresh-", i)) })
	awaitDeath(l.T, leader, "during_rebuild", time.Minute)
	died := time.Now()
	l.struck()
	t := l.toll()
	t.take(died, 5*time.Second)
	r := l.awaitRebuilt(other, 0, 3*time.Minute)
	fresh.finish()
	l.settleDue(time.Minute)
	t.account()
	takeover := r.Time.Add(-r.took).Sub(died)
	l.remark("the leader of a rebuild of %d open (seeded) was killed after a quarter: another began %s later and took %s",
		r.Open, takeover.Round(10*time.Millisecond), r.took.Round(time.Millisecond))
	if takeover > 12*time.Second {
		l.Errorf("another process took over %s after the leader's death, its lease is 10 s", takeover)
	}
	bounds := t.bounds(0)
	bounds.MayBeOpen, bounds.SharedRefs = true, true
	l.verdict(bounds)
}
