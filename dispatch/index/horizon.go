package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	loadLease = "horizon"
	// loadEvery is how often the watermarks are read. Without a horizon they are read every loadIdle, to find
	// a watermark of an earlier setting.
	loadEvery, loadIdle = time.Second, 15 * time.Second
	// loadChunk is how many items the loader gives to the index at once, about a millisecond of a shard's
	// time. loadPause leaves the shard to claims between two chunks, unless the items are due soon.
	loadChunk = 200
	loadPause = 2 * time.Millisecond
	// loadedEvery is how often the loader writes its progress to the index. If it dies, the next loader
	// repeats that much.
	loadedEvery = 2 * time.Second
	// afterAllIDs is an id after every ULID. A cursor with it begins after all rows of its due time.
	afterAllIDs = "~"
)

// errMoved: another process has moved a shard's watermark, and loads what is below it.
var errMoved = errors.New("another process has moved the watermark")

// A loader keeps the index loaded as far ahead as the horizon says. Each shard has two times: its watermark,
// above which it takes no items (see schedule.MinHorizon), and loaded, up to which it has all rows of SQL.
// The loader moves the watermark first, and then reads SQL and gives the shard the rows in between.
// docs/adr/0009-horizon.md shows why no callback is lost, whatever dies in between.
type loader struct {
	ix     *Index
	leader *Leader
	// loaded is the lowest loaded time of the shards at the last look; zero: there was none yet. It is for
	// the metric of the lag.
	loaded atomic.Int64
}

// A shardLoad is one shard in one run of the loader.
type shardLoad struct {
	mark schedule.Watermark
	err  error // why the rest of the run skips the shard
}

// run loads until ctx ends, and then gives the lease back.
func (l *loader) run(ctx context.Context) {
	every := loadEvery
	if l.ix.o.Horizon == 0 {
		every = loadIdle
	}
	process.Loop{
		Every:   every,
		Failing: "loading callbacks within the horizon failed; it is tried again",
		Repeat:  WarnEvery,
		Log:     l.ix.log,
	}.Run(ctx, func(ctx context.Context) (time.Duration, error) { return 0, l.step(ctx) })
	l.leader.Resign(ctx)
}

// step reads the watermarks, and loads if something is to be loaded and no other process does it.
func (l *loader) step(ctx context.Context) error {
	ix := l.ix
	if ix.health.SQLIsDown() || ix.health.indexSilent() || !ix.generation.content.is(matching) {
		return nil // Recovery comes first. A foreign index that is kept is not changed either.
	}
	shards := make([]shardLoad, ix.o.Schedule.Shards())
	ix.askShards(ctx, "watermark", shards, ix.o.Schedule.Watermark)
	if err := anyWorking(shards); err != nil {
		return err
	}
	l.noteLoaded(shards)
	needed := false
	for i := range shards {
		needed = needed || shards[i].err == nil && l.needsLoad(&shards[i].mark)
	}
	if !needed && !l.leader.Leads() {
		return nil
	}
	// The process that has loaded keeps the lease. Otherwise processes with different horizons would take
	// turns.
	leader, err := l.leader.Lead(ctx)
	if err != nil || !leader || !needed {
		return err
	}
	return l.load(ctx, shards)
}

// needsLoad returns whether the watermark must move or what is below it must be loaded: a quarter of the
// horizon has passed, the clock was set, the horizon has changed, or the last loader has died.
func (l *loader) needsLoad(w *schedule.Watermark) bool {
	h := l.ix.o.Horizon.Milliseconds()
	if h == 0 {
		return w.At != schedule.Forever
	}
	return w.Loaded < w.At || w.At < w.Now+h-h/4 || w.At > w.Now+h
}

// noteLoaded stores the lowest loaded time of the shards.
func (l *loader) noteLoaded(shards []shardLoad) {
	if anyWorking(shards) != nil {
		return
	}
	loaded := schedule.Forever
	for i := range shards {
		if shards[i].err == nil {
			loaded = min(loaded, shards[i].mark.Loaded)
		}
	}
	l.loaded.Store(loaded)
}

// lag returns how many seconds less than the horizon the index is loaded ahead.
func (l *loader) lag() float64 {
	loaded := l.loaded.Load()
	if l.ix.o.Horizon == 0 || loaded == 0 {
		return 0
	}
	return max(0, float64(l.ix.clock.Now()+l.ix.o.Horizon.Milliseconds()-loaded)/1000)
}

