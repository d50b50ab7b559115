package store

// A Filter picks callbacks of one project. Zero fields pick all.
type Filter struct {
	States []State
	Kind   Kind
	Topic  string
	Ref    string
	// EndpointID is a bare ULID.
	EndpointID string
	Lane       string
	Class      Class
	Status     int
	Labels     map[string]string
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

// A Page is a part of a list. Next is nil when it was the last. A page may have fewer callbacks than were asked for, even none, and
// still have a Next.
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

// A LaneCount is the open callbacks of one lane.
type LaneCount struct {
	Lane string
	Open int64
}

// An AuditEntry is one mutation by a person or a key. Accepts are not audited: they are rows themselves.
type AuditEntry struct {
	ID      string
	Project string
	At      int64
	// Actor names the key; never a secret.
	Actor  string
	Action string
	Object string
	Reason string
	// Detail is JSON text, or empty.
	Detail string
}
