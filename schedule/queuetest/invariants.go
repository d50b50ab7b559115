package queuetest

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A state is everything that an index reports about itself.
type state struct {
	Items     map[string]schedule.Found
	Lanes     map[int64]schedule.LaneState
	Stats     schedule.Stats
	Watermark schedule.Watermark
	// Leased has the ids that are leased under the token of their last reply.
	Leased map[string]bool
}

// difference is cmp.Diff for values that are mostly equal.
func difference[T any](a, b T) string {
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return gocmp.Diff(a, b)
}

// dump returns the state of a side.
func (w *world) dump(side *fixture) state {
	w.Helper()
	s := state{Items: make(map[string]schedule.Found), Lanes: make(map[int64]schedule.LaneState),
		Leased: make(map[string]bool)}
	for _, found := range side.scan(0) {
		s.Items[found.ID] = found
	}
	for _, lane := range each(side, Index.LaneStates, w.lanes[:randomLanes]) {
		s.Lanes[lane.Lane] = lane
	}
	stats, err := side.sizes()
	w.noErr(err)
	s.Stats, s.Watermark = stats, side.watermark()
	s.Stats.Locks, s.Stats.Seq = 0, 0             // expired locks count until they are forgotten
	probes := make([]schedule.Lease, len(w.refs)) // their Until is in the past, so that they change nothing
	for i, ref := range w.refs {
		probes[i] = schedule.Lease{Item: schedule.Item{ID: ref.ID, Lane: ref.Lane},
			Token: w.leases[ref.ID].token, Until: 1}
	}
	stillLeased := each(side, Index.Extend, probes)
	for i, at := range each(side, Index.Lookup, w.refs) {
		if stillLeased[i] {
			s.Leased[w.refs[i].ID] = true
		}
		if found := s.Items[w.refs[i].ID]; at != (schedule.Position{Place: found.Place, Due: found.Due}) {
			w.Fatalf("a scan met %+v, and a lookup says %+v", found, at)
		}
	}
	return s
}

// observe reads the state after an operation, compares it with the oracle's, checks its invariants, and
// returns the state before the operation.
func (w *world) observe() (before state) {
	w.Helper()
	before, w.state = w.state, w.dump(w.fixture)
	for _, oracle := range w.sides[1:] {
		if diff := difference(w.dump(oracle), w.state); diff != "" {
			w.Fatalf("the states differ (-oracle +index):\n%s", diff)
		}
	}
	w.checkSizes()
	w.checkHolders()
	for _, lane := range w.lanes[:randomLanes] {
		w.checkLane(w.state.Lanes[lane])
	}
	return before
}

// checkSizes checks that the sizes agree with a scan, and that the head is the item with the earliest due
// time.
func (w *world) checkSizes() {
	w.Helper()
	s := w.state.Stats
	var places [4]int64
	head := int64(0)
	for _, found := range w.state.Items {
		places[found.Place]++
		if found.Place == schedule.Delayed && (head == 0 || found.Due < head) {
			head = found.Due
		}
	}
	if places != [4]int64{0, s.Delayed, s.Ready, s.Leased} || s.HeadDue != head || s.Quarantined != 0 {
		w.Fatalf("sizes %+v; the index has %v, the first due at %d", s, places, head)
	}
	if s.Next > head && head != 0 || s.Next == 0 && head != 0 || s.Now != w.Now() {
		w.Fatalf("the tick is %+v; now is %d, and the first is due at %d", s.Tick, w.Now(), head)
	}
	open := int64(0)
	breakers, err := w.Index.OpenBreakers(w.ctx, 0, schedule.MaxBatch)
	w.noErr(err)
	for _, lane := range w.state.Lanes {
		if lane.Breaker != schedule.BreakerClosed {
			open++
		}
		if slices.Contains(breakers, lane.Lane) != (lane.Breaker != schedule.BreakerClosed) {
			w.Fatalf("lane %d: %v; lanes with an open breaker: %v", lane.Lane, lane.Breaker, breakers)
		}
	}
	if mark := w.state.Watermark; s.OpenBreakers != open || mark.Loaded > mark.At {
		w.Fatalf("%d breakers are open, counted %d; the watermark is %+v", open, s.OpenBreakers, mark)
	}
}

