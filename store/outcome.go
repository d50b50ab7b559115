package store

import "time"

// A TerminalEvent is that a callback became terminal. There is one for each time that it does.
type TerminalEvent struct {
	// Cursor is its place in the feed; the next one's is greater.
	Cursor OutcomeCursor
	ID     string
	// Kind, EndpointID, Topic, Ref and Labels are the callback's; empty if it has been purged.
	Project    string
	Kind       Kind
	EndpointID string
	Topic      string
	Ref        string
	Labels     map[string]string
	State      State
	Reason     Reason
	At         int64
	// AttemptCount, LastStatus and LastClass are as they were then.
	AttemptCount int
	LastStatus   int
	LastClass    Class
}

// An OutcomeCursor is a place in the feed of outcomes. The zero value is before the first. Cursors are in
// order of Tx, Group and Item.
type OutcomeCursor struct {
	// Tx is when outcomes were put into the feed, in Unix milliseconds: also where a database is restored as
	// it was, what comes then is after all that was read of it before. Group numbers those that were put
	// there together, Item the outcomes of a group, from 1.
	Tx, Group int64
	Item      int
}

// A FeedReader is a project whose outcomes are told, or were.
type FeedReader struct {
	Project string
	// Wanted: an endpoint of the project subscribes to what is told.
	Wanted bool
	// Cursor is the last outcome that was told; nil: none is kept.
	Cursor *OutcomeCursor
}

// Reconciliation count the callbacks that were accepted in a span of time by what became of them.
type Reconciliation struct {
	// Group is what they were grouped by; empty: all.
	Group                                     string
	Accepted, Succeeded, Dead, Canceled, Open int64
}

// Balanced says whether nothing is missing.
func (b *Reconciliation) Balanced() bool { return b.Accepted == b.Succeeded+b.Dead+b.Canceled+b.Open }

// A ReconcileQuery says what Books count.
type ReconcileQuery struct {
	// From and To bound when callbacks were accepted: From <= CreatedAt < To, in Unix milliseconds.
	From, To int64
	// GroupBy is empty, "topic", "endpoint" (its bare id), "lane", "label:NAME" or "day".
	GroupBy string
	// Zone is where days begin; nil: UTC.
	Zone *time.Location
	// MaxGroups is the most groups that are counted; with more the answer is an InvalidError. Zero: any
	// number.
	MaxGroups int
}

// A Comparison is what a project has against its caller's own list of references.
type Comparison struct {
	// Matched is how many of the list's references have a callback that was accepted in the span; Missing are
	// the others, in the order of the list.
	Matched int
	Missing []string
	// Extra are references of callbacks that were accepted in the span and are not in the list, in order;
	// More: there are more of them.
	Extra []string
	More  bool
}
