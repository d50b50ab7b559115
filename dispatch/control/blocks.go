package control

import (
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// over explains a callback that is terminal.
func (s *standing) over() Explanation {
	c := &s.c
	summary := func(format string, args ...any) Explanation {
		return Explanation{Summary: fmt.Sprintf(format, args...)}
	}
	switch c.State {
	case store.Succeeded:
		if c.Kind == store.Poll {
			return summary("It ended %s (%s); nothing more is asked.", at(c.FinishedAt), c.Reason)
		}
		return summary("It was delivered %s; nothing more is sent.", at(c.FinishedAt))
	case store.Canceled:
		return summary("It was canceled %s (%s); nothing more is sent.", at(c.FinishedAt), c.Reason)
	}
	return summary("It is dead: it ended %s (%s) after %d charged attempts; "+
		"nothing more is sent unless somebody retries it.", at(c.FinishedAt), c.Reason, c.AttemptCount)
}

// explain lists what keeps the callback: what keeps everything, then what people have done, then what goes by
// itself.
func (s *standing) explain() Explanation {
	c := &s.c
	if c.StateAt(s.now) == store.Attempting {
		blocks := append([]Block{s.attempting()}, s.halts...)
		return Explanation{Summary: "It is being attempted now.", Blocking: blocks}
	}
	blocks := append(s.halts, stopped(&s.lane, s.endpoint, s.now)...)
	blocks = append(blocks, s.early()...)
	if !s.mute {
		blocks = append(blocks, s.held(c.Trigger == store.Manual)...)
	}
	x := Explanation{NextAt: max(c.DueAt, s.now), Blocking: blocks}
	for i := range blocks {
		x.NextAt = max(x.NextAt, blocks[i].Until)
	}
	if slices.ContainsFunc(blocks, Block.isEndless) {
		x.NextAt = 0
	}
	x.Summary = s.summary(&x)
	return x
}

func (s *standing) attempting() Block {
	return Block{
		Code: BlockAttempting, Since: s.claimedAt, Until: s.c.ClaimUntil,
		Detail: "A dispatcher has claimed it; the attempt ends within its time-out.",
		Cure:   "Wait: if that dispatcher dies, the callback is claimed again when its claim has run out.",
	}
}

// early are the times and callbacks that it waits for.
func (s *standing) early() []Block {
	var blocks []Block
	c := &s.c
	if c.DueAt > s.now {
		blocks = append(blocks, Block{
			Code: BlockNotDue, Since: max(c.CreatedAt, s.endedAt), Until: c.DueAt, Detail: s.waits(),
			Cure: "Retry it to have it attempted at once: " + s.retry(),
		})
	}
	if s.behind != "" {
		first := store.CallbackPrefix + s.behind
		blocks = append(blocks, Block{
			Code: BlockOrder, Since: c.CreatedAt,
			Detail: "It is in strict order, and " + first +
				", which was accepted before it with the same lock_key, is not terminal.",
			Cure: "See to that one: POST /v1/callbacks/" + first +
				"/retry or POST /v1/callbacks/" + first + "/cancel",
		})
	}
	return blocks
}

// retry is the call that retries it.
func (s *standing) retry() string {
	return "POST /v1/callbacks/" + store.CallbackPrefix + s.c.ID + "/retry"
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
		return fmt.Sprintf("Charged attempt %d got status %d (%s); this is the wait of its tier.",
			c.AttemptCount, c.LastStatus, c.LastClass)
	}
	return fmt.Sprintf("Charged attempt %d ended with %s; this is the wait of its tier.",
		c.AttemptCount, c.LastClass)
}

