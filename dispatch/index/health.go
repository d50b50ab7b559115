package index

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// SQLFailingSince returns when SQL began to refuse commits: those of claims and results, or the probe of a
// process that makes none. Zero: it commits.
func (ix *Index) SQLFailingSince(ctx context.Context) time.Time {
	var since time.Time
	if ix.health.SQLIsDown() {
		since = ix.health.SQLDownSince()
	}
	if err := ix.PingSQL(ctx); err != nil {
		if failing := ix.probe.failingSince(); since.IsZero() || failing.Before(since) {
			since = failing
		}
	}
	return since
}

func (h *sqlProbe) failingSince() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failing.IsZero() {
		return time.Now()
	}
	return h.failing
}

// healthAge is how long an answer about SQL's health is good for: probes must not be a load of their own.
const healthAge = time.Second

type sqlProbe struct {
	mu  sync.Mutex
	at  time.Time
	err error
	// failing is since when err is what is said.
	failing time.Time
}

func (ix *Index) PingSQL(ctx context.Context) error {
	ix.probe.mu.Lock()
	defer ix.probe.mu.Unlock()
	if !ix.probe.at.IsZero() && time.Since(ix.probe.at) < healthAge {
		return ix.probe.err
	}
	// The answer is everybody's for a while: a prober that hangs up must not make it "no".
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	ix.probe.err = ix.o.Store.Ping(ctx)
	ix.probe.at = time.Now()
	if ix.probe.err == nil {
		ix.probe.failing = time.Time{}
	} else if ix.probe.failing.IsZero() {
		ix.probe.failing = ix.probe.at
	}
	return ix.probe.err
}

// SQLTimeout bounds a stamp. A commit of results is never given up: it is repeated until SQL takes it.
const SQLTimeout = 10 * time.Second

const (
	// probeEvery is how often a store that failed is asked whether it works again, indexProbeEvery an index:
	// what is due waits for it alone.
	probeEvery, indexProbeEvery = time.Second, 250 * time.Millisecond
	// What fails so soon after it worked again is half down: on a full disk, what needs no room works. It is
	// asked no sooner than some time later then. An index may lose every tenth reply and be worth asking each
	// time; what fails at once must not spin.
	sqlRelapseWithin, sqlRelapseWait     = 10 * time.Second, 250 * time.Millisecond
	indexRelapseWithin, indexRelapseWait = 100 * time.Millisecond, 100 * time.Millisecond
	// partlyTimeout bounds calls to an index of which some shards answer: those that do need no more, and
	// nothing may wait for the others call after call.
	partlyTimeout = 500 * time.Millisecond
	// catchUpTime bounds one round of catching up, for what fails is probed in turn with it.
	catchUpTime = 3 * time.Second
	// maxMissed is how many items that the index did not hear of are remembered by themselves; beyond it
	// every open row is walked instead.
	maxMissed = 100_000
)

// An Undoer has claims to end that SQL may have written although it answered with an error.
type Undoer interface {
	Pending() bool
	// Undo ends them, and says whether none is left.
	Undo(ctx context.Context) bool
}

// health knows what does not work at the moment: SQL, the index. While SQL fails, nothing is claimed; what
// the index did not hear of is ensured as soon as it answers again.
type health struct {
	e *Index

	sqlDown atomic.Bool
	reach   *state[reach]

	mu sync.Mutex
	// sqlSince is when SQL began to fail, relapses apart.
	sqlSince   time.Time
	sql, index patience
	// What the log knows of: SQL, the index, that catching up is put off.
	sqlSaid, indexSaid, catchUpSaid part.Limiter
	// Items were accepted or settled while the index did not answer; all says that there were too many to
	// remember.
	items []schedule.Item
	all   bool
	// walk is the part of the open rows that a catch-up of all has yet to give to the index; nil: none runs.
	// What is missed meanwhile may lie before it, so it is remembered as always.
	walk *openWalk
	// Settlements and locks are of attempts that ended while the index did not answer: as long as it is not
	// told, their leases fill their lanes and their locks are held, until both run out.
	settlements []schedule.Settlement
	locks       []*schedule.Lease
	// beforeClaims is what has to be done when SQL works again, before anything is claimed.
	beforeClaims Undoer
	wake         chan struct{}
	// fell carries a word when the index has just failed: it is asked at once, for most often a connection
	// broke, and it is well.
	fell chan struct{}
}

func newHealth(e *Index) *health {
	return &health{e: e, reach: newState(answering, reachChanges), wake: make(chan struct{}, 1),
		fell: make(chan struct{}, 1)}
}

