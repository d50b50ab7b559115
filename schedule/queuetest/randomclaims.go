package queuetest

import (
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A knownLease is what the replies have said about a leased id.
type knownLease struct {
	token   string
	until   int64
	movedTo int64 // the due time of a movement that came during the lease; zero: none
	// uncounted: it does not count towards the concurrency of its lane.
	uncounted bool
}

// count records whether a lease counts from now on.
func (w *world) count(l schedule.LeaseRef, counts bool) {
	if h, leased := w.leases[l.ID]; leased && h.token == l.Token {
		h.uncounted = !counts
		w.leases[l.ID] = h
	}
}

// countEnded records what a claim does with the leases that it names.
func (w *world) countEnded(named []schedule.EndedLease) {
	for _, e := range named {
		w.count(e.Next, true)
		if w.state.Lanes[e.Lane].Breaker == schedule.BreakerClosed {
			w.count(e.LeaseRef, false)
		}
	}
}

// randomClaim claims with random bounds, ended leases and prefetches.
func (w *world) randomClaim() {
	req := w.wide()
	req.Owner = pick(w, "owner", "one", "two")
	req.Max = pick(w, "max", 0, 1, 3, 9, 20, 256)
	req.MaxUncertain = pick(w, "max uncertain", 0, 2, 256)
	req.MaxTimingOut = pick(w, "max timing out", 0, 1, 256)
	req.Lease = pick[time.Duration](w, "lease", 10*time.Second, time.Minute)
	req.Lookahead = pick[time.Duration](w, "lookahead", 0, 0, 30*time.Millisecond, schedule.MaxLookahead)
	req.LaneLimit = w.limit
	for _, ref := range w.refs {
		if w.oneIn(6, "ended") {
			ended := schedule.EndedLease{LeaseRef: w.drawLease(ref), Next: w.drawNext(ref.Lane)}
			req.Ended = append(req.Ended, ended)
		}
	}
	for _, lane := range w.lanes[:randomLanes] {
		if w.oneIn(4, "prefetch") {
			most := pick(w, "most", 0, 1, 9)
			req.Prefetch = append(req.Prefetch, schedule.LanePrefetch{Lane: lane, Max: most})
		}
	}
	c := both(w, "claim", func(ix Index) (schedule.Claimed, error) { return ix.Claim(w.ctx, 0, req) })
	w.last[req.Owner] = req
	w.expectClaimed(req, c)
	w.oldTokens = append(w.oldTokens, req.Token)
}

// randomRepeat repeats an owner's last claim, as if its reply had been lost.
func (w *world) randomRepeat() {
	if w.oneIn(3, "late") { // another owner may have the items by now
		w.pass(time.Minute + time.Second)
		w.randomClaim()
	}
	req, ok := w.last[pick(w, "owner", "one", "two")]
	if !ok { // no claim yet
		return
	}
	c := both(w, "claim, repeated", func(ix Index) (schedule.Claimed, error) {
		return ix.Claim(w.ctx, 0, req)
	})
	w.countEnded(req.Ended)
	before := w.observe()
	leased := make(map[string]bool)
	for _, l := range c.Leases {
		leased[l.ID] = true
	}
	for id, h := range w.leases {
		if (h.token == req.Token) != leased[id] {
			w.Fatalf("%s is leased under %s; it is among those of the repeated claim %s: %t", id, h.token,
				req.Token, leased[id])
		}
	}
	if diff := difference(before.Items, w.state.Items); diff != "" {
		w.Fatalf("a repeated claim moved items (-before +after):\n%s", diff)
	}
}

// drawSettlement draws a settlement of an id, under a right or a wrong token.
func (w *world) drawSettlement(ref schedule.Ref) schedule.Settlement {
	s := schedule.Settlement{
		Item: w.drawItem(ref), Token: w.drawToken(ref.ID), Won: w.oneIn(2, "won"),
		Outcome: schedule.Outcome(rapid.IntRange(int(schedule.Ack), int(schedule.Bury)).Draw(w.rt,
			"outcome")),
		Signal: schedule.Signal(rapid.IntRange(int(schedule.NoSignal), int(schedule.Unanswered)).Draw(w.rt,
			"signal")),
		Cause: rapid.SampledFrom([]schedule.DivertCause{0, schedule.LockConflict, schedule.OutOfTurn}).
			Draw(w.rt, "cause"),
	}
	if w.oneIn(6, "hold") {
		s.HoldUntil = w.due()
	}
	return s
}

// randomSettle settles any ids with any token.
func (w *world) randomSettle() {
	var settlements []schedule.Settlement
	for _, ref := range w.some(3) {
		s := w.drawSettlement(ref)
		s.Next = w.drawNext(s.Lane)
		settlements = append(settlements, s)
	}
	w.settle(settlements)
}

// randomFinish settles leases as their holders do.
func (w *world) randomFinish() {
	var settlements []schedule.Settlement
	for _, ref := range w.refs {
		if h, leased := w.leases[ref.ID]; leased && !w.oneIn(3, "skip") {
			s := w.drawSettlement(ref)
			s.Token = h.token
			settlements = append(settlements, s)
		}
	}
	w.settle(settlements)
}

// settle settles, and checks each reply and each item. With a single settlement it also checks what the lane
// learned.
func (w *world) settle(settlements []schedule.Settlement) {
	w.Helper()
	call := on(w.ctx, Index.Settle, settlements)
	var got []schedule.Settled
	wasMoved := func(s schedule.Settlement) bool { return w.leases[s.ID].movedTo != 0 }
	if slices.ContainsFunc(settlements, wasMoved) {
		got = both(w, "settle", call) // a repetition would overrule the movement
	} else {
		got = retried(w, "settle", call)
	}
	before, leases := w.state, maps.Clone(w.leases)
	for _, s := range settlements {
		w.count(s.Next, true)
	}
	for i, s := range settlements {
		h, leased := leases[s.ID]
		mine, want := leased && h.token == s.Token, schedule.Gone
		switch {
		case mine || s.Won && !leased:
			want = schedule.Applied
			delete(w.leases, s.ID)
		case before.Items[s.ID].Place != schedule.Absent:
			want = schedule.Stale
		}
		if got[i] != want {
			w.Fatalf("settling %+v of %+v: %d, want %d", s, h, got[i], want)
		}
	}
	w.observe()
	for i, s := range settlements {
		if got[i] == schedule.Applied {
			w.expectSettlement(s, leases[s.ID])
		}
	}
	if len(settlements) == 1 {
		s := settlements[0]
		h, leased := leases[s.ID]
		w.expectLearned(before.Lanes[s.Lane], s, leased && h.token == s.Token)
	}
}

// expectSettlement checks that an item is where its settlement, or a movement that came during the lease,
// puts it.
func (w *world) expectSettlement(s schedule.Settlement, h knownLease) {
	w.Helper()
	moved := h.movedTo
	if h.token != s.Token {
		moved = 0
	}
	due := s.Due
	switch {
	case s.Outcome == schedule.Ack || s.Outcome == schedule.Bury:
		due = moved
	case moved != 0:
		due = min(due, moved)
	}
	if due != 0 {
		w.expectWaits(s.ID, due)
	} else if found := w.state.Items[s.ID]; found.Place != schedule.Absent {
		w.Fatalf("after outcome %d %s is %s", s.Outcome, s.ID, found.Place)
	}
	if lane := w.state.Lanes[s.Lane]; s.HoldUntil > w.Now() && lane.HeldUntil < s.HoldUntil {
		w.Fatalf("a lane that is to be held until %d is %+v", s.HoldUntil, lane)
	}
}

// expectLearned checks that a lane learns from the end of a lease, and from nothing else.
func (w *world) expectLearned(before schedule.LaneState, s schedule.Settlement, mine bool) {
	w.Helper()
	got, want := w.state.Lanes[s.Lane], before
	open, now := before.Breaker != schedule.BreakerClosed, w.Now()
	if mine && s.Signal == schedule.Answered {
		want.Health, want.Unanswered, open = schedule.Answering, 0, false
		want.Concurrency = min(2*before.Concurrency, before.Limit)
		if before.Breaker != schedule.BreakerClosed {
			want.Concurrency = 1
		}
	} else if mine && s.Signal != schedule.NoSignal {
		if s.Signal == schedule.TimedOut {
			want.Health, want.Concurrency = schedule.TimingOut, max(before.Concurrency/2, 1)
		}
		want.Unanswered = min(before.Unanswered+1, schedule.BreakerAttempts)
		open = open || want.Unanswered == schedule.BreakerAttempts &&
			now-before.UnansweredSince >= schedule.BreakerSpan.Milliseconds()
		if open {
			want.Concurrency = 1
		}
		extra := got.ProbeAt - now - schedule.BreakerRest.Milliseconds()
		if open && (extra < 0 || extra >= schedule.ProbeSpread) {
			w.Fatalf("at %d the breaker of %+v opened", now, got)
		}
	}
	learned := got.Health == want.Health && got.Concurrency == want.Concurrency &&
		got.Unanswered == want.Unanswered && (got.Breaker != schedule.BreakerClosed) == open
	if !learned {
		w.Fatalf("settling %+v, which held the lease: %t, made %+v of %+v", s, mine, got, before)
	}
}

// expectClaimed checks a claim by the states before and after it.
func (w *world) expectClaimed(req schedule.ClaimRequest, c schedule.Claimed) {
	w.Helper()
	w.countEnded(req.Ended)
	reaped := 0
	for id, h := range w.leases {
		if h.until <= c.Now {
			reaped++
			delete(w.leases, id)
		}
	}
	var of [3]int
	for _, l := range c.Leases {
		w.leases[l.ID] = knownLease{token: l.Token, until: l.Until, uncounted: l.Prefetched}
		of[l.Health]++
	}
	before := w.observe()
	uncertain := of[schedule.Unproven] + of[schedule.TimingOut]
	tooMany := len(c.Leases) > req.Max || uncertain > req.MaxUncertain ||
		of[schedule.TimingOut] > req.MaxTimingOut
	if c.Reaped != reaped || tooMany {
		w.Fatalf("%+v reaped %d of %d, and leased %d, of them by health %v", req, c.Reaped, reaped,
			len(c.Leases), of)
	}
	for _, l := range c.Leases {
		w.expectLease(req, c, l, before)
	}
	for _, lane := range w.lanes[:randomLanes] {
		w.expectGiven(req, c, before.Lanes[lane], of)
	}
	w.expectTick(req, c)
}
