package dispatch

import (
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file says what holds a lane, for the explanation of a callback in it and for the list of lanes.

func projectPaused(l *store.Lane) Block {
	return Block{
		Code: BlockProjectPaused, Since: l.ProjectPausedAt, Until: l.ProjectPause,
		Detail: "All sending of the project is paused.", Cure: "POST /v1/resume",
	}
}

func lanePaused(l *store.Lane) Block {
	reason := ""
	if l.OwnPause == l.PausedUntil {
		reason = l.PauseReason // which is that of the pause that ends last
	}
	return Block{
		Code: BlockLanePaused, Since: l.OwnPausedAt, Until: l.OwnPause,
		Detail: withReason("The lane is paused", reason), Cure: "POST /v1/lanes/" + l.Key + "/resume",
	}
}

// endpointReason is why an endpoint is paused or disabled, as far as its lane says.
func endpointReason(l *store.Lane) string {
	if l.EndpointPause == l.PausedUntil && l.OwnPause != l.PausedUntil {
		return l.PauseReason
	}
	return ""
}

func withReason(what, reason string) string {
	if reason == "" {
		return what + "."
	}
	return what + ": " + reason
}

func endpointPath(id string) string { return "/v1/endpoints/" + store.EndpointPrefix + id }

func endpointOff(id, reason string, since int64) Block {
	detail := "The endpoint is disabled."
	if reason != "" {
		detail = "The endpoint is disabled (" + reason + ")."
	}
	return Block{
		Code: BlockEndpointOff, Since: since, Detail: detail,
		Cure: "PATCH " + endpointPath(id) + ` {"enabled": true}`,
	}
}

func endpointPaused(id, reason string, since, until int64) Block {
	return Block{
		Code: BlockEndpointPaused, Since: since, Until: until,
		Detail: withReason("The endpoint is paused", reason), Cure: "POST " + endpointPath(id) + "/resume",
	}
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

// atItsRate is the hold of a lane whose rate lets nothing begin now. Since is when what waits for it was due:
// the index does not keep when the last token was taken.
func atItsRate(n *schedule.LaneState, key string, now, due int64) (Block, bool) {
	return Block{
		Code: BlockRate, Since: due, Until: n.NextToken,
		Detail: fmt.Sprintf("%d callbacks are ready in its lane, which sends one each %s.",
			n.Fresh+n.Retries, n.Every),
		Cure: "Raise the rate: PUT /v1/lanes/" + key + `/limits {"rate": "N/s"}`,
	}, n.NextToken > now
}

// isFull is the hold of a lane that has as much in flight as it may. Since is when what waits for it was due:
// a busy lane is full, and not, many times a second.
func isFull(n *schedule.LaneState, key string, due int64) (Block, bool) {
	return Block{
		Code: BlockConcurrency, Since: due,
		Detail: fmt.Sprintf("%d attempts of its lane are in flight, as many as it may have now (at most %d).",
			n.InFlight, n.Limit),
		Cure: "If the receiver answers in time, raise the concurrency: PUT /v1/lanes/" + key +
			`/limits {"concurrency": N}`,
	}, n.Concurrency > 0 && n.InFlight >= n.Concurrency
}
