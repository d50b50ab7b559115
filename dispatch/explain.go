package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Block is one thing that keeps a callback from being sent. Times are Unix milliseconds; zero: not known, or without an end.
type Block struct {
	Code         string
	Since, Until int64
	// Detail says what it is, Cure what can be done about it; both for people.
	Detail, Cure string
}

// The codes of what keeps a callback.
const (
	BlockNotDue          = "not_due"
	BlockAttempting      = "attempting"
	BlockSendingHeld     = "sending_held"
	BlockProjectPaused   = "project_paused"
	BlockEndpointPaused  = "endpoint_paused"
	BlockEndpointOff     = "endpoint_disabled"
	BlockEndpointDeleted = "endpoint_deleted"
	BlockLanePaused      = "lane_paused"
	BlockBreakerOpen     = "breaker_open"
	BlockRetryAfter      = "retry_after"
	BlockRate            = "rate_limited"
	BlockConcurrency     = "concurrency"
	BlockLock            = "lock_held"
	BlockOrder           = "order"
	BlockIndexUnanswered = "index_unanswered"
	BlockIndexMissing    = "index_missing"
)

// An Explanation says why a callback has not been sent yet.
type Explanation struct {
	// Summary is one sentence.
	Summary string
	// NextAt is when the next attempt is made at the earliest, as far as that is known; zero: it is not, or there is none.
	NextAt   int64
	Blocking []Block
}

// A standing is what an explanation is made from.
type standing struct {
	c        store.Callback
	endpoint *store.Endpoint
	lane     store.Lane
	// behind is the bare id of the callback that must be terminal first; empty: there is none.
	behind   string
	position schedule.Position
	state    schedule.LaneState
	// mute: the index does not answer.
	mute bool
	held bool
	now  int64
}

// Explain says why a callback of the project has not been sent yet. It is store.ErrNotFound for one that does not exist.
func (e *Engine) Explain(ctx context.Context, project, id string) (Explanation, error) {
	fail := func(err error) (Explanation, error) { return Explanation{}, fmt.Errorf("explain %s: %w", id, err) }
	c, err := e.o.Store.Get(ctx, project, id)
	if err != nil {
		return fail(err)
	}
	s := standing{c: c, now: e.clock.now(), held: e.o.Hold}
	if c.State.Terminal() {
		return s.over(), nil
	}
	if c.EndpointID != "" {
		if s.endpoint, err = e.catalog.endpoint(ctx, c.EndpointID); err != nil && !notFound(err) {
			return fail(err)
		}
	}
	if s.lane, err = e.o.Store.LaneByKey(ctx, project, c.Lane); err != nil && !notFound(err) {
		return fail(err)
	}
	if c.Strict {
		first, err := e.o.Store.NextStrict(ctx, project, c.LockKey)
		if err != nil {
			return fail(err)
		}
		if first != nil && first.ID < c.ID {
			s.behind = first.ID
		}
	}
	e.inIndex(ctx, &s)
	return s.explain(), nil
}

// inIndex asks the index where the callback and its lane are.
func (e *Engine) inIndex(ctx context.Context, s *standing) {
	if e.trouble.indexSilent() {
		s.mute = true
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.trouble.indexTime())
	defer cancel()
	positions, err := e.o.Schedule.Lookup(ctx, []schedule.Ref{{ID: s.c.ID, Lane: s.c.LaneID}})
	if err == nil {
		s.position = positions[0]
		var states []schedule.LaneState
		if states, err = e.o.Schedule.LaneStates(ctx, []int64{s.c.LaneID}); err == nil {
			s.state = states[0]
		}
	}
	if err != nil {
		e.trouble.indexFailed("lookup", err)
		s.mute = true
	}
}

// over explains a callback that is terminal.
func (s *standing) over() Explanation {
	c := &s.c
	switch c.State {
	case store.Succeeded:
		if c.Kind == store.Poll {
			return Explanation{Summary: fmt.Sprintf("It ended %s (%s); nothing more is asked.", at(c.FinishedAt), c.Reason)}
		}
		return Explanation{Summary: "It was delivered " + at(c.FinishedAt) + "; nothing more is sent."}
	case store.Canceled:
		return Explanation{Summary: fmt.Sprintf("It was canceled %s (%s); nothing more is sent.", at(c.FinishedAt), c.Reason)}
	}
	return Explanation{Summary: fmt.Sprintf("It is dead: it ended %s (%s) after %d charged attempts; nothing more is sent unless somebody retries it.",
		at(c.FinishedAt), c.Reason, c.AttemptCount)}
}

