package e2e

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// lateGoal is by how much a callback for a destination that answers may be late, at the 99th percentile, whatever another
// destination does.
const lateGoal = 250 * time.Millisecond

// holeSwallows is the script of a witness some of whose callbacks fall into a black hole: they are read and never answered.
func holeSwallows(h *hit) reply {
	if h.kind() == "hole" {
		return reply{after: time.Hour} // until the sender hangs up
	}
	return usual(h)
}

// another opens one more address of the witness, which is another destination, and returns its URL.
func (w *witness) another(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		tb.Fatal(err)
	}
	w.serve(l)
	return "http://" + l.Addr().String()
}

// forTheHole is a callback for the black hole. Its attempts hold their slots for long.
func (l *lab) forTheHole(hole, ref string) submission {
	c := l.callback("hole", ref)
	c["url"] = hole + "/hole/" + ref
	c["policy"] = submission{"tiers": []string{"1s", "2s", "5s", "5s", "5s", "5s", "5s", "5s", "5s", "5s"}, "timeout": "5s"}
	return c
}

// blackHole sends a steady load to one destination, beside a hundred thousand callbacks that are due for another that takes
// every request and answers none. Then it answers.
func blackHole(l *lab) {
	l.w.behave(holeSwallows)
	hole := l.w.another(l)
	l.serve()
	calm := l.lateBeside("calm", long(l, 15*time.Second, 5*time.Second))
	pending := long(l, 100_000, 20_000)
	l.struck()
	l.acceptMany(pending, func(i int) submission {
		c := l.forTheHole(hole, fmt.Sprint("hole-", i))
		delete(c, "idempotency_key")
		return c
	})
	l.heldAgainst(calm, long(l, 60*time.Second, 10*time.Second), pending)
	l.w.behave(usual)
	answered := time.Now()
	l.struck()
	l.settle(10 * time.Minute)
	took := time.Since(answered)
	l.remark("the black hole answered at last: its %d ended in %s, %.0f/s", pending, took.Round(100*time.Millisecond), float64(pending)/took.Seconds())
	l.verdict(judge.Bounds{})
}

// blackHoleOfAMillion is blackHole with a million that were due when the process started, and that stay open.
func blackHoleOfAMillion(l *lab) {
	l.w.behave(holeSwallows)
	hole := l.w.another(l)
	p := l.serve()
	calm := l.lateBeside("calm", 15*time.Second)
	const pending = 1_000_000
	l.seed(p, seeding{n: pending, overdue: pending, lanes: 1, shape: func(lane int) submission { return l.forTheHole(hole, seedRef(lane)) }})
	l.flush()
	l.struck()
	m := l.measure("started cold before a black hole", pending)
	p = l.serve()
	m.ready = time.Since(m.lost)
	filling := l.lateBeside("filling", 10*time.Second)
	m.judge(p, l.awaitRebuilt(p, 0, 3*time.Minute))
	l.remark("while the index was being filled: p99 of the healthy one %s", filling.P99)
	l.heldAgainst(calm, 60*time.Second, pending)
	l.verdict(judge.Bounds{MayBeOpen: true, SharedRefs: true})
}

// lateBeside sends fifty callbacks a second for so long to the destination that answers, and returns how late they were sent.
func (l *lab) lateBeside(name string, length time.Duration) judge.Quantiles {
	l.Helper()
	ld := l.load(50, func(i int) submission { return l.callback("plain", fmt.Sprint(name, "-", i)) })
	time.Sleep(length) // the load's length
	ld.finish()
	like := name + "-%"
	eventually(l, time.Minute, "all of "+name+" have ended", func() error {
		var n int
		err := l.database().QueryRowContext(l.Context(), `SELECT count(*) FROM callbacks WHERE ref LIKE $1 AND state = 'scheduled'`, like).Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d are open", n)
		}
		return err
	})
	rows, err := l.database().QueryContext(l.Context(),
		`SELECT attempts.started_at - attempts.due_at FROM attempts JOIN callbacks ON callbacks.id = attempts.callback_id WHERE callbacks.ref LIKE $1`, like)
	if err != nil {
		l.Fatal(err)
	}
	defer rows.Close()
	var late []time.Duration
	for rows.Next() {
		var ms int64
		if err := rows.Scan(&ms); err != nil {
			l.Fatal(err)
		}
		late = append(late, max(0, time.Duration(ms)*time.Millisecond))
	}
	if err := rows.Err(); err != nil {
		l.Fatal(err)
	}
	if want := int(length.Seconds() * 40); len(late) < want {
		l.Errorf("%s: only %d were sent, at least %d were to be", name, len(late), want)
	}
	return judge.QuantilesOf(late)
}

// heldAgainst judges the lateness of a steady load beside a broken destination. Only what others take of the machine, and a disk that
// stalls, excuse it.
func (l *lab) heldAgainst(calm judge.Quantiles, length time.Duration, pending int) {
	l.Helper()
	all, ours, err := cpuUse()
	if err != nil {
		l.Fatal(err)
	}
	stalled := stalls(l)
	healthy := l.lateBeside("healthy", length)
	stall := stalled()
	stretch, err := stretched(all, ours)
	if err != nil {
		l.Fatal(err)
	}
	l.remark("beside %d pending in a black hole, another destination was late by p50 %s, p99 %s, most %s; before, by p50 %s, p99 %s (others made the machine %.1f times as slow, its disk stalled for %s at most)",
		pending, healthy.P50, healthy.P99, healthy.Most, calm.P50, calm.P99, stretch, stall.Round(time.Millisecond))
	if limit := time.Duration(float64(lateGoal)*stretch) + commits*stall; healthy.P99 > limit {
		l.Errorf("p99 is %s beside a black hole, over %s", healthy.P99, limit)
	}
}
