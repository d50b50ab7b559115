package queuetest

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A state is all that an index says of itself.
type state struct {
	Items     map[string]schedule.Found
	Lanes     map[int64]schedule.LaneState
	Stats     schedule.Stats
	Watermark schedule.Watermark
	// Held has the ids that are leased under the token that their last replies said.
	Held map[string]bool
}

// difference is what cmp.Diff says, for values that are mostly equal.
func difference[T any](a, b T) string {
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return gocmp.Diff(a, b)
}

// dump returns the state of a side.
func (w *world) dump(side *fixture) state {
	w.Helper()
	s := state{Items: make(map[string]schedule.Found), Lanes: make(map[int64]schedule.LaneState), Held: make(map[string]bool)}
	for _, found := range side.scan(0) {
		s.Items[found.ID] = found
	}
	for _, lane := range side.states(w.lanes[:randomLanes]...) {
		s.Lanes[lane.Lane] = lane
	}
	s.Stats, s.Watermark = side.stats(), side.watermark()
	s.Stats.Locks, s.Stats.Seq = 0, 0 // locks that have ended count until they are forgotten
	for shard := 1; shard < side.Index.Shards(); shard++ {
		stats, err := side.Index.Stats(w.ctx, shard)
		w.no(err)
		s.Stats.Waiters += stats.Waiters
	}
	probes := make([]schedule.Extension, len(w.refs)) // to a time that changes nothing
	for i, ref := range w.refs {
		probes[i] = schedule.Extension{Ref: ref, Token: w.held[ref.ID].token, Until: 1}
	}
	held, err := side.Index.Extend(w.ctx, probes)
	w.no(err)
	for i, at := range side.lookup(w.refs...) {
		if held[i] {
			s.Held[w.refs[i].ID] = true
		}
		if found := s.Items[w.refs[i].ID]; at != (schedule.Position{Place: found.Place, Due: found.Due}) {
			w.Fatalf("a scan met %+v, and a lookup says %+v", found, at)
		}
	}
	return s
}

// observe takes the state after an operation, compares it with the oracle's, checks what must always hold of it, and
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

// checkSizes: the sizes are those of what a scan met, and what is due first is the head.
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
	for _, lane := range w.state.Lanes {
		if lane.Breaker != schedule.BreakerClosed {
			open++
		}
	}
	if mark := w.state.Watermark; s.OpenBreakers != open || mark.Loaded > mark.At {
		w.Fatalf("%d breakers are open, counted %d; the watermark is %+v", open, s.OpenBreakers, mark)
	}
}

// checkHolders: what is leased is leased under the token of the reply that said so last, until its end.
func (w *world) checkHolders() {
	w.Helper()
	for _, ref := range w.refs {
		h, leased := w.held[ref.ID]
		if at := w.state.Items[ref.ID].Place; (at == schedule.Leased) != leased || w.state.Held[ref.ID] != leased {
			w.Fatalf("%s is %s, leased under %q: %t; want it leased: %t", ref.ID, at, h.token, w.state.Held[ref.ID], leased)
		}
		if s := w.state.Stats; leased && (s.Next == 0 || s.Next > max(h.until, w.state.Stats.Now) && h.until > 0) {
			w.Fatalf("next is %d, after the lease of %s ends, %d", s.Next, ref.ID, h.until)
		}
	}
}

