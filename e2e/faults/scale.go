package faults

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// Goals for a million open callbacks, on two cores shared with the databases and the receivers.
const (
	rebuildGoal = 30 * time.Second
	// firstSendGoal counts from the loss of the index.
	firstSendGoal = 2 * time.Second
	// memoryGoal is for a process with its index in Redis, embeddedGoal for one with a million callbacks in
	// its embedded index.
	memoryGoal   = 256 << 20
	embeddedGoal = 1 << 30
)

// manyOpen are the bounds of a trial whose seeded callbacks stay open.
var manyOpen = judge.Bounds{MayBeOpen: true, SharedRefs: true}

// seeded seeds open callbacks in SQL through a first process, and leaves none in Redis.
func (tr *trial) seeded(open, overdue int) {
	tr.Helper()
	tr.Seed(tr.Serve(), harness.Seeding{N: open, Overdue: overdue, Lanes: 100,
		Shape: func(_ int, ref string) harness.Submission {
			c := tr.Callback("plain", ref)
			c["lane"] = ref
			return c
		}})
	tr.Flush() // the first process has enqueued a few
}

// scaleSeed seeds the callbacks of these trials.
func (tr *trial) scaleSeed() (open, overdue int) {
	tr.Helper()
	open = testserver.Sized(50_000, 100_000, 1_000_000)
	tr.seeded(open, open/50)
	return open, open / 50
}

// startedCold starts a process with an empty index. If the index is in Redis, it then empties it again.
func startedCold(tr *trial) {
	open, overdue := tr.scaleSeed()
	tr.MarkFault()
	m := tr.measure("started cold", open)
	p := tr.Serve()
	m.ready = time.Since(m.lost)
	fresh := tr.Load(20, tr.Numbered("fresh"))
	m.judge(p, tr.awaitRebuilt(p, 0))
	fresh.Finish()
	tr.settleDue()

	if tr.Backend.Redis != "" {
		tr.Check(p.ForgetPeak())
		// These callbacks fall due just after the loss of the index. Nothing is due before.
		tr.AcceptMany(1000, func(i int) harness.Submission { return tr.due("due", i, 3*time.Second) })
		due := time.Now().Add(3 * time.Second)
		time.Sleep(time.Until(due.Add(-time.Second))) // the time of the fault
		tr.MarkFault()
		m = tr.measure("emptied", open-overdue)
		tr.Flush()
		fresh = tr.Load(20, tr.Numbered("later"))
		m.judge(p, tr.awaitRebuilt(p, 1))
		tr.Remark("accepts meanwhile %s", fresh.Finish().Took)
		tr.settleDue()
	}
	tr.Verdict(manyOpen)
}

// A measurement is the cost of losing an index, from that moment on.
type measurement struct {
	*trial
	stretched func() float64
	what      string
	open      int // the rebuild must find at least so many
	lost      time.Time
	// ready is how long the process took to start.
	ready time.Duration
}

func (tr *trial) measure(what string, open int) *measurement {
	tr.Helper()
	return &measurement{trial: tr, stretched: harness.Stretch(tr), what: what, open: open, lost: time.Now()}
}

// judge compares a rebuild with its goals.
func (m *measurement) judge(p *harness.Process, r harness.Rebuilt) {
	m.Helper()
	peak, err := p.PeakMemory()
	m.Check(err)
	stretch := m.stretched()
	first := m.firstSend().Sub(m.lost)
	m.Remark("%s with %d open (seeded): rebuilt in %s, first send %s after the loss (ready after %s), peak "+
		"memory of the dispatcher %s; other programs slowed the machine by a factor of %.1f",
		m.what, r.Open, r.Took, first, m.ready, harness.Megabytes(peak), stretch)
	if r.Open < m.open {
		m.Errorf("%s: the rebuild found %d open callbacks, at least %d are", m.what, r.Open, m.open)
	}
	by := func(goal time.Duration) time.Duration { return time.Duration(float64(goal) * stretch) }
	if r.Took > by(rebuildGoal) {
		m.Errorf("%s: the rebuild took %s, the goal is %s", m.what, r.Took, by(rebuildGoal))
	}
	// A new process must first open its SQL.
	if limit := by(firstSendGoal) + m.ready; first > limit {
		m.Errorf("%s: the first send came %s after the loss, the goal is %s", m.what, first, limit)
	}
	goal := int64(memoryGoal)
	if m.Backend.Redis == "" {
		goal = embeddedGoal
	}
	if peak > goal {
		m.Errorf("%s: the process had %s at its peak, the goal is %s", m.what, harness.Megabytes(peak),
			harness.Megabytes(goal))
	}
}