// Failing says that an operation of the index has failed, and no probe has succeeded since.
func (t *health) Failing() bool { return !t.reach.is(answering) }

// SQLFailed notes that SQL could not commit. Claims stop until a probe or a commit has succeeded.
func (t *health) SQLFailed(err error) {
	now := time.Now()
	t.mu.Lock()
	if t.sqlDown.CompareAndSwap(false, true) &&
		(!t.sql.failed(now, sqlRelapseWithin, sqlRelapseWait) || t.sqlSince.IsZero()) {
		t.sqlSince = now
	}
	t.mu.Unlock()
	t.complainSQL(err)
	t.Poke()
}

// complain logs once that something fails: as soon as it does, but at most every complainEvery. An index that
// answers every second call, or is full, must not fill the log.
func (t *health) complain(said *part.Limiter, text string, args ...any) {
	t.mu.Lock()
	due := said.Due(time.Now())
	t.mu.Unlock()
	if due {
		t.e.log.Error(text, args...)
	}
}

func (t *health) complainSQL(err error) {
	t.complain(&t.sqlSaid, "SQL does not commit; claiming stops until it does", "error", err)
}

func (t *health) complainIndex(op string, err error) {
	t.complain(&t.indexSaid, "the index does not answer; accepting goes on, sending waits for it",
		"operation", op, "error", err)
}

// SQLCommitted is sqlWorked for results: what comes after it is no relapse of what was before.
func (t *health) SQLCommitted() {
	if t.sqlDown.Load() {
		t.mu.Lock()
		t.sqlSince = time.Time{}
		t.mu.Unlock()
		t.SQLWorked()
	}
}

func (t *health) SQLWorked() {
	if !t.sqlDown.Load() {
		return // as nearly always
	}
	t.mu.Lock()
	worked := t.sqlDown.CompareAndSwap(true, false)
	tell := worked && t.sqlSaid.Over()
	if worked {
		t.sql.back = time.Now()
	}
	t.mu.Unlock()
	if tell {
		t.e.log.Info("SQL commits again; claiming goes on")
	}
	if worked {
		t.e.hintAll()
	}
}

// until is how long SQL, or the index, is not to be asked yet.
func (t *health) until(p *patience) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, time.Until(p.askAt))
}

// CallTime is how long a call to the index may take now.
func (t *health) CallTime() time.Duration {
	if t.reach.is(partly) {
		return partlyTimeout
	}
	return Timeout
}

func (t *health) SQLIsDown() bool { return t.sqlDown.Load() }

// SQLDownSince returns when SQL began to fail; the present time if it does not fail.
func (t *health) SQLDownSince() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sqlDown.Load() {
		return time.Now()
	}
	return t.sqlSince
}

// IndexDownSince returns when the index began to fail; the present time if it does not fail.
func (t *health) IndexDownSince() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reach.is(answering) {
		return time.Now()
	}
	return t.index.since
}

// Failed notes that an operation of the index failed.
func (t *health) Failed(op string, err error) {
	switch {
	case errors.Is(err, schedule.ErrLost), errors.Is(err, schedule.ErrRebuilding):
		t.e.generation.look()
		return
	case errors.Is(err, context.Canceled):
		return
	}
	t.e.metrics.indexErrors.WithLabelValues(op).Inc()
	if was, _ := t.reach.happens("failed"); was == answering {
		t.mu.Lock()
		relapse := t.index.failed(time.Now(), indexRelapseWithin, indexRelapseWait)
		t.mu.Unlock()
		if !relapse {
			part.Wake(t.fell)
		}
	}
	t.complainIndex(op, err)
	t.Poke()
}

// indexWorked is for the probe alone: that one call succeeded does not say that all do. A full index settles,
// and takes nothing in.
func (t *health) indexWorked() {
	if was, _ := t.reach.happens("all"); was == answering {
		return
	}
	t.mu.Lock()
	tell := t.indexSaid.Over()
	t.index.back = time.Now()
	t.mu.Unlock()
	if tell {
		t.e.log.Info("the index answers again")
	}
	t.e.hintAll()
	t.Poke()
}

// Missed remembers items that the index should hold but may not have heard of.
func (t *health) Missed(items []schedule.Item) {
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
	t.Poke()
}