// checkLane: a lane's numbers fit each other, its items and its leases.
func (w *world) checkLane(s schedule.LaneState) {
	w.Helper()
	now, inFlight, fresh, retries := w.Now(), 0, 0, 0
	for _, ref := range w.refs {
		if h, leased := w.held[ref.ID]; leased && !h.uncounted && ref.Lane == s.Lane {
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
	sound = sound && s.Unanswered <= schedule.BreakerAttempts && s.UnansweredSince <= now && s.OpenedAt <= now &&
		open == (s.OpenedAt != 0) && open == (s.ProbeAt != 0) && (!open || s.Concurrency == 1) &&
		(s.Breaker == schedule.BreakerOpen) == (s.ProbeAt > now)
	if !sound {
		w.Fatalf("at %d a lane with %d leases that count, %d fresh items and %d retries ready is %+v", now, inFlight, fresh, retries, s)
	}
}

// expectPosition: an item was where an operation says that it was.
func (w *world) expectPosition(before state, id string, got schedule.Position) {
	w.Helper()
	if was := before.Items[id]; got != (schedule.Position{Place: was.Place, Due: was.Due}) {
		w.Fatalf("%s was %+v, but the index answered %v", id, was, got)
	}
}

// expectWaits: an item waits until it is due, or is left out because that is beyond the watermark.
func (w *world) expectWaits(id string, due int64) {
	w.Helper()
	found := w.state.Items[id]
	beyond := due > max(w.state.Watermark.At, w.Now()+schedule.AlwaysAhead.Milliseconds())
	if beyond && found.Place != schedule.Absent || !beyond && (found.Place != schedule.Delayed || found.Due != due) {
		w.Fatalf("%s is %+v, want it to wait for %d; beyond the watermark: %t", id, found, due, beyond)
	}
}

// keepsBack says whether the lane gives nothing but what is forced, and nothing at all.
func keepsBack(s schedule.LaneState) (unforced, all bool) {
	all = s.PausedUntil != 0
	return all || s.HeldUntil != 0 || s.Breaker == schedule.BreakerOpen || s.NextToken != 0, all
}

func (w *world) expectMoved(lane schedule.LaneState, forced bool, got schedule.Moved) {
	w.Helper()
	soon := w.Now() + schedule.KeepForWaiter.Milliseconds()
	held := lane.PausedUntil != 0 ||
		!forced && (lane.HeldUntil != 0 || lane.Breaker == schedule.BreakerOpen || lane.NextToken > soon)
	if want := map[bool]schedule.Moved{true: schedule.MovedHeld, false: schedule.MovedIt}[held]; got != want {
		w.Fatalf("moving an item, forced: %t, of %+v answered %d, want %d", forced, lane, got, want)
	}
}

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
	if got.Every != s.Every || got.PausedUntil != pause || before.PausedUntil != 0 && pause == 0 && got.Concurrency > schedule.StartConcurrency {
		w.Fatalf("%+v made %+v of %+v", s, got, before)
	}
}

// expectSettlement: an item is where its settlement wants it, or a movement that came meanwhile.
func (w *world) expectSettlement(s schedule.Settlement, h holder) {
	w.Helper()
	moved := h.moved
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

// expectLearned: a lane learns from the end of a lease, and from nothing else.
func (w *world) expectLearned(before schedule.LaneState, s schedule.Settlement, mine bool) {
	w.Helper()
	got, want := w.state.Lanes[s.Lane], before
	open, now := before.Breaker != schedule.BreakerClosed, w.Now()
	if mine && s.Signal == schedule.Answered {
		want.Health, want.Unanswered, open = schedule.Answering, 0, false
		if want.Concurrency = min(2*before.Concurrency, before.Limit); before.Breaker != schedule.BreakerClosed {
			want.Concurrency = 1
		}
	} else if mine && s.Signal != schedule.NoSignal {
		if s.Signal == schedule.TimedOut {
			want.Health, want.Concurrency = schedule.TimingOut, max(before.Concurrency/2, 1)
		}
		want.Unanswered = min(before.Unanswered+1, schedule.BreakerAttempts)
		open = open || want.Unanswered == schedule.BreakerAttempts && now-before.UnansweredSince >= schedule.BreakerSpan.Milliseconds()
		if open {
			want.Concurrency = 1
		}
		if rest := got.ProbeAt - now - schedule.BreakerRest.Milliseconds(); open && (rest < 0 || rest >= schedule.ProbeSpread) {
			w.Fatalf("at %d the breaker of %+v opened", now, got)
		}
	}
	if got.Health != want.Health || got.Concurrency != want.Concurrency || got.Unanswered != want.Unanswered ||
		(got.Breaker != schedule.BreakerClosed) != open {
		w.Fatalf("settling %+v, which held the lease: %t, made %+v of %+v", s, mine, got, before)
	}
}

// expectClaimed checks a claim by the states before and after it.
func (w *world) expectClaimed(req schedule.ClaimRequest, c schedule.Claimed) {
	w.Helper()
	w.countEnded(req.Ended)
	reaped := 0
	for id, h := range w.held {
		if h.until <= c.Now {
			reaped++
			delete(w.held, id)
		}
	}
	var of [3]int
	for _, l := range c.Leases {
		w.held[l.ID] = holder{token: l.Token, until: l.Until, uncounted: l.Ahead}
		of[l.Health]++
	}
	before := w.observe()
	uncertain := of[schedule.Unproven] + of[schedule.TimingOut]
	if c.Reaped != reaped || len(c.Leases) > req.Max || uncertain > req.MaxUncertain || of[schedule.TimingOut] > req.MaxTimingOut {
		w.Fatalf("%+v reaped %d of %d, and leased %d, of them by health %v", req, c.Reaped, reaped, len(c.Leases), of)
	}
	for _, l := range c.Leases {
		w.expectLease(req, c, l, before)
	}
	for _, lane := range w.lanes[:randomLanes] {
		w.expectGiven(req, c, before.Lanes[lane], of)
	}
	w.expectTick(req, c)
}

// expectLease: it was there to be claimed, its lane did not keep it back, and it says what it should.
func (w *world) expectLease(req schedule.ClaimRequest, c schedule.Claimed, l schedule.Lease, before state) {
	w.Helper()
	was, lane, by := before.Items[l.ID], before.Lanes[l.Lane], c.Now+req.Lead.Milliseconds()
	due := was.Place == schedule.Ready && l.Due == was.Due || l.Due <= by
	if was.Place == schedule.Leased { // it was reaped
		due = due && l.Due <= c.Now+schedule.ReapSpread
		was.Forced = was.Forced || l.Forced
	} else {
		due = due && l.Due == was.Due
	}
	was.Due = l.Due
	unforced, all := keepsBack(lane)
	if !due || was.Item != l.Item || all || unforced && !l.Forced {
		w.Fatalf("claimed %+v of %+v in %+v at %d with a lead of %s", l, was, lane, c.Now, req.Lead)
	}
	if l.Token != req.Token || l.Until != c.Now+req.Lease.Milliseconds() || l.Health != lane.Health || slices.Contains(w.oldTokens, l.Token) {
		w.Fatalf("at %d %+v gave %+v in %+v", c.Now, req, l, lane)
	}
}

// expectGiven: a lane gave what it may, in the order of due times, and kept nothing that it could have given.
func (w *world) expectGiven(req schedule.ClaimRequest, c schedule.Claimed, before schedule.LaneState, of [3]int) {
	w.Helper()
	after := w.state.Lanes[before.Lane]
	var given []schedule.Lease
	ahead, unforced := 0, 0
	for _, l := range c.Leases {
		if l.Lane != before.Lane {
			continue
		}
		given = append(given, l)
		if l.Ahead {
			ahead++
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
		if p.Lane == before.Lane && before.Health == schedule.Answering && before.Breaker == schedule.BreakerClosed {
			most = p.Max
		}
	}
	over := ahead < len(given) && after.InFlight > after.Concurrency || ahead > most ||
		before.Every > 0 && int64(unforced) > int64(schedule.CatchUp/before.Every)+1
	if over {
		w.Fatalf("a lane gave %d, %d of at most %d ahead, %d not forced: %+v", len(given), ahead, most, unforced, after)
	}
	stops, all := keepsBack(after)
	waits := false // something that could be given
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
	spent := before.Health != schedule.Answering && of[schedule.Unproven]+of[schedule.TimingOut] >= req.MaxUncertain ||
		before.Health == schedule.TimingOut && of[schedule.TimingOut] >= req.MaxTimingOut
	if waits && after.InFlight < after.Concurrency && len(c.Leases) < req.Max && !spent {
		w.Fatalf("%+v has room, and what is ready was not claimed: %d of %d", after, len(c.Leases), req.Max)
	}
	if end := max(after.PausedUntil, after.HeldUntil, after.NextToken); after.Fresh+after.Retries > 0 && !waits && end != 0 &&
		(c.Next == 0 || c.Next > max(end, after.ProbeAt)) {
		w.Fatalf("next is %d, after the end of what keeps back %+v", c.Next, after)
	}
}

// goesBefore says whether item a of a lane is given before b whenever both wait: what is forced before the rest, what is
// due before what is not, and within a kind in the order of due times.
func goesBefore(a, b schedule.Item, now int64) bool {
	switch {
	case a.Forced != b.Forced:
		return a.Forced
	case a.Retry == b.Retry:
		return a.Due < b.Due || a.Due == b.Due && a.ID < b.ID
	}
	return !a.Forced && a.Due <= now && b.Due > now
}

// expectTick: a claimer that sleeps until Next never oversleeps, and More and Waiting say what is left.
func (w *world) expectTick(req schedule.ClaimRequest, c schedule.Claimed) {
	w.Helper()
	s, lead := w.state.Stats, req.Lead.Milliseconds()
	more := s.RunnableLanes > 0 || s.HeadDue != 0 && s.HeadDue <= c.Now+lead
	if c.More != more || c.Waiting != (!more && s.Ready > 0) {
		w.Fatalf("the claim says more: %t, waiting: %t; %+v", c.More, c.Waiting, s)
	}
	latest := s.HeadDue - lead/2
	for _, h := range w.held {
		if s.HeadDue == 0 || h.until < latest {
			latest = h.until
		}
	}
	if (s.HeadDue != 0 || len(w.held) > 0) && (c.Next == 0 || c.Next > max(latest, 1)) {
		w.Fatalf("next is %d, want at most %d; %+v", c.Next, latest, s)
	}
}

// expectJumped: what is due stays due at its time; what is left of a hold, a breaker's rest and a token stays left.
func (w *world) expectJumped(before state, d time.Duration) {
	w.Helper()
	if diff := difference(before.Items, w.state.Items); diff != "" {
		w.Fatalf("a jump of %s moved items (-before +after):\n%s", d, diff)
	}
	moved := func(a, b int64) bool { return a == 0 && b == 0 || b == a+d.Milliseconds() }
	for lane, was := range before.Lanes {
		is := w.state.Lanes[lane]
		if !moved(was.HeldUntil, is.HeldUntil) || !moved(was.ProbeAt, is.ProbeAt) || !moved(was.NextToken, is.NextToken) || was.Breaker != is.Breaker {
			w.Fatalf("a jump of %s made %+v of %+v", d, is, was)
		}
	}
}

func (w *world) expectWatermark(a schedule.Advance, got schedule.Watermark) {
	w.Helper()
	want := w.state.Watermark
	if want.Loader == a.After {
		if want.At, want.Loader = schedule.Forever, a.Token; a.Horizon > 0 {
			want.At = got.Now + a.Horizon.Milliseconds()
		}
		want.Loaded = min(want.Loaded, want.At)
	}
	if want.Now = got.Now; got != want {
		w.Fatalf("%+v made %+v of %+v, want %+v", a, got, w.state.Watermark, want)
	}
	before := w.observe()
	if diff := difference(before.Items, w.state.Items); diff != "" {
		w.Fatalf("a watermark moved items (-before +after):\n%s", diff)
	}
}

// contest returns what is known of a lock. Those whose time is over are forgotten.
func (w *world) contest(lock string) *contest {
	k := w.contests[lock]
	if k == nil {
		k = &contest{claimants: make(map[claimant]int64)}
		w.contests[lock] = k
	}
	maps.DeleteFunc(k.claimants, func(_ claimant, until int64) bool { return until <= w.Now() })
	return k
}

// join notes that an attempt has the lock, or is to have it, at least until then.
func (k *contest) join(c claimant, until int64) {
	k.claimants[c] = max(k.claimants[c], until)
	k.crowded = k.crowded || len(k.claimants) > schedule.MaxHeirs
	k.keptFor = ""
	k.waiters = slices.DeleteFunc(k.waiters, func(id string) bool { return id == c.id })
}

// anyClaimant draws one of those who have the lock or are to have it.
func (w *world) anyClaimant(rt *rapid.T, lock string) (claimant, bool) {
	all := slices.SortedFunc(maps.Keys(w.contest(lock).claimants), func(a, b claimant) int {
		return cmp.Compare(a.id+a.token, b.id+b.token)
	})
	if len(all) == 0 || oneIn(rt, 4, "other") {
		return claimant{}, false
	}
	return rapid.SampledFrom(all).Draw(rt, "claimant"), true
}

// expectLock: a lock has one holder at a time, and is kept a moment for the waiter that a release named.
func (w *world) expectLock(r schedule.LockRequest, got schedule.LockReply) {
	w.Helper()
	k, me := w.contest(r.Lock), claimant{r.ID, r.Token}
	_, mine := k.claimants[me]
	others := len(k.claimants) > 1 || len(k.claimants) == 1 && !mine
	kept := k.keptFor != "" && k.keptFor != r.ID && k.keptUntil > w.Now()
	never, surely := others && !mine || kept && !mine, !others && (mine || !kept) && !k.crowded
	if got.Acquired && never || !got.Acquired && surely || got.HeldUntil <= w.Now() {
		w.Fatalf("%+v was answered %+v; the lock is that of %+v", r, got, *k)
	}
	if got.Acquired {
		k.join(me, r.Until)
	} else if !slices.Contains(k.waiters, r.ID) {
		k.waiters = append(k.waiters, r.ID)
	}
}

// expectReleased: a free lock is answered with the waiter who waits longest of those that may run, one that another has
// with none.
func (w *world) expectReleased(u schedule.Unlock, next schedule.Waiter) {
	w.Helper()
	k := w.contest(u.Lock)
	delete(k.claimants, claimant{u.ID, u.Token})
	k.waiters = slices.DeleteFunc(k.waiters, func(id string) bool { return slices.Contains(u.Gone, id) })
	want := ""
	if k.crowded {
		return
	}
	if len(k.claimants) == 0 {
		i := slices.IndexFunc(k.waiters, func(id string) bool { return !slices.Contains(u.Skip, id) })
		if i >= 0 {
			want = k.waiters[i]
		}
		k.keptFor, k.keptUntil = want, w.Now()+schedule.KeepForWaiter.Milliseconds()
	}
	if next.ID != want {
		w.Fatalf("%+v named %+v, want %q; the lock is that of %+v", u, next, want, *k)
	}
}