// checkHolders checks that exactly the ids of w.leases are leased, under the tokens of their last replies.
func (w *world) checkHolders() {
	w.Helper()
	for _, ref := range w.refs {
		h, leased := w.leases[ref.ID]
		at := w.state.Items[ref.ID].Place
		if (at == schedule.Leased) != leased || w.state.Leased[ref.ID] != leased {
			w.Fatalf("%s is %s, leased under %q: %t; want it leased: %t", ref.ID, at, h.token,
				w.state.Leased[ref.ID], leased)
		}
		s := w.state.Stats
		if leased && (s.Next == 0 || s.Next > max(h.until, s.Now) && h.until > 0) {
			w.Fatalf("next is %d, after the lease of %s ends, %d", s.Next, ref.ID, h.until)
		}
	}
}

// checkLane checks that the numbers of a lane agree with each other, with its items and with its leases.
func (w *world) checkLane(s schedule.LaneState) {
	w.Helper()
	now, inFlight, fresh, retries := w.Now(), 0, 0, 0
	for _, ref := range w.refs {
		if h, leased := w.leases[ref.ID]; leased && !h.uncounted && ref.Lane == s.Lane {
			inFlight++
		}
	}
	for _, found := range w.state.Items {
		switch {
		case found.Place != schedule.Ready || found.Lane != s.Lane:
		case found.Retry:
			retries++
		default:
			fresh++
		}
	}
	sound := s.InFlight == inFlight && s.Fresh == fresh && s.Retries == retries &&
		s.Limit == cmp.Or(w.limits[s.Lane], w.limit) && s.Concurrency >= 1 && s.Concurrency <= s.Limit
	later := func(at int64) bool { return at == 0 || at > now }
	sound = sound && later(s.PausedUntil) && later(s.HeldUntil) && later(s.NextToken) &&
		(s.HeldSince != 0) == (s.HeldUntil != 0) && s.HeldSince <= now && (s.NextToken == 0 || s.Every > 0)
	open := s.Breaker != schedule.BreakerClosed
	sound = sound && s.Unanswered <= schedule.BreakerAttempts && s.UnansweredSince <= now &&
		s.OpenedAt <= now &&
		open == (s.OpenedAt != 0) && open == (s.ProbeAt != 0) && (!open || s.Concurrency == 1) &&
		(s.Breaker == schedule.BreakerOpen) == (s.ProbeAt > now)
	if !sound {
		w.Fatalf("at %d a lane with %d leases that count, %d fresh items and %d retries ready is %+v", now,
			inFlight, fresh, retries, s)
	}
}

// expectPosition checks that an operation returned the position of an item before it.
func (w *world) expectPosition(before state, id string, got schedule.Position) {
	w.Helper()
	if was := before.Items[id]; got != (schedule.Position{Place: was.Place, Due: was.Due}) {
		w.Fatalf("%s was %+v, but the index answered %v", id, was, got)
	}
}

// expectWaits checks that an item is delayed until due, or absent if that is beyond the watermark.
func (w *world) expectWaits(id string, due int64) {
	w.Helper()
	found := w.state.Items[id]
	beyond := due > max(w.state.Watermark.At, w.Now()+schedule.MinHorizon.Milliseconds())
	delayed := found.Place == schedule.Delayed && found.Due == due
	if beyond && found.Place != schedule.Absent || !beyond && !delayed {
		w.Fatalf("%s is %+v, want it to wait for %d; beyond the watermark: %t", id, found, due, beyond)
	}
}

// blocks returns whether the lane gives no items but forced ones, and whether it gives none at all.
func blocks(s schedule.LaneState) (unforced, all bool) {
	all = s.PausedUntil != 0
	return all || s.HeldUntil != 0 || s.Breaker == schedule.BreakerOpen || s.NextToken != 0, all
}

// expectMoved checks the reply to the movement of an item that was not leased.
func (w *world) expectMoved(lane schedule.LaneState, forced bool, got schedule.Moved) {
	w.Helper()
	soon := w.Now() + schedule.KeepForWaiter.Milliseconds()
	blocked := lane.PausedUntil != 0 ||
		!forced && (lane.HeldUntil != 0 || lane.Breaker == schedule.BreakerOpen || lane.NextToken > soon)
	want := map[bool]schedule.Moved{true: schedule.MovedBlocked, false: schedule.MovedIt}[blocked]
	if got != want {
		w.Fatalf("moving an item, forced: %t, of %+v answered %d, want %d", forced, lane, got, want)
	}
}

