package dispatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// MaxCancelRef is the most callbacks of one reference that one call cancels.
const MaxCancelRef = 1000

// Cancel keeps a callback from being attempted again. SQL decides; the index is told afterwards, and a claim that it still
// gives out is refused by the stamp.
func (e *Engine) Cancel(ctx context.Context, project, id string, by store.Actor) (store.CanceledCallback, error) {
	c, err := e.o.Store.Cancel(ctx, project, id, e.clock.now(), by)
	if err != nil {
		return c, err
	}
	e.wrote.Store(true)
	e.dropCanceled(ctx, []store.CanceledCallback{c})
	e.followCanceled(ctx, []store.CanceledCallback{c})
	return c, nil
}

// A CancelRefRequest says which callbacks of a reference are to be canceled: those of one topic, if it is not empty. With Terminal those
// that had ended already are answered too, so that whoever cancels a timer learns in any case what became of it.
type CancelRefRequest struct {
	Ref, Topic string
	Terminal   bool
}

// CancelRef cancels the open callbacks of a reference: at most MaxCancelRef, and no more are answered.
func (e *Engine) CancelRef(ctx context.Context, project string, which CancelRefRequest, by store.Actor) ([]store.CanceledCallback, error) {
	list, err := e.o.Store.CancelRef(ctx, project, which.Ref, which.Topic, MaxCancelRef, e.clock.now(), by)
	if err != nil {
		return nil, err
	}
	e.wrote.Store(true)
	e.dropCanceled(ctx, list)
	e.followCanceled(ctx, list)
	if !which.Terminal {
		return list, nil
	}
	return e.withTerminal(ctx, project, which, list)
}

// withTerminal adds the callbacks of a reference that had ended before it was canceled.
func (e *Engine) withTerminal(ctx context.Context, project string, which CancelRefRequest, list []store.CanceledCallback) ([]store.CanceledCallback, error) {
	known := make(map[string]bool, len(list))
	for i := range list {
		known[list[i].Callback.ID] = true
	}
	f := store.Filter{
		Ref: which.Ref, Topic: which.Topic, States: []store.State{store.Succeeded, store.Dead, store.Canceled}, Now: e.clock.now(), Limit: pageOfTerminal,
	}
	for len(list) < MaxCancelRef {
		page, err := e.o.Store.List(ctx, project, f)
		if err != nil {
			return nil, fmt.Errorf("list what had ended: %w", err)
		}
		for i := range page.Callbacks {
			if c := page.Callbacks[i]; !known[c.ID] && len(list) < MaxCancelRef {
				list = append(list, store.CanceledCallback{Result: store.CancelAlreadyTerminal, Callback: c})
			}
		}
		if page.Next == nil {
			break
		}
		f.After = page.Next
	}
	return list, nil
}

// pageOfTerminal is how many that have ended are read at once.
const pageOfTerminal = 500

func (e *Engine) dropCanceled(ctx context.Context, list []store.CanceledCallback) {
	var refs []schedule.Ref
	for i := range list {
		if c := &list[i]; c.Result == store.CancelDone {
			refs = append(refs, schedule.Ref{ID: c.Callback.ID, Lane: c.Callback.LaneID})
			e.metrics.terminal.WithLabelValues(string(store.Canceled), string(c.Callback.Reason)).Inc()
		}
	}
	e.removeAll(ctx, refs)
}

// takeOut takes rows from the index that SQL has ended. Those that it cannot be told of stay until they are claimed: the stamp refuses
// and drops them. Those that were in strict order give up their turns.
func (e *Engine) takeOut(ctx context.Context, rows []store.OpenRow) {
	e.removeRows(ctx, rows)
	e.followEnded(ctx, rows)
}

// removeRows takes rows from where they are in the index.
func (e *Engine) removeRows(ctx context.Context, rows []store.OpenRow) {
	refs := make([]schedule.Ref, len(rows))
	for i := range rows {
		refs[i] = schedule.Ref{ID: rows[i].ID, Lane: rows[i].LaneID}
	}
	e.removeAll(ctx, refs)
}

