package client

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// Stats are counters of a project. A callback that is being attempted counts as scheduled.
type Stats struct {
	States map[State]int64 `json:"states"`
	Tiers  []TierStats     `json:"tiers"`
	// Largest first, at most 100.
	Lanes []LaneStats `json:"lanes"`
	// Sizes of the index, over all projects. Present only for the admin key of the settings. Null: the index
	// does not respond.
	Index Optional[IndexStats] `json:"index,omitzero"`
}

// TierStats is the number of scheduled callbacks on one tier.
type TierStats struct {
	// Number of counted attempts since the retry schedule began.
	Tier      int   `json:"tier"`
	Scheduled int64 `json:"scheduled"`
}

// LaneStats is the number of open callbacks of one lane.
type LaneStats struct {
	Lane string `json:"lane"`
	Open int64  `json:"open"`
}

// IndexStats are the sizes of the index.
type IndexStats struct {
	Delayed       int64     `json:"delayed"`
	Ready         int64     `json:"ready"`
	Leased        int64     `json:"leased"`
	RunnableLanes int64     `json:"runnable_lanes"`
	BlockedLanes  int64     `json:"blocked_lanes"`
	Locks         int64     `json:"locks"`
	Waiters       int64     `json:"waiters"`
	Quarantined   int64     `json:"quarantined"`
	HeadDueAt     time.Time `json:"head_due_at" api:"null"`
}

// Stats returns the counters of the project.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	return read[Stats](ctx, c, nil, "stats")
}

// A VerifyRequest sets how many ids a Drift has.
type VerifyRequest struct {
	// Return every id of each difference, not only the first 100.
	All bool `json:"all,omitempty" schema:"default: false"`
}

// A Drift is the difference between SQL and the index.
type Drift struct {
	// True: no difference.
	Clean bool `json:"clean"`
	// Open callbacks in SQL.
	Rows int `json:"rows"`
	// Items in the index.
	Items int `json:"items"`
	// Open in SQL, and due beyond the horizon. The index need not have them, so they are not a difference.
	BeyondHorizon int `json:"beyond_horizon"`
	// Open in SQL, and not in the index. The sweep adds them soon after they are due; a rebuild adds them at
	// once.
	Missing int `json:"missing"`
	// In the index for a later time than in SQL. The sweep or a rebuild corrects them.
	Late int `json:"late"`
	// In the index, and not open in SQL: the sum of unknown and ended.
	Extra int `json:"extra"`
	// In the index, without a row in SQL. They were accepted after the backup from which SQL was restored, or
	// belong to another database. They are never sent; their senders must submit them again.
	Unknown int `json:"unknown"`
	// In the index, and finished in SQL. They are never sent. They are removed when they fall due, or by a
	// rebuild.
	Ended      int      `json:"ended"`
	MissingIDs []string `json:"missing_ids"`
	LateIDs    []string `json:"late_ids"`
	ExtraIDs   []string `json:"extra_ids"`
	UnknownIDs []string `json:"unknown_ids"`
	EndedIDs   []string `json:"ended_ids"`
	// Generation of the index according to SQL.
	Generation int64 `json:"generation"`
	// Generation in the index. It differs only while sending is off (--hold) and the index is left unchanged.
	IndexGeneration int64 `json:"index_generation"`
}

// VerifyIndex compares SQL with the index. It requires the admin key of the settings.
func (c *Client) VerifyIndex(ctx context.Context, r VerifyRequest) (Drift, error) {
	return long[Drift](ctx, c, "POST", r, "index", "verify")
}

// A RebuildRequest rebuilds the index.
type RebuildRequest struct {
	DryRun bool `json:"dry_run,omitempty" schema:"default: false"`
	Change
}

// A Rebuild is the result of a rebuild, or of its dry run.
type Rebuild struct {
	DryRun     bool     `json:"dry_run"`
	Open       int      `json:"open"`
	Claimed    int      `json:"claimed"`
	Generation int64    `json:"generation"`
	Took       Duration `json:"took"`
}

// RebuildIndex rebuilds the index from SQL while callbacks are sent. It requires the admin key of the
// settings.
func (c *Client) RebuildIndex(ctx context.Context, r RebuildRequest) (Rebuild, error) {
	return long[Rebuild](ctx, c, "POST", r, "index", "rebuild")
}

// remove sends a DELETE request with a reason.
func (c *Client) remove(ctx context.Context, reason string, words ...string) error {
	_, err := c.Call(ctx, http.MethodDelete, pathOf(words...), Change{reason}, nil)
	return err
}

// OpenAPI returns the OpenAPI document of the server.
func (c *Client) OpenAPI(ctx context.Context) ([]byte, error) {
	r, err := c.request(http.MethodGet, "/openapi.yaml", nil)
	if err != nil {
		return nil, err
	}
	a, err := c.sendAgain(ctx, r)
	return a.Body, err
}

// number formats a query parameter. Zero is empty, so it is not sent.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// yes formats a query parameter that is only sent if true.
func yes(on bool) string {
	if on {
		return "true"
	}
	return ""
}

// instant formats a time as a query parameter. The zero time is empty, so it is not sent.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
