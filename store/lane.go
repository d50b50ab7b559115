package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Lane is an isolation key of a project, with its settings.
type Lane struct {
	ID      int64
	Project string
	Key     string
	// Limit bounds the attempts in flight. Zero: the setting of the process. Rate bounds the starts of
	// attempts. Zero: no bound.
	Limit int
	Rate  Rate
	// PausedUntil is the latest of OwnPause, EndpointPause and ProjectPause.
	PausedUntil int64
	// OwnPause, EndpointPause and ProjectPause are the ends of the pauses of the lane, of its endpoint and of
	// its project. Zero: no pause. EndpointPause is Forever while the endpoint is disabled or being deleted.
	OwnPause, EndpointPause, ProjectPause int64
	// OwnPausedAt, EndpointPausedAt and ProjectPausedAt are the starts of these pauses. Zero: no pause. For a
	// disabled or deleted endpoint it is the time at which that was done.
	OwnPausedAt, EndpointPausedAt, ProjectPausedAt int64
	// PauseReason is the reason of the pause that ends last. For a disabled endpoint it is its
	// DisabledReason.
	PauseReason string
	// EndpointID is the endpoint that owns the lane, empty if none does.
	EndpointID string
	Version    int64
}

// A LaneFilter picks lanes of one project. Zero fields pick all.
type LaneFilter struct {
	// Search is a part of the key. EndpointID picks the lane of this endpoint.
	Search     string
	EndpointID string
	// Keys picks the lanes with these keys. Empty: all.
	Keys []string
	// Paused picks the lanes with PausedUntil after Now.
	Paused bool
	Now    int64
	// DueBy is the latest due time up to which OldestDue is searched. A bound makes the search cheap if many
	// callbacks are open. Zero: no bound.
	DueBy int64
	// After continues a list after the lane with this key, the last of the previous page. Lists are sorted by
	// key.
	After string
	Limit int
}

// A LaneBacklog is a lane with its backlog.
type LaneBacklog struct {
	Lane
	// Open is the number of open callbacks.
	Open int64
	// OldestDue is the earliest due time of the open callbacks. Zero: none is due by the filter's DueBy, or
	// the search ended early because too many callbacks of other lanes are due before.
	OldestDue int64
}

// An OverdueWait is what an overdue callback may wait for, as far as its row shows.
type OverdueWait int

// What overdue callbacks wait for. The zero value: nothing but their lane.
const (
	WaitsForLane OverdueWait = iota
	// WaitsForLock: the callback has a lock key, so another one may hold the lock.
	WaitsForLock
	// WaitsForOrder: an earlier callback in strict order is open.
	WaitsForOrder
)

// An OverdueLane counts the overdue callbacks of a lane that wait for the same.
type OverdueLane struct {
	Lane
	// Disabled: the endpoint of the lane is disabled or deleted.
	Disabled  bool
	Wait      OverdueWait
	Count     int
	OldestDue int64
}

// An OverduePage is one part of a walk over overdue callbacks. End is where it ended. More is false if no row
// is left.
type OverduePage struct {
	Lanes []OverdueLane
	End   Cursor
	More  bool
}

// A LaneCount is the number of open callbacks of a lane.
type LaneCount struct {
	Lane string
	Open int64
}

// A Rate bounds starts to Count in each Per. The zero value means no bound.
type Rate struct {
	Count int64         `json:"count,omitempty"`
	Per   time.Duration `json:"per,omitempty"`
}

// MaxRate is the highest Rate, in starts per second.
const MaxRate = 100_000

// rateUnits are the units of a rate in text.
var rateUnits = [...]struct {
	name string
	per  time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}

// ParseRate parses a rate such as "50/s", "300/m", "10/h" or "1/d". Rates below 1 and above MaxRate are
// errors, worded for a FieldError.
func ParseRate(text string) (Rate, error) {
	count, unit, ok := strings.Cut(text, "/")
	n, err := strconv.ParseInt(count, 10, 64)
	if !ok || err != nil || n <= 0 {
		return Rate{}, fmt.Errorf(`%q is not a rate; use a number from 1 and a unit, such as "50/s"`,
			clip(text))
	}
	for _, u := range rateUnits {
		if u.name != unit {
			continue
		}
		r := Rate{Count: n, Per: u.per}
		if n <= MaxRate*int64(u.per/time.Second) {
			return r, nil
		}
		return Rate{}, fmt.Errorf("%q is above the limit of %d/s", clip(text), MaxRate)
	}
	return Rate{}, fmt.Errorf(`%q is not a rate; its unit must be s, m, h or d, as in "50/s"`, clip(text))
}

// clip shortens a text for an error to maxClip bytes.
func clip(text string) string {
	const maxClip = 64
	if len(text) <= maxClip {
		return text
	}
	return strings.ToValidUTF8(text[:maxClip], "") + "…"
}

// String returns the text that ParseRate reads, if Per is one of its units. It is empty for no bound.
func (r Rate) String() string {
	if r.Count <= 0 {
		return ""
	}
	for _, u := range rateUnits {
		if u.per == r.Per {
			return strconv.FormatInt(r.Count, 10) + "/" + u.name
		}
	}
	return fmt.Sprintf("%d/%s", r.Count, r.Per)
}

// Every returns the mean time between two starts. Zero: no bound.
func (r Rate) Every() time.Duration {
	if r.Count <= 0 || r.Per <= 0 {
		return 0
	}
	return max(r.Per/time.Duration(r.Count), 1)
}
