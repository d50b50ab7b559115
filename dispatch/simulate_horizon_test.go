package dispatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// This file is the horizon: what is drawn for simulations with one, and how it comes back with a snapshot.

// drawHorizon gives a part of the plans with a shared index a horizon, callbacks that are due beyond it, or become so by a long wait,
// people who move them to this side of it and back, and faults of the calls that move and fill it. It draws from a source of its
// own.
func (p *plan) drawHorizon() {
	r := rand.New(rand.NewPCG(p.seed, 0x40712))
	if p.alone || r.IntN(3) > 0 {
		return
	}
	least := schedule.AlwaysAhead
	for range p.processes {
		p.horizons = append(p.horizons, []time.Duration{least, least, least + 30*time.Second, 5 * time.Minute, 0}[r.IntN(5)])
	}
	if r.IntN(3) > 0 { // Most are set alike.
		for i := range p.horizons {
			p.horizons[i] = p.horizons[0]
		}
	}
	first := len(p.callbacks)
	for i := range 3 + r.IntN(8) {
		c := planned{
			ref: fmt.Sprintf("far-%d", i), at: upTo(r, 0, 25*time.Second), host: "far.example", timeout: time.Second,
			via: r.IntN(p.processes), pause: 200 * time.Millisecond, quick: true, script: []step{{status: 200}}, ends: "succeeded", spare: 1,
		}
		if r.IntN(3) > 0 {
			c.delay = upTo(r, 100*time.Second, 5*time.Minute)
			c.tiers = []time.Duration{time.Second}
		} else {
			c.tiers, c.script = []time.Duration{upTo(r, 100*time.Second, 4*time.Minute), time.Second}, []step{{status: 500}, {status: 200}}
		}
		p.callbacks = append(p.callbacks, c)
	}
	for range r.IntN(5) {
		a := act{
			at: upTo(r, 2*time.Second, 3*time.Minute), via: r.IntN(p.processes), callback: first + r.IntN(len(p.callbacks)-first),
			do: []actKind{reschedules, reschedules, reschedules, retries, redirects, cancels}[r.IntN(6)],
		}
		if a.do == reschedules {
			a.delay = upTo(r, 0, 4*time.Minute)
		}
		p.acts = append(p.acts, a)
	}
	if p.quiet == 0 {
		return
	}
	for range r.IntN(4) {
		kinds := []faultKind{
			crashBefore, crashAfter, failed, replyLost, doubled, doubledLate, doubledLate, callLate, replyLate, stopBefore, stopAfter, wipedBefore,
		}
		f := fault{
			process: r.IntN(p.processes), op: []string{"Watermark", "MoveWatermark", "Loaded", "OpenUntil"}[r.IntN(4)],
			kind: kinds[r.IntN(len(kinds))], wait: upTo(r, 200*time.Millisecond, 25*time.Second),
		}
		f.n = 1 + r.IntN(3)
		if f.op == "Watermark" {
			f.n = 1 + r.IntN(40)
		}
		p.faults = append(p.faults, f)
	}
}

// horizon is the setting of the process in a slot.
func (p *plan) horizon(slot int) time.Duration {
	if p.horizons == nil {
		return 0
	}
	return p.horizons[slot]
}

// mark moves the watermark of an index that has just been set back to where it was, and what is loaded with it. What of it lies in
// the past is taken for now: it is overdue, and the sweep's.
func (s *simIndex) mark(ctx context.Context, was schedule.Watermark) error {
	if was.At == schedule.Forever && was.Loaded == schedule.Forever {
		return nil
	}
	loader := ""
	for i, at := range []int64{was.Loaded, was.At} {
		now, err := s.ix.Watermark(ctx, 0)
		if err != nil {
			return err
		}
		a := schedule.Advance{Horizon: time.Duration(max(1, at-now.Now)) * time.Millisecond, After: loader, Token: fmt.Sprint("restored", i)}
		if at == schedule.Forever {
			a.Horizon = 0
		}
		if _, err := s.ix.MoveWatermark(ctx, 0, a); err != nil {
			return err
		}
		loader = a.Token
	}
	return nil
}
