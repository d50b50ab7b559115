package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// load moves the watermarks, then gives the index what SQL has up to them, and notes in each shard that it has it. The order is
// what makes it whole: see docs/adr/0009. A shard that fails is left out, and loaded by the next run from where it stands.
func (l *loader) load(ctx context.Context, shards []lading) error {
	e := l.e
	token, before := newToken(), slices.Clone(shards)
	e.ask(ctx, "move_watermark", shards, func(ctx context.Context, shard int) (schedule.Watermark, error) {
		return e.o.Schedule.MoveWatermark(ctx, shard, schedule.Advance{Horizon: e.o.Horizon, After: before[shard].mark.Loader, Token: token})
	})
	leaveOut(shards, token)
	failpoint("after_watermark")
	s := spanOf(shards)
	if s.after.DueAt < s.until {
		noted := time.Now()
		err := e.walkOpen(ctx, s, func(rows []store.OpenRow) error {
			if err := l.give(ctx, shards, rows); err != nil {
				return err
			}
			failpoint("during_load")
			switch leader, err := l.lead(ctx); {
			case err != nil:
				return err
			case !leader:
				return errMoved
			}
			if time.Since(noted) < loadNote {
				return nil
			}
			noted = time.Now()
			// Of the last row's time there may be more.
			return l.done(ctx, shards, token, rows[len(rows)-1].DueAt-1)
		})
		if err == nil {
			err = l.done(ctx, shards, token, s.until)
		}
		if errors.Is(err, errMoved) {
			return nil // Whoever has moved it loads the rest.
		}
		if err != nil {
			return err
		}
	}
	l.note(shards)
	l.tell(before, shards)
	for i := range shards {
		if err := shards[i].err; err != nil && !errors.Is(err, errMoved) {
			return err
		}
	}
	return nil
}

// leaveOut leaves shards out whose watermark somebody else has moved since.
func leaveOut(shards []lading, token string) {
	for i := range shards {
		if s := &shards[i]; s.err == nil && s.mark.Loader != token {
			s.err = errMoved
		}
	}
}

// spanOf is what lies between what is loaded and the watermark in any shard.
func spanOf(shards []lading) span {
	s := span{after: store.Cursor{DueAt: schedule.Forever, ID: pastAll}}
	for i := range shards {
		if shards[i].err == nil {
			s.after.DueAt = min(s.after.DueAt, shards[i].mark.Loaded)
			s.until = max(s.until, shards[i].mark.At)
		}
	}
	return s
}

// give gives rows to those shards that lack them, in small parts, with a pause between them while there is time for it.
func (l *loader) give(ctx context.Context, shards []lading, rows []store.OpenRow) error {
	e := l.e
	for chunk := range slices.Chunk(rows, loadChunk) {
		items := make([]schedule.Item, 0, len(chunk))
		for i := range chunk {
			s := &shards[e.o.Schedule.ShardOf(chunk[i].LaneID)]
			if s.err == nil && chunk[i].DueAt > s.mark.Loaded {
				items = append(items, openItem(&chunk[i]))
			}
		}
		if err := l.ensure(ctx, shards, items); err != nil {
			return err
		}
		if chunk[0].DueAt <= e.clock.now()+schedule.AlwaysAhead.Milliseconds() {
			continue
		}
		timer := time.NewTimer(loadPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
	return nil
}

// ensure gives items to the index. Of several shards, one that is away keeps none of the others from its part: it is left out.
func (l *loader) ensure(ctx context.Context, shards []lading, items []schedule.Item) error {
	err := l.ensureAll(ctx, items)
	if err == nil || len(shards) == 1 || errors.Is(err, schedule.ErrLost) || ctx.Err() != nil {
		return err
	}
	own := make(map[int][]schedule.Item)
	for i := range items {
		shard := l.e.o.Schedule.ShardOf(items[i].Lane)
		own[shard] = append(own[shard], items[i])
	}
	for shard, some := range own {
		if failed := l.ensureAll(ctx, some); failed != nil {
			shards[shard].err = failed
		}
	}
	if working(shards) != nil {
		return err
	}
	return nil
}

func (l *loader) ensureAll(ctx context.Context, items []schedule.Item) error {
	if len(items) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.e.trouble.indexTime())
	defer cancel()
	positions, err := l.e.o.Schedule.Ensure(ctx, items)
	if err != nil {
		l.e.trouble.indexFailed("ensure", err)
		return fmt.Errorf("load what comes within the horizon: %w", err)
	}
	for i := range positions {
		if positions[i].Place == schedule.Absent {
			l.e.metrics.loaded.Inc()
		}
	}
	l.e.hintDue(items)
	return nil
}

// done notes in the shards that they have everything up to then.
func (l *loader) done(ctx context.Context, shards []lading, token string, until int64) error {
	l.e.ask(ctx, "loaded", shards, func(ctx context.Context, shard int) (schedule.Watermark, error) {
		return l.e.o.Schedule.Loaded(ctx, shard, token, until)
	})
	leaveOut(shards, token)
	return working(shards)
}

// tell logs that the horizon is another one than before.
func (l *loader) tell(before, shards []lading) {
	for i := range shards {
		if shards[i].err != nil || before[i].err != nil {
			continue
		}
		switch was, is := before[i].mark.At, shards[i].mark.At; {
		case was == schedule.Forever && is != schedule.Forever:
			l.e.log.Info("from now on the index holds what is due within the horizon, and SQL alone the rest", "horizon", l.e.o.Horizon)
		case was != schedule.Forever && is == schedule.Forever:
			l.e.log.Info("the index holds the whole backlog again")
		case is < was:
			l.e.log.Info("the horizon is nearer than before; what is beyond it falls due by and by", "horizon", l.e.o.Horizon)
		default:
			continue
		}
		return
	}
}
