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
	// LockKey is a lock key.
	LockKey string
	// EndpointID is a bare ULID.
	EndpointID string
	Lane       string
	Class      Class
	Status     int
	// Reason is why it is terminal.
	Reason Reason
	Labels map[string]string
	// MinAttempts is the least AttemptCount.
	MinAttempts int
	// Overdue picks scheduled ones that were due before Now and are not being attempted.
	Overdue bool
	// From and To bound CreatedAt: From <= CreatedAt < To.
	From, To int64
	// ByDue lists open callbacks by due time, earliest first; otherwise newest first by id.
	ByDue bool
	// Now tells attempting from scheduled; required.
	Now int64
	// After continues a list: the last row of the page before.
	After *Cursor
	// Limit is 1 to 500.
	Limit int
}

// A Page is a part of a list. Next is nil when it was the last. A page may have fewer callbacks than were
// asked for, even none, and still have a Next.
type Page struct {
	Callbacks []Callback
	Next      *Cursor
}

// Counts are a project's counters, folded and not yet folded together.
type Counts struct {
	// States counts callbacks by stored state: Attempting is within Scheduled.
	States map[State]int64
	// Tiers counts scheduled callbacks by position in their ladder: 0 has had no charged attempt yet.
	Tiers map[int]int64
	// Lanes counts open callbacks by lane key: the largest first, at most 100.
	Lanes []LaneCount
}

// A DeadGroup is the callbacks that are dead of one cause.
type DeadGroup struct {
	Reason Reason
	Class  Class
	Status int
	// Count is how many there are, at most a thousand; More: there are more than that.
	Count int
	More  bool
	// OldestAt and NewestAt are when the first and the last of them were accepted, NewestID is the last.
	OldestAt, NewestAt int64
	NewestID           string
}

// DueNow is what is due and waits.
type DueNow struct {
	// Count is how many callbacks are scheduled, were due and are not being attempted. More: there are more
	// than that, or so many of other projects are due, too, that not all were looked at.
	Count int
	More  bool
	// OldestAt is the earliest due time of them; zero: none was found.
	OldestAt int64
}

// A DueHour counts the callbacks that are due within one hour.
type DueHour struct {
	// At is when the hour begins.
	At    int64
	Count int64
}

// Fold returns text as searches compare it, without regard to case. Each letter stands for itself in upper
// and lower case, in every script: Ä and ä, Σ, σ and ς, İ, I, ı and i are one each. No letter becomes two, so
// ß is not ss. Databases fold by rules of their own, which differ with their collation, so what they search
// was folded here.
func Fold(s string) string {
	return strings.Map(func(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }, s)
}
