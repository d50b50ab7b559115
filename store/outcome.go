package store

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

// An OutcomeCursor is a place in the feed of outcomes. The zero value is before the first. Cursors are in order of Tx, Group and Item.
type OutcomeCursor struct {
	// Tx is when outcomes were put into the feed, in Unix milliseconds: also where a database is restored as it was, what comes then is
	// after all that was read of it before. Group numbers those that were put there together, Item the outcomes of a group, from 1.
	Tx, Group int64
	Item      int
}

// Books count the callbacks that were accepted in a span of time by what became of them.
type Books struct {
	// Group is what they were grouped by; empty: all.
	Group                                     string
	Accepted, Succeeded, Dead, Canceled, Open int64
}

// Balanced says whether nothing is missing.
func (b *Books) Balanced() bool { return b.Accepted == b.Succeeded+b.Dead+b.Canceled+b.Open }
