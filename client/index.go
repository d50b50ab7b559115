package client

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// Stats are counters of a project. Callbacks that are being attempted count as scheduled.
type Stats struct {
	States map[State]int64 `json:"states"`
	Tiers  []TierStats     `json:"tiers"`
	// The largest first, at most 100.
	Lanes []LaneStats `json:"lanes"`
	// The sizes of the index, which has the callbacks of all projects: only the admin key of the settings
	// is shown
	// them. Null when the index does not answer.
	Index Optional[IndexStats] `json:"index,omitzero"`
}

// TierStats are how many callbacks are scheduled on one tier.
type TierStats struct {
	// How many attempts of the present ladder were charged.
	Tier      int   `json:"tier"`
	Scheduled int64 `json:"scheduled"`
}

// LaneStats are how many callbacks of one lane are open.
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

// A VerifyRequest says how much of a difference is named.
type VerifyRequest struct {
	// Name every id of each difference, not only the first 100.
	All bool `json:"all,omitempty" schema:"default: false"`
}

// A Drift is what differs between SQL and the index.
type Drift struct {
	// Nothing differs.
	Clean bool `json:"clean"`
	// Open callbacks in SQL.
	Rows int `json:"rows"`
	// Items of the index.
	Items int `json:"items"`
	// Open in SQL and due beyond the horizon, so that the index need not hold them: no difference.
	BeyondHorizon int `json:"beyond_horizon"`
	// Open in SQL and not in the index. The sweep gives them back soon after they are due, a rebuild at
	// once.
	Missing int `json:"missing"`
	// In the index for a later time than SQL says. The sweep or a rebuild moves them.
	Late int `json:"late"`
	// In the index and not open in SQL: unknown and ended together.
	Extra int `json:"extra"`
	// In the index, and SQL has no row of them: accepted after the backup that SQL was restored from, or
	// another
	// database's. Their senders must hand them over again; nothing is sent for them.
	Unknown int `json:"unknown"`
	// In the index, and terminal in SQL: they are dropped when they fall due, or by a rebuild; nothing is
	// sent for them.
	Ended      int      `json:"ended"`
	MissingIDs []string `json:"missing_ids"`
	LateIDs    []string `json:"late_ids"`
	ExtraIDs   []string `json:"extra_ids"`
	UnknownIDs []string `json:"unknown_ids"`
	EndedIDs   []string `json:"ended_ids"`
	// The index's generation as SQL has it.
	Generation int64 `json:"generation"`
	// The generation that the index has. It differs only while sending is held and the index is left as it
	// was found.
	IndexGeneration int64 `json:"index_generation"`
}

// VerifyIndex compares SQL with the index. Only the admin key of the settings may.
func (c *Client) VerifyIndex(ctx context.Context, r VerifyRequest) (Drift, error) {
	return call[Drift](ctx, c, "POST", r, "index", "verify")
}

// A RebuildRequest asks for the index to be rebuilt.
type RebuildRequest struct {
	DryRun bool `json:"dry_run,omitempty" schema:"default: false"`
	Change
}

// A Rebuild is what a rebuild has done, or would do.
type Rebuild struct {
	DryRun     bool     `json:"dry_run"`
	Open       int      `json:"open"`
	Claimed    int      `json:"claimed"`
	Generation int64    `json:"generation"`
	Took       Duration `json:"took"`
}

// RebuildIndex rebuilds the index from SQL, online. Only the admin key of the settings may.
func (c *Client) RebuildIndex(ctx context.Context, r RebuildRequest) (Rebuild, error) {
	return call[Rebuild](ctx, c, "POST", r, "index", "rebuild")
}

// remove deletes something.
func (c *Client) remove(ctx context.Context, reason string, words ...string) error {
	_, err := c.Call(ctx, http.MethodDelete, pathOf(words...), Change{reason}, nil)
	return err
}

// number is a parameter's value, empty for zero.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// yes is the value of a parameter that is only given where it is true.
func yes(on bool) string {
	if on {
		return "true"
	}
	return ""
}

// instant is a time as a parameter's value, empty for zero.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
