package index

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// SQLTimeout bounds a stamp. A commit of results has no timeout: it is repeated until SQL takes it.
const SQLTimeout = 10 * time.Second

const (
	// probeEvery is how often a failed SQL is probed. An index is probed every indexProbeEvery, because due
	// callbacks wait for it alone.
	probeEvery, indexProbeEvery = time.Second, 250 * time.Millisecond
	// A failure so soon after the last recovery (sqlRelapseWithin, indexRelapseWithin) is a relapse: the
	// server is half down, as on a full disk, where a commit that needs no room works. It is probed only
	// after a wait. An index that loses every tenth reply is worth a probe each time, but one that fails at
	// once must not cause a busy loop.
	sqlRelapseWithin, sqlRelapseWait     = 10 * time.Second, 250 * time.Millisecond
	indexRelapseWithin, indexRelapseWait = 100 * time.Millisecond, 100 * time.Millisecond
	// partlyTimeout bounds calls to an index of which some shards answer. Those answer faster, and each call
	// would wait for the others.
	partlyTimeout = 500 * time.Millisecond
	// catchUpTime bounds one round of the catch-up, because the same goroutine probes SQL and the index.
	catchUpTime = 3 * time.Second
	// maxMissed is how many missed items are remembered. Beyond it, the catch-up walks all open rows instead.
	maxMissed = 100_000
)

// An Undoer ends claims that SQL may have written although the stamp failed.
type Undoer interface {
	// Pending returns whether there are such claims.
	Pending() bool
	// Undo ends them, and returns whether none is left.
	Undo(ctx context.Context) bool
}

// health keeps whether SQL and the index work, and what the index missed. While SQL fails, nothing is
// claimed. Missed items are ensured, and missed settlements and unlocks are repeated, as soon as the index
// answers. All of it is in memory: after a crash, the sweep finds the missing items, and leases and locks
// expire.
type health struct {
	ix *Index

	sqlDown atomic.Bool
	reach   *state[reach]

	mu sync.Mutex
	// sqlFailingSince is when SQL began to fail; a relapse does not change it.
	sqlFailingSince        time.Time
	sqlOutage, indexOutage outageTimer
	// Limiters of log lines: SQL fails, the index fails, the catch-up fails.
	sqlLog, indexLog, catchUpLog process.LogLimiter
	// Items that were accepted or settled while the index did not answer. needsWalk: there were too many to
	// remember, or the index may lack any item.
	missedItems []schedule.Item
	needsWalk   bool
	// walk is the rest of the open rows that the catch-up gives to the index; nil: no walk runs. Items that
	// are missed meanwhile may lie before it, so they are remembered as well.
	walk *openWalk
	// Settlements and unlocks of attempts that ended while the index did not answer. Until the index gets
	// them, the leases fill their lanes and the locks stay taken, at most until both expire.
	missedSettlements []schedule.Settlement
	missedUnlocks     []*schedule.Lease
	// undoer runs when a probe finds SQL working. After an outage it runs before claims go on.
	undoer Undoer
	wake   chan struct{}
	// failedNow holds a token when the index has just failed. It is then probed at once: most often only a
	// connection broke.
	failedNow chan struct{}
}

func newHealth(ix *Index) *health {
	return &health{
		ix:        ix,
		reach:     newState(answering, reachTransitions),
		wake:      make(chan struct{}, 1),
		failedNow: make(chan struct{}, 1),
	}
}

// Failing returns whether an operation of the index has failed, and no probe has succeeded since.
func (h *health) Failing() bool { return !h.reach.is(answering) }

// SQLFailed reports that an accept, a stamp or a commit of results failed because of SQL. Claims stop until a
// probe or a commit has succeeded.
func (h *health) SQLFailed(err error) {
	now := time.Now()
	h.mu.Lock()
	if h.sqlDown.CompareAndSwap(false, true) {
		relapse := h.sqlOutage.failed(now, sqlRelapseWithin, sqlRelapseWait)
		if !relapse || h.sqlFailingSince.IsZero() {
			h.sqlFailingSince = now
		}
	}
	h.mu.Unlock()
	h.logSQLFailure(err)
	h.ProbeSoon()
}

// logFailure logs a failure, at most once until it is over and at most once in 10 s. An index that answers
// every second call must not fill the log.
func (h *health) logFailure(limit *process.LogLimiter, text string, args ...any) {
	h.mu.Lock()
	due := limit.Due(time.Now())
	h.mu.Unlock()
	if due {
		h.ix.log.Error(text, args...)
	}
}

func (h *health) logSQLFailure(err error) {
	h.logFailure(&h.sqlLog, "SQL does not commit; nothing is sent until it does", "error", err)
}

