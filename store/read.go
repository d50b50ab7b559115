package store

import (
	"strings"
	"unicode"
)

// A Filter picks callbacks of one project. Zero fields pick all.
type Filter struct {
	States []State
	Kind   Kind
	Topic  string
	Ref    string
	// LockKey is the exact lock key.
	LockKey string
	// EndpointID is a bare ULID.
	EndpointID string
	Lane       string
	// Class and Status are those of the last attempt.
	Class  Class
	Status int
	// Reason is that of a terminal callback.
	Reason Reason
	Labels map[string]string
	// MinAttempts is the lowest AttemptCount.
	MinAttempts int
	// Overdue picks scheduled callbacks that were due before Now and have no live claim.
	Overdue bool
	// Begun picks callbacks for which Callback.Begun is true at Now.
	Begun bool
	// From and To bound CreatedAt: From <= CreatedAt < To.
	From, To int64
	// FinishedFrom and FinishedTo bound FinishedAt likewise. Open callbacks have none.
	FinishedFrom, FinishedTo int64
	// ByDue lists open callbacks by due time, earliest first. Otherwise the list is newest first, by id.
	ByDue bool
	// Now is required. It separates attempting from scheduled callbacks.
	Now int64
	// After continues a list after this row, the last of the previous page.
	After *Cursor
	// Limit is 1 to 500.
	Limit int
}

// A Page is a page of callbacks. Next is nil on the last page. A page with a Next may have fewer callbacks
// than the limit, or none.
type Page struct {
	Callbacks []Callback
	Next      *Cursor
}

// A RefPage has callbacks of one reference.
type RefPage struct {
	// Callbacks are open ones first, then dead ones, then the others, each newest first.
	Callbacks []Callback
	// Counts are the numbers of callbacks by state, without polls that have their final answer. Polls are the
	// numbers of these by reason. More: there are more callbacks than the store reads, and the oldest are
	// neither counted nor listed.
	Counts map[State]int64
	Polls  map[Reason]int64
	More   bool
}

// Hidden returns the number of counted callbacks that are not in Callbacks.
func (p *RefPage) Hidden() int64 {
	n := -int64(len(p.Callbacks))
	for _, count := range p.Counts {
		n += count
	}
	for _, count := range p.Polls {
		n += count
	}
	return n
}

// Counts are the counters of a project. They include the changes that are not yet folded into the stored
// counters.
type Counts struct {
	// States counts callbacks by stored state. Attempting callbacks are counted as Scheduled.
	States map[State]int64
	// Tiers counts scheduled callbacks by position in their ladder. Position 0 has no charged attempt.
	Tiers map[int]int64
	// Lanes counts open callbacks by lane key, largest first, at most 100 lanes.
	Lanes []LaneCount
}

// A DeadGroup is a group of dead callbacks with the same cause.
type DeadGroup struct {
	Reason Reason
	Class  Class
	Status int
	// Count is the number of callbacks. More: there are more. The store counts up to 1000, or up to 10 if
	// earlier groups took long.
	Count int
	More  bool
	// OldestAt and NewestAt are when the oldest and the newest of them were accepted, OldestID and NewestID
	// their ids.
	OldestAt, NewestAt int64
	OldestID, NewestID string
}

// Died counts callbacks that died in a period.
type Died struct {
	// Classes are the numbers by the class of the last attempt. It is empty if there was no attempt. More:
	// there are more than the store counts.
	Classes map[Class]int64
	More    bool
}

// A LockHolder is the callback that is being attempted under a lock key. The zero value: none is found.
type LockHolder struct {
	// ID is its bare id. ClaimedAt and ClaimUntil are the times of its claim.
	ID                    string
	ClaimedAt, ClaimUntil int64
}

// DueNow counts the overdue callbacks of a project.
type DueNow struct {
	// Count is the number of scheduled callbacks that were due and have no live claim. More: there may be
	// more. The count has a limit, and the scan also reads the overdue callbacks of other projects.
	Count int
	More  bool
	// OldestAt is the earliest due time among them. Zero: none was found.
	OldestAt int64
}

// A DueHour counts the callbacks that are due within one hour.
type DueHour struct {
	// At is the start of the hour.
	At    int64
	Count int64
}

// Fold returns a text for searches that ignore upper and lower case. In every script, all cases of a letter
// become one: Ä and ä; Σ, σ and ς; İ, I, ı and i. A letter never becomes two, so ß is not ss. The store folds
// texts with this function before it writes them, because the rules of a database depend on its collation.
func Fold(s string) string {
	return strings.Map(func(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }, s)
}
