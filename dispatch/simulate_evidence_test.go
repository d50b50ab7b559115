package dispatch_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file collects the evidence of a simulation and computes what its faults may have caused.

// evidence reads the replies that clients got, the arrivals at receivers, SQL and the index. All processes
// have ended before.
func (s *simulation) evidence(ctx context.Context, found []schedule.Found) (e judge.Evidence, err error) {
	for place, id := range s.accepted {
		c := &s.plan.callbacks[place]
		e.Accepted = append(e.Accepted, judge.Accepted{ID: id, Ref: c.ref, Hash: sha256.Sum256(bodyOf(c))})
	}
	for _, a := range s.receiver.all() {
		e.Arrivals = append(e.Arrivals, judge.Arrival{ID: a.id, Number: a.number, At: a.at, End: a.end,
			Hash: a.hash, Answered: a.answered})
	}
	db, err := sql.Open("sqlite", "file:"+s.path)
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	e.Rows, err = judge.ReadRows(ctx, db)
	if err != nil {
		return e, err
	}
	e.Attempts, err = judge.ReadAttempts(ctx, db)
	if err != nil {
		return e, err
	}
	for i := range e.Rows {
		r := &e.Rows[i]
		r.ID = bare(r.ID)
		if place := s.place(r.Ref); len(s.acted[place]) > 0 || s.plan.callbacks[place].expires > 0 {
			r.Tiers = nil // a retry, a reschedule or an expiry may shorten a wait
		}
	}
	for i := range e.Attempts {
		e.Attempts[i].ID = bare(e.Attempts[i].ID)
	}
	e.IndexRead = true
	for _, f := range found {
		e.Index = append(e.Index, judge.Item{ID: f.ID, Place: f.Place.String()})
	}
	var twice int
	err = db.QueryRowContext(ctx, `SELECT count(*) - count(DISTINCT callback_id || ' ' || fence)
		FROM attempts`).Scan(&twice)
	if twice > 0 {
		s.problem("%d claims have a second attempt", twice)
	}
	return e, err
}

// place returns the index of a reference in the plan.
func (s *simulation) place(ref string) int {
	return slices.IndexFunc(s.plan.callbacks, func(c planned) bool { return c.ref == ref })
}

// claimOf returns the claim of an arrival; false: no committed claim belongs to it, which is an error.
func (s *simulation) claimOf(a *simArrival) (stampSeen, bool) {
	var last stampSeen
	for key, seen := range s.stamps {
		if key.id == a.id && seen.p == a.p && seen.number == a.number && !seen.at.After(a.at) &&
			seen.fence > last.fence {
			last = seen
		}
	}
	return last, last.p != nil
}

// excused reports whether an arrival may be a duplicate: a disturbance of its process may have kept its
// result from SQL until its claim ended.
func (s *simulation) excused(a *simArrival, claim stampSeen) bool {
	if s.jumped(claim.at, claim.until) {
		return true // claims end by the index's clock
	}
	recorded, ok := s.results[stampKey{a.id, claim.fence}]
	if ok && !recorded.After(claim.until) {
		return false
	}
	return s.disturbed(a.p, claim.at, claim.until)
}

// jumped reports whether the index's clock jumped by longJump between the two times.
func (s *simulation) jumped(from, to time.Time) bool {
	return slices.ContainsFunc(s.plan.events, func(e fault) bool {
		at := s.began.Add(e.at)
		return e.jump.Abs() >= longJump && !at.Before(from) && !at.After(to)
	})
}

// bounds returns the limits of what the injected faults may have caused. It also records problems that the
// judge does not check.
func (s *simulation) bounds(e *judge.Evidence) judge.Bounds {
	b := judge.Bounds{Skew: 2*time.Millisecond + s.plan.skew(), Expect: s.expect}
	arrivals := s.receiver.all()
	spare := s.allowed(e, arrivals)
	for _, n := range spare {
		b.Duplicates += n
		b.PerCallback = max(b.PerCallback, n)
	}
	rows := map[string]*judge.Row{}
	for i := range e.Rows {
		rows[e.Rows[i].ID] = &e.Rows[i]
	}
	for i, a := range arrivals {
		claim, ok := s.claimOf(a)
		row := rows[a.id]
		if !ok || row == nil {
			continue
		}
		late := s.wasStopped(a.p, claim.at, a.at)
		if late && !row.FinishedAt.IsZero() && a.at.After(row.FinishedAt) {
			b.AfterTerminal++
		}
		itself, lock := s.overlaps(rows, a, claim, arrivals[:i])
		if itself {
			b.Overlaps++
		}
		if lock {
			b.LockOverlaps++
		}
	}
	return b
}

