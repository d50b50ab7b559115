package ui

import "github.com/seed-ff5a32d8/dispatcher/store"

// A search is what a list says while nothing of it was found: a filter that no index serves is looked for in a bounded part of the table for each
// page, so that none takes long.
type search struct {
	// More: nothing was found so far, and there is more to look through.
	More bool
	// Reached is the moment up to which the list was looked through, in its order.
	Reached int64
}

// lookOn says that the next page, which begins at the cursor, may have what this one has not.
func (s *search) lookOn(next *store.Cursor, byDue bool) {
	s.More, s.Reached = true, next.DueAt
	if !byDue {
		s.Reached = store.IDTime(next.ID)
	}
}
