package alert

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// overdueAfter is how long a callback is due before the walk sees it.
const overdueAfter = 8 * time.Second

// A laneDue is a lane with its oldest overdue callback. A held one is paused or disabled: that is the
// decision of a person, who knows that callbacks wait. heldAt is when it was last seen so; zero: never.
type laneDue struct {
	key            string
	oldest, heldAt int64
	held           bool
}

// overdueLanes are lanes by project and id.
type overdueLanes map[string]map[int64]laneDue

// An overdueWalk looks for the oldest overdue callback of each lane of all projects. A walk over very many
// rows takes several rounds. Until it is complete, a lane that it has not reached has the result of the last
// walk.
type overdueWalk struct {
	after             store.Cursor
	complete, partial overdueLanes
	// advancedAt is when advance last succeeded, stoppedAt when all sending was last seen stopped; zero:
	// never.
	advancedAt, stoppedAt int64
}

// restart begins a new walk, and forgets what is overdue. What is known of holds stays.
func (o *overdueWalk) restart() {
	o.after, o.partial = store.Cursor{}, nil
	for _, lanes := range o.complete {
		for id, l := range lanes {
			l.oldest = 0
			lanes[id] = l
		}
	}
}

// advance continues the walk. After an error the next call begins a new walk. So does a call long after the
// last one, as when another process evaluated: what the walk found may be gone.
func (o *overdueWalk) advance(ctx context.Context, from Store, r *round) error {
	if r.now-o.advancedAt > forgetAfter.Milliseconds() {
		o.restart()
	}
	if o.partial == nil {
		o.partial = make(overdueLanes)
	}
	stop, err := from.Stop(ctx)
	if err != nil {
		return err
	}
	if stop.On(r.now) {
		o.stoppedAt = r.now
	}
	page, err := from.OverdueLanes(ctx, o.after, r.now-overdueAfter.Milliseconds(), r.now)
	if err != nil {
		o.after, o.partial = store.Cursor{}, nil
		return err
	}
	for i := range page.Lanes {
		l := &page.Lanes[i]
		if r.sinks[l.ID] {
			continue
		}
		lanes := o.partial[l.Project]
		if lanes == nil {
			lanes = make(map[int64]laneDue)
			o.partial[l.Project] = lanes
		}
		known, ok := lanes[l.ID]
		if !ok {
			known = laneDue{key: l.Key, oldest: l.OldestDue, heldAt: o.complete[l.Project][l.ID].heldAt}
		}
		known.oldest = min(known.oldest, l.OldestDue)
		known.held = l.PausedUntil > r.now || l.Disabled
		if known.held {
			known.heldAt = r.now
		}
		lanes[l.ID] = known
	}
	o.after, o.advancedAt = page.End, r.now
	if !page.More {
		o.complete, o.partial, o.after = o.partial, nil, store.Cursor{}
	}
	return nil
}

// oldest returns since when a callback of the project, or of one lane of it, is overdue; zero: none is. The
// time before the end of a stop or of a pause does not count.
func (o *overdueWalk) oldest(project, lane string) int64 {
	oldest := int64(0)
	look := func(lanes map[int64]laneDue, after int64) {
		for _, l := range lanes {
			if lane != "" && l.key != lane || l.held || l.oldest <= after {
				continue
			}
			if since := max(l.oldest, l.heldAt, o.stoppedAt); oldest == 0 || since < oldest {
				oldest = since
			}
		}
	}
	look(o.partial[project], 0)
	// The walk is in the order of due times, so what the last one found before its position is gone.
	look(o.complete[project], o.after.DueAt)
	return oldest
}
