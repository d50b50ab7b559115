package store

import "time"

// A TerminalEvent records that a callback became terminal. A callback has one for each time that it did.
type TerminalEvent struct {
	// Cursor is the event's place in the feed. It grows from event to event.
	Cursor OutcomeCursor
	// ID is the callback's bare ULID.
	ID string
	// Kind, EndpointID, Topic, Ref and Labels are those of the callback. They are empty if it was purged.
	Project    string
	Kind       Kind
	EndpointID string
	Topic      string
	Ref        string
	Labels     map[string]string
	State      State
	Reason     Reason
	At         int64
	// AttemptCount, LastStatus and LastClass are the values at that time.
	AttemptCount int
	LastStatus   int
	LastClass    Class
}

// An OutcomeCursor is a place in the feed of outcomes. The zero value is before the first. Cursors are
// ordered by Tx, Group and Item.
type OutcomeCursor struct {
	// Tx is when the outcomes entered the feed, in Unix milliseconds. Because of it, cursors keep growing
	// after the database is restored from a backup. Group numbers the outcomes that entered together. Item
	// numbers the outcomes of a group from 1.
	Tx, Group int64
	Item      int
}

// A FeedReader is a project that gets operational events about its outcomes, or did before.
type FeedReader struct {
	Project string
	// Wanted: an endpoint of the project subscribes to these events.
	Wanted bool
	// Cursor is the last outcome with a published event. Nil: none is stored.
	Cursor *OutcomeCursor
}

// A Reconciliation counts the callbacks that were accepted in a span of time, by state.
type Reconciliation struct {
	// Group is the value of the query's GroupBy, empty without it.
	Group                                     string
	Accepted, Succeeded, Dead, Canceled, Open int64
}

// Balanced reports whether the states add up to Accepted. They do not if rows of the database were lost.
func (b *Reconciliation) Balanced() bool { return b.Accepted == b.Succeeded+b.Dead+b.Canceled+b.Open }

// A ReconcileQuery selects and groups the callbacks of a reconciliation.
type ReconcileQuery struct {
	// From and To bound CreatedAt: From <= CreatedAt < To, in Unix milliseconds.
	From, To int64
	// GroupBy is empty, "topic", "endpoint" (the bare id), "lane", "label:NAME" or "day".
	GroupBy string
	// Zone is the time zone of the days. Nil: UTC.
	Zone *time.Location
	// MaxGroups is the largest number of groups. More groups give an InvalidError. Zero: no limit.
	MaxGroups int
}

// A Comparison compares a project's callbacks with the caller's list of references.
type Comparison struct {
	// Matched is the number of listed references with a callback that was accepted in the span. Missing are
	// the other listed references, in the order of the list.
	Matched int
	Missing []string
	// Extra are the references of accepted callbacks that are not in the list, sorted. More: there are more.
	Extra []string
	More  bool
}