// held are what the index holds it back for.
func (s *standing) held(forced bool) []Block {
	var blocks []Block
	if !forced {
		blocks = refused(&s.state, s.now, s.retry())
	}
	if s.c.DueAt > s.now {
		return blocks
	}
	blocks = append(blocks, limited(&s.state, s.c.Lane, s.now, s.c.DueAt, forced)...)
	switch {
	case s.position.Place == schedule.Absent && !s.rebuilding():
		blocks = append(blocks, Block{
			Code: BlockIndexMissing, Since: max(s.c.DueAt, s.c.UpdatedAt),
			Detail: "The index does not hold it yet; the sweep gives it to the index within 20 s.",
			Cure:   `Wait; "dispatcher verify" compares the index with SQL.`,
		})
	case s.position.Place == schedule.Delayed && s.position.Due > s.now && s.waitsForLock():
		blocks = append(blocks, s.locked())
	}
	return blocks
}

// waitsForLock says whether a lock may have put it off; what is in strict order is put off for that.
func (s *standing) waitsForLock() bool { return s.c.LockKey != "" && s.behind == "" }

// rebuilding says whether the index lacks it because it is being filled.
func (s *standing) rebuilding() bool {
	return slices.ContainsFunc(s.halts, func(b Block) bool { return b.Code == BlockIndexRebuilding })
}

// locked is the wait for its lock.
func (s *standing) locked() Block {
	b := Block{
		Code: BlockLock, Since: s.c.DueAt, Until: s.position.Due, Cure: "Wait; it was not charged.",
		Detail: "Another callback with the lock_key " + s.c.LockKey +
			" is being attempted; this one follows when that ends.",
	}
	if s.holder != "" {
		b.Since = s.holderSince
		b.Detail = store.CallbackPrefix + s.holder + ", which has the same lock_key " + s.c.LockKey +
			", is being attempted; this one follows when that ends."
	}
	return b
}

// summaries name what keeps a callback in one sentence.
var summaries = map[string]string{
	BlockSQLDown: "SQL does not commit.", BlockNoWorker: "No process that sends is running.",
	BlockSendingHeld:     "Sending is held by --hold in every process.",
	BlockIndexUnanswered: "The index does not answer.", BlockIndexRebuilding: "The index is being rebuilt.",
	BlockProjectPaused:  "The project is paused.",
	BlockEndpointPaused: "Its endpoint is paused.", BlockEndpointOff: "Its endpoint is disabled.",
	BlockEndpointDeleted: "Its endpoint is deleted.", BlockLanePaused: "Its lane is paused.",
	BlockOrder:       "It waits for an earlier callback with the same lock_key.",
	BlockBreakerOpen: "Its receiver does not answer.", BlockRetryAfter: "Its receiver asked for a pause.",
	BlockRate: "Its lane is at its rate.", BlockConcurrency: "Its lane is full.",
	BlockIndexMissing: "The index does not hold it yet.", BlockLock: "It waits for its lock.",
}

// summary is the explanation in one sentence: the first cause, which is the one to cure first.
func (s *standing) summary(x *Explanation) string {
	if len(x.Blocking) == 0 {
		return "Nothing keeps it: it is due and is sent as soon as a slot is free."
	}
	first := x.Blocking[0]
	switch {
	case first.Code == BlockNotDue:
		return "It is due " + at(first.Until) + "."
	case s.c.DueAt > s.now:
		return summaries[first.Code] + " It is due " + at(s.c.DueAt) + "."
	}
	return summaries[first.Code]
}

// This file says what holds a lane, for the explanation of a callback in it and for the list of lanes.

// stopped are what people have stopped: a project, an endpoint (nil: there is none) or a lane.
func stopped(l *store.Lane, ep *store.Endpoint, now int64) []Block {
	var blocks []Block
	if l.ProjectPause > now {
		blocks = append(blocks, Block{
			Code: BlockProjectPaused, Since: l.ProjectPausedAt, Until: l.ProjectPause,
			Detail: "All sending of the project is paused.", Cure: "POST /v1/resume",
		})
	}
	if ep != nil {
		blocks = append(blocks, endpointStopped(ep, now)...)
	}
	if l.OwnPause > now {
		reason := ""
		if l.OwnPause == l.PausedUntil {
			reason = l.PauseReason // which is that of the pause that ends last
		}
		blocks = append(blocks, Block{
			Code: BlockLanePaused, Since: l.OwnPausedAt, Until: l.OwnPause,
			Detail: withReason("The lane is paused", reason), Cure: "POST /v1/lanes/" + l.Key + "/resume",
		})
	}
	return blocks
}

