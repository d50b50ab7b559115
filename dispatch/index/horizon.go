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
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	loadLease = "horizon"
	// loadEvery is how often the watermark is looked at; without a horizon, whether an earlier setting has
	// left one.
	loadEvery, loadIdle = time.Second, 15 * time.Second
	// loadChunk is how many items the loader gives to the index at once, about a millisecond of a shard's
	// time, and loadPause what it leaves to claims between two such calls, unless what it loads is due soon.
	loadChunk = 200
	loadPause = 2 * time.Millisecond
	// loadNote is how often it notes in the index how far it has come: so much is done again if it dies.
	loadNote = 2 * time.Second
	// pastAll is an id above every ULID: a cursor with it begins after all rows of its time.
	pastAll = "~"
)

// errMoved: somebody else has moved a shard's watermark, and loads what is below it.
var errMoved = errors.New("another process has moved the watermark")

// A loader keeps the index filled as far ahead as the horizon says.
type loader struct {
	e      *Index
	leader *Leader
	// loaded is up to which due time every shard was loaded when it was last asked; zero: none was yet.
	loaded atomic.Int64
}

// A shardLoad is one shard in one run of the loader.
type shardLoad struct {
	mark schedule.Watermark
	err  error // why the rest of the run leaves it out
}

// run loads until ctx ends, and then gives the lease back.
func (l *loader) run(ctx context.Context) {
	every := loadEvery
	if l.e.o.Horizon == 0 {
		every = loadIdle
	}
	part.Loop{
		Every: every, Failing: "loading what comes within the horizon is put off", Repeat: WarnEvery,
		Log: l.e.log,
	}.Run(ctx, func(ctx context.Context) (time.Duration, error) { return 0, l.look(ctx) })
	l.leader.Resign(ctx)
}

// look reads the watermarks, and loads if there is something to load and nobody else does.
func (l *loader) look(ctx context.Context) error {
	e := l.e
	if e.health.SQLIsDown() || e.health.indexSilent() || !e.generation.content.is(sound) {
		return nil // They are looked after; and a held process leaves a foreign index as it is.
	}
	shards := make([]shardLoad, e.o.Schedule.Shards())
	e.ask(ctx, "watermark", shards, e.o.Schedule.Watermark)
	if err := working(shards); err != nil {
		return err
	}
	l.note(shards)
	wanting := false
	for i := range shards {
		wanting = wanting || shards[i].err == nil && l.wants(&shards[i].mark)
	}
	if !wanting && !l.leader.Leads() {
		return nil
	}
	// Whoever has loaded keeps the lease, so that processes that are set differently do not take turns.
	leader, err := l.leader.Lead(ctx)
	if err != nil || !leader || !wanting {
		return err
	}
	return l.load(ctx, shards)
}

// wants says whether the watermark must move, or what is below it must be loaded: a quarter of the horizon
// has passed, the clock was set, the horizon is another one than before, or the last loader has died.
func (l *loader) wants(w *schedule.Watermark) bool {
	h := l.e.o.Horizon.Milliseconds()
	if h == 0 {
		return w.At != schedule.Forever
	}
	return w.Loaded < w.At || w.At < w.Now+h-h/4 || w.At > w.Now+h
}

