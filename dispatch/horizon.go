package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// With a horizon the index holds what is due within it, and SQL the rest. A shard's watermark says how far ahead it takes items;
// what is due later is left out, by the index itself. A loader, one of all processes at a time, moves the watermark on, and only
// then reads from SQL what is due up to it: whatever was left out had been committed before the watermark moved, so that the
// reading finds it; whatever comes later is taken in by the index. docs/adr/0009 goes through the cases.

// Ahead reads what comes within the horizon.
type Ahead interface {
	// OpenUntil returns open rows after the cursor that are due at until or before, in order of (due_at, id), at most limit. It
	// sees what was committed before it was called.
	OpenUntil(ctx context.Context, after store.Cursor, until int64, limit int) ([]store.OpenRow, error)
}

// Watermarks say how far ahead the shards of an index hold items: see schedule.Watermark.
type Watermarks interface {
	// ShardOf returns the shard that has the lane.
	ShardOf(lane int64) int
	Watermark(ctx context.Context, shard int) (schedule.Watermark, error)
	// MoveWatermark answers with the request's Token as Loader if it has moved it.
	MoveWatermark(ctx context.Context, shard int, a schedule.Advance) (schedule.Watermark, error)
	// Loaded notes that everything due at until or before was given to the shard, if the watermark was last moved under the token.
	Loaded(ctx context.Context, shard int, token string, until int64) (schedule.Watermark, error)
}

const (
	loadLease = "horizon"
	// loadEvery is how often the watermark is looked at; without a horizon, whether an earlier setting has left one.
	loadEvery, loadIdle = time.Second, 15 * time.Second
	// loadChunk is how many items the loader gives to the index at once, about a millisecond of a shard's time, and loadPause what
	// it leaves to claims between two such calls, unless what it loads is due soon.
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
	e *Engine
	// leads says that this process has the lease, renewed when it was last asked for. Only run's goroutine touches them.
	leads           bool
	renewed, warned time.Time
	// loaded is up to which due time every shard was loaded when it was last asked; zero: none was yet.
	loaded atomic.Int64
}

// A lading is one shard in one run of the loader.
type lading struct {
	mark schedule.Watermark
	err  error // why the rest of the run leaves it out
}

// run loads until ctx ends, and then gives the lease back.
func (l *loader) run(ctx context.Context) {
	every := loadEvery
	if l.e.o.Horizon == 0 {
		every = loadIdle
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			l.resign(ctx)
			return
		case <-ticker.C:
		}
		err := l.look(ctx)
		if err != nil && ctx.Err() == nil && (l.warned.IsZero() || time.Since(l.warned) > warnEvery) {
			l.warned = time.Now()
			l.e.log.Warn("loading what comes within the horizon is put off", "error", err)
		}
	}
}

// look reads the watermarks, and loads if there is something to load and nobody else does.
func (l *loader) look(ctx context.Context) error {
	e := l.e
	if e.trouble.sqlIsDown() || e.trouble.indexSilent() || e.keeper.degraded() || e.keeper.foreign.Load() != 0 {
		return nil // They are looked after; and a held process leaves a foreign index as it is.
	}
	shards := make([]lading, e.o.Schedule.Shards())
	e.ask(ctx, "watermark", shards, e.o.Schedule.Watermark)
	if err := working(shards); err != nil {
		return err
	}
	l.note(shards)
	wanting := false
	for i := range shards {
		wanting = wanting || shards[i].err == nil && l.wants(&shards[i].mark)
	}
	if !wanting && !l.leads {
		return nil
	}
	// Whoever has loaded keeps the lease, so that processes that are set differently do not take turns.
	leader, err := l.lead(ctx)
	if err != nil || !leader || !wanting {
		return err
	}
	return l.load(ctx, shards)
}

// wants says whether the watermark must move, or what is below it must be loaded: a quarter of the horizon has passed, the clock
// was set, the horizon is another one than before, or the last loader has died.
func (l *loader) wants(w *schedule.Watermark) bool {
	h := l.e.o.Horizon.Milliseconds()
	if h == 0 {
		return w.At != schedule.Forever
	}
	return w.Loaded < w.At || w.At < w.Now+h-h/4 || w.At > w.Now+h
}

