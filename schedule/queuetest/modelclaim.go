package queuetest

import (
	"math"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

func (w *world) randomClaim(rt *rapid.T) {
	req := w.wide()
	req.Owner = rapid.SampledFrom([]string{"one", "two"}).Draw(rt, "owner")
	req.Max = rapid.SampledFrom([]int{0, 1, 3, 9, 20, 256}).Draw(rt, "max")
	req.MaxUncertain = rapid.SampledFrom([]int{0, 2, 256}).Draw(rt, "max uncertain")
	req.MaxTimingOut = rapid.SampledFrom([]int{0, 1, 256}).Draw(rt, "max timing out")
	req.Lease = rapid.SampledFrom([]time.Duration{10 * time.Second, time.Minute}).Draw(rt, "lease")
	req.LaneLimit = w.limit
	req.Lead = rapid.SampledFrom([]time.Duration{0, 0, 30 * time.Millisecond, schedule.MaxLead}).Draw(rt, "lead")
	req.Ended, req.Prefetch = w.drawEnded(rt), w.drawPrefetch(rt)
	c := w.claim(req)
	for _, p := range w.paths {
		w.resume(p, c.Now)
	}
	by := c.Now + req.Lead.Milliseconds()
	w.endLeases(req.Ended)
	w.checkReaped(c, by)
	w.checkOrder(c, by)
	uncertain, timingOut := 0, 0
	for _, l := range c.Leases {
		w.checkLease(req, c, l)
		if l.Health != schedule.Answering {
			uncertain++
		}
		if l.Health == schedule.TimingOut {
			timingOut++
		}
	}
	if uncertain > req.MaxUncertain || timingOut > req.MaxTimingOut {
		w.Fatalf("a claim with shares of %d and %d has %d uncertain and %d timing out",
			req.MaxUncertain, req.MaxTimingOut, uncertain, timingOut)
	}
	w.checkRest(req, c, uncertain, timingOut)
	w.checkFull(req, c)
	w.checkNext(req, c)
	w.last[req.Owner], w.batches[req.Owner] = req, c.Leases
	w.oldTokens = append(w.oldTokens, req.Token)
	w.counters["claimed"] += int64(len(c.Leases))
}

// drawEnded draws leases that the claim names as ended: of all owners, some of them with a token that is not
// theirs, some with one that takes their place.
func (w *world) drawEnded(rt *rapid.T) (all []schedule.EndedLease) {
	for _, r := range w.sortedRecords() {
		if rapid.IntRange(0, 3).Draw(rt, "name") == 0 {
			all = append(all, schedule.EndedLease{
				LeaseRef: schedule.LeaseRef{Ref: r.Ref(), Token: w.drawToken(rt, r)}, Next: w.drawNext(rt, r.Lane),
			})
		}
	}
	return all
}

// drawNext draws a lease that counts from now on, or none.
func (w *world) drawNext(rt *rapid.T, lane int64) schedule.LeaseRef {
	var of []*record
	for _, r := range w.sortedRecords() {
		if r.Lane == lane {
			of = append(of, r)
		}
	}
	if len(of) == 0 || rapid.IntRange(0, 2).Draw(rt, "next") > 0 {
		return schedule.LeaseRef{}
	}
	r := rapid.SampledFrom(of).Draw(rt, "next of")
	return schedule.LeaseRef{Ref: r.Ref(), Token: w.drawToken(rt, r)}
}

// drawPrefetch draws lanes that may give more than they have room for.
func (w *world) drawPrefetch(rt *rapid.T) (all []schedule.LanePrefetch) {
	for _, lane := range w.lanes[:modelLanes] {
		if rapid.IntRange(0, 3).Draw(rt, "prefetch") == 0 {
			all = append(all, schedule.LanePrefetch{Lane: lane, Max: rapid.SampledFrom([]int{0, 1, 9}).Draw(rt, "most")})
		}
	}
	return all
}

// endLeases is what a claim does with the leases that it names.
func (w *world) endLeases(named []schedule.EndedLease) {
	for _, e := range named {
		w.countNext(e.Next)
		if r := w.records[e.ID]; r != nil && r.leased && r.token == e.Token && !w.path(r.Lane).open {
			r.uncounted = true
		}
	}
}

// countNext is what an index does with a lease that takes the place of another.
func (w *world) countNext(next schedule.LeaseRef) {
	if r := w.records[next.ID]; r != nil && r.leased && r.token == next.Token {
		r.uncounted = false
	}
}

// prefetched returns how many leases of the lane in the claim do not count.
func prefetched(leases []schedule.Lease, lane int64) (n int) {
	for i := range leases {
		if leases[i].Lane == lane && leases[i].Ahead {
			n++
		}
	}
	return n
}

// mayPrefetch returns how many of the lane the claim may lease beyond what it has room for.
func (w *world) mayPrefetch(req schedule.ClaimRequest, lane int64) int {
	if p := w.path(lane); p.open || p.health != schedule.Answering || w.inflight(lane) > w.concurrency(p) {
		return 0
	}
	for _, p := range req.Prefetch {
		if p.Lane == lane {
			return p.Max
		}
	}
	return 0
}

// checkFull: a lease says whether its lane has more that is ready, and no room for it.
func (w *world) checkFull(req schedule.ClaimRequest, c schedule.Claimed) {
	w.Helper()
	surely, maybe := make(map[int64]bool), make(map[int64]bool)
	for _, r := range w.records {
		if r.leased {
			continue
		}
		may := false
		surelyDue, mayBeDue := r.due(c.Now + req.Lead.Milliseconds())
		end := w.blocked(w.path(r.Lane), r.Forced, c.Now)
		may = mayBeDue && end.lo <= c.Now
		maybe[r.Lane] = maybe[r.Lane] || may
		surely[r.Lane] = surely[r.Lane] || surelyDue && end.hi <= c.Now
	}
	for _, l := range c.Leases {
		full := w.inflight(l.Lane) >= w.concurrency(w.path(l.Lane))
		if l.Full && !(full && maybe[l.Lane]) || !l.Full && full && surely[l.Lane] {
			w.Fatalf("%s says that its lane is full: %t; %d of %d are in flight, more is ready: %t or perhaps: %t", l.ID, l.Full,
				w.inflight(l.Lane), w.concurrency(w.path(l.Lane)), surely[l.Lane], maybe[l.Lane])
		}
	}
}

// checkReaped: exactly the expired leases went back, each to be due within the jitter. What is due by then is
// promoted then.
func (w *world) checkReaped(c schedule.Claimed, by int64) {
	w.Helper()
	n := 0
	for _, r := range w.records {
		if !r.leased || r.until > c.Now {
			continue
		}
		n++
		r.leased, r.uncounted, r.token, r.until, r.ripe = false, false, "", 0, false
		r.Forced, r.pushed = r.Forced || r.pushed, false
		r.lo, r.hi = c.Now, c.Now+100
		if r.moved != 0 {
			r.lo, r.hi = min(r.lo, r.moved), min(r.hi, r.moved)
			r.moved = 0
		}
	}
	w.counters["reaped"] += int64(n)
	if c.Reaped != n {
		w.Fatalf("reaped %d at %d, want %d", c.Reaped, c.Now, n)
	}
	for _, r := range w.records {
		if !r.leased && r.hi <= by {
			r.ripe = true
		}
	}
}

// alike says whether two items of a lane are of one kind, in which they come in the order of due times.
func alike(a, b *schedule.Item) bool {
	return a.Lane == b.Lane && a.Retry == b.Retry && a.Forced == b.Forced
}

// checkOrder: within a lane and a kind the leases come in the order of due and id, and none that waits is
// before them. What is forced comes first.
func (w *world) checkOrder(c schedule.Claimed, by int64) {
	w.Helper()
	claimed := make(map[string]bool)
	for _, l := range c.Leases {
		claimed[l.ID] = true
	}
	for i, l := range c.Leases {
		for _, m := range c.Leases[i+1:] {
			if alike(&m.Item, &l.Item) && (m.Due < l.Due || m.Due == l.Due && m.ID < l.ID) || m.Lane == l.Lane && m.Forced && !l.Forced {
				w.Fatalf("%s, due %d, was claimed after %s, due %d", m.ID, m.Due, l.ID, l.Due)
			}
		}
		for _, r := range w.records {
			if r.hi <= c.Now && !r.leased && !claimed[r.ID] && r.Lane == l.Lane && l.Due > c.Now && !l.Forced {
				w.Fatalf("%s, due %d, was claimed at %d before %s, which is due", l.ID, l.Due, c.Now, r)
			}
			surely, _ := r.due(by)
			if !surely || claimed[r.ID] || r.leased {
				continue
			}
			if alike(&r.Item, &l.Item) && (r.hi < l.Due || r.hi == l.Due && r.ID < l.ID) || r.Lane == l.Lane && r.Forced && !l.Forced {
				w.Fatalf("%s, due %d, was claimed before %s", l.ID, l.Due, r)
			}
		}
	}
}

// checkLease: it was there to be claimed, its lane had room and no hold, and it says what it should.
func (w *world) checkLease(req schedule.ClaimRequest, c schedule.Claimed, l schedule.Lease) {
	w.Helper()
	r := w.records[l.ID]
	if r == nil || r.leased {
		w.Fatalf("%s was claimed: %v", l.ID, r)
	}
	if _, maybe := r.due(c.Now + req.Lead.Milliseconds()); !maybe {
		w.Fatalf("%s was claimed at %d with a lead of %s: %v", l.ID, c.Now, req.Lead, r)
	}
	p := w.path(r.Lane)
	if end := w.blocked(p, r.Forced, c.Now); end.lo > c.Now {
		w.Fatalf("%s was claimed at %d, but its lane is held until %+v: %+v", l.ID, c.Now, end, *p)
	}
	if full := w.inflight(r.Lane) >= w.concurrency(p); l.Ahead != full || full && prefetched(c.Leases, r.Lane) > w.mayPrefetch(req, r.Lane) {
		w.Fatalf("%s, ahead %t, was claimed beside %d others; the lane's concurrency is %d, and %d of %d are prefetched", l.ID, l.Ahead,
			w.inflight(r.Lane), w.concurrency(p), prefetched(c.Leases, r.Lane), w.mayPrefetch(req, r.Lane))
	}
	if l.Item != r.item(l.Due) || l.Due < r.lo || l.Due > r.hi {
		w.Fatalf("claimed %+v of %+v", l, *r)
	}
	if l.Diverts != r.diverts {
		w.Fatalf("%s has %d diverts, want %d", l.ID, l.Diverts, r.diverts)
	}
	if l.Health != p.health {
		w.Fatalf("%s says that its lane's health is %d, want %d", l.ID, l.Health, p.health)
	}
	if l.Until != c.Now+req.Lease.Milliseconds() {
		w.Fatalf("the lease of %s, of %s, goes from %d to %d", l.ID, req.Lease, c.Now, l.Until)
	}
	if slices.Contains(w.oldTokens, l.Token) {
		w.Fatalf("%s is leased under the old token %s", l.ID, l.Token)
	}
	if !r.Forced {
		w.take(p, c.Now)
	}
	r.lo, r.hi, r.Due = l.Due, l.Due, l.Due
	r.leased, r.uncounted, r.token, r.until, r.moved, r.pushed, r.ripe = true, l.Ahead, l.Token, l.Until, 0, false, false
}

// checkRest: what is due and was not claimed had a reason, and More says whether there was room wanting.
func (w *world) checkRest(req schedule.ClaimRequest, c schedule.Claimed, uncertain, timingOut int) {
	w.Helper()
	left, waiting, maybeWaiting := false, false, false
	for _, r := range w.sortedRecords() {
		p := w.path(r.Lane)
		surely, maybe := r.due(c.Now + req.Lead.Milliseconds())
		if r.leased || !maybe {
			continue
		}
		waiting, maybeWaiting = waiting || surely, true
		end := w.blocked(p, r.Forced, c.Now)
		if end.lo > c.Now {
			continue
		}
		full := w.inflight(r.Lane) >= w.concurrency(p)
		if !surely || end.hi > c.Now { // the index knows better whether it is due, and whether it is kept back
			left = left || c.More && !full
			continue
		}
		left = left || !full
		if full && prefetched(c.Leases, r.Lane) >= w.mayPrefetch(req, r.Lane) {
			continue
		}
		spent := p.health != schedule.Answering && uncertain >= req.MaxUncertain ||
			p.health == schedule.TimingOut && timingOut >= req.MaxTimingOut
		if len(c.Leases) < req.Max && !spent {
			w.Fatalf("%s was not claimed although there was room: %d of %d", r, len(c.Leases), req.Max)
		}
	}
	if c.More != left {
		w.Fatalf("the claim says more %t, want %t", c.More, left)
	}
	if c.Waiting && (c.More || !maybeWaiting) || !c.Waiting && !c.More && waiting {
		w.Fatalf("the claim says more %t and waiting %t; some wait: %t, or perhaps: %t", c.More, c.Waiting, waiting, maybeWaiting)
	}
}

// presses says whether something forced may be ready in the lane: then it is runnable, or full, and the end
// of a hold is not awaited.
func (w *world) presses(lane, by int64) bool {
	for _, r := range w.records {
		if _, maybe := r.due(by); maybe && r.Lane == lane && r.Forced && !r.leased {
			return true
		}
	}
	return false
}

// checkNext: a claimer that sleeps until Next never oversleeps, and does not wake for nothing. That an item becomes due
// counts half the lead earlier.
func (w *world) checkNext(req schedule.ClaimRequest, c schedule.Claimed) {
	w.Helper()
	by := c.Now + req.Lead.Milliseconds()
	earliest := int64(math.MaxInt64)
	for _, r := range w.sortedRecords() {
		event := r.hi - req.Lead.Milliseconds()/2
		surely, maybe := r.due(by)
		if !surely {
			earliest = min(earliest, max(r.lo-req.Lead.Milliseconds()/2, c.Now))
		}
		switch end := w.blocked(w.path(r.Lane), r.Forced, c.Now); {
		case r.leased:
			event = r.until
			earliest = min(earliest, event)
		case surely && end.lo > c.Now && (r.Forced || !w.presses(r.Lane, by)):
			event = end.hi
		case maybe: // it is ready, or may be
			continue
		}
		if c.Next == 0 || c.Next > event {
			w.Fatalf("next is %d, later than %d, when something happens to %s", c.Next, event, r)
		}
	}
	for _, p := range w.paths {
		for _, end := range []int64{p.paused, w.stops(p, c.Now).lo} {
			if end > c.Now {
				earliest = min(earliest, end)
			}
		}
	}
	if c.Next != 0 && c.Next < earliest {
		w.Fatalf("next is %d, and nothing happens before %d; now is %d", c.Next, earliest, c.Now)
	}
}

// randomRepeat repeats an owner's last claim.
func (w *world) randomRepeat(rt *rapid.T) {
	owner := rapid.SampledFrom([]string{"one", "two"}).Draw(rt, "owner")
	req, ok := w.last[owner]
	if !ok {
		rt.Skip("nothing was claimed yet")
	}
	for _, r := range w.records {
		if r.leased && r.until <= w.Now()+1000 {
			rt.Skip("a lease may have ended")
		}
	}
	var want []string
	for _, l := range w.batches[owner] {
		if r := w.records[l.ID]; r != nil && r.leased && r.token == l.Token {
			want = append(want, l.ID)
		}
	}
	slices.Sort(want)
	got := idsOf(sorted(w.claim(req).Leases))
	w.endLeases(req.Ended)
	if !slices.Equal(got, want) {
		w.Fatalf("the repeated claim has %v, want %v", got, want)
	}
}

// randomSettle settles any id with any token.
func (w *world) randomSettle(rt *rapid.T) {
	item := w.drawItem(rt)
	r := w.records[item.ID]
	s := schedule.Settlement{
		Item: item, Token: w.drawToken(rt, r), Won: rapid.Bool().Draw(rt, "won"),
		Outcome: schedule.Outcome(rapid.IntRange(int(schedule.Ack), int(schedule.Bury)).Draw(rt, "outcome")),
		Signal:  schedule.Signal(rapid.IntRange(int(schedule.NoSignal), int(schedule.Unanswered)).Draw(rt, "signal")),
	}
	if rapid.IntRange(0, 4).Draw(rt, "hold") == 0 {
		s.HoldUntil = w.due(rt)
	}
	if next := w.drawNext(rt, s.Lane); next.ID != "" {
		s.Next = &next
	}
	w.applySettlement(s)
}

// randomFinish settles what is leased, as its holder does.
func (w *world) randomFinish(rt *rapid.T) {
	for _, r := range w.sortedRecords() {
		if !r.leased || rapid.IntRange(0, 2).Draw(rt, "skip") == 0 {
			continue
		}
		s := schedule.Settlement{
			Item: r.Item, Token: r.token,
			Outcome: schedule.Outcome(rapid.IntRange(int(schedule.Ack), int(schedule.Bury)).Draw(rt, "outcome")),
			Signal:  schedule.Signal(rapid.IntRange(int(schedule.NoSignal), int(schedule.Unanswered)).Draw(rt, "signal")),
		}
		s.Due, s.Retry = w.due(rt), rapid.Bool().Draw(rt, "retry")
		s.Forced = rapid.IntRange(0, 3).Draw(rt, "forced") == 0
		if rapid.IntRange(0, 9).Draw(rt, "hold") == 0 {
			s.HoldUntil = w.due(rt)
		}
		w.applySettlement(s)
	}
}

// outcomes are the names under which outcomes are counted.
var outcomes = map[schedule.Outcome]string{
	schedule.Ack: "acked", schedule.Reschedule: "rescheduled", schedule.Divert: "diverted", schedule.Bury: "buried",
}

// applySettlement settles on the index and on the model.
func (w *world) applySettlement(s schedule.Settlement) {
	w.Helper()
	w.clearOfPauses()
	if s.Next != nil {
		w.countNext(*s.Next)
	}
	r := w.records[s.ID]
	before := w.Now()
	switch {
	case r != nil && r.leased && r.token == s.Token:
		w.expectSettled(s, schedule.Applied)
		w.endLease(r, s, before, w.Now())
	case s.Won && (r == nil || !r.leased):
		w.expectSettled(s, schedule.Applied)
		if s.Outcome == schedule.Ack || s.Outcome == schedule.Bury {
			delete(w.records, s.ID)
			break
		}
		if w.leftOut(s.Ref(), s.Due, before) {
			delete(w.records, s.ID)
			break
		}
		n := &record{Item: s.Item, lo: s.Due, hi: s.Due}
		if s.Outcome == schedule.Divert {
			n.diverts = 1
			if r != nil {
				n.diverts = r.diverts // this may be the repetition of a settlement whose reply was lost
			}
		}
		w.records[s.ID] = n
	case r != nil:
		w.expectSettled(s, schedule.Stale)
		w.counters["stale"]++
		return
	default:
		w.expectSettled(s, schedule.Gone)
		w.counters["stale"]++
		return
	}
	w.counters[outcomes[s.Outcome]]++
	w.hold(w.path(s.Lane), s.HoldUntil, before, w.Now())
}

// endLease is what a settlement with the right token does.
func (w *world) endLease(r *record, s schedule.Settlement, before, after int64) {
	w.learn(r.Lane, s.Signal, before, after)
	if p := w.path(r.Lane); s.Outcome == schedule.Divert && s.Signal == schedule.NoSignal && !r.Forced && p.every > 0 {
		w.spend(p, -1, before, after) // no attempt was made of it
	}
	due, moved := s.Due, r.moved
	if s.Outcome == schedule.Ack || s.Outcome == schedule.Bury {
		if moved == 0 {
			delete(w.records, r.ID)
			return
		}
		s.Lock, s.Retry, s.Forced, due = r.Lock, r.Retry, r.Forced, moved
		r.diverts = 0
	} else if moved != 0 {
		due = min(due, moved)
	}
	if w.leftOut(r.Ref(), due, before) {
		delete(w.records, r.ID)
		return
	}
	r.Lock, r.Retry, r.Forced = s.Lock, s.Retry, s.Forced || r.pushed
	r.Due, r.lo, r.hi = due, due, due
	r.leased, r.uncounted, r.token, r.until, r.moved, r.pushed, r.ripe = false, false, "", 0, 0, false, false
	switch {
	case s.Outcome == schedule.Reschedule:
		r.diverts = 0
	case s.Outcome == schedule.Divert:
		r.diverts++
	}
}