// note keeps what the metric of the lag is made of.
func (l *loader) note(shards []shardLoad) {
	if working(shards) != nil {
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

// lag is by how many seconds less than the horizon the index is loaded ahead.
func (l *loader) lag() float64 {
	loaded := l.loaded.Load()
	if l.e.o.Horizon == 0 || loaded == 0 {
		return 0
	}
	return max(0, float64(l.e.clock.Now()+l.e.o.Horizon.Milliseconds()-loaded)/1000)
}

// ask calls an operation on every shard that is not left out, side by side, and keeps what each answers. Who
// does not answer is left out from then on.
func (ix *Index) ask(ctx context.Context, operation string, shards []shardLoad,
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

// working returns nil if any shard is left, or why the first one is not.
func working(shards []shardLoad) error {
	for i := range shards {
		if shards[i].err == nil {
			return nil
		}
	}
	return shards[0].err
}

// watermarks asks every shard, all of which must answer. Of an index of this process's own nobody moves them.
func (ix *Index) watermarks(ctx context.Context) ([]schedule.Watermark, error) {
	shards := make([]shardLoad, ix.o.Schedule.Shards())
	marks := make([]schedule.Watermark, len(shards))
	if ix.o.Embedded {
		for i := range marks {
			marks[i] = schedule.Watermark{At: schedule.Forever, Loaded: schedule.Forever}
		}
		return marks, nil
	}
	ix.ask(ctx, "watermark", shards, ix.o.Schedule.Watermark)
	for i := range shards {
		if shards[i].err != nil {
			return nil, shards[i].err
		}
		marks[i] = shards[i].mark
	}
	return marks, nil
}

// takenUntil is the latest due time that any shard takes in now. Whatever is due later, and missed, is loaded
// when its time comes.
func (ix *Index) takenUntil(ctx context.Context) (int64, error) {
	marks, err := ix.watermarks(ctx)
	until := int64(0)
	for i := range marks {
		until = max(until, marks[i].At, marks[i].Now+schedule.MinHorizon.Milliseconds())
	}
	return until, err
}

// bound moves the watermarks of shards that have just been reset to the horizon, and says up to when a
// rebuild must fill them. Where another process came first, its watermark is as good.
func (ix *Index) bound(ctx context.Context) (int64, error) {
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

// load moves the watermarks, then gives the index what SQL has up to them, and notes in each shard that it
// has it. The order is what makes it whole: see docs/adr/0009. A shard that fails is left out, and loaded by
// the next run from where it stands.
func (l *loader) load(ctx context.Context, shards []shardLoad) error {
	e := l.e
	token, before := clock.NewToken(), slices.Clone(shards)
	e.ask(ctx, "move_watermark", shards, func(ctx context.Context, shard int) (schedule.Watermark, error) {
		return e.o.Schedule.MoveWatermark(ctx, shard,
			schedule.Advance{Horizon: e.o.Horizon, After: before[shard].mark.Loader, Token: token})
	})
	leaveOut(shards, token)
	part.Failpoint("after_watermark")
	s := spanOf(shards)
	if s.after.DueAt < s.until {
		noted := time.Now()
		err := e.walkOpen(ctx, s, func(rows []store.OpenRow) error {
			if err := l.give(ctx, shards, rows); err != nil {
				return err
			}
			part.Failpoint("during_load")
			switch leader, err := l.leader.Lead(ctx); {
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
func leaveOut(shards []shardLoad, token string) {
	for i := range shards {
		if s := &shards[i]; s.err == nil && s.mark.Loader != token {
			s.err = errMoved
		}
	}
}

// spanOf is what lies between what is loaded and the watermark in any shard.
func spanOf(shards []shardLoad) span {
	s := span{after: store.Cursor{DueAt: schedule.Forever, ID: pastAll}}
	for i := range shards {
		if shards[i].err == nil {
			s.after.DueAt = min(s.after.DueAt, shards[i].mark.Loaded)
			s.until = max(s.until, shards[i].mark.At)
		}
	}
	return s
}

// give gives rows to those shards that lack them, in small parts, with a pause between them while there is
// time for it.
func (l *loader) give(ctx context.Context, shards []shardLoad, rows []store.OpenRow) error {
	e := l.e
	for chunk := range slices.Chunk(rows, loadChunk) {
		items := make([]schedule.Item, 0, len(chunk))
		for i := range chunk {
			s := &shards[e.o.Schedule.ShardOf(chunk[i].LaneID)]
			if s.err == nil && chunk[i].DueAt > s.mark.Loaded {
				items = append(items, OpenItem(&chunk[i]))
			}
		}
		if err := l.ensure(ctx, shards, items); err != nil {
			return err
		}
		if chunk[0].DueAt <= e.clock.Now()+schedule.MinHorizon.Milliseconds() {
			continue
		}
		part.Sleep(ctx, loadPause)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// ensure gives items to the index. Of several shards, one that is away keeps none of the others from its
// part: it is left out.
func (l *loader) ensure(ctx context.Context, shards []shardLoad, items []schedule.Item) error {
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
	positions, err := l.e.put(ctx, items, false, nil)
	if err != nil {
		l.e.Failed("ensure", err)
		return fmt.Errorf("load what comes within the horizon: %w", err)
	}
	l.e.metrics.loaded.Add(float64(countAbsent(positions)))
	return nil
}

// done notes in the shards that they have everything up to then.
func (l *loader) done(ctx context.Context, shards []shardLoad, token string, until int64) error {
	l.e.ask(ctx, "loaded", shards, func(ctx context.Context, shard int) (schedule.Watermark, error) {
		return l.e.o.Schedule.Loaded(ctx, shard, token, until)
	})
	leaveOut(shards, token)
	return working(shards)
}

// tell logs that the horizon is another one than before.
func (l *loader) tell(before, shards []shardLoad) {
	for i := range shards {
		if shards[i].err != nil || before[i].err != nil {
			continue
		}
		switch was, is := before[i].mark.At, shards[i].mark.At; {
		case was == schedule.Forever && is != schedule.Forever:
			l.e.log.Info("from now on the index holds what is due within the horizon, and SQL alone the rest",
				"horizon", l.e.o.Horizon)
		case was != schedule.Forever && is == schedule.Forever:
			l.e.log.Info("the index holds the whole backlog again")
		case is < was:
			l.e.log.Info("the horizon is nearer than before; what is beyond it falls due by and by",
				"horizon", l.e.o.Horizon)
		default:
			continue
		}
		return
	}
}
