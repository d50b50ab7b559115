package queuetest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A span is a time of which it is only known that it is not before lo nor after hi: an operation happened
// between two readings of the clock.
type span struct{ lo, hi int64 }

// A course is what the model knows of a lane's rate and breaker. Times are of the steady clock.
type course struct {
	every int64
	token span // ns
	fails int
	since span // ms
	// probe is when the open breaker lets a probe pass, opened when it opened.
	open          bool
	probe, opened span
	// heldFrom is since when the lane is held, if it is.
	heldFrom span
}

const (
	nsPerMs   = 1_000_000
	tokenStep = 10 * nsPerMs
	catchUp   = 100 * nsPerMs
)

// beat is the steady clock as tokens see it, in ns, when the index's clock is at.
func (w *world) beat(at int64) int64 { return (at + w.skew) * nsPerMs / tokenStep * tokenStep }

// tokens returns how many there are at the index's time, surely and perhaps.
func (w *world) tokens(p *path, at int64) (surely, maybe int) {
	count := func(token int64) int {
		if token > w.beat(at) {
			return 0
		}
		return int((w.beat(at)-max(token, w.beat(at)-catchUp))/p.every) + 1
	}
	return count(p.token.hi), count(p.token.lo)
}

// spend takes n tokens, or gives them back, at a time between the two.
func (w *world) spend(p *path, n int64, before, after int64) {
	shift := func(token, at int64) int64 {
		floor := w.beat(at) - catchUp
		return max(max(token, floor)+n*p.every, floor)
	}
	p.token = span{shift(p.token.lo, before), shift(p.token.hi, after)}
}

// take is what a lease that is not forced does to its lane's tokens at that time: there was one.
func (w *world) take(p *path, at int64) {
	if p.every == 0 {
		return
	}
	p.token.hi = max(min(p.token.hi, w.beat(at)), p.token.lo)
	w.spend(p, 1, at, at)
}

func (w *world) setRate(p *path, every time.Duration, before, after int64) {
	if p.every == 0 {
		p.token = span{w.beat(before), w.beat(after)}
	} else if p.every != int64(every) {
		p.token = span{min(p.token.lo, w.beat(before)+int64(every)), min(p.token.hi, w.beat(after)+int64(every))}
	}
	p.every = int64(every)
}

// nextToken returns when there will be a token, by the index's clock, where there is none.
func (w *world) nextToken(token int64) int64 {
	return (token+tokenStep-1)/tokenStep*tokenStep/nsPerMs - w.skew
}

// stops returns until when the lane gives nothing but what is forced at that time, by the index's clock: at
// the earliest and at the latest. Zero: it gives.
func (w *world) stops(p *path, at int64) span {
	s := span{p.held, p.held}
	if p.open {
		s.lo, s.hi = max(s.lo, p.probe.lo-w.skew), max(s.hi, p.probe.hi-w.skew)
	}
	if p.every > 0 {
		surely, maybe := w.tokens(p, at)
		if maybe == 0 {
			s.lo = max(s.lo, w.nextToken(p.token.lo))
		}
		if surely == 0 {
			s.hi = max(s.hi, w.nextToken(p.token.hi))
		}
	}
	return s
}

// blocked returns until when the lane keeps an item back at that time, forced or not, at the earliest and at
// the latest.
func (w *world) blocked(p *path, forced bool, at int64) span {
	if forced {
		return span{p.paused, p.paused}
	}
	s := w.stops(p, at)
	return span{max(s.lo, p.paused), max(s.hi, p.paused)}
}

// keeps says whether a movement of a waiting item is answered as of one that is held, surely and perhaps.
func (w *world) keeps(p *path, forced bool, before, after int64) (surely, maybe bool) {
	surely, maybe = p.paused > after, p.paused > before
	if forced {
		return surely, maybe
	}
	surely, maybe = surely || p.held > after, maybe || p.held > before
	if p.open {
		surely, maybe = surely || p.probe.lo > after+w.skew, maybe || p.probe.hi > before+w.skew
	}
	if p.every > 0 {
		keep := schedule.KeepForWaiter.Milliseconds()
		surely = surely || w.nextToken(p.token.lo) > after+keep
		maybe = maybe || w.nextToken(p.token.hi) > before+keep
	}
	return surely, maybe
}

