package control

import (
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// pauseBlocks are the pauses of a lane's project, of its endpoint and of the lane. They include an endpoint
// that is disabled or deleted. ep is nil for a lane without an endpoint.
func pauseBlocks(l *store.Lane, ep *store.Endpoint, now int64) []Block {
	var blocks []Block
	if l.ProjectPause > now {
		blocks = append(blocks, Block{
			Code: BlockProjectPaused, Since: l.ProjectPausedAt, Until: l.ProjectPause,
			Detail: "Sending is paused for the whole project.", Cure: "POST /v1/resume",
		})
	}
	if ep != nil {
		blocks = append(blocks, endpointBlocks(ep, now)...)
	}
	if l.OwnPause > now {
		reason := ""
		if l.OwnPause == l.PausedUntil {
			reason = l.PauseReason // PauseReason belongs to the pause that ends last
		}
		blocks = append(blocks, Block{
			Code: BlockLanePaused, Since: l.OwnPausedAt, Until: l.OwnPause,
			Detail: withReason("The lane is paused", reason), Cure: "POST /v1/lanes/" + l.Key + "/resume",
		})
	}
	return blocks
}

func endpointBlocks(ep *store.Endpoint, now int64) []Block {
	var blocks []Block
	path := "/v1/endpoints/" + store.EndpointPrefix + ep.ID
	switch {
	case ep.DeletedAt != 0:
		blocks = append(blocks, Block{
			Code: BlockEndpointDeleted, Since: ep.DeletedAt, Detail: "The endpoint was deleted.",
			Cure: "None: the callback is about to be canceled.",
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

// receiverBlocks are the circuit breaker of a lane and the pause that its receiver asked for (Retry-After). A
// forced callback ignores both. retry is the API call that forces one.
func receiverBlocks(n *schedule.LaneState, now int64, retry string) []Block {
	var blocks []Block
	if n.Breaker != schedule.BreakerClosed {
		blocks = append(blocks, Block{
			Code: BlockBreakerOpen, Since: n.OpenedAt, Until: n.ProbeAt,
			Detail: fmt.Sprintf("The last %d attempts in this lane got no HTTP response, the first of them "+
				"%s. One attempt is made every %s until the receiver responds.",
				n.Unanswered, at(n.UnansweredSince), schedule.BreakerRest),
			Cure: "Fix the receiver. A retry bypasses the breaker: " + retry,
		})
	}
	if n.HeldUntil > now {
		blocks = append(blocks, Block{
			Code: BlockRetryAfter, Since: n.HeldSince, Until: n.HeldUntil,
			Detail: "The receiver asked to wait (Retry-After).",
			Cure:   "Wait. A retry is sent now: " + retry,
		})
	}
	return blocks
}

// limitBlocks are the limits of a lane that are reached: the rate, which a forced callback ignores, and the
// concurrency.
//
// Since is the due time of what waits. The index does not keep when the last token was taken, and a busy lane
// reaches its concurrency limit many times a second.
func limitBlocks(n *schedule.LaneState, key string, now, due int64, forced bool) []Block {
	var blocks []Block
	if n.NextToken > now && !forced {
		blocks = append(blocks, Block{
			Code: BlockRate, Since: due, Until: n.NextToken,
			Detail: fmt.Sprintf("%d callbacks are ready in this lane. It sends one every %s.",
				n.Fresh+n.Retries, n.Every),
			Cure: "Raise the rate: PUT /v1/lanes/" + key + `/limits {"rate": "N/s"}`,
		})
	}
	if n.Concurrency > 0 && n.InFlight >= n.Concurrency {
		blocks = append(blocks, Block{
			Code: BlockConcurrency, Since: due,
			Detail: fmt.Sprintf("%d attempts of this lane are in flight. The limit is now %d (at most %d).",
				n.InFlight, n.Concurrency, n.Limit),
			Cure: "If the receiver answers in time, raise the concurrency: PUT /v1/lanes/" + key +
				`/limits {"concurrency": N}`,
		})
	}
	return blocks
}
