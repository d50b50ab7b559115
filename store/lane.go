package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Lane is one isolation key of a project and its settings.
type Lane struct {
	ID      int64
	Project string
	Key     string
	// Limit of attempts in flight; zero: the process's setting. Rate of attempts that begin; zero: no bound.
	Limit int
	Rate  Rate
	// PausedUntil is when the last of its own pause, its endpoint's and its project's ends; zero: none.
	PausedUntil int64
	// OwnPause is its own; EndpointPause, that of the endpoint that it is the lane of, which is Forever while
	// that is disabled or being deleted; ProjectPause, its project's.
	OwnPause, EndpointPause, ProjectPause int64
	// OwnPausedAt, EndpointPausedAt and ProjectPausedAt are since when each of them lasts; zero: there is
	// none. That of an endpoint that is disabled or being deleted is when that was done.
	OwnPausedAt, EndpointPausedAt, ProjectPausedAt int64
	// PauseReason is that of the pause which ends last; of a disabled endpoint, its DisabledReason.
	PauseReason string
	// EndpointID is the endpoint whose lane it is; empty: none.
	EndpointID string
	Version    int64
}

// A LaneFilter picks lanes of one project. Zero fields pick all.
type LaneFilter struct {
	// Search is a part of the key. EndpointID picks the endpoint's own lane.
	Search     string
	EndpointID string
	// Keys picks those that are named; empty: all.
	Keys []string
	// Held picks those that are paused at Now, by whatever.
	Held bool
	Now  int64
	// DueBy bounds how late OldestDue is looked for; zero: however late. With it that costs little, also
	// where much is open.
	DueBy int64
	// After continues a list: the key of the last one of the page before. Lists are in the order of keys.
	After string
	Limit int
}

// A LaneBacklog is a lane with what waits in it.
type LaneBacklog struct {
	Lane
	// Open is how many open callbacks it has.
	Open int64
	// OldestDue is the earliest due time of its open callbacks; zero: it has none (up to the filter's DueBy),
	// or so much else is due earlier that it was not looked for any further.
	OldestDue int64
}

// A LaneCount is the open callbacks of one lane.
type LaneCount struct {
	Lane string
	Open int64
}

// A Rate bounds how often something begins: Count times in each Per. The zero value is no bound.
type Rate struct {
	Count int64         `json:"count,omitempty"`
	Per   time.Duration `json:"per,omitempty"`
}

// MaxRate is the most that a Rate may say, in one second.
const MaxRate = 100_000

// rateUnits are the periods that a rate may be told in.
var rateUnits = [...]struct {
	name string
	per  time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}

// ParseRate reads "50/s", "300/m", "10/h" or "1/d".
func ParseRate(text string) (Rate, error) {
	count, unit, ok := strings.Cut(text, "/")
	n, err := strconv.ParseInt(count, 10, 64)
	if !ok || err != nil || n <= 0 {
		return Rate{},
			fmt.Errorf(`%q is not a rate: a number from 1 on, and /s, /m, /h or /d, such as "50/s"`,
				clip(text))
	}
	for _, u := range rateUnits {
		if u.name != unit {
			continue
		}
		r := (Rate{Count: n, Per: u.per})
		if n <= MaxRate*int64(u.per/time.Second) {
			return r, nil
		}
		return Rate{}, fmt.Errorf("%q is more than %d/s", clip(text), MaxRate)
	}
	return Rate{}, fmt.Errorf(`%q is not a rate: its unit is one of s, m, h and d, such as "50/s"`,
		clip(text))
}

// clip keeps a text that is shown in an error short.
func clip(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// String returns what ParseRate reads; empty: no bound.
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

// Every is the mean time between two beginnings; zero: no bound.
func (r Rate) Every() time.Duration {
	if r.Count <= 0 || r.Per <= 0 {
		return 0
	}
	return max(r.Per/time.Duration(r.Count), 1)
}