// resume lets the lane begin low if its pause has ended by then.
func (w *world) resume(p *path, at int64) {
	if p.paused != 0 && p.paused <= at && !p.resumed {
		p.resumed, p.pace = true, min(p.pace, schedule.StartConcurrency)
	}
}

// clearOfPauses waits where a pause ends so soon that an operation may come before or after its end.
func (w *world) clearOfPauses() {
	now := w.Now()
	for _, p := range w.paths {
		if p.paused > now && p.paused < now+1000 {
			w.pass(time.Second)
		}
	}
	now = w.Now()
	for _, p := range w.paths {
		w.resume(p, now)
	}
}

// learn is what the end of an attempt between the two readings of the clock says of its lane.
func (w *world) learn(lane int64, s schedule.Signal, before, after int64) {
	p := w.path(lane)
	switch s {
	case schedule.NoSignal:
		return
	case schedule.Answered:
		p.health, p.pace = schedule.Answering, min(w.concurrency(p)*2, w.limitOf(p))
		if p.open {
			p.pace = 1
		}
		p.fails, p.open = 0, false
		return
	case schedule.TimedOut:
		p.health, p.pace = schedule.TimingOut, max(w.concurrency(p)/2, 1)
	case schedule.Unanswered:
	}
	before, after = before+w.skew, after+w.skew
	if p.fails == 0 {
		p.since = span{before, after}
	}
	p.fails = min(p.fails+1, schedule.BreakerAttempts)
	was := p.open
	if !p.open && p.fails == schedule.BreakerAttempts {
		least, most := before-p.since.hi, after-p.since.lo
		switch limit := schedule.BreakerSpan.Milliseconds(); {
		case least >= limit:
			p.open = true
		case most >= limit: // it depends on the millisecond: the index says
			p.open = w.states(lane)[0].Breaker != schedule.BreakerClosed
		}
	}
	if p.open && !was {
		p.opened = span{before, after}
	}
	if p.open {
		rest := schedule.BreakerRest.Milliseconds()
		p.pace, p.probe = 1, span{before + rest, after + rest*11/10}
	}
}

// hold is what a settlement between the two readings of the clock that asks for a hold does.
func (w *world) hold(p *path, until, before, after int64) {
	switch {
	case until <= p.held:
		return
	case p.held <= before:
		p.heldFrom = span{before + w.skew, after + w.skew}
	case p.held <= after: // it depends on the millisecond
		p.heldFrom.hi = after + w.skew
	}
	p.held = until
}

// compareStates compares how lanes stand with the model, and takes over the times that only the index knows
// to the millisecond.
func (w *world) compareStates() {
	w.Helper()
	before := w.Now()
	states := w.states(w.lanes[:modelLanes]...)
	after := w.Now()
	open := int64(0)
	for _, got := range states {
		p := w.path(got.Lane)
		if p.open {
			open++
		}
		w.compareState(p, got, before, after)
	}
	if s := w.stats(); s.OpenBreakers != open {
		w.Fatalf("%d breakers are counted as open, want %d", s.OpenBreakers, open)
	}
}