// askShards calls an operation on all shards that are not skipped, concurrently, and stores their replies. A
// shard that does not answer is skipped from then on.
func (ix *Index) askShards(ctx context.Context, operation string, shards []shardLoad,
	call func(context.Context, int) (schedule.Watermark, error)) {
	ctx, cancel := context.WithTimeout(ctx, ix.health.CallTime())
	defer cancel()
	var asking sync.WaitGroup
	for shard := range shards {
		if s := &shards[shard]; s.err == nil {
			asking.Go(func() {
				s.mark, s.err = call(ctx, shard)
				if s.err != nil {
					ix.health.Failed(operation, s.err)
					s.err = fmt.Errorf("horizon: %w", s.err)
				}
			})
		}
	}
	asking.Wait()
}

// anyWorking returns nil if any shard is not skipped, or else the error of the first one.
func anyWorking(shards []shardLoad) error {
	for i := range shards {
		if shards[i].err == nil {
			return nil
		}
	}
	return shards[0].err
}

// watermarks reads the watermarks of all shards; each must answer. An embedded index takes everything.
func (ix *Index) watermarks(ctx context.Context) ([]schedule.Watermark, error) {
	shards := make([]shardLoad, ix.o.Schedule.Shards())
	marks := make([]schedule.Watermark, len(shards))
	if ix.o.Embedded {
		for i := range marks {
			marks[i] = schedule.Watermark{At: schedule.Forever, Loaded: schedule.Forever}
		}
		return marks, nil
	}
	ix.askShards(ctx, "watermark", shards, ix.o.Schedule.Watermark)
	for i := range shards {
		if shards[i].err != nil {
			return nil, shards[i].err
		}
		marks[i] = shards[i].mark
	}
	return marks, nil
}

// acceptedUntil returns the latest due time that any shard takes now. Callbacks that are due later, and were
// missed, are loaded when they come within the horizon.
func (ix *Index) acceptedUntil(ctx context.Context) (int64, error) {
	marks, err := ix.watermarks(ctx)
	until := int64(0)
	for i := range marks {
		until = max(until, marks[i].At, marks[i].Now+schedule.MinHorizon.Milliseconds())
	}
	return until, err
}

// setWatermarks sets the watermarks of shards that were just reset, and returns the due time up to which a
// rebuild must fill them. If another process moved a watermark first, its value is used.
func (ix *Index) setWatermarks(ctx context.Context) (int64, error) {
	if ix.o.Horizon == 0 {
		return schedule.Forever, nil
	}
	marks, err := ix.watermarks(ctx)
	if err != nil {
		return 0, err
	}
	until, token := int64(0), clock.NewToken()
	for shard := range marks {
		mark, err := ix.o.Schedule.MoveWatermark(ctx, shard,
			schedule.Advance{Horizon: ix.o.Horizon, After: marks[shard].Loader, Token: token})
		if err != nil {
			return 0, fmt.Errorf("horizon: %w", err)
		}
		until = max(until, mark.At)
	}
	return until, nil
}

// load moves the watermarks, gives the index the rows of SQL up to them, and then marks them as loaded. The
// order is the guard against lost callbacks (docs/adr/0009-horizon.md): a row that is committed before the
// move is read from SQL, and one that is committed later is enqueued by its writer. A shard that fails is
// skipped; the next run continues where it stands.
func (l *loader) load(ctx context.Context, shards []shardLoad) error {
	ix := l.ix
	token, before := clock.NewToken(), slices.Clone(shards)
	move := func(ctx context.Context, shard int) (schedule.Watermark, error) {
		advance := schedule.Advance{Horizon: ix.o.Horizon, After: before[shard].mark.Loader, Token: token}
		return ix.o.Schedule.MoveWatermark(ctx, shard, advance)
	}
	ix.askShards(ctx, "move_watermark", shards, move)
	skipMoved(shards, token)
	process.Failpoint("after_watermark")
	if s := unloadedSpan(shards); s.after.DueAt < s.until {
		switch err := l.loadSpan(ctx, shards, token, s); {
		case errors.Is(err, errMoved):
			return nil // The other process loads the rest.
		case err != nil:
			return err
		}
	}
	l.noteLoaded(shards)
	l.logChange(before, shards)
	for i := range shards {
		if err := shards[i].err; err != nil && !errors.Is(err, errMoved) {
			return err
		}
	}
	return nil
}