func (e *Engine) removeAll(ctx context.Context, refs []schedule.Ref) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), indexTimeout)
	defer cancel()
	for some := range slices.Chunk(refs, schedule.MaxBatch) {
		if _, err := e.o.Schedule.Cancel(ctx, some); err != nil {
			e.trouble.indexFailed("cancel", err)
			return
		}
	}
}

// Retry makes a callback due now.
func (e *Engine) Retry(ctx context.Context, project, id string, r RetryRequest, by store.Actor) (store.Callback, error) {
	ladder := r.Ladder
	if ladder == "" {
		ladder = store.Once
	}
	change := store.Retry{Ladder: ladder, URL: r.URL, Now: e.clock.now()}
	if ladder != store.Once && ladder != store.Restart {
		return store.Callback{}, &store.InvalidError{Fields: []store.FieldError{{Field: "ladder", Message: "is \"once\" or \"restart\""}}}
	}
	if r.URL != "" {
		if err := e.judgeURL(r.URL); err != nil {
			return store.Callback{}, invalid("url", err.Error())
		}
	}
	var before []store.OpenRow
	if r.URL != "" {
		var err error
		if before, err = e.o.Store.ByID(ctx, []string{id}); err != nil {
			return store.Callback{}, fmt.Errorf("retry %s: %w", id, err)
		}
	}
	c, err := e.o.Store.Retry(ctx, project, id, change, by)
	if err != nil {
		return c, err
	}
	from := c.LaneID
	if len(before) > 0 {
		from = before[0].LaneID
	}
	if r.URL != "" {
		e.settingsChanged(ctx) // a lane that was just made may be paused with its project
	}
	e.place(ctx, &c, from)
	return c, nil
}

// Reschedule moves a callback to another due time, given as Unix milliseconds or as a delay: exactly one of the two. One that
// is dead gets one more attempt then.
func (e *Engine) Reschedule(ctx context.Context, project, id string, due *int64, delay *time.Duration, by store.Actor) (store.Callback, error) {
	now := e.clock.now()
	var f findings
	var at int64
	switch {
	case (due == nil) == (delay == nil):
		f.add("due_at", "give exactly one of due_at and delay")
	case due != nil:
		at = max(*due, now)
		if at > now+MaxDelay.Milliseconds() {
			f.add("due_at", "is more than 400 days away")
		}
	case *delay < 0 || *delay > MaxDelay:
		f.add("delay", "is 0s to 400d")
	default:
		at = schedule.DueAfter(time.UnixMilli(now), *delay)
	}
	if len(f) > 0 {
		return store.Callback{}, &store.InvalidError{Fields: f}
	}
	c, err := e.o.Store.Reschedule(ctx, project, id, at, now, by)
	if err != nil {
		return c, err
	}
	e.place(ctx, &c, c.LaneID)
	return c, nil
}

// place tells the index of a due time that a caller changed: present or absent, the item is due then, in the callback's lane.
// from is the lane that it was in before.
func (e *Engine) place(ctx context.Context, c *store.Callback, from int64) {
	e.wrote.Store(true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), indexTimeout)
	defer cancel()
	i := item(c)
	was, err := e.ensureInLane(ctx, i, from)
	if err == nil && was != schedule.Absent {
		_, err = e.o.Schedule.Move(ctx, []schedule.Movement{{Ref: i.Ref(), Due: i.Due, Forced: i.Forced}})
	}
	if err != nil {
		e.trouble.indexFailed("move", err)
		e.trouble.missed([]schedule.Item{i})
		return
	}
	e.hintAll()
}

// ensureInLane ensures an item in its lane, and says where it was. It takes it out of another lane first, at most twice: a
// catch-up that read the row before its lane changed may have put it back there. The stamp decides in any case what is sent,
// and where to.
func (e *Engine) ensureInLane(ctx context.Context, i schedule.Item, from int64) (was schedule.Place, err error) {
	for range 2 {
		if from != i.Lane {
			if _, err = e.o.Schedule.Cancel(ctx, []schedule.Ref{{ID: i.ID, Lane: from}}); err != nil {
				return schedule.Absent, err
			}
		}
		positions, err := e.o.Schedule.Ensure(ctx, []schedule.Item{i})
		if err != nil {
			return schedule.Absent, err
		}
		was = positions[0].Place
		if from == i.Lane || was == schedule.Absent {
			break
		}
	}
	return was, nil
}
