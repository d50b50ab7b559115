package faults

import (
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// lateGoal is by how much a callback for a destination that answers may be late, at the 99th percentile,
// whatever another destination does.
const lateGoal = 250 * time.Millisecond

// commits is how many a callback waits for on its way from the request to the receiver: those of its row and
// of its stamp.
const commits = 2

// holeSwallows is the script of a recorder some of whose callbacks fall into a black hole: they are read and
// never answered.
func holeSwallows(h *harness.Request) harness.Reply {
	if h.Kind() == "hole" {
		return harness.Reply{After: time.Hour} // until the sender hangs up
	}
	return harness.Usual(h)
}

// forTheHole is a callback for the black hole. Its attempts hold their slots for long.
func (tr *trial) forTheHole(hole, ref string) harness.Submission {
	c := tr.Callback("hole", ref)
	c["url"] = hole + "/hole/" + ref
	c["policy"] = harness.Submission{"tiers": []string{"1s", "2s", "5s", "5s", "5s", "5s", "5s", "5s", "5s",
		"5s"}, "timeout": "5s"}
	return c
}

// blackHole sends a steady load to one destination, beside a backlog that is due for another one that takes
// every request and answers none. Then it answers.
func blackHole(tr *trial) {
	tr.Recorder.SetScript(holeSwallows)
	hole := tr.Recorder.ListenElsewhere(tr)
	tr.Serve()
	calm := judge.QuantilesOf(tr.lateBeside("calm", 5*time.Second))
	pending := sized(10_000, 20_000, 100_000)
	tr.MarkFault()
	tr.AcceptMany(pending, func(i int) harness.Submission {
		c := tr.forTheHole(hole, fmt.Sprint("hole-", i))
		delete(c, "idempotency_key")
		return c
	})
	tr.heldAgainst(calm, sized(10*time.Second, 15*time.Second, time.Minute), pending)
	tr.Recorder.SetScript(harness.Usual)
	answered := time.Now()
	tr.MarkFault()
	tr.Settle(10 * time.Minute)
	took := time.Since(answered)
	tr.Remark("the black hole answered at last: its %d ended in %s, %.0f/s", pending,
		took.Round(100*time.Millisecond), float64(pending)/took.Seconds())
	tr.Verdict(judge.Bounds{})
}

// blackHoleWithManyDue is blackHole with many that were due when the process started, and that stay open.
func blackHoleWithManyDue(tr *trial) {
	tr.Recorder.SetScript(holeSwallows)
	hole := tr.Recorder.ListenElsewhere(tr)
	p := tr.Serve()
	calm := judge.QuantilesOf(tr.lateBeside("calm", 5*time.Second))
	pending := sized(50_000, 100_000, 1_000_000)
	tr.Seed(p, harness.Seeding{N: pending, Overdue: pending, Lanes: 1,
		Shape: func(lane int) harness.Submission { return tr.forTheHole(hole, harness.SeedRef(lane)) }})
	tr.flush()
	tr.MarkFault()
	m := tr.measure("started cold before a black hole", pending)
	p = tr.Serve()
	m.ready = time.Since(m.lost)
	filling := judge.QuantilesOf(tr.lateBeside("filling", 5*time.Second))
	m.judge(p, tr.awaitRebuilt(p, 0, 3*time.Minute))
	tr.Remark("while the index was being filled: p99 of the healthy one %s", filling.P99)
	tr.heldAgainst(calm, sized(10*time.Second, 15*time.Second, time.Minute), pending)
	tr.Verdict(judge.Bounds{MayBeOpen: true, SharedRefs: true})
}

// lateBeside sends fifty callbacks a second for so long to the destination that answers, and returns how late
// they were sent.
func (tr *trial) lateBeside(name string, length time.Duration) []time.Duration {
	tr.Helper()
	ld := tr.Load(50, func(i int) harness.Submission { return tr.Callback("plain", fmt.Sprint(name, "-", i)) })
	time.Sleep(length) // the load's length
	ld.Finish()
	tr.awaitEnds(time.Minute, name+"-%")
	late := tr.lateness(name + "-%")
	if want := int(length.Seconds() * 25); len(late) < want {
		tr.Errorf("%s: only %d were sent, at least %d were to be", name, len(late), want)
	}
	return late
}

// heldAgainst judges the lateness of a steady load beside a broken destination. Only what others take of the
// machine, and a disk that stalls, excuse it.
func (tr *trial) heldAgainst(calm judge.Quantiles, length time.Duration, pending int) {
	tr.Helper()
	all, ours, err := harness.CPUUse()
	if err != nil {
		tr.Fatal(err)
	}
	stalled := harness.Stalls(tr)
	healthy := judge.QuantilesOf(tr.lateBeside("healthy", length))
	stall := stalled()
	stretch, err := harness.CPUStretch(all, ours)
	if err != nil {
		tr.Fatal(err)
	}
	tr.Remark("beside %d pending in a black hole, another destination was late by p50 %s, p99 %s, most %s; "+
		"before, by p50 %s, p99 %s (others made the machine %.1f times as slow, its disk stalled for %s at most)",
		pending, healthy.P50, healthy.P99, healthy.Most, calm.P50, calm.P99, stretch, stall.Round(time.Millisecond))
	if limit := time.Duration(float64(lateGoal)*stretch) + commits*stall; healthy.P99 > limit {
		tr.Errorf("p99 is %s beside a black hole, over %s", healthy.P99, limit)
	}
}
