package control

import (
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// explainEnded explains a callback that is terminal.
func (s *callbackFacts) explainEnded() Explanation {
	c := &s.c
	summary := func(format string, args ...any) Explanation {
		return Explanation{Summary: fmt.Sprintf(format, args...)}
	}
	switch c.State {
	case store.Succeeded:
		if c.Kind == store.Poll {
			return summary("The poll ended %s (%s). No more requests are sent.", at(c.FinishedAt), c.Reason)
		}
		return summary("The callback was delivered %s. No more attempts are made.", at(c.FinishedAt))
	case store.Canceled:
		return summary("The callback was canceled %s (%s). No more attempts are made.",
			at(c.FinishedAt), c.Reason)
	}
	return summary("The callback is dead: it ended %s (%s) after %d counted attempts. "+
		"No more attempts are made unless you retry it.", at(c.FinishedAt), c.Reason, c.AttemptCount)
}

// explain lists what blocks an open callback: first what blocks every callback, then what people have
// stopped, then what ends without action.
func (s *callbackFacts) explain() Explanation {
	c := &s.c
	if c.StateAt(s.now) == store.Attempting {
		blocks := append([]Block{s.attemptingBlock()}, s.global...)
		return Explanation{Summary: "An attempt is in progress.", Blocking: blocks}
	}
	blocks := append(s.global, pauseBlocks(&s.lane, s.endpoint, s.now)...)
	blocks = append(blocks, s.waitBlocks()...)
	if !s.indexDown {
		blocks = append(blocks, s.laneBlocks(c.Trigger == store.Manual)...)
	}
	x := Explanation{NextAt: max(c.DueAt, s.now), Blocking: blocks}
	for i := range blocks {
		until := blocks[i].Until
		if blocks[i].Code == BlockLock {
			until = s.position.Due // the holder may end earlier than its claim
		}
		x.NextAt = max(x.NextAt, until)
	}
	if slices.ContainsFunc(blocks, Block.isEndless) {
		x.NextAt = 0
	}
	x.Summary = s.summary(&x)
	return x
}

func (s *callbackFacts) attemptingBlock() Block {
	return Block{
		Code: BlockAttempting, Since: s.claimedAt, Until: s.c.ClaimUntil,
		Detail: "A process has claimed the callback. The attempt ends within its timeout.",
		Cure:   "Wait. If that process dies, the callback is claimed again when the claim expires.",
	}
}

// waitBlocks are the due time and the earlier callback in strict order that the callback waits for.
func (s *callbackFacts) waitBlocks() []Block {
	var blocks []Block
	c := &s.c
	if c.DueAt > s.now {
		blocks = append(blocks, Block{
			Code: BlockNotDue, Since: max(c.CreatedAt, s.endedAt), Until: c.DueAt, Detail: s.whyNotDue(),
			Cure: "Retry the callback to send it now: " + s.retry(),
		})
	}
	if s.waitsFor != "" {
		first := store.CallbackPrefix + s.waitsFor
		blocks = append(blocks, Block{
			Code: BlockOrder, Since: c.CreatedAt, Other: s.waitsFor,
			Detail: "The callback is in strict order. An earlier callback with the same lock_key, " + first +
				", has not finished.",
			Cure: "Retry or cancel the earlier callback: POST /v1/callbacks/" + first +
				"/retry or POST /v1/callbacks/" + first + "/cancel",
		})
	}
	return blocks
}

// retry is the API call that retries the callback.
func (s *callbackFacts) retry() string {
	return "POST /v1/callbacks/" + store.CallbackPrefix + s.c.ID + "/retry"
}

// whyNotDue describes the wait for the due time by the last attempt.
func (s *callbackFacts) whyNotDue() string {
	c := &s.c
	switch {
	case c.AttemptCount == 0 && c.DivertCount == 0:
		return "The first attempt is scheduled for this time."
	case c.AttemptCount == 0:
		return "The callback was postponed. That does not count as an attempt."
	case c.LastStatus != 0:
		return fmt.Sprintf("Counted attempt %d got status %d (%s). Waiting for the next attempt.",
			c.AttemptCount, c.LastStatus, c.LastClass)
	}
	return fmt.Sprintf("Counted attempt %d ended with %s. Waiting for the next attempt.",
		c.AttemptCount, c.LastClass)
}

// laneBlocks are what the index knows: the state of the lane, the callback's place and its lock. A forced
// callback, one that a person retried, ignores the breaker, Retry-After and the rate. The limits and the lock
// are left out while the callback is not due.
func (s *callbackFacts) laneBlocks(forced bool) []Block {
	var blocks []Block
	if !forced {
		blocks = receiverBlocks(&s.state, s.now, s.retry())
	}
	if s.c.DueAt > s.now {
		return blocks
	}
	blocks = append(blocks, limitBlocks(&s.state, s.c.Lane, s.now, s.c.DueAt, forced)...)
	switch {
	case s.position.Place == schedule.Absent && !s.rebuilding():
		blocks = append(blocks, Block{
			Code: BlockIndexMissing, Since: max(s.c.DueAt, s.c.UpdatedAt),
			Detail: "The callback is not in the queue yet. The background check adds it within 20 s.",
			Cure:   `Wait. "dispatcher verify" compares the queue with SQL.`,
		})
	case s.position.Place == schedule.Delayed && s.position.Due > s.now && s.waitsForLock():
		blocks = append(blocks, s.lockBlock())
	}
	return blocks
}

// waitsForLock reports whether a lock conflict may have diverted the callback. A callback in strict order
// that waits for an earlier one is diverted for its order.
func (s *callbackFacts) waitsForLock() bool { return s.c.LockKey != "" && s.waitsFor == "" }

// rebuilding reports whether a rebuild explains why the index lacks the callback.
func (s *callbackFacts) rebuilding() bool {
	return slices.ContainsFunc(s.global, func(b Block) bool { return b.Code == BlockIndexRebuilding })
}

// lockBlock is the wait for the lock. It lasts as long as the holder's claim. If no holder is found, it lasts
// from this callback's due time until it is tried again.
func (s *callbackFacts) lockBlock() Block {
	b := Block{
		Code: BlockLock, Since: s.c.DueAt, Until: s.position.Due,
		Cure:   "Wait. The wait does not count as an attempt.",
		Detail: "Another callback",
	}
	if h := &s.holder; h.ID != "" {
		b.Since, b.Until, b.Other = h.ClaimedAt, max(h.ClaimUntil, b.Until), h.ID
		b.Detail = "Callback " + store.CallbackPrefix + h.ID
	}
	b.Detail += " with the same lock_key, " + s.c.LockKey +
		", is being sent. This one follows when that ends."
	return b
}

var summaries = map[string]string{
	BlockSQLDown:         "The database rejects writes.",
	BlockSendingStopped:  "All sending is stopped.",
	BlockNoWorker:        "No process with the role worker runs.",
	BlockSendingHeld:     "Sending is off (--hold) in every process.",
	BlockIndexUnanswered: "The queue is unavailable.",
	BlockIndexRebuilding: "The queue is being rebuilt.",
	BlockProjectPaused:   "The project is paused.",
	BlockEndpointPaused:  "The endpoint is paused.",
	BlockEndpointOff:     "The endpoint is disabled.",
	BlockEndpointDeleted: "The endpoint was deleted.",
	BlockLanePaused:      "The lane is paused.",
	BlockOrder:           "Waiting for an earlier callback with the same lock_key.",
	BlockBreakerOpen:     "The circuit breaker is open: the receiver does not answer.",
	BlockRetryAfter:      "The receiver asked to wait (Retry-After).",
	BlockRate:            "The lane has reached its rate limit.",
	BlockConcurrency:     "The lane has reached its concurrency limit.",
	BlockIndexMissing:    "The callback is not queued yet.",
	BlockLock:            "Waiting for the lock.",
}

// summary names the first cause: the one to cure first.
func (s *callbackFacts) summary(x *Explanation) string {
	if len(x.Blocking) == 0 {
		return "Nothing blocks the callback. It is due and is sent as soon as a slot is free."
	}
	first := x.Blocking[0]
	switch {
	case first.Code == BlockNotDue:
		return "The next attempt is due " + at(first.Until) + "."
	case s.c.DueAt > s.now:
		return summaries[first.Code] + " The next attempt is due " + at(s.c.DueAt) + "."
	}
	return summaries[first.Code]
}
