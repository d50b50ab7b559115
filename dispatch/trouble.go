package dispatch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const (
	// probeEvery is how often a store or an index that failed is asked whether it works again.
	probeEvery = time.Second
	// maxMissed is how many items that the index did not hear of are remembered by themselves; beyond it every open row is
	// walked instead.
	maxMissed = 100_000
)

// trouble knows what does not work at the moment: SQL, the index. While SQL fails, nothing is claimed; what the index did
// not hear of is ensured as soon as it answers again.
type trouble struct {
	e *Engine

	sqlDown   atomic.Bool
	indexDown atomic.Bool

	mu       sync.Mutex
	sqlSince time.Time
	// items were accepted or settled while the index did not answer; all says that there were too many to remember.
	items []schedule.Item
	all   bool
	wake  chan struct{}
}

func newTrouble(e *Engine) *trouble {
	return &trouble{e: e, wake: make(chan struct{}, 1)}
}

// sqlFailed notes that SQL could not commit. Claims stop until a probe has succeeded.
func (t *trouble) sqlFailed(err error) {
	if t.sqlDown.CompareAndSwap(false, true) {
		t.mu.Lock()
		t.sqlSince = time.Now()
		t.mu.Unlock()
		t.e.log.Error("SQL does not commit; claiming stops until it does", "error", err)
	}
	t.poke()
}

func (t *trouble) sqlWorked() {
	if t.sqlDown.CompareAndSwap(true, false) {
		t.e.log.Info("SQL commits again; claiming goes on")
		t.e.hintAll()
	}
}

func (t *trouble) sqlIsDown() bool { return t.sqlDown.Load() }

// sqlDownSince returns when SQL began to fail; the present time if it does not.
func (t *trouble) sqlDownSince() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sqlDown.Load() {
		return time.Now()
	}
	return t.sqlSince
}

// indexFailed notes that an operation of the index failed.
func (t *trouble) indexFailed(op string, err error) {
	switch {
	case errors.Is(err, schedule.ErrLost):
		t.e.keeper.lost()
		return
	case errors.Is(err, schedule.ErrRebuilding):
		t.e.keeper.closed()
		return
	case errors.Is(err, context.Canceled):
		return
	}
	t.e.metrics.indexErrors.WithLabelValues(op).Inc()
	if t.indexDown.CompareAndSwap(false, true) {
		t.e.log.Error("the index does not answer; accepting goes on, sending waits for it", "operation", op, "error", err)
	}
	t.poke()
}

func (t *trouble) indexWorked() {
	if t.indexDown.CompareAndSwap(true, false) {
		t.e.log.Info("the index answers again")
		t.e.hintAll()
		t.poke()
	}
}

// missed remembers items that the index should hold but may not have heard of.
func (t *trouble) missed(items []schedule.Item) {
	if len(items) == 0 {
		return
	}
	t.mu.Lock()
	if t.all || len(t.items)+len(items) > maxMissed {
		t.all, t.items = true, nil
	} else {
		t.items = append(t.items, items...)
	}
	t.mu.Unlock()
	t.poke()
}

// missedAll says that the index may lack anything.
func (t *trouble) missedAll() {
	t.mu.Lock()
	t.all, t.items = true, nil
	t.mu.Unlock()
	t.poke()
}

func (t *trouble) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run probes what is down, once a second, and catches up on what was missed, until ctx ends.
func (t *trouble) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		}
		for t.busy() && ctx.Err() == nil {
			t.probe(ctx)
			if !t.busy() {
				break
			}
			timer := time.NewTimer(probeEvery)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

func (t *trouble) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sqlDown.Load() || t.indexDown.Load() || t.all || len(t.items) > 0
}

func (t *trouble) probe(ctx context.Context) {
	if t.sqlDown.Load() {
		pctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		if err := t.e.o.Store.Ping(pctx); err == nil {
			t.sqlWorked()
		}
		cancel()
	}
	if t.indexDown.Load() {
		pctx, cancel := context.WithTimeout(ctx, indexTimeout)
		_, err := t.e.o.Schedule.Stats(pctx, 0)
		cancel()
		if err != nil && !errors.Is(err, schedule.ErrLost) {
			return
		}
		t.indexWorked()
	}
	t.catchUp(ctx)
}

// catchUp ensures what was missed, all of it or as far as the index lets us.
func (t *trouble) catchUp(ctx context.Context) {
	t.mu.Lock()
	items, all := t.items, t.all
	t.items, t.all = nil, false
	t.mu.Unlock()
	if all {
		n, err := t.e.ensureOpen(ctx)
		if err != nil {
			t.e.log.Warn("catching up with the index is put off", "error", err)
			t.missedAll()
			return
		}
		t.e.log.Info("caught up with the index", "open", n)
		return
	}
	for len(items) > 0 {
		chunk := items[:min(len(items), enqueueBatch)]
		if err := t.ensure(ctx, chunk); err != nil {
			// The rest would only wait for the same index, and SQL's probe with it.
			t.indexFailed("ensure", err)
			t.missed(items)
			return
		}
		t.e.hintDue(chunk)
		items = items[len(chunk):]
	}
}

// ensure adds what the index lacks, and moves forward what it holds for later than was wanted. Where that is out of date by
// now the stamp parks it again.
func (t *trouble) ensure(ctx context.Context, items []schedule.Item) error {
	ctx, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	positions, err := t.e.o.Schedule.Ensure(ctx, items)
	if err != nil {
		return err
	}
	var movements []schedule.Movement
	for i, p := range positions {
		if p.Place == schedule.Delayed && p.Due > items[i].Due {
			movements = append(movements, schedule.Movement{Ref: items[i].Ref(), Due: items[i].Due})
		}
	}
	if len(movements) == 0 {
		return nil
	}
	_, err = t.e.o.Schedule.Move(ctx, movements)
	return err
}