// overlaps reports whether an arrival overlaps an earlier one of the same callback (itself) or of the same
// lock key (lock) with an excuse: a stopped process does not notice the time, and a rolled back index forgets
// locks.
func (s *simulation) overlaps(rows map[string]*judge.Row, a *simArrival, claim stampSeen,
	before []*simArrival) (itself, lock bool) {
	for _, other := range before {
		earlier, ok := s.claimOf(other)
		if !ok || !other.end.After(a.at) {
			continue
		}
		stopped := s.wasStopped(a.p, claim.at, a.end) || s.wasStopped(other.p, earlier.at, other.end) ||
			s.jumped(claim.at, a.end) || s.jumped(earlier.at, other.end)
		itself = itself || other.id == a.id && stopped
		key := rows[a.id].LockKey
		if row := rows[other.id]; key != "" && row != nil && row.LockKey == key {
			lock = lock || stopped || s.forgotten(claim, a) || s.forgotten(earlier, other)
		}
	}
	return itself, lock
}

// forgotten reports whether the index was rolled back while the attempt had its lock.
func (s *simulation) forgotten(claim stampSeen, a *simArrival) bool {
	return slices.ContainsFunc(s.rollbacks,
		func(at time.Time) bool { return !at.Before(claim.at.Add(-time.Second)) && !at.After(a.end) })
}

// allowed returns, for each callback, how many sends beyond its counted attempts are excused. It records a
// problem for each callback with more.
func (s *simulation) allowed(e *judge.Evidence, arrivals []*simArrival) map[string]int {
	allowed, spare := map[string]int{}, map[string]int{}
	claims := map[stampKey]int{}
	for _, a := range arrivals {
		spare[a.id]++
		claim, ok := s.claimOf(a)
		if !ok {
			s.problem("attempt %d of %s was sent without a claim", a.number, a.id)
			continue
		}
		claims[stampKey{a.id, claim.fence}]++
		if claims[stampKey{a.id, claim.fence}] > 1 {
			s.problem("attempt %d of %s was sent twice under one claim", a.number, a.id)
		}
		if s.excused(a, claim) {
			allowed[a.id]++
		}
	}
	for i := range e.Attempts {
		a := &e.Attempts[i]
		switch {
		case a.Charged && !a.Stale:
			spare[a.ID]--
		case a.Class == string(store.ClassReceiverBusy) && !a.Stale: // got a response, and does not count
			allowed[a.ID]++
		case a.Class == string(store.ClassInterrupted) && !a.Stale && s.hits(drain) > 0:
			allowed[a.ID]++
		}
	}
	for id, n := range spare {
		if n > allowed[id] {
			s.problem("%s has %d sends beyond its counted attempts; its faults excuse %d", id, n, allowed[id])
		}
	}
	return allowed
}

// expect returns how a callback must end; empty: in any way, because an act may have changed it.
func (s *simulation) expect(ref string) string {
	place := s.place(ref)
	c := &s.plan.callbacks[place]
	want := c.ends
	if c.expires > 0 {
		want = ""
	}
	if want == "succeeded" && c.spare < s.hits(pause, stopBefore, stopAfter) {
		want = "" // a stopped process may miss a response in time, which costs an attempt
	}
	for _, d := range s.acted[place] {
		switch {
		case d.act.do == cancels || d.act.do == cancelsRef:
			switch {
			case d.err == nil && d.result == store.CancelDone:
				want = string(store.Canceled)
			case d.err != nil || d.result == store.CancelTooLate:
				want = ""
			}
		case want == string(store.Canceled):
			want = ""
		case c.ends == "dead" && c.stopOn != nil, d.act.do == reschedules:
			want = ""
		}
	}
	return want
}

// hits returns how many faults of these kinds were injected.
func (s *simulation) hits(kinds ...kind) (n int) {
	for _, k := range kinds {
		n += s.met[string(k)]
	}
	return n
}

// checkMore checks what the judge does not: the number of attempts of exhausted callbacks, and that
// everything is on time again after the faults.
func (s *simulation) checkMore(e *judge.Evidence) {
	charged := map[string]int{}
	for i := range e.Attempts {
		if a := &e.Attempts[i]; a.Charged && !a.Stale {
			charged[a.ID]++
		}
	}
	refs := map[string]*planned{}
	for i := range e.Rows {
		r := &e.Rows[i]
		place := s.place(r.Ref)
		c := &s.plan.callbacks[place]
		refs[r.ID] = c
		if len(s.acted[place]) > 0 {
			continue
		}
		if n := charged[r.ID]; r.Reason == string(store.Exhausted) && n != len(c.tiers)+1 {
			s.problem("%s is exhausted after %d counted attempts, its policy has %d", r.Ref, n,
				len(c.tiers)+1)
		}
		if r.Reason == string(store.Poison) && c.host != "poison.example" {
			s.problem("%s is dead as poison, but it is a healthy callback", r.Ref)
		}
	}
	s.onTime(e, refs)
}