func at(ms int64) string { return "at " + time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// explain lists what keeps the callback, what lasts longest first of what people have done, then what goes by itself.
func (s *standing) explain() Explanation {
	c := &s.c
	if c.StateAt(s.now) == store.Attempting {
		return Explanation{
			Summary: "It is being attempted now.",
			Blocking: []Block{{
				Code: BlockAttempting, Until: c.ClaimUntil, Detail: "A dispatcher has claimed it; the attempt ends within its time-out.",
				Cure: "Wait: if that dispatcher dies, the callback is claimed again when its claim has run out.",
			}},
		}
	}
	x := Explanation{NextAt: max(c.DueAt, s.now)}
	add := func(b Block) {
		x.Blocking = append(x.Blocking, b)
		x.NextAt = max(x.NextAt, b.Until)
	}
	forced := c.Trigger == store.Manual
	s.stopped(add)
	if c.DueAt > s.now {
		add(Block{Code: BlockNotDue, Until: c.DueAt, Detail: s.waits(), Cure: "Retry it to have it attempted at once."})
	}
	if s.behind != "" {
		add(Block{Code: BlockOrder, Detail: "It is in strict order, and " + store.CallbackPrefix + s.behind + ", which was accepted before it with the same lock_key, is not terminal.",
			Cure: "See to that one: retry or cancel it."})
	}
	if s.mute {
		add(Block{Code: BlockIndexUnanswered, Detail: "The index does not answer, so nothing is claimed from it.", Cure: "See to Redis; nothing is lost meanwhile."})
	} else {
		s.limited(add, forced)
	}
	x.Summary = s.summary(&x)
	if last := len(x.Blocking) - 1; last >= 0 && endless(x.Blocking) {
		x.NextAt = 0
	}
	return x
}

// endless says whether something lasts until somebody ends it.
func endless(blocks []Block) bool {
	for _, b := range blocks {
		switch {
		case b.Until == store.Forever, b.Code == BlockSendingHeld, b.Code == BlockEndpointOff, b.Code == BlockOrder, b.Code == BlockIndexUnanswered:
			return true
		}
	}
	return false
}

// stopped adds what people have stopped.
func (s *standing) stopped(add func(Block)) {
	if s.held {
		add(Block{Code: BlockSendingHeld, Detail: "This dispatcher was started with --hold.", Cure: "Start it without --hold."})
	}
	if s.lane.ProjectPause > s.now {
		add(Block{Code: BlockProjectPaused, Until: s.lane.ProjectPause, Detail: "All sending of the project is paused.", Cure: "POST /v1/resume"})
	}
	if ep := s.endpoint; ep != nil {
		path := "/v1/endpoints/" + store.EndpointPrefix + ep.ID
		switch {
		case ep.DeletedAt != 0:
			add(Block{Code: BlockEndpointDeleted, Since: ep.DeletedAt, Detail: "The endpoint was deleted.", Cure: "None: it is about to be canceled."})
		case !ep.Enabled:
			add(Block{Code: BlockEndpointOff, Detail: "The endpoint is disabled (" + ep.DisabledReason + ").", Cure: "PATCH " + path + ` {"enabled": true}`})
		}
		if ep.PausedUntil > s.now {
			add(Block{Code: BlockEndpointPaused, Until: ep.PausedUntil, Detail: withReason("The endpoint is paused", ep.PauseReason), Cure: "POST " + path + "/resume"})
		}
	}
	if s.lane.OwnPause > s.now {
		add(Block{Code: BlockLanePaused, Until: s.lane.OwnPause, Detail: withReason("The lane is paused", s.lane.PauseReason), Cure: "POST /v1/lanes/" + s.lane.Key + "/resume"})
	}
}

func withReason(what, reason string) string {
	if reason == "" {
		return what + "."
	}
	return what + ": " + reason
}

// waits says why a callback is due only later.
func (s *standing) waits() string {
	c := &s.c
	switch {
	case c.AttemptCount == 0 && c.DivertCount == 0:
		return "Its first attempt is due then, as it was asked for."
	case c.AttemptCount == 0:
		return "It was put back without a charge."
	case c.LastStatus != 0:
		return fmt.Sprintf("Charged attempt %d got status %d (%s); this is the wait of its tier.", c.AttemptCount, c.LastStatus, c.LastClass)
	}
	return fmt.Sprintf("Charged attempt %d ended with %s; this is the wait of its tier.", c.AttemptCount, c.LastClass)
}

// limited adds what the index holds it back for.
func (s *standing) limited(add func(Block), forced bool) {
	n := &s.state
	if !forced && n.Breaker != schedule.BreakerClosed {
		add(Block{
			Code: BlockBreakerOpen, Since: n.UnansweredSince, Until: n.ProbeAt,
			Detail: fmt.Sprintf("The last %d attempts of its lane got no HTTP answer; one is made each %s until one is answered.", n.Unanswered, schedule.BreakerRest),
			Cure:   "See to the receiver; a retry by hand is made in any case.",
		})
	}
	if !forced && n.HeldUntil > s.now {
		add(Block{Code: BlockRetryAfter, Until: n.HeldUntil, Detail: "The receiver asked for a pause (Retry-After).", Cure: "Wait, or retry it by hand."})
	}
	if s.c.DueAt > s.now {
		return
	}
	if !forced && n.NextToken > s.now {
		add(Block{Code: BlockRate, Until: n.NextToken, Detail: fmt.Sprintf("%d callbacks are ready in its lane, which sends one each %s.", n.Fresh+n.Retries, n.Every), Cure: "Raise the rate of the endpoint or the lane."})
	}
	if n.Concurrency > 0 && n.InFlight >= n.Concurrency {
		add(Block{Code: BlockConcurrency, Detail: fmt.Sprintf("%d attempts of its lane are in flight, as many as it may have now (at most %d).", n.InFlight, n.Limit), Cure: "Raise the concurrency of the endpoint or the lane, if the receiver answers in time."})
	}
	switch {
	case s.position.Place == schedule.Absent:
		add(Block{Code: BlockIndexMissing, Detail: "The index does not hold it yet; the sweep gives it to the index within 20 s.", Cure: "Wait, or see \"dispatcher verify\"."})
	case s.position.Place == schedule.Delayed && s.c.LockKey != "" && s.position.Due > s.now:
		add(Block{Code: BlockLock, Until: s.position.Due, Detail: "Another callback with the lock_key " + s.c.LockKey + " is being attempted; this one follows when that ends.", Cure: "Wait; it was not charged."})
	}
}

// summary is the explanation in one sentence.
func (s *standing) summary(x *Explanation) string {
	if len(x.Blocking) == 0 {
		return "Nothing keeps it: it is due and is sent as soon as a slot is free."
	}
	text := map[string]string{
		BlockSendingHeld: "Sending is held on this dispatcher.", BlockProjectPaused: "The project is paused.",
		BlockEndpointPaused: "Its endpoint is paused.", BlockEndpointOff: "Its endpoint is disabled.", BlockEndpointDeleted: "Its endpoint is deleted.",
		BlockLanePaused: "Its lane is paused.", BlockOrder: "It waits for an earlier callback with the same lock_key.",
		BlockIndexUnanswered: "The index does not answer.", BlockBreakerOpen: "Its receiver does not answer.",
		BlockRetryAfter: "Its receiver asked for a pause.", BlockRate: "Its lane is at its rate.",
		BlockConcurrency: "Its lane is full.", BlockIndexMissing: "The index is about to be told of it.",
		BlockLock: "It waits for its lock.",
	}
	first := x.Blocking[0]
	if first.Code == BlockNotDue {
		return "It is due " + at(first.Until) + "."
	}
	if s.c.DueAt > s.now {
		return text[first.Code] + " It is due " + at(s.c.DueAt) + "."
	}
	return text[first.Code]
}
