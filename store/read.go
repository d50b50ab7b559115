package store

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
	// Actor names the key; never a secret. Address is the IP address that it acted from; empty: it is not
	// known, or the dispatcher acted by itself.
	Actor   string
	Address string
	Action  string
	Object  string
	Reason  string
	// Before and After are JSON objects with what the change made different: the same members in both. Before
	// is empty where the object was made, After where it was removed, both where only something was looked
	// at. Secrets, credentials in headers and the values of a URL's query are masked; a body is never in
	// them.
	Before, After string
	// Detail is JSON text beside that, or empty.
	Detail string
	// Link is its place in the chain; zero: it is not chained yet.
	Link AuditLink
}

// An AuditFilter picks audit entries of one project. Zero fields pick all.
type AuditFilter struct {
	// Object is what was changed, word for word as entries name it: a callback, an endpoint, a schedule, a redrive, a key or a secret by its
	// id without a prefix; a lane by its key, so that of an endpoint by the id with the prefix; a project by its id; a preset by kind and
	// name ("policy/payment"); the index by its generation ("generation 3"). A secret that was read is named by the lane that it is of.
	Object string
	// Action is an action, or the beginning of some up to a dot: "callback." picks all that was done to callbacks.
	Action string
	// Actor is a part of the actor's name, in small or capital letters.
	Actor string
	// From and To bound At: From <= At < To. Lists are in the order of ids, which is that of the clocks of the machines that wrote them.
	From, To int64
	// After continues a list: the id of the last one of the page before. Lists are newest first.
	After string
	Limit int
}

// An AuditPage is a part of the audit. Next is empty when it was the last; a page may have fewer entries than were asked for, even none,
// and still have a Next.
type AuditPage struct {
	Entries []AuditEntry
	Next    string
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
	// Count is how many callbacks are scheduled, were due and are not being attempted. More: there are more than that, or so many of other
	// projects are due, too, that not all were looked at.
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
