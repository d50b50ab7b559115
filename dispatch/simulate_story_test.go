package dispatch_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// This file prints a plan and what came of it, for whoever looks at a seed that failed.

// String prints the plan for people who look at a seed that failed.
func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d processes, alone %v, faults until %s, drain timeout %s, workers %d, folds %v\n",
		p.seed, p.processes, p.alone, p.quiet, p.drainTimeout, p.workers, p.folds)
	for i := range p.callbacks {
		c := &p.callbacks[i]
		fmt.Fprintf(&b, "  %s at %s (with %v) via %d: host %s, lock %q, delay %s, expires %s, tiers %v, jitter %g, timeout %s, ends %q:",
			c.ref, c.at, c.with, c.via, c.host, c.lock, c.delay, c.expires, c.tiers, c.jitter, c.timeout, c.ends)
		for _, s := range c.script {
			fmt.Fprintf(&b, " %s %d after %s retry-after %d;", [...]string{"answer", "hang", "reset", "lose", "refuse"}[s.do], s.status, s.wait, s.retryAfter)
		}
		b.WriteByte('\n')
	}
	for _, a := range p.acts {
		fmt.Fprintf(&b, "  at %s via %d: %s %s %s\n", a.at, a.via, a.do, p.callbacks[a.callback].ref, a.delay)
	}
	for _, f := range p.faults {
		fmt.Fprintf(&b, "  fault: process %d, %s number %d: %s %s\n", f.process, f.op, f.n, f.kind, f.wait)
	}
	for _, e := range p.events {
		fmt.Fprintf(&b, "  event: at %s, process %d: %s %s %s\n", e.at, e.process, e.kind, e.lasts, e.jump)
	}
	return b.String()
}

// story prints what is known of the callbacks, for whoever looks at a seed that failed.
func (s *simulation) story(e *judge.Evidence) string {
	var b strings.Builder
	clock := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.Sub(s.began).String()
	}
	for _, r := range e.Rows {
		fmt.Fprintf(&b, "  %s %s: %s %s, lock %q, due %s, finished %s\n", r.Ref, r.ID, r.State, r.Reason, r.LockKey, clock(r.DueAt), clock(r.FinishedAt))
		type line struct {
			at   time.Time
			what string
		}
		var lines []line
		add := func(at time.Time, format string, args ...any) {
			lines = append(lines, line{at, fmt.Sprintf(format, args...)})
		}
		for _, d := range s.acted[s.place(r.Ref)] {
			add(d.at, "act %s %s: %s %v", d.act.do, d.act.delay, d.result, d.err)
		}
		for key, c := range s.stamps {
			if key.id == r.ID {
				add(c.at, "claim %d by process %d for attempt %d, until %s, result %s", c.fence, c.p.slot, c.number, clock(c.until), clock(s.results[key]))
			}
		}
		for _, a := range s.receiver.all() {
			if a.id == r.ID {
				add(a.at, "arrival of attempt %d from process %d, end %s, answered %v", a.number, a.p.slot, clock(a.end), a.answered)
			}
		}
		for _, a := range e.Attempts {
			if a.ID == r.ID {
				add(a.Started, "attempt %d %s %s %s: due %s, ended %s, charged %v, stale %v, next %s", a.Number, a.Trigger, a.Class, a.Outcome,
					clock(a.Due), clock(a.Ended), a.Charged, a.Stale, clock(a.NextDue))
			}
		}
		slices.SortStableFunc(lines, func(x, y line) int { return x.at.Compare(y.at) })
		for _, l := range lines {
			fmt.Fprintf(&b, "    %s %s\n", clock(l.at), l.what)
		}
	}
	return b.String()
}
