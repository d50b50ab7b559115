package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"time"
)

// An Outcome is the end of a callback.
type Outcome struct {
	ID string `json:"id" schema:"pattern: \"^cb_\""`
	// From here to labels: values of the callback. Null or empty after the callback was purged.
	Kind       Kind              `json:"kind" api:"null" schema:"enum: [notify, poll, null]"`
	EndpointID string            `json:"endpoint_id" api:"null"`
	Topic      string            `json:"topic" api:"null"`
	Ref        string            `json:"ref" api:"null"`
	Labels     map[string]string `json:"labels"`
	State      State             `json:"state" schema:"enum: [succeeded, dead, canceled]"`
	Reason     TerminalReason    `json:"reason" api:"null" schema:"type: string"`
	At         time.Time         `json:"at"`
	// Here and below: values at that time.
	AttemptCount int   `json:"attempt_count"`
	LastStatus   int   `json:"last_status" api:"null"`
	LastClass    Class `json:"last_class" api:"null" schema:"type: string"`
	// Continues the feed after this outcome.
	Cursor string `json:"cursor"`
}

// longestOutcomeWait is the longest wait that a server allows.
const longestOutcomeWait = 30 * time.Second

// Outcomes returns the callbacks that finished after a cursor, oldest first, in commit order. An empty cursor
// starts with the oldest outcome that is kept. NextCursor is always set, even if there is nothing new. Limit
// is at most 500, and 50 if it is zero. If there is nothing new, the server waits for it: at most wait, and
// never longer than 30 seconds.
func (c *Client) Outcomes(
	ctx context.Context, cursor string, limit int, wait time.Duration,
) (page Page[Outcome], err error) {
	q := params{"cursor": cursor, "limit": number(limit)}.query()
	wait = min(max(wait, 0), longestOutcomeWait)
	if wait > 0 {
		q.Set("wait", wait.String())
	}
	a, err := c.get(ctx, wait, q, "outcomes")
	if err != nil {
		return page, err
	}
	return page, c.decode(a, &page)
}

// FollowOutcomes yields the callbacks that finished after a cursor, oldest first, in commit order, and then
// waits for new ones. An empty cursor starts with the oldest outcome that is kept. Store the Cursor of an
// outcome in the transaction in which you use the outcome. After a restart, continue from the stored cursor:
// then no outcome is left out, and none comes twice.
//
// A lost connection and a temporary error are no end: FollowOutcomes logs a warning (Options.Logger) and
// reads again until ctx ends. The iteration ends with an error, which is that of ctx or a lasting one, such
// as an invalid key, cursor or certificate.
//
// The server keeps outcomes for 30 days. A cursor that is older continues with the oldest outcome that is
// kept, without an error: then use Callbacks to read what is missing.
func (c *Client) FollowOutcomes(ctx context.Context, cursor string) iter.Seq2[Outcome, error] {
	return func(yield func(Outcome, error) bool) {
		for failures := 0; ; {
			began := time.Now()
			page, err := c.readFeed(ctx, cursor)
			wait := time.Duration(0)
			switch {
			case ctx.Err() != nil:
				yield(Outcome{}, ctx.Err())
				return
			case err != nil && !isTemporary(err):
				yield(Outcome{}, err)
				return
			case err != nil:
				wait = min(waitAfter(err, failures), longestRetryAfter)
				failures++
				c.feedLogger.WarnContext(ctx, "reading outcomes failed and is tried again", "wait", wait,
					"error", err)
			default:
				failures = 0
				for _, o := range page.Data {
					if !yield(o, nil) {
						return
					}
				}
				cursor = page.NextCursor
				if len(page.Data) == 0 && time.Since(began) < time.Second {
					wait = time.Second // the server does not wait while it shuts down
				}
			}
			if sleep(ctx, wait) != nil {
				yield(Outcome{}, ctx.Err())
				return
			}
		}
	}
}

// readFeed reads the page after a cursor, once.
func (c *Client) readFeed(ctx context.Context, cursor string) (page Page[Outcome], err error) {
	q := params{"cursor": cursor, "limit": "500", "wait": longestOutcomeWait.String()}.query()
	r, err := c.request(http.MethodGet, "/v1/outcomes?"+q.Encode(), nil)
	if err != nil {
		return page, err
	}
	r.timeout += longestOutcomeWait
	a, err := c.send(ctx, r)
	if err != nil {
		return page, err
	}
	err = c.decode(a, &page)
	if err == nil && page.NextCursor == "" {
		err = fmt.Errorf("the response of %s has no next_cursor", c.o.URL)
	}
	return page, err
}

// ReconcileCounts are the accepted callbacks by their current state.
type ReconcileCounts struct {
	Accepted  int64 `json:"accepted"`
	Succeeded int64 `json:"succeeded"`
	Dead      int64 `json:"dead"`
	Canceled  int64 `json:"canceled"`
	Open      int64 `json:"open"`
	Balanced  bool  `json:"balanced"`
}

// A ReconcileGroup has the counts of one group.
type ReconcileGroup struct {
	// A topic, an endpoint's id, a lane, a day or a label's value. Null: the callbacks that have none.
	Group string `json:"group" api:"null"`
	ReconcileCounts
}

// A Reconciliation counts the callbacks that were accepted in a time range, by their current state.
type Reconciliation struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Timezone is the zone in which days begin. Empty: UTC.
	Timezone string          `json:"timezone"`
	GroupBy  string          `json:"group_by" api:"null"`
	Total    ReconcileCounts `json:"total"`
	// One entry per group, sorted. Empty without group_by.
	Data []ReconcileGroup `json:"data"`
}

// A ReconcileQuery selects the callbacks to count.
type ReconcileQuery struct {
	// From and To are dates in Timezone, or times. An empty To is now.
	From, To string
	// Timezone is where days begin; empty: UTC.
	Timezone string
	// GroupBy is topic, endpoint, lane, day or label:NAME. Empty: only the total.
	GroupBy string
}

// Reconcile returns the counts for a query.
func (c *Client) Reconcile(ctx context.Context, which ReconcileQuery) (out Reconciliation, err error) {
	q := params{"from": which.From, "to": which.To, "timezone": which.Timezone,
		"group_by": which.GroupBy}.query()
	a, err := c.get(ctx, longTimeout, q, "reconcile")
	if err != nil {
		return out, err
	}
	return out, c.decode(a, &out)
}

// A ReferenceList is the caller's own list of submitted references.
type ReferenceList struct {
	// Accepted at or after this time.
	From time.Time `json:"from" api:"required"`
	// Accepted before this time. Not given: now.
	To   time.Time `json:"to,omitzero"`
	Refs []string  `json:"refs" api:"required,most=500000" schema:"maxItems: 500000"`
}

// A Comparison is the difference between the caller's list and the accepted callbacks.
type Comparison struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Number of references in the list that have a callback in the time range.
	Matched int `json:"matched"`
	// References in the list without a callback in the time range, in the order of the list.
	Missing []string `json:"missing"`
	// References of callbacks in the time range that are not in the list, at most 10000.
	Extra []string `json:"extra"`
	// True: extra is incomplete.
	MoreExtra bool `json:"more_extra"`
}

// Compare compares the caller's list with the accepted callbacks.
func (c *Client) Compare(ctx context.Context, r ReferenceList) (Comparison, error) {
	return long[Comparison](ctx, c, "POST", r, "reconcile", "compare")
}