const (
	// healing is how long after the last fault the recovery may take: the longest claim, a sweep and a
	// rebuild.
	healing = 75 * time.Second
	// punctual is how late an attempt may be after that, and without faults.
	punctual = 50 * time.Millisecond
	// swept is how late an attempt may be that only the sweep finds.
	swept = 22 * time.Second
)

// onTime checks that attempts start on time unless a fault, a lock or a slow receiver may have delayed them.
func (s *simulation) onTime(e *judge.Evidence, refs map[string]*planned) {
	slow := map[string]bool{}
	for i := range s.plan.callbacks {
		if c := &s.plan.callbacks[i]; !c.quick {
			slow[c.host] = true
		}
	}
	after := s.lastFault.Add(healing)
	if s.plan.skew() >= longJump || s.plan.workers < 64 {
		return // the index's clock changed the due times, or all of the few slots were taken
	}
	most := punctual
	if s.hits(crashBefore, crashAfter, crash, drain, rollback) > 0 {
		// Only the sweep finds, once it is overdue, what a process could not write to the index before it
		// ended, and what a rolled back index lost.
		most = swept
	}
	if s.plan.quiet == 0 {
		after = s.began.Add(5 * time.Second) // the processes have started by then
	}
	for i := range e.Attempts {
		a := &e.Attempts[i]
		c := refs[a.ID]
		if c == nil || c.lock != "" || slow[c.host] || a.Trigger == string(store.Manual) ||
			a.Due.Before(after) || len(s.acted[s.place(c.ref)]) > 0 {
			continue
		}
		if late := a.Started.Sub(a.Due); late > most {
			s.problem("attempt %d of %s (%s) started %s late, %s after the last fault", a.Number, c.ref,
				a.Class, late, a.Due.Sub(s.lastFault))
		}
	}
}

// story formats the plan and the history of the callbacks, for the analysis of a failed seed.
func (s *simulation) story(e *judge.Evidence) string {
	var b strings.Builder
	p := s.plan
	fmt.Fprintf(&b, "%d processes, embedded %t, faults until %s, drain timeout %s, workers %d, horizons %s, "+
		"folds %t\n",
		p.processes, p.embedded, p.quiet, p.drainTimeout, p.workers, p.horizons, p.folds)
	for _, list := range [][]fault{p.faults, p.events} {
		for _, f := range list {
			fmt.Fprintf(&b, "  %+v\n", f)
		}
	}
	for _, r := range e.Rows {
		place := s.place(r.Ref)
		fmt.Fprintf(&b, "  %+v\n  %s %s %s, due %s, finished %s\n", p.callbacks[place], r.ID, r.State,
			r.Reason, s.since(r.DueAt), s.since(r.FinishedAt))
		lines := map[time.Duration]string{}
		add := func(at time.Time, format string, args ...any) {
			lines[s.since(at)] += "    " + fmt.Sprintf(format, args...) + "\n"
		}
		for _, d := range s.acted[place] {
			add(d.at, "act %s %s: %s %v", d.act.do, d.act.delay, d.result, d.err)
		}
		for key, c := range s.stamps {
			if key.id == r.ID {
				add(c.at, "claim %d by process %d for attempt %d, until %s, result %s", c.fence, c.p.slot,
					c.number, s.since(c.until), s.since(s.results[key]))
			}
		}
		for _, a := range s.receiver.all() {
			if a.id == r.ID {
				add(a.at, "arrival of attempt %d from process %d, end %s, answered %t", a.number, a.p.slot,
					s.since(a.end), a.answered)
			}
		}
		for _, a := range e.Attempts {
			if a.ID == r.ID {
				add(a.Started, "attempt %d %s %s %s: due %s, ended %s, charged %t, stale %t, next %s",
					a.Number, a.Trigger, a.Class, a.Outcome,
					s.since(a.Due), s.since(a.Ended), a.Charged, a.Stale, s.since(a.NextDue))
			}
		}
		for _, at := range slices.Sorted(maps.Keys(lines)) {
			fmt.Fprintf(&b, "    %s\n%s", at, lines[at])
		}
	}
	return b.String()
}

// since returns the time since the start of the simulation; negative for the zero time.
func (s *simulation) since(t time.Time) time.Duration { return t.Sub(s.began) }
