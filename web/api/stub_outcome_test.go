package api_test

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// asked is what Outcomes was given.
type asked struct {
	after store.OutcomeCursor
	limit int
	wait  time.Duration
}

// Outcomes returns those of the stub after the cursor.
func (e *engine) Outcomes(_ context.Context, project string, after store.OutcomeCursor, limit int, wait time.Duration) ([]store.TerminalEvent, store.OutcomeCursor, error) {
	err := e.noted("Outcomes", project, "", store.Actor{}, asked{after, limit, wait})
	var events []store.TerminalEvent
	next := after
	for _, one := range e.outcomes {
		if one.Cursor.Tx > after.Tx && len(events) < limit {
			events, next = append(events, one), one.Cursor
		}
	}
	return events, next, err
}