func (h *health) logIndexFailure(op string, err error) {
	h.logFailure(&h.indexLog, "the index does not answer; callbacks are accepted but not sent until it does",
		"operation", op, "error", err)
}

// SQLCommitted is SQLWorked for a commit of results. If it ends a failure, the next failure sets
// sqlFailingSince again, even if that one is a relapse.
func (h *health) SQLCommitted() {
	if h.sqlDown.Load() {
		h.mu.Lock()
		h.sqlFailingSince = time.Time{}
		h.mu.Unlock()
		h.SQLWorked()
	}
}

// SQLWorked reports that a stamp, a commit or a probe succeeded, so that claims go on.
func (h *health) SQLWorked() {
	if !h.sqlDown.Load() {
		return // the usual case
	}
	h.mu.Lock()
	worked := h.sqlDown.CompareAndSwap(true, false)
	log := worked && h.sqlLog.Over()
	if worked {
		h.sqlOutage.recoveredAt = time.Now()
	}
	h.mu.Unlock()
	if log {
		h.ix.log.Info("SQL commits again; sending continues")
	}
	if worked {
		h.ix.hintAll()
	}
}

// retryIn returns how long SQL or the index must not be probed yet.
func (h *health) retryIn(o *outageTimer) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(0, time.Until(o.retryAt))
}

// CallTime returns the timeout of a call to the index now.
func (h *health) CallTime() time.Duration {
	if h.reach.is(partly) {
		return partlyTimeout
	}
	return Timeout
}

// SQLIsDown returns whether SQL could not commit, and no probe or commit has succeeded since.
func (h *health) SQLIsDown() bool { return h.sqlDown.Load() }

// SQLDownSince returns since when SQL fails; the present time if it works.
func (h *health) SQLDownSince() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.sqlDown.Load() {
		return time.Now()
	}
	return h.sqlFailingSince
}

// IndexDownSince returns since when the index fails; the present time if it works.
func (h *health) IndexDownSince() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reach.is(answering) {
		return time.Now()
	}
	return h.indexOutage.failingSince
}

// Failed reports that an operation of the index failed. A lost or closed index starts a check of its
// generation; another failure makes it silent until a probe succeeds.
func (h *health) Failed(op string, err error) {
	switch {
	case errors.Is(err, schedule.ErrLost), errors.Is(err, schedule.ErrRebuilding):
		h.ix.generation.checkSoon()
		return
	case errors.Is(err, context.Canceled):
		return
	}
	h.ix.metrics.indexErrors.WithLabelValues(op).Inc()
	if was, _ := h.reach.apply("failed"); was == answering {
		h.mu.Lock()
		relapse := h.indexOutage.failed(time.Now(), indexRelapseWithin, indexRelapseWait)
		h.mu.Unlock()
		if !relapse {
			process.Wake(h.failedNow)
		}
	}
	h.logIndexFailure(op, err)
	h.ProbeSoon()
}

// indexWorked reports that the index works. Only the probe calls it: one successful call does not show that
// all succeed. A full index, for example, settles but takes no new items.
func (h *health) indexWorked() {
	if was, _ := h.reach.apply("all"); was == answering {
		return
	}
	h.mu.Lock()
	log := h.indexLog.Over()
	h.indexOutage.recoveredAt = time.Now()
	h.mu.Unlock()
	if log {
		h.ix.log.Info("the index answers again")
	}
	h.ix.hintAll()
	h.ProbeSoon()
}

// Missed remembers items that the index should hold but may not have.
func (h *health) Missed(items []schedule.Item) {
	if len(items) == 0 {
		return
	}
	h.mu.Lock()
	if h.needsWalk || len(h.missedItems)+len(items) > maxMissed {
		h.needsWalk, h.missedItems = true, nil
	} else {
		h.missedItems = append(h.missedItems, items...)
	}
	h.mu.Unlock()
	h.ProbeSoon()
}

// addMissedSettlements remembers settlements that the index may not have. It drops those beyond maxMissed;
// their leases expire.
func (h *health) addMissedSettlements(settlements []schedule.Settlement) {
	h.mu.Lock()
	for _, s := range settlements[:min(len(settlements), maxMissed-len(h.missedSettlements))] {
		// A later result may reach the index before this settlement. Without Won it only ends the lease.
		s.Won = false
		h.missedSettlements = append(h.missedSettlements, s)
	}
	h.mu.Unlock()
	h.ProbeSoon()
}

// MissedUnlocks remembers leases whose locks may not have been released. It drops those beyond maxMissed;
// their locks expire.
func (h *health) MissedUnlocks(leases ...*schedule.Lease) {
	h.mu.Lock()
	h.missedUnlocks = append(h.missedUnlocks, leases[:min(len(leases), maxMissed-len(h.missedUnlocks))]...)
	h.mu.Unlock()
	h.ProbeSoon()
}

