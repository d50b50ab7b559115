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

// A ReferenceList is the caller's own list of what it submitted: references, or pairs of reference and topic.
type ReferenceList struct {
	// Accepted at or after this time.
	From time.Time `json:"from" api:"required"`
	// Accepted before this time. Not given: now.
	To time.Time `json:"to,omitzero"`
	// Required unless items is given.
	Refs []string `json:"refs,omitzero" api:"most=500000" schema:"maxItems: 500000"`
	// Required unless refs is given.
	Items []RefTopic `json:"items,omitzero" api:"most=200000" schema:"maxItems: 200000"`
}

// A RefTopic names a callback that the caller expects.
type RefTopic struct {
	Ref string `json:"ref" api:"required" schema:"minLength: 1, maxLength: 256"`
	// Null or empty: a callback without a topic.
	Topic string `json:"topic,omitempty" schema:"maxLength: 256"`
}

// A Comparison is the difference between the caller's list and the accepted callbacks.
type Comparison struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Number of references or items in the list that have a callback in the time range.
	Matched int `json:"matched"`
	// References in the list without a callback in the time range, in the order of the list. Empty for items.
	Missing []string `json:"missing"`
	// References of callbacks in the time range that are not in the list, at most 10000. Empty for items.
	Extra []string `json:"extra"`
	// True: extra is incomplete.
	MoreExtra bool `json:"more_extra"`
	// Null: the list has references.
	Items *ItemDifferences `json:"items" api:"null"`
}

// ItemDifferences are the differences of a list of items.
type ItemDifferences struct {
	FindingCounts
	// At most 10000 of each kind.
	Data []Finding `json:"data"`
}

// FindingCounts count the differences between a list and the accepted callbacks.
type FindingCounts struct {
	// Different items in the list.
	Listed int64 `json:"listed"`
	// Of these: with a callback.
	Matched int64 `json:"matched"`
	// Of these: without a callback.
	Missing int64 `json:"missing"`
	// Of these: with a callback, but none that succeeded.
	Unfinished int64 `json:"unfinished"`
	// Of these: with several callbacks.
	Duplicates int64 `json:"duplicates"`
	// Pairs of reference and topic of accepted callbacks that are not in the list. At most 1000000 are
	// counted.
	Extra int64 `json:"extra"`
}

// A FindingKind is a kind of difference.
type FindingKind string

const (
	FindingMissing    FindingKind = "missing"
	FindingUnfinished FindingKind = "unfinished"
	FindingDuplicate  FindingKind = "duplicate"
	FindingExtra      FindingKind = "extra"
)

// A Finding is one difference.
type Finding struct {
	Kind  FindingKind `json:"kind"`
	Ref   string      `json:"ref"`
	Topic string      `json:"topic" api:"null"`
	// Best state of its callbacks. Null: missing or extra.
	State State `json:"state" api:"null" schema:"type: string"`
	// Its first callback. Null: missing.
	CallbackID string `json:"callback_id" api:"null"`
	// Number of its callbacks. Null: missing or extra.
	Callbacks int64 `json:"callbacks" api:"null"`
}

// Compare compares the caller's list with the accepted callbacks.
func (c *Client) Compare(ctx context.Context, r ReferenceList) (Comparison, error) {
	return long[Comparison](ctx, c, "POST", r, "reconcile", "compare")
}

// An ExpectedList is a part of the list of callbacks that a day should have.
type ExpectedList struct {
	// A day in the time zone of the project's daily reconciliation, from 7 days ago to 2 days ahead.
	Date string `json:"date" api:"required" schema:"format: date"`
	// An empty list says that the day has none.
	Items []RefTopic `json:"items" api:"required,most=10000" schema:"maxItems: 10000"`
}

// An ExpectedDay is the size of the list of a day.
type ExpectedDay struct {
	Date string `json:"date" schema:"format: date"`
	// Items of the request that the list did not have.
	Added int64 `json:"added"`
	// Items of the request that were removed from the list.
	Removed int64 `json:"removed"`
	// Items of the list, at most 500000.
	Items int64 `json:"items"`
}

// Expect adds items to the list of a day. Adding an item again changes nothing. The daily reconciliation
// compares the list with the accepted callbacks.
func (c *Client) Expect(ctx context.Context, r ExpectedList) (ExpectedDay, error) {
	return long[ExpectedDay](ctx, c, "POST", r, "reconcile", "expected")
}

// An ExpectedRemoval is what to remove from the list of a day.
type ExpectedRemoval struct {
	Date string `json:"date" api:"required" schema:"format: date"`
	// Required unless all is true.
	Items []RefTopic `json:"items,omitzero" api:"most=10000" schema:"maxItems: 10000"`
	// The whole list, as if none had been submitted.
	All bool `json:"all,omitempty"`
	// For the audit log.
	Reason string `json:"reason,omitempty"`
}

// RemoveExpected removes items from the list of a day, or the whole list. Items that the list does not have
// change nothing.
func (c *Client) RemoveExpected(ctx context.Context, r ExpectedRemoval) (ExpectedDay, error) {
	return long[ExpectedDay](ctx, c, "DELETE", r, "reconcile", "expected")
}

// A ReconcileReport is the result of the last reconciliation of a day. The counts are those of callbacks
// accepted on the day. A listed item may also have been accepted later, before the run.
type ReconcileReport struct {
	Date string `json:"date" schema:"format: date"`
	// Zone in which the day begins.
	Timezone string    `json:"timezone"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	RunAt    time.Time `json:"run_at"`
	ReconcileCounts
	ListExpected bool `json:"list_expected"`
	// False: no list was submitted, and nothing was compared.
	ListGiven bool `json:"list_given"`
	FindingCounts
	// What needs attention. Empty: nothing.
	Wrong []ReconcileProblem `json:"wrong"`
}

// A ReconcileProblem is a reason for which a reconciliation is not good. unbalanced: the states do not add up
// to accepted, because rows of the database were lost. missing: listed items have no callback. no_list: a
// list was expected, and none was submitted.
type ReconcileProblem string

const (
	ReconcileUnbalanced ReconcileProblem = "unbalanced"
	ReconcileMissing    ReconcileProblem = "missing"
	ReconcileNoList     ReconcileProblem = "no_list"
)

// A ReconcileReportPage is a report with a page of its differences.
type ReconcileReportPage struct {
	ReconcileReport
	// The report keeps at most 10000 of each kind.
	Data       []Finding `json:"data"`
	NextCursor string    `json:"next_cursor" api:"null"`
}

// ReconcileReports lists the reports, newest day first.
func (c *Client) ReconcileReports() List[ReconcileReport] {
	return list[ReconcileReport](c, nil, "reconcile", "reports")
}

// ReconcileReport returns the report of a day with a page of its differences. An empty kind means all. An
// empty cursor is the first page. Limit is at most 500, and 50 if it is zero.
func (c *Client) ReconcileReport(ctx context.Context, date string, kind FindingKind, cursor string,
	limit int) (ReconcileReportPage, error) {
	q := params{"kind": string(kind), "cursor": cursor, "limit": number(limit)}.query()
	return read[ReconcileReportPage](ctx, c, q, "reconcile", "reports", date)
}

// RunReconcile repeats the reconciliation of a day.
func (c *Client) RunReconcile(ctx context.Context, date, reason string) (ReconcileReport, error) {
	return long[ReconcileReport](ctx, c, "POST", Change{reason}, "reconcile", "reports", date, "run")
}
