package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// sweepTime bounds one sweep; the next one goes on where it ended.
	sweepTime = 2 * time.Second
	// lateSlack is by how much the index may hold an item for later than SQL says: diverts and the spread of a rebuild do.
	lateSlack = 2 * time.Minute
)

// sweep walks the rows that are overdue and gives the index what it lacks of them. It is what makes everything between SQL
// and the index expendable: a lost enqueue, a lost settlement, a rolled-back index are all healed here.
func (e *Engine) sweep(ctx context.Context) error {
	marks := e.advanceMarks(ctx)
	cursor, err := e.o.Store.SweepCursor(ctx)
	if err != nil {
		return fmt.Errorf("read the sweep's cursor: %w", err)
	}
	began := cursor
	started := time.Now()
	var unhealed error
	for time.Since(started) < sweepTime {
		before := e.clock.now() - e.times.slack.Milliseconds()
		rows, err := e.o.Store.Overdue(ctx, cursor, before, before, pageRows)
		if err != nil {
			return fmt.Errorf("read overdue rows: %w", err)
		}
		if err := e.heal(ctx, rows); err != nil {
			unhealed = err
			if !e.trouble.partly.Load() {
				break
			}
		}
		// Where some shards answer, those rows that are theirs have been healed: the others must not keep the sweep from the rest.
		failpoint("during_sweep")
		if len(rows) < pageRows {
			cursor = store.Cursor{}
			e.metrics.sweeps.Inc()
			break
		}
		cursor = store.Cursor{DueAt: rows[len(rows)-1].DueAt, ID: rows[len(rows)-1].ID}
	}
	if cursor != began {
		if err := e.o.Store.SetSweepCursor(ctx, cursor); err != nil {
			return fmt.Errorf("keep the sweep's cursor: %w", err)
		}
	}
	// What expires does so without an index, and what ends with its endpoint.
	return errors.Join(marks, unhealed, e.expire(ctx), e.cancelDeleted(ctx))
}

// fullMarks is how often the low-water marks are looked for from the first row on.
const fullMarks = 10 * time.Minute

// advanceMarks moves on where the sweep and other walks begin. Should it fail, they begin where they did.
func (e *Engine) advanceMarks(ctx context.Context) error {
	full := time.Since(e.markedFully) >= fullMarks
	if full {
		e.markedFully = time.Now()
	}
	if err := e.o.Store.AdvanceMarks(ctx, e.clock.now(), full); err != nil {
		return fmt.Errorf("advance low-water marks: %w", err)
	}
	return nil
}

// heal ensures the rows, and moves forward what the index holds for much later than SQL says.
func (e *Engine) heal(ctx context.Context, rows []store.OpenRow) error {
	if len(rows) == 0 {
		return nil
	}
	items := make([]schedule.Item, len(rows))
	for i := range rows {
		items[i] = openItem(&rows[i])
	}
	ctx, cancel := context.WithTimeout(ctx, e.trouble.indexTime())
	defer cancel()
	positions, err := e.o.Schedule.Ensure(ctx, items)
	if err != nil {
		e.trouble.indexFailed("ensure", err)
		return fmt.Errorf("ensure overdue rows: %w", err)
	}
	late := e.clock.now() + lateSlack.Milliseconds()
	var absent int
	var movements []schedule.Movement
	for i, p := range positions {
		switch {
		case p.Place == schedule.Absent:
			absent++
		case p.Place == schedule.Delayed && p.Due > late:
			movements = append(movements, schedule.Movement{Ref: items[i].Ref(), Due: items[i].Due})
		}
	}
	if len(movements) > 0 {
		if _, err := e.o.Schedule.Move(ctx, movements); err != nil {
			e.trouble.indexFailed("move", err)
			return fmt.Errorf("move late items: %w", err)
		}
	}
	if healed := absent + len(movements); healed > 0 {
		e.metrics.healed.Add(float64(healed))
		e.log.Info("sweep healed the index", "absent", absent, "late", len(movements))
		e.hintAll()
	}
	return nil
}

// expire ends what has expired without being claimed, and takes it from the index.
func (e *Engine) expire(ctx context.Context) error {
	const batch = 200
	for range 50 {
		rows, err := e.o.Store.Expire(ctx, e.clock.now(), batch)
		if err != nil {
			return fmt.Errorf("expire: %w", err)
		}
		if len(rows) > 0 {
			e.wrote.Store(true)
			e.metrics.terminal.WithLabelValues(string(store.Dead), string(store.Expired)).Add(float64(len(rows)))
			e.activity.expired(rows, e.clock.now())
			e.takeOut(ctx, rows)
		}
		if len(rows) < batch {
			return nil
		}
	}
	return nil
}