// note keeps what the metric of the lag is made of.
func (l *loader) note(shards []lading) {
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
	return max(0, float64(l.e.clock.now()+l.e.o.Horizon.Milliseconds()-loaded)/1000)
}

// lead takes or renews the lease, unless that was done just now, and says whether it is held.
func (l *loader) lead(ctx context.Context) (bool, error) {
	if l.leads && time.Since(l.renewed) < l.e.times.leader/4 {
		return true, nil
	}
	e := l.e
	if err := e.learnTime(ctx); err != nil {
		return false, err
	}
	asked := time.Now()
	leader, err := e.o.Store.TryLease(ctx, loadLease, e.o.Name, e.clock.now(), e.times.leader)
	if err != nil {
		return false, fmt.Errorf("lease for loading: %w", err)
	}
	l.leads, l.renewed = leader, asked
	return leader, nil
}

// resign gives the lease back; where it cannot be given back it runs out.
func (l *loader) resign(ctx context.Context) {
	if !l.leads {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if _, err := l.e.o.Store.TryLease(ctx, loadLease, l.e.o.Name, l.e.clock.now(), 0); err != nil {
		l.e.log.Debug("the lease of the loader runs out by itself", "error", err)
	}
}

// ask calls an operation on every shard that is not left out, side by side, and keeps what each answers. Who does not answer is
// left out from then on.
func (e *Engine) ask(ctx context.Context, operation string, shards []lading, call func(context.Context, int) (schedule.Watermark, error)) {
	ctx, cancel := context.WithTimeout(ctx, e.trouble.indexTime())
	defer cancel()
	var asking sync.WaitGroup
	for shard := range shards {
		if s := &shards[shard]; s.err == nil {
			asking.Go(func() {
				if s.mark, s.err = call(ctx, shard); s.err != nil {
					e.trouble.indexFailed(operation, s.err)
					s.err = fmt.Errorf("horizon: %w", s.err)
				}
			})
		}
	}
	asking.Wait()
}

// working returns nil if any shard is left, or why the first one is not.
func working(shards []lading) error {
	for i := range shards {
		if shards[i].err == nil {
			return nil
		}
	}
	return shards[0].err
}

// watermarks asks every shard, all of which must answer. Of an index of this process's own nobody moves them.
func (e *Engine) watermarks(ctx context.Context) ([]schedule.Watermark, error) {
	shards := make([]lading, e.o.Schedule.Shards())
	marks := make([]schedule.Watermark, len(shards))
	if e.o.Alone {
		for i := range marks {
			marks[i] = schedule.Watermark{At: schedule.Forever, Loaded: schedule.Forever}
		}
		return marks, nil
	}
	e.ask(ctx, "watermark", shards, e.o.Schedule.Watermark)
	for i := range shards {
		if shards[i].err != nil {
			return nil, shards[i].err
		}
		marks[i] = shards[i].mark
	}
	return marks, nil
}

// takenUntil is the latest due time that any shard takes in now. Whatever is due later, and missed, is loaded when its time comes.
func (e *Engine) takenUntil(ctx context.Context) (int64, error) {
	marks, err := e.watermarks(ctx)
	until := int64(0)
	for i := range marks {
		until = max(until, marks[i].At, marks[i].Now+schedule.AlwaysAhead.Milliseconds())
	}
	return until, err
}

// bound moves the watermarks of shards that have just been reset to the horizon, and says up to when a rebuild must fill them.
// Where another process came first, its watermark is as good.
func (e *Engine) bound(ctx context.Context) (int64, error) {
	if e.o.Horizon == 0 {
		return schedule.Forever, nil
	}
	marks, err := e.watermarks(ctx)
	if err != nil {
		return 0, err
	}
	until, token := int64(0), newToken()
	for shard := range marks {
		mark, err := e.o.Schedule.MoveWatermark(ctx, shard, schedule.Advance{Horizon: e.o.Horizon, After: marks[shard].Loader, Token: token})
		if err != nil {
			return 0, fmt.Errorf("horizon: %w", err)
		}
		until = max(until, mark.At)
	}
	return until, nil
}