// requestWalk notes that the index may lack any item.
func (h *health) requestWalk() {
	h.mu.Lock()
	h.needsWalk, h.missedItems = true, nil
	h.mu.Unlock()
	h.ProbeSoon()
}

// ProbeSoon wakes run.
func (h *health) ProbeSoon() { process.Wake(h.wake) }

// run probes what fails, undoes uncertain stamps and gives the index what it missed, until ctx ends. It
// sleeps while all is well; a method that gives it work calls ProbeSoon, which wakes it.
func (h *health) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		}
		for h.hasWork() && ctx.Err() == nil {
			more := h.probe(ctx) // the index takes what it missed: go on without a wait
			if !more && h.hasWork() {
				h.awaitProbe(ctx)
			}
		}
	}
}

// awaitProbe waits until the next probe: the usual time, less if SQL or the index may be probed sooner, and
// not at all if the index has just failed.
func (h *health) awaitProbe(ctx context.Context) {
	wait := probeEvery
	if h.Failing() {
		wait = indexProbeEvery
	}
	for _, outage := range []*outageTimer{&h.sqlOutage, &h.indexOutage} {
		if soon := h.retryIn(outage); soon > 0 {
			wait = min(wait, soon)
		}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-h.failedNow:
	case <-timer.C:
	}
}

// hasWork returns whether something fails, is uncertain, or was missed.
func (h *health) hasWork() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sqlDown.Load() || h.Failing() || h.undoer.Pending() || h.hasMissed()
}

// hasMissed returns whether the index has missed something. The caller holds h.mu.
func (h *health) hasMissed() bool {
	missed := len(h.missedItems) + len(h.missedSettlements) + len(h.missedUnlocks)
	return h.needsWalk || h.walk != nil || missed > 0
}

// indexSilent returns whether no shard is known to answer. Then only the probe calls the index. If some
// shards answer, as when one master of a Cluster is down, all are called: due callbacks of the others must
// not wait.
func (h *health) indexSilent() bool { return h.reach.is(silent) }

// probe probes SQL and the index if they fail, and gives the index a part of what it missed. It returns
// whether the index took that and has missed more that can be given now. catchUpTime bounds the catch-up, so
// that the next probe is not late.
func (h *health) probe(ctx context.Context) (more bool) {
	h.probeSQL(ctx)
	if h.Failing() && !h.probeIndex(ctx) {
		return false
	}
	_, more = h.catchUp(ctx, time.Now().Add(catchUpTime))
	return more
}

// probeIndex probes an index that fails, and returns whether any part of it works. The index counts as
// working after it has taken a first chunk of what it missed; a full index answers but takes nothing. The
// rest follows during normal operation.
func (h *health) probeIndex(ctx context.Context) bool {
	if h.retryIn(&h.indexOutage) > 0 {
		return false
	}
	answered, lost, err := h.probeShards(ctx)
	if err != nil {
		h.logIndexFailure("stats", err)
		h.noteAnswers(answered)
		return answered > 0
	}
	// A lost shard answers. The generation check rebuilds it.
	if !lost {
		if took, _ := h.catchUp(ctx, time.Now()); !took {
			return false
		}
	}
	h.indexWorked()
	return true
}

// noteAnswers records how many shards answered a probe to which at least one did not.
func (h *health) noteAnswers(shards int) {
	if shards > 0 {
		h.reach.apply("some")
	} else {
		h.reach.apply("none")
	}
}

// probeShards calls every shard. It returns how many answered, whether any is lost, and an error of one that
// did not answer.
func (h *health) probeShards(ctx context.Context) (answered int, lost bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	errs := make([]error, h.ix.o.Schedule.Shards())
	var asking sync.WaitGroup
	for shard := range errs {
		asking.Go(func() { _, errs[shard] = h.ix.o.Schedule.Stats(ctx, shard) })
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

// probeSQL probes SQL if it fails, and undoes uncertain stamps before claims go on. While SQL works, it
// undoes stamps that failed for another reason, and those that were left when a commit ended the failure.
func (h *health) probeSQL(ctx context.Context) {
	if h.sqlDown.Load() {
		if h.retryIn(&h.sqlOutage) > 0 {
			return
		}
		pctx, cancel := context.WithTimeout(ctx, pingTimeout)
		err := h.ix.o.Store.Ping(pctx)
		cancel()
		if err != nil {
			h.logSQLFailure(err)
		} else if h.undoer.Undo(ctx) {
			h.SQLWorked()
		}
		return
	}
	h.undoer.Undo(ctx)
}
