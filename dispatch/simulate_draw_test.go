package dispatch_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// This file draws the part of a plan that goes wrong: the faults of calls, and what happens at times.

// often is about how often a process calls each operation in one simulation, so that faults are drawn where they can hit.
var often = map[string]int{
	"Accept": 20, "Stamp": 30, "Commit": 30, "Cancel": 1, "Retry": 1, "Reschedule": 1, "Overdue": 5, "Open": 3, "Claimed": 2, "ByID": 1,
	"Expire": 5, "DropClaims": 1, "IndexMeta": 12, "NextGeneration": 2, "MarkBuilt": 2, "TryLease": 60, "SweepCursor": 5, "Ping": 4,
	"AddActivity": 6, "ReportDispatcher": 12, "WithdrawDispatcher": 1,
	"OwnedSecrets": 6, "Lanes": 60, "EndpointsChanged": 60, "ProjectsChanged": 60, "Project": 1, "AllPresets": 1, "CancelDeleted": 5,
	"Ensure": 20, "Claim": 80, "Settle": 35, "Extend": 3, "IndexCancel": 2, "Move": 6, "Acquire": 12, "Release": 12, "Reset": 2, "Adopt": 2,
	"IndexOpen": 2, "SetLanes": 1, "Audit": 1, "Stats": 3, "Generation": 12,
	"Send": 40,
}

// hot are the operations on the way of every callback; most faults are for them.
var hot = strings.Fields("Accept Stamp Stamp Commit Commit Ensure Claim Claim Settle Settle Acquire Release Send Send Extend Move")

// others are the remaining ones, in a fixed order: a plan must not depend on that of a map.
var others = strings.Fields(`Cancel Retry Reschedule Overdue Open Claimed Expire DropClaims IndexMeta NextGeneration MarkBuilt TryLease
	SweepCursor Ping OwnedSecrets Lanes EndpointsChanged ProjectsChanged Project AllPresets CancelDeleted AddActivity ReportDispatcher WithdrawDispatcher IndexCancel
	Reset Reset Adopt Adopt IndexOpen IndexOpen SetLanes Audit Stats Generation`)

func (p *plan) drawFaults(r *rand.Rand) {
	crashes, stops := 3, 1
	for range r.IntN(13) {
		f := fault{process: r.IntN(p.processes), op: hot[r.IntN(len(hot))]}
		if r.IntN(4) == 0 {
			f.op = others[r.IntN(len(others))]
		}
		f.n = 1 + r.IntN(often[f.op])
		kinds := []faultKind{
			crashBefore, crashAfter, failed, failed, replyLost, replyLost, doubled, doubledLate, callLate, replyLate, stopBefore, stopAfter,
			wipedBefore,
		}
		f.kind = kinds[r.IntN(len(kinds))]
		f.wait = upTo(r, 200*time.Millisecond, 8*time.Second)
		if r.IntN(4) == 0 {
			f.wait = upTo(r, 8*time.Second, 25*time.Second)
		}
		if sends := []faultKind{crashBefore, crashAfter, stopBefore, stopAfter, wipedBefore}; f.op == "Send" && !slices.Contains(sends, f.kind) {
			f.kind = sends[r.IntN(len(sends))]
		}
		if f.kind == stopBefore || f.kind == stopAfter {
			if stops--; stops < 0 {
				continue
			}
			f.wait = upTo(r, time.Second, time.Minute)
		}
		if f.kind == crashBefore || f.kind == crashAfter {
			if crashes--; crashes < 0 {
				continue
			}
		}
		p.faults = append(p.faults, f)
	}
}

func (p *plan) drawEvents(r *rand.Rand) {
	crashes := 2
	for range r.IntN(4) {
		e := event{at: upTo(r, 500*time.Millisecond, p.quiet), process: r.IntN(p.processes)}
		switch k := r.IntN(20); {
		case k < 3:
			if crashes--; crashes < 0 {
				continue
			}
			e.kind = crash
		case k < 6:
			e.kind, e.lasts = pause, upTo(r, time.Second, time.Minute)
		case k < 8:
			e.kind = drain
		case k < 11:
			e.kind, e.process = wipe, -1
		case k < 13:
			// Taken a while before it comes back.
			p.events = append(p.events, event{at: max(400*time.Millisecond, e.at-upTo(r, 100*time.Millisecond, 10*time.Second)), process: -1, kind: snapshot})
			e.kind, e.process = rollback, -1
		case k < 16:
			e.kind, e.lasts = []eventKind{sqlRefuses, sqlHangs, sqlMute}[r.IntN(3)], upTo(r, 200*time.Millisecond, 25*time.Second)
		case k < 19:
			e.kind, e.lasts = []eventKind{indexFails, indexHangs, indexMute}[r.IntN(3)], upTo(r, 200*time.Millisecond, 25*time.Second)
		default:
			p.drawJump(r, e.at)
			continue
		}
		if e.process >= 0 && e.kind != crash && e.kind != pause && e.kind != drain && r.IntN(2) == 0 {
			e.process = -1 // SQL or the index is away for everybody.
		}
		p.events = append(p.events, e)
	}
}

// longJump is longer than anything in a simulation that lasts: a claim, a horizon, a delay.
const longJump = 10 * time.Minute

// drawJump puts the index's clock forward or back: a little and back again, or by longJump, for a while or for good.
func (p *plan) drawJump(r *rand.Rand, at time.Duration) {
	jump := upTo(r, 100*time.Millisecond, 4*time.Second)
	if r.IntN(3) == 0 {
		jump = longJump
	}
	if r.IntN(3) == 0 {
		jump = -jump
	}
	p.events = append(p.events, event{at: at, process: -1, kind: clockJumps, jump: jump})
	if jump.Abs() < longJump || r.IntN(2) == 0 {
		p.events = append(p.events, event{at: at + upTo(r, time.Second, 10*time.Second), process: -1, kind: clockJumps, jump: -jump})
	}
}