func (w *world) compareState(p *path, got schedule.LaneState, before, after int64) {
	w.Helper()
	until := func(what string, got, want int64) {
		if got != want && (got != 0 || want > after) || got != 0 && want <= before {
			w.Fatalf("lane %s until %d, want %d; now is %d", what, got, want, after)
		}
	}
	until("paused", got.PausedUntil, p.paused)
	until("held", got.HeldUntil, p.held)
	w.compareSince("held", got.HeldSince, got.HeldUntil != 0, &p.heldFrom)
	w.compareSince("open", got.OpenedAt, p.open, &p.opened)
	early, late := *p, *p
	w.resume(&early, before)
	w.resume(&late, after)
	if got.Concurrency != w.concurrency(&early) && got.Concurrency != w.concurrency(&late) {
		w.Fatalf("lane %d may have %d in flight, want %d", got.Lane, got.Concurrency, w.concurrency(&late))
	}
	if got.InFlight != w.inflight(got.Lane) || got.Limit != w.limitOf(p) || got.Health != p.health || int64(got.Every) != p.every {
		w.Fatalf("the lane is %+v, want %d in flight and %+v", got, w.inflight(got.Lane), *p)
	}
	if got.Unanswered != p.fails || (got.Breaker != schedule.BreakerClosed) != p.open {
		w.Fatalf("the lane's breaker is %+v, want %+v", got, p.course)
	}
	if since := got.UnansweredSince + w.skew; p.fails > 0 {
		if since < p.since.lo || since > p.since.hi {
			w.Fatalf("no answer since %d, want %+v", since, p.since)
		}
		p.since = span{since, since}
	}
	if probe := got.ProbeAt + w.skew; p.open {
		due := got.Breaker == schedule.BreakerProbing
		if probe < p.probe.lo || probe > p.probe.hi || got.ProbeAt <= before && !due || got.ProbeAt > after && due {
			w.Fatalf("the breaker is %s and lets a probe pass at %d, want %+v", got.Breaker, probe, p.probe)
		}
		p.probe = span{probe, probe}
	}
	w.compareToken(p, got, before, after)
	fresh, retries := 0, 0
	for _, r := range w.records {
		if _, maybe := r.due(after + schedule.MaxLead.Milliseconds()); maybe && !r.leased && r.Lane == got.Lane {
			if r.Retry {
				retries++
			} else {
				fresh++
			}
		}
	}
	if got.Fresh > fresh || got.Retries > retries {
		w.Fatalf("%d fresh items and %d retries are ready, of %d and %d that may be due", got.Fresh, got.Retries, fresh, retries)
	}
}

// compareSince compares since when something lasts, if it does, and takes over what only the index knows to
// the millisecond.
func (w *world) compareSince(what string, got int64, lasts bool, want *span) {
	w.Helper()
	if !lasts {
		if got != 0 {
			w.Fatalf("not %s, but since %d", what, got)
		}
		return
	}
	if got += w.skew; got < want.lo || got > want.hi {
		w.Fatalf("%s since %d on the steady clock, want %+v", what, got, *want)
	}
	*want = span{got, got}
}

func (w *world) compareToken(p *path, got schedule.LaneState, before, after int64) {
	w.Helper()
	if p.every == 0 {
		if got.NextToken != 0 {
			w.Fatalf("a lane without a rate waits for a token until %d", got.NextToken)
		}
		return
	}
	surely, _ := w.tokens(p, before)
	_, maybe := w.tokens(p, after)
	switch {
	case got.NextToken == 0 && maybe == 0, got.NextToken != 0 && surely > 0:
		w.Fatalf("the next token is there at %d; there are %d to %d now, at %d", got.NextToken, surely, maybe, after)
	case got.NextToken != 0 && (got.NextToken < w.nextToken(p.token.lo) || got.NextToken > w.nextToken(p.token.hi)):
		w.Fatalf("the next token is there at %d, want between %d and %d", got.NextToken, w.nextToken(p.token.lo), w.nextToken(p.token.hi))
	}
}

// randomOutage lets attempts of one lane end without an answer, in so many as make a breaker open.
func (w *world) randomOutage(rt *rapid.T) {
	i := rapid.IntRange(0, modelLanes-1).Draw(rt, "lane")
	apart := rapid.SampledFrom([]time.Duration{0, 3 * time.Second, schedule.BreakerSpan}).Draw(rt, "apart")
	signal := rapid.SampledFrom([]schedule.Signal{schedule.TimedOut, schedule.Unanswered}).Draw(rt, "signal")
	w.clearOfPauses()
	for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
		item := schedule.Item{ID: w.id(), Lane: w.lanes[i], Due: w.Now()}
		var adoptions []schedule.Adoption
		for range 10 {
			adoptions = append(adoptions, schedule.Adoption{Item: item, Token: "outage", Until: w.Now() + 60_000})
			item.ID = w.id()
		}
		w.no(w.Index.Adopt(w.ctx, adoptions))
		for _, a := range adoptions {
			before := w.Now()
			s := schedule.Settlement{Item: a.Item, Token: a.Token, Outcome: schedule.Ack, Signal: signal}
			w.expectSettled(s, schedule.Applied)
			w.counters["acked"]++
			w.learn(a.Lane, signal, before, w.Now())
		}
		if apart > 0 {
			w.pass(apart)
			w.clearOfPauses()
		}
	}
}
