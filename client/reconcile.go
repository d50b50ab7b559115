package client

import (
	"context"
	"time"
)

// An Outcome is a callback that became terminal. What its callback says is null, or empty, when that has
// been purged.
type Outcome struct {
	ID string `json:"id" schema:"pattern: \"^cb_\""`
	// Here and down to labels: as its callback has it; null or empty when that has been purged.
	Kind       Kind              `json:"kind" api:"null" schema:"enum: [notify, poll, null]"`
	EndpointID string            `json:"endpoint_id" api:"null"`
	Topic      string            `json:"topic" api:"null"`
	Ref        string            `json:"ref" api:"null"`
	Labels     map[string]string `json:"labels"`
	State      State             `json:"state" schema:"enum: [succeeded, dead, canceled]"`
	Reason     TerminalReason    `json:"reason" api:"null" schema:"type: string"`
	At         time.Time         `json:"at"`
	// Here and below: as it was then.
	AttemptCount int   `json:"attempt_count"`
	LastStatus   int   `json:"last_status" api:"null"`
	LastClass    Class `json:"last_class" api:"null" schema:"type: string"`
}

// Outcomes returns what became terminal after a cursor, oldest first, in the order of the commits.
// NextCursor is where to
// go on, also when there is nothing new; empty begins with the oldest that is kept. Limit is at most 500;
// zero: 50.
// Where there is nothing new the server waits for it, at most wait and 30 seconds.
func (c *Client) Outcomes(ctx context.Context, cursor string, limit int,
	wait time.Duration) (Page[Outcome], error) {
	q := params{"cursor": cursor, "limit": number(limit)}.query()
	if wait > 0 {
		q.Set("wait", wait.String())
	}
	return read[Page[Outcome]](ctx, c, q, "outcomes")
}

// ReconcileCounts are what has become of what was accepted.
type ReconcileCounts struct {
	Accepted  int64 `json:"accepted"`
	Succeeded int64 `json:"succeeded"`
	Dead      int64 `json:"dead"`
	Canceled  int64 `json:"canceled"`
	Open      int64 `json:"open"`
	Balanced  bool  `json:"balanced"`
}

// ReconcileGroup are the books of one group.
type ReconcileGroup struct {
	// A topic, an endpoint's id, a lane, a day or a label's value; null: of none.
	Group string `json:"group" api:"null"`
	ReconcileCounts
}

// Reconciliation are what was accepted in a span of time, by what has become of it.
type Reconciliation struct {
	From     time.Time       `json:"from"`
	To       time.Time       `json:"to"`
	Timezone string          `json:"timezone"`
	GroupBy  string          `json:"group_by" api:"null"`
	Total    ReconcileCounts `json:"total"`
	// By group, in their order; empty without group_by.
	Data []ReconcileGroup `json:"data"`
}

// A ReconcileQuery says which books are meant.
type ReconcileQuery struct {
	// From and To are dates in Timezone, or times; an empty To is now.
	From, To string
	// Timezone is where days begin; empty: UTC.
	Timezone string
	// GroupBy is topic, endpoint, lane, day or label:NAME; empty: only the total.
	GroupBy string
}

// Reconcile returns books.
func (c *Client) Reconcile(ctx context.Context, which ReconcileQuery) (Reconciliation, error) {
	q := params{"from": which.From, "to": which.To, "timezone": which.Timezone,
		"group_by": which.GroupBy}.query()
	return read[Reconciliation](ctx, c, q, "reconcile")
}

// A ReferenceList is a caller's own list of what it has handed over.
type ReferenceList struct {
	// Accepted at this time or later.
	From time.Time `json:"from" api:"required"`
	// Accepted before this time; none: until now.
	To   time.Time `json:"to,omitzero"`
	Refs []string  `json:"refs" api:"required,most=500000" schema:"maxItems: 500000"`
}

// A Comparison is how a caller's list differs from what was accepted.
type Comparison struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// How many references of the list have a callback that was accepted in the span.
	Matched int `json:"matched"`
	// Those that have none, in the order of the list.
	Missing []string `json:"missing"`
	// References of callbacks of the span that are not in the list, at most 10000.
	Extra []string `json:"extra"`
	// There are more of them.
	MoreExtra bool `json:"more_extra"`
}

// Compare compares a caller's list with what was accepted.
func (c *Client) Compare(ctx context.Context, r ReferenceList) (Comparison, error) {
	return call[Comparison](ctx, c, "POST", r, "reconcile", "compare")
}
