package alert

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// overdueAfter is how long a callback is due before the walk sees it.
const overdueAfter = 8 * time.Second

// A laneDue is a lane with its oldest overdue callback.
type laneDue struct {
	key    string
	oldest int64
}

// overdueLanes are lanes by project and id.
type overdueLanes map[string]map[int64]laneDue

// An overdueWalk looks for the oldest overdue callback of each lane of all projects. A walk over very many
// rows takes several rounds. Until it is complete, a lane that it has not reached has the result of the last
// walk.
type overdueWalk struct {
	after             store.Cursor
	complete, partial overdueLanes
}

// advance continues the walk. After an error the next call begins a new walk.
func (o *overdueWalk) advance(ctx context.Context, from Store, r *round) error {
	if o.partial == nil {
		o.partial = make(overdueLanes)
	}
	page, err := from.OverdueLanes(ctx, o.after, r.now-overdueAfter.Milliseconds(), r.now)
	if err != nil {
		o.after, o.partial = store.Cursor{}, nil
		return err
	}
	for i := range page.Lanes {
		l := &page.Lanes[i]
		// A pause is the decision of a person, who knows that callbacks wait.
		if l.PausedUntil > r.now || l.Disabled || r.sinks[l.ID] {
			continue
		}
		lanes := o.partial[l.Project]
		if lanes == nil {
			lanes = make(map[int64]laneDue)
			o.partial[l.Project] = lanes
		}
		if known, ok := lanes[l.ID]; !ok || l.OldestDue < known.oldest {
			lanes[l.ID] = laneDue{l.Key, l.OldestDue}
		}
	}
	o.after = page.End
	if !page.More {
		o.complete, o.partial, o.after = o.partial, nil, store.Cursor{}
	}
	return nil
}

// oldest returns the earliest due time in the project, or in one lane of it; zero: nothing is overdue.
func (o *overdueWalk) oldest(project, lane string) int64 {
	oldest := int64(0)
	look := func(lanes map[int64]laneDue, after int64) {
		for _, l := range lanes {
			if (lane == "" || l.key == lane) && l.oldest > after && (oldest == 0 || l.oldest < oldest) {
				oldest = l.oldest
			}
		}
	}
	look(o.partial[project], 0)
	// The walk is in the order of due times, so what the last one found before its position is gone.
	look(o.complete[project], o.after.DueAt)
	return oldest
}
