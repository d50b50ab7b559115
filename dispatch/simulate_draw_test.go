package dispatch_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// This file draws what goes wrong in a plan: the faults of calls, the events, and the horizon.

var (
	// hot are the operations of every callback; most faults apply to them.
	hot = strings.Fields(`Accept Stamp Stamp Stamp Commit Commit Ensure Claim Claim Settle Settle Acquire
		Release Send Send Send Reacquire Reacquire Extend Move`)
	// others are the remaining operations.
	others = strings.Fields(`
		Cancel CancelRef Retry Reschedule Overdue Open Claimed Expire DropClaims IndexMeta
		NextGeneration MarkBuilt TryLease SweepCursor Ping OwnedSecrets Lanes EndpointsChanged
		ProjectsChanged Project AllPresets CancelDeleted AddActivity ReportDispatcher WithdrawDispatcher
		IndexCancel Reset Reset Adopt Adopt IndexOpen IndexOpen SetLanes Audit Stats Generation Clock`)
	// often are faults that only these operations show: a drain interrupts an attempt; the index forgets a
	// lease before its stamp, so that its settlement is stale; a lock is lost before its attempt begins.
	// Reacquire is the second Acquire of a lease, after its stamp.
	often = map[string][]kind{
		"Send":      {drain, drain, drain, drain, drain, stopBefore, stopAfter},
		"Reacquire": {wipedBefore, failed, replyLost},
		"Stamp":     slices.Repeat([]kind{wipedBefore}, 6),
	}
	// filling are the operations that move and load a horizon.
	filling = strings.Fields("Watermark MoveWatermark Loaded OpenUntil")
)

// drawFaults draws n faults of calls of the operations in one of the lists.
func (p *plan) drawFaults(r *rand.Rand, n int, ops ...[]string) {
	crashes, stops := 3, 1
	for range n {
		f := fault{
			at: upTo(r, 0, 30*time.Second), process: r.IntN(p.processes), op: oneOf(r, oneOf(r, ops...)...),
			lasts: upTo(r, 200*time.Millisecond, 8*time.Second),
		}
		if r.IntN(4) == 0 {
			f.at = upTo(r, 0, 200*time.Millisecond) // affects calls that are made only at a start
		}
		if r.IntN(4) == 0 {
			f.lasts = upTo(r, 8*time.Second, 25*time.Second)
		}
		kinds := []kind{crashBefore, crashAfter, stopBefore, stopAfter, wipedBefore}
		if f.op != "Send" {
			kinds = append(kinds, failed, failed, replyLost, replyLost, doubled, doubledLate, callLate,
				replyLate)
		}
		f.kind = oneOf(r, append(kinds, often[f.op]...)...)
		switch f.kind {
		case stopBefore, stopAfter:
			f.lasts = upTo(r, time.Second, time.Minute)
			stops--
		case crashBefore, crashAfter:
			crashes--
		}
		if stops >= 0 && crashes >= 0 {
			p.faults = append(p.faults, f)
		}
	}
}

func (p *plan) drawEvents(r *rand.Rand) {
	crashes := 2
	for range r.IntN(4) {
		e := fault{at: upTo(r, 500*time.Millisecond, 45*time.Second), process: -1,
			lasts: upTo(r, 200*time.Millisecond, 25*time.Second)}
		away := oneOf(r, sqlRefuses, sqlHangs, sqlMute)
		gone := oneOf(r, indexFails, indexHangs, indexMute)
		e.kind = oneOf(r, crash, crash, crash, pause, pause, pause, drain, drain, wipe, wipe, wipe, rollback,
			rollback,
			away, away, away, gone, gone, gone, clockJumps)
		switch e.kind {
		case crash, pause, drain:
			e.process = r.IntN(p.processes)
			if e.kind == crash {
				crashes--
			}
			if e.kind == pause {
				e.lasts = upTo(r, time.Second, time.Minute)
			}
		case rollback: // to a snapshot from before
			p.events = append(p.events, fault{at: max(400*time.Millisecond,
				e.at-upTo(r, 100*time.Millisecond, 10*time.Second)), process: -1, kind: snapshot})
		case clockJumps:
			p.drawJump(r, e.at)
			continue
		case away, gone:
			if r.IntN(2) == 0 {
				e.process = r.IntN(p.processes) // for this process only
			}
		}
		if crashes >= 0 {
			p.events = append(p.events, e)
		}
	}
}

// longJump is longer than everything that lasts in a simulation: a claim, a horizon, a delay.
const longJump = 10 * time.Minute

// drawJump sets the index's clock forward or back: a little and back again, or by longJump, temporarily or
// for good.
func (p *plan) drawJump(r *rand.Rand, at time.Duration) {
	jump := upTo(r, 100*time.Millisecond, 4*time.Second)
	if r.IntN(3) == 0 {
		jump = longJump
	}
	if r.IntN(3) == 0 {
		jump = -jump
	}
	p.events = append(p.events, fault{at: at, process: -1, kind: clockJumps, jump: jump})
	if jump.Abs() < longJump || r.IntN(2) == 0 {
		p.events = append(p.events, fault{at: at + upTo(r, time.Second, 10*time.Second), process: -1,
			kind: clockJumps, jump: -jump})
	}
}

// drawHorizon adds to a plan with a shared index: a horizon, callbacks that are due beyond it or become so by
// a long wait, people who move callbacks across it, and faults of the calls that move and load it.
func (p *plan) drawHorizon(r *rand.Rand) {
	least := schedule.MinHorizon
	for slot := range p.horizons {
		p.horizons[slot] = oneOf(r, least, least, least+30*time.Second, 5*time.Minute, 0)
	}
	if r.IntN(3) > 0 { // usually all processes have the same horizon
		p.horizons = slices.Repeat(p.horizons[:1], p.processes)
	}
	first := len(p.callbacks)
	for i := range 3 + r.IntN(8) {
		c := succeeding(fmt.Sprintf("far-%d", i), "far.example", upTo(r, 0, 25*time.Second))
		c.via, c.spare, c.tiers = r.IntN(p.processes), 1, []time.Duration{time.Second}
		if r.IntN(3) > 0 {
			c.delay = upTo(r, 100*time.Second, 5*time.Minute)
		} else {
			c.tiers = []time.Duration{upTo(r, 100*time.Second, 4*time.Minute), time.Second}
			c.script = []step{{status: 500}, {status: 200}}
		}
		p.callbacks = append(p.callbacks, c)
	}
	p.drawActs(r, r.IntN(5), first, 3*time.Minute, 4*time.Minute, reschedules, reschedules, reschedules,
		retries, redirects, cancels)
	p.drawFaults(r, r.IntN(4), filling)
}