func endpointStopped(ep *store.Endpoint, now int64) []Block {
	var blocks []Block
	path := "/v1/endpoints/" + store.EndpointPrefix + ep.ID
	switch {
	case ep.DeletedAt != 0:
		blocks = append(blocks, Block{
			Code: BlockEndpointDeleted, Since: ep.DeletedAt, Detail: "The endpoint was deleted.",
			Cure: "None: it is about to be canceled.",
		})
	case !ep.Enabled:
		detail := "The endpoint is disabled."
		if ep.DisabledReason != "" {
			detail = "The endpoint is disabled (" + ep.DisabledReason + ")."
		}
		blocks = append(blocks, Block{
			Code: BlockEndpointOff, Since: ep.DisabledAt, Detail: detail,
			Cure: "PATCH " + path + ` {"enabled": true}`,
		})
	}
	if ep.PausedUntil > now {
		blocks = append(blocks, Block{
			Code: BlockEndpointPaused, Since: ep.PausedAt, Until: ep.PausedUntil,
			Detail: withReason("The endpoint is paused", ep.PauseReason), Cure: "POST " + path + "/resume",
		})
	}
	return blocks
}

func withReason(what, reason string) string {
	if reason == "" {
		return what + "."
	}
	return what + ": " + reason
}

// refused are the holds of a lane that what is forced ignores: its breaker, and what a receiver's Retry-After
// asked for. byHand is how one is tried in spite of them.
func refused(n *schedule.LaneState, now int64, byHand string) []Block {
	var blocks []Block
	if n.Breaker != schedule.BreakerClosed {
		blocks = append(blocks, Block{
			Code: BlockBreakerOpen, Since: n.OpenedAt, Until: n.ProbeAt,
			Detail: fmt.Sprintf("The last %d attempts of its lane got no HTTP answer, the first of them %s; "+
				"one is made each %s until one is answered.",
				n.Unanswered, at(n.UnansweredSince), schedule.BreakerRest),
			Cure: "See to the receiver. A retry by hand is made in any case: " + byHand,
		})
	}
	if n.HeldUntil > now {
		blocks = append(blocks, Block{
			Code: BlockRetryAfter, Since: n.HeldSince, Until: n.HeldUntil,
			Detail: "The receiver asked for a pause (Retry-After).",
			Cure:   "Wait, or retry it by hand: " + byHand,
		})
	}
	return blocks
}

// limited are the limits of a lane that let nothing begin now: its rate, which what is forced ignores, and as
// much in flight as it may have. Since is when what waits for it was due: the index does not keep when the
// last token was taken, and a busy lane is full, and not, many times a second.
func limited(n *schedule.LaneState, key string, now, due int64, forced bool) []Block {
	var blocks []Block
	if n.NextToken > now && !forced {
		blocks = append(blocks, Block{
			Code: BlockRate, Since: due, Until: n.NextToken,
			Detail: fmt.Sprintf("%d callbacks are ready in its lane, which sends one each %s.",
				n.Fresh+n.Retries, n.Every),
			Cure: "Raise the rate: PUT /v1/lanes/" + key + `/limits {"rate": "N/s"}`,
		})
	}
	if n.Concurrency > 0 && n.InFlight >= n.Concurrency {
		blocks = append(blocks, Block{
			Code: BlockConcurrency, Since: due,
			Detail: fmt.Sprintf("%d attempts of its lane are in flight, as many as it may have now (at "+
				"most %d).",
				n.InFlight, n.Limit),
			Cure: "If the receiver answers in time, raise the concurrency: PUT /v1/lanes/" + key +
				`/limits {"concurrency": N}`,
		})
	}
	return blocks
}