// expectSetting checks that a setting replaced the lane's, or that an older one changed nothing.
func (w *world) expectSetting(before schedule.LaneState, s schedule.LaneSetting, applies bool) {
	w.Helper()
	got := w.state.Lanes[s.Lane]
	if !applies {
		if got != before {
			w.Fatalf("an older setting made %+v of %+v", got, before)
		}
		return
	}
	pause := s.PausedUntil
	if pause <= w.Now() {
		pause = 0
	}
	resumed := before.PausedUntil != 0 && pause == 0
	tooFast := resumed && got.Concurrency > schedule.StartConcurrency
	if got.Every != s.Every || got.PausedUntil != pause || tooFast {
		w.Fatalf("%+v made %+v of %+v", s, got, before)
	}
}

// expectLease checks that a leased item was claimable, that its lane did not block it, and that the lease is
// right.
func (w *world) expectLease(req schedule.ClaimRequest, c schedule.Claimed, l schedule.Lease, before state) {
	w.Helper()
	was, lane, by := before.Items[l.ID], before.Lanes[l.Lane], c.Now+req.Lookahead.Milliseconds()
	due := was.Place == schedule.Ready && l.Due == was.Due || l.Due <= by
	if was.Place == schedule.Leased { // it was reaped
		due = due && l.Due <= c.Now+schedule.ReapSpread
		was.Forced = was.Forced || l.Forced
	} else {
		due = due && l.Due == was.Due
	}
	was.Due = l.Due
	unforced, all := blocks(lane)
	if !due || was.Item != l.Item || all || unforced && !l.Forced {
		w.Fatalf("claimed %+v of %+v in %+v at %d with a lookahead of %s", l, was, lane, c.Now, req.Lookahead)
	}
	if l.Token != req.Token || l.Until != c.Now+req.Lease.Milliseconds() || l.Health != lane.Health ||
		slices.Contains(w.oldTokens, l.Token) {
		w.Fatalf("at %d %+v gave %+v in %+v", c.Now, req, l, lane)
	}
}

// expectGiven checks that a lane gave no more than it may, in the right order, and kept nothing that it could
// give.
func (w *world) expectGiven(req schedule.ClaimRequest, c schedule.Claimed, before schedule.LaneState,
	of [3]int) {
	w.Helper()
	after := w.state.Lanes[before.Lane]
	var given []schedule.Lease
	prefetched, unforced := 0, 0
	for _, l := range c.Leases {
		if l.Lane != before.Lane {
			continue
		}
		given = append(given, l)
		if l.Prefetched {
			prefetched++
		}
		if !l.Forced {
			unforced++
		}
		if l.Full && (after.InFlight < after.Concurrency || after.Fresh+after.Retries == 0) {
			w.Fatalf("%+v says that its lane is full: %+v", l, after)
		}
	}
	most := 0
	for _, p := range req.Prefetch {
		answers := before.Health == schedule.Answering && before.Breaker == schedule.BreakerClosed
		if p.Lane == before.Lane && answers {
			most = p.Max
		}
	}
	over := prefetched < len(given) && after.InFlight > after.Concurrency || prefetched > most ||
		before.Every > 0 && int64(unforced) > int64(schedule.CatchUp/before.Every)+1
	if over {
		w.Fatalf("a lane gave %d, %d of at most %d prefetched, %d not forced: %+v", len(given), prefetched,
			most, unforced, after)
	}
	stops, all := blocks(after)
	waits := false // an item could have been given
	for _, found := range w.state.Items {
		if found.Place != schedule.Ready || found.Lane != before.Lane {
			continue
		}
		waits = waits || !all && (found.Forced || !stops)
		for _, l := range given {
			if goesBefore(found.Item, l.Item, c.Now) {
				w.Fatalf("%+v was claimed at %d, and %+v still waits", l, c.Now, found)
			}
		}
	}
	for i := range given {
		for _, l := range given[i+1:] {
			if goesBefore(l.Item, given[i].Item, c.Now) {
				w.Fatalf("%+v was claimed before %+v", given[i], l)
			}
		}
	}
	spent := before.Health != schedule.Answering &&
		of[schedule.Unproven]+of[schedule.TimingOut] >= req.MaxUncertain ||
		before.Health == schedule.TimingOut && of[schedule.TimingOut] >= req.MaxTimingOut
	if waits && after.InFlight < after.Concurrency && len(c.Leases) < req.Max && !spent {
		w.Fatalf("%+v has room, and what is ready was not claimed: %d of %d", after, len(c.Leases), req.Max)
	}
	end := max(after.PausedUntil, after.HeldUntil, after.NextToken)
	blocked := after.Fresh+after.Retries > 0 && !waits && end != 0
	if blocked && (c.Next == 0 || c.Next > max(end, after.ProbeAt)) {
		w.Fatalf("next is %d, after the end of what keeps back %+v", c.Next, after)
	}
}