// loadSpan gives the shards the rows of a span and marks them as loaded, every loadedEvery and at the end. It
// stops with errMoved if this process has lost the lease, or if all watermarks were moved by another one.
func (l *loader) loadSpan(ctx context.Context, shards []shardLoad, token string, s span) error {
	marked := time.Now()
	err := l.ix.walkOpen(ctx, s, func(rows []store.OpenRow) error {
		if err := l.giveRows(ctx, shards, rows); err != nil {
			return err
		}
		process.Failpoint("during_load")
		switch leader, err := l.leader.Lead(ctx); {
		case err != nil:
			return err
		case !leader:
			return errMoved
		}
		if time.Since(marked) < loadedEvery {
			return nil
		}
		marked = time.Now()
		// The next page may have more rows of the last row's time.
		return l.markLoaded(ctx, shards, token, rows[len(rows)-1].DueAt-1)
	})
	if err != nil {
		return err
	}
	return l.markLoaded(ctx, shards, token, s.until)
}

// skipMoved skips the shards whose watermark another process has moved since.
func skipMoved(shards []shardLoad, token string) {
	for i := range shards {
		if s := &shards[i]; s.err == nil && s.mark.Loader != token {
			s.err = errMoved
		}
	}
}

// unloadedSpan returns the rows between loaded and the watermark of any shard.
func unloadedSpan(shards []shardLoad) span {
	s := span{after: store.Cursor{DueAt: schedule.Forever, ID: afterAllIDs}}
	for i := range shards {
		if shards[i].err == nil {
			s.after.DueAt = min(s.after.DueAt, shards[i].mark.Loaded)
			s.until = max(s.until, shards[i].mark.At)
		}
	}
	return s
}

// giveRows gives the shards the rows that they lack, in chunks. It pauses between chunks so that claims are
// not delayed, unless the rows are due soon.
func (l *loader) giveRows(ctx context.Context, shards []shardLoad, rows []store.OpenRow) error {
	ix := l.ix
	for chunk := range slices.Chunk(rows, loadChunk) {
		items := make([]schedule.Item, 0, len(chunk))
		for i := range chunk {
			s := &shards[ix.o.Schedule.ShardOf(chunk[i].LaneID)]
			if s.err == nil && chunk[i].DueAt > s.mark.Loaded {
				items = append(items, OpenItem(&chunk[i]))
			}
		}
		if err := l.ensure(ctx, shards, items); err != nil {
			return err
		}
		if chunk[0].DueAt <= ix.clock.Now()+schedule.MinHorizon.Milliseconds() {
			continue
		}
		process.Sleep(ctx, loadPause)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// ensure gives items to the index with one call, which reaches several shards. If it fails, each shard gets
// its items alone. A shard that fails again is skipped for the rest of the run.
func (l *loader) ensure(ctx context.Context, shards []shardLoad, items []schedule.Item) error {
	err := l.ensureAll(ctx, items)
	if err == nil || len(shards) == 1 || errors.Is(err, schedule.ErrLost) || ctx.Err() != nil {
		return err
	}
	byShard := make(map[int][]schedule.Item)
	for i := range items {
		shard := l.ix.o.Schedule.ShardOf(items[i].Lane)
		byShard[shard] = append(byShard[shard], items[i])
	}
	for shard, items := range byShard {
		if failed := l.ensureAll(ctx, items); failed != nil {
			shards[shard].err = failed
		}
	}
	if anyWorking(shards) != nil {
		return err
	}
	return nil
}

func (l *loader) ensureAll(ctx context.Context, items []schedule.Item) error {
	positions, err := l.ix.put(ctx, items, false, nil)
	if err != nil {
		l.ix.Failed("ensure", err)
		return fmt.Errorf("load callbacks within the horizon: %w", err)
	}
	l.ix.metrics.loaded.Add(float64(countAbsent(positions)))
	return nil
}

// markLoaded writes to the shards that they have all rows up to until.
func (l *loader) markLoaded(ctx context.Context, shards []shardLoad, token string, until int64) error {
	l.ix.askShards(ctx, "loaded", shards, func(ctx context.Context, shard int) (schedule.Watermark, error) {
		return l.ix.o.Schedule.Loaded(ctx, shard, token, until)
	})
	skipMoved(shards, token)
	return anyWorking(shards)
}

// logChange logs that the horizon has changed.
func (l *loader) logChange(before, shards []shardLoad) {
	for i := range shards {
		if shards[i].err != nil || before[i].err != nil {
			continue
		}
		switch was, is := before[i].mark.At, shards[i].mark.At; {
		case was == schedule.Forever && is != schedule.Forever:
			l.ix.log.Info("the index now holds only callbacks due within the horizon",
				"horizon", l.ix.o.Horizon)
		case was != schedule.Forever && is == schedule.Forever:
			l.ix.log.Info("the index holds all open callbacks again")
		case is < was:
			l.ix.log.Info("the horizon is shorter than before; the index shrinks as callbacks fall due",
				"horizon", l.ix.o.Horizon)
		default:
			continue
		}
		return
	}
}