// firstSend returns the first arrival after the loss of the index. Nothing was due before it.
func (m *measurement) firstSend() time.Time {
	for _, a := range m.Receiver.All() {
		if a.At.After(m.lost) {
			return a.At
		}
	}
	m.Fatal("nothing arrived after the index was lost")
	return time.Time{}
}

// settleDue waits until no due callback is open.
func (tr *trial) settleDue() {
	tr.Helper()
	tr.awaitNone(time.Minute, "everything that was due has ended",
		`SELECT count(*) FROM callbacks WHERE state = 'scheduled' AND due_at <= $1`, time.Now().UnixMilli())
}

// awaitRebuilt waits until the process has finished more than n rebuilds, and returns number n, from 0.
func (tr *trial) awaitRebuilt(p *harness.Process, n int) harness.Rebuilt {
	tr.Helper()
	var all []harness.Rebuilt
	tr.AtLeast(3*time.Minute, "the index is rebuilt", n+1, func() int {
		var err error
		all, err = p.Rebuilds()
		tr.Check(err)
		return len(all)
	})
	return all[n]
}

// filled returns the number of callbacks in the delay sets of the trial's Redis.
func (tr *trial) filled() (sum int, err error) {
	err = tr.Backend.EachKey(tr.Context(), func(c *redis.Client, key, name string) error {
		if name != "delay" {
			return nil
		}
		n, err := c.ZCard(tr.Context(), key).Result()
		sum += int(n)
		return err
	})
	return sum, err
}

// awaitFilled waits until the index has at least n callbacks in its delay sets.
func (tr *trial) awaitFilled(n int, limit time.Duration) {
	tr.Helper()
	tr.Eventually(limit, fmt.Sprintf("the index has %d callbacks", n), func() error {
		got, err := tr.filled()
		if err == nil && got < n {
			err = fmt.Errorf("it has %d", got)
		}
		return err
	})
}

// emptiedWhileFilled empties the index during the rebuild of an empty one, and then twice in a row.
func emptiedWhileFilled(tr *trial) {
	open, _ := tr.scaleSeed()
	tr.Serve()
	tr.Serve()
	fresh := tr.Load(20, tr.Numbered("fresh"))
	for _, part := range []int{4, 3, 1000} {
		tr.awaitFilled(open/part, time.Minute)
		tr.MarkFault()
		tr.Flush()
	}
	emptied := time.Now()
	tr.Eventually(3*time.Minute, "the index is as SQL says", tr.whole)
	whole := time.Since(emptied)
	fresh.Finish()
	tr.settleDue()
	finished := 0
	for _, p := range tr.Alive() {
		all, err := p.Rebuilds()
		tr.Check(err)
		finished += len(all)
	}
	tr.Remark("emptied three times, the last time while the index had a thousandth of %d: complete again "+
		"%s later; two processes finished %d rebuilds", open, whole, finished)
	tr.Verdict(manyOpen)
}

// whole returns an error unless the index is complete and no process is rebuilding it.
func (tr *trial) whole() error {
	if n := tr.sqlCount(`SELECT generation - built FROM index_meta`); n != 0 {
		return fmt.Errorf("generation %d after the one that is built is being filled", n)
	}
	for _, p := range tr.Alive() {
		if err := healthError(p); err != nil {
			return err
		}
	}
	return nil
}

// leaderKilled kills the process that rebuilds the index, half-way. Another one must take over.
func leaderKilled(tr *trial) {
	open, _ := tr.scaleSeed()
	leader := tr.ServeUntil(fmt.Sprint("during_rebuild:", open/4000))
	other := tr.Serve()
	fresh := tr.Load(20, tr.Numbered("fresh"))
	died := tr.AwaitDeath(leader, time.Minute, 4*time.Second)
	r := tr.awaitRebuilt(other, 0)
	fresh.Finish()
	tr.settleDue()
	takeover := r.Time.Add(-r.Took).Sub(died)
	tr.Remark("the leader of a rebuild of %d open (seeded) was killed after a quarter: another began "+
		"%s later and took %s", r.Open, takeover, r.Took)
	if takeover > 6*time.Second {
		tr.Errorf("another process took over %s after the leader's death, its lease is 4 s", takeover)
	}
	tr.Accounted(manyOpen)
}

// lateGoal is the allowed lateness at p99 of a callback whose destination responds, whatever another
// destination does.
const lateGoal = 250 * time.Millisecond