// goesBefore reports whether item a of a lane goes before b when both are ready: forced ones first, due ones
// before others, and in the order of due times within a kind.
func goesBefore(a, b schedule.Item, now int64) bool {
	switch {
	case a.Forced != b.Forced:
		return a.Forced
	case a.Retry == b.Retry:
		return a.Due < b.Due || a.Due == b.Due && a.ID < b.ID
	}
	return !a.Forced && a.Due <= now && b.Due > now
}

// expectTick checks that a claimer that sleeps until Next does not oversleep, and that More and Waiting are
// right.
func (w *world) expectTick(req schedule.ClaimRequest, c schedule.Claimed) {
	w.Helper()
	s, lookahead := w.state.Stats, req.Lookahead.Milliseconds()
	more := s.RunnableLanes > 0 || s.HeadDue != 0 && s.HeadDue <= c.Now+lookahead
	if c.More != more || c.Waiting != (!more && s.Ready > 0) {
		w.Fatalf("the claim says more: %t, waiting: %t; %+v", c.More, c.Waiting, s)
	}
	latest := schedule.Forever // the earliest of the events that certainly count
	if s.HeadDue != 0 {
		latest = max(s.HeadDue-lookahead/2, 1)
	}
	for _, h := range w.leases {
		latest = min(latest, h.until)
	}
	earliest := latest
	for _, lane := range w.state.Lanes {
		for _, at := range []int64{lane.PausedUntil, lane.HeldUntil, lane.ProbeAt, lane.NextToken} {
			if at != 0 {
				earliest = min(earliest, at)
			}
		}
	}
	if c.Next == 0 && latest != schedule.Forever || c.Next > latest || c.Next != 0 && c.Next < earliest {
		w.Fatalf("next is %d, want %d to %d; %+v in %+v", c.Next, earliest, latest, s, w.state.Lanes)
	}
}

// expectJumped checks that due times stay, and that holds, breakers and tokens keep their remaining time.
func (w *world) expectJumped(before state, d time.Duration) {
	w.Helper()
	if diff := difference(before.Items, w.state.Items); diff != "" {
		w.Fatalf("a jump of %s moved items (-before +after):\n%s", d, diff)
	}
	moved := func(a, b int64) bool { return a == 0 && b == 0 || b == a+d.Milliseconds() }
	for lane, was := range before.Lanes {
		is := w.state.Lanes[lane]
		if !moved(was.HeldUntil, is.HeldUntil) || !moved(was.ProbeAt, is.ProbeAt) ||
			!moved(was.NextToken, is.NextToken) || was.Breaker != is.Breaker {
			w.Fatalf("a jump of %s made %+v of %+v", d, is, was)
		}
	}
}

// expectWatermark checks the reply to an Advance. Moving the watermark must move no items.
func (w *world) expectWatermark(a schedule.Advance, got schedule.Watermark) {
	w.Helper()
	want := w.state.Watermark
	if want.Loader == a.After {
		want.At, want.Loader = schedule.Forever, a.Token
		if a.Horizon > 0 {
			want.At = got.Now + a.Horizon.Milliseconds()
		}
		want.Loaded = min(want.Loaded, want.At)
	}
	want.Now = got.Now
	if got != want {
		w.Fatalf("%+v made %+v of %+v, want %+v", a, got, w.state.Watermark, want)
	}
	before := w.observe()
	if diff := difference(before.Items, w.state.Items); diff != "" {
		w.Fatalf("a watermark moved items (-before +after):\n%s", diff)
	}
}