// unsettled remembers settlements that the index may not have heard of. The leases of what is too much run
// out.
func (t *health) unsettled(settlements []schedule.Settlement) {
	t.mu.Lock()
	for _, s := range settlements[:min(len(settlements), maxMissed-len(t.settlements))] {
		// A later result may reach the index before this one, so this one ends a lease and
		// changes nothing else.
		s.Won = false
		t.settlements = append(t.settlements, s)
	}
	t.mu.Unlock()
	t.Poke()
}

// Locked remembers leases whose locks may not have been released. What is too much runs out.
func (t *health) Locked(leases ...*schedule.Lease) {
	t.mu.Lock()
	t.locks = append(t.locks, leases[:min(len(leases), maxMissed-len(t.locks))]...)
	t.mu.Unlock()
	t.Poke()
}

// missedAll says that the index may lack anything.
func (t *health) missedAll() {
	t.mu.Lock()
	t.all, t.items = true, nil
	t.mu.Unlock()
	t.Poke()
}

func (t *health) Poke() {
	part.Wake(t.wake)
}

// run probes what is down, once a second, and catches up on what was missed, until ctx ends.
func (t *health) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		}
		for t.busy() && ctx.Err() == nil {
			if t.probe(ctx) {
				continue // the index takes in what it missed, and there is more of it
			}
			if !t.busy() {
				break
			}
			wait := probeEvery
			if t.Failing() {
				wait = indexProbeEvery
			}
			for _, p := range []*patience{&t.sql, &t.index} {
				if soon := t.until(p); soon > 0 {
					wait = min(wait, soon)
				}
			}
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
			case <-t.fell:
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

func (t *health) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sqlDown.Load() || t.Failing() || t.beforeClaims.Pending() || t.behind()
}

// behind says, under the lock, whether the index has something to catch up on.
func (t *health) behind() bool {
	return t.all || t.walk != nil || len(t.items)+len(t.settlements)+len(t.locks) > 0
}

// indexSilent says that only the probe asks the index: as far as is known, none of its shards answers. Where
// some do, as when one master of a Cluster is away, all are asked: what is due elsewhere must not wait for
// it.
func (t *health) indexSilent() bool { return t.reach.is(silent) }

// probe asks what is down whether it works again, and gives the index a part of what it missed. It says
// whether the index took that, and has more to take.
func (t *health) probe(ctx context.Context) (more bool) {
	t.probeSQL(ctx)
	if t.Failing() && !t.probeIndex(ctx) {
		return false
	}
	_, more = t.catchUp(ctx, time.Now().Add(catchUpTime))
	return more
}

// probeIndex asks an index that is down whether it works again, and says whether any part of it does. It
// works as soon as it has taken in a little of what it missed; the rest follows beside the traffic. A full
// index answers, and takes nothing in.
func (t *health) probeIndex(ctx context.Context) bool {
	if t.until(&t.index) > 0 {
		return false
	}
	answered, lost, err := t.askShards(ctx)
	if err != nil {
		t.complainIndex("stats", err)
		t.answered(answered)
		return answered > 0
	}
	// What is lost answers; the keeper fills it.
	if !lost {
		if took, _ := t.catchUp(ctx, time.Now()); !took {
			return false
		}
	}
	t.indexWorked()
	return true
}

// answered notes how many shards answered a probe, of which at least one did not.
func (t *health) answered(shards int) {
	if shards > 0 {
		t.reach.happens("some")
	} else {
		t.reach.happens("none")
	}
}

// askShards asks every shard, and says how many answered, whether any is lost, and what one of the others
// said.
func (t *health) askShards(ctx context.Context) (answered int, lost bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	errs := make([]error, t.e.o.Schedule.Shards())
	var asking sync.WaitGroup
	for shard := range errs {
		asking.Go(func() { _, errs[shard] = t.e.o.Schedule.Stats(ctx, shard) })
	}
	asking.Wait()
	for _, e := range errs {
		if errors.Is(e, schedule.ErrLost) {
			e, lost = nil, true
		}
		if e == nil {
			answered++
		} else {
			err = e
		}
	}
	return answered, lost, err
}

// probeSQL asks a store that failed whether it works again, and clears doubts before anybody claims anew.
func (t *health) probeSQL(ctx context.Context) {
	if t.sqlDown.Load() {
		if t.until(&t.sql) > 0 {
			return
		}
		pctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := t.e.o.Store.Ping(pctx)
		cancel()
		if err != nil {
			t.complainSQL(err)
		} else if t.beforeClaims.Undo(ctx) {
			t.SQLWorked()
		}
		return
	}
	t.beforeClaims.Undo(ctx)
}