// commits is the number of commits between the request for a callback and its send: those of its row and of
// its stamp.
const commits = 2

// blackHoleOpens starts a process and returns its lateness without a fault. The receiver then reads requests
// of the kind hole and never responds. The function shape makes callbacks for it, whose attempts occupy their
// slots for long.
func (tr *trial) blackHoleOpens() (calm judge.Quantiles, shape func(ref string) harness.Submission) {
	tr.Helper()
	// An hour: the client closes the connection first.
	tr.Receiver.AnswerKind("hole", harness.Reply{Cut: true, After: time.Hour})
	hole := "http://" + tr.Receiver.Listen(tr, "127.0.0.2:0")
	tr.Serve()
	calm = judge.QuantilesOf(tr.steadyLateness("calm", 5*time.Second))
	return calm, func(ref string) harness.Submission {
		c := tr.Callback("hole", ref)
		c["url"] = hole + "/hole/" + ref
		c["policy"] = harness.Tiers("5s", "1s", "2s", "5s", "5s", "5s", "5s", "5s", "5s", "5s", "5s")
		return c
	}
}

// blackHole sends a steady load to one destination. Another destination with a large backlog reads every
// request and does not respond. At the end it responds.
func blackHole(tr *trial) {
	calm, shape := tr.blackHoleOpens()
	pending := testserver.Sized(10_000, 20_000, 100_000)
	tr.AcceptMany(pending, func(i int) harness.Submission {
		c := shape(fmt.Sprint("hole-", i))
		delete(c, "idempotency_key")
		return c
	})
	tr.judgeSteadyLoad(calm, pending)
	tr.Receiver.Answer(harness.Usual)
	answered := time.Now()
	tr.MarkFault()
	tr.Settle(10 * time.Minute)
	took := time.Since(answered)
	tr.Remark("the black hole responds at last: its %d ended in %s, %.0f/s", pending,
		took, float64(pending)/took.Seconds())
	tr.Verdict(judge.Bounds{})
}

// blackHoleWithManyDue is blackHole with many callbacks that are due when the process starts and stay open.
func blackHoleWithManyDue(tr *trial) {
	calm, shape := tr.blackHoleOpens()
	pending := testserver.Sized(50_000, 100_000, 1_000_000)
	tr.Seed(tr.AnyProcess(), harness.Seeding{N: pending, Overdue: pending, Lanes: 1,
		Shape: func(_ int, ref string) harness.Submission { return shape(ref) }})
	tr.Flush()
	tr.MarkFault()
	m := tr.measure("started cold before a black hole", pending)
	p := tr.Serve()
	m.ready = time.Since(m.lost)
	filling := judge.QuantilesOf(tr.steadyLateness("filling", 5*time.Second))
	m.judge(p, tr.awaitRebuilt(p, 0))
	tr.Remark("while the index was being filled: the healthy one %s", filling)
	tr.judgeSteadyLoad(calm, pending)
	tr.Verdict(manyOpen)
}

// steadyLateness sends fifty callbacks a second to the destination that responds, for length, and returns
// their lateness.
func (tr *trial) steadyLateness(name string, length time.Duration) []time.Duration {
	tr.Helper()
	ld := tr.Load(50, tr.Numbered(name))
	time.Sleep(length) // the duration of the load
	ld.Finish()
	tr.awaitEnds(time.Minute, name+"-%")
	late := tr.lateness(name + "-%")
	if want := int(length.Seconds() * 25); len(late) < want {
		tr.Errorf("%s: %d were sent, want at least %d", name, len(late), want)
	}
	return late
}

// judgeSteadyLoad judges the lateness of a steady load while another destination is down. The limit grows
// only with the CPU time of other programs and with stalls of the disk.
func (tr *trial) judgeSteadyLoad(calm judge.Quantiles, pending int) {
	tr.Helper()
	stretched, stalled := harness.Stretch(tr), harness.Stalls(tr)
	length := testserver.Sized(10*time.Second, 15*time.Second, time.Minute)
	healthy := judge.QuantilesOf(tr.steadyLateness("healthy", length))
	stall, stretch := stalled(), stretched()
	tr.Remark("with %d pending in a black hole, another destination was late by %s; before, by %s "+
		"(other programs slowed the machine by a factor of %.1f, its disk stalled for %s at most)",
		pending, healthy, calm, stretch, stall)
	if limit := time.Duration(float64(lateGoal)*stretch) + commits*stall; healthy.P99 > limit {
		tr.Errorf("p99 is %s with a black hole, over %s", healthy.P99, limit)
	}
}
