package attempt

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// Results are committed when settleBatch of them have gathered, or settleWait after the first. No attempt
	// waits for its commit, so the wait costs almost nothing, and it makes a commit ten times cheaper.
	settleBatch = 128
	settleWait  = 10 * time.Millisecond
	// maxCommit is the most results of one commit, if more than settleBatch have gathered while the last
	// commit ran. It equals the store's group size. A smaller commit would let stamps overtake results under
	// load.
	maxCommit = 256
	// commitRetry is the wait before results that SQL did not take are committed again.
	commitRetry = 250 * time.Millisecond
	// settleQueue is how many committed batches may wait for the index. While the index is down, further
	// batches do not wait: the index gets them when it catches up. A commit must not wait for the index, or
	// claims expire.
	settleQueue = 128
)

// A settler commits results in SQL, and then settles their leases in the index, always in that order. A crash
// in between leaves leases that expire. The stamp of the next claim then decides by the row, which has the
// result.
type settler struct {
	rn      *Runner
	results chan ended
	// stuck: results wait for a commit that failed. The process then claims nothing: it could not record the
	// results of further attempts, and they would be sent again when their claims expire.
	stuck atomic.Bool
	// gaveUp: results were given up at the end of a drain, and no further commit is retried.
	gaveUp bool
}

func newSettler(rn *Runner) *settler {
	return &settler{rn: rn, results: make(chan ended, rn.slots.maxCallbacks())}
}

// add passes a result on. The channel has room for all callbacks that the slots allow, so add hardly ever
// waits.
func (s *settler) add(r ended) {
	r.carryDiverts()
	s.results <- r
}

// carryDiverts gives the diverts since the last attempt to this attempt, or back to the row.
func (e *ended) carryDiverts() {
	r, since := &e.result, e.result.Stamped.DivertsSince()
	if r.Attempt != nil {
		r.Attempt.Diverts, r.Attempt.DivertReason = since.Times, since.Reason
		return
	}
	r.DivertsSince, r.DivertReason = since.Times+r.Diverts, since.Reason
	if r.Diverts > 0 {
		r.DivertReason = cmp.Or(e.putBack, string(e.class))
	}
}

// A committedBatch is a batch whose results are in SQL, and the settlements that the index gets for it.
type committedBatch struct {
	settlements []schedule.Settlement
	batch       []ended
}

// run commits and settles until ctx ends and no result is left. The index settles one batch while the next
// one gathers.
func (s *settler) run(ctx context.Context) {
	toIndex := make(chan committedBatch, settleQueue)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c := range toIndex {
			s.settle(ctx, c)
		}
	}()
	for {
		batch := s.gather(ctx)
		if len(batch) == 0 {
			break
		}
		process.Failpoint("before_result_commit")
		settlements := s.commit(ctx, batch)
		process.Failpoint("after_result_commit")
		s.release(batch)
		switch {
		case len(settlements) == 0:
			s.rn.putBackAsync(ctx, s.rn.limits.resultsKnown(batch))
			endSpans(batch)
		case len(toIndex) < settleQueue || !s.rn.index.Failing():
			toIndex <- committedBatch{settlements, batch} // if it waits, it waits for an index that answers
		default:
			s.settleLater(ctx, committedBatch{settlements, batch})
		}
	}
	close(toIndex)
	<-done
}

// release ends the waits for a batch that was committed or given up: of goroutines that wait for one result,
// and of callbacks that wait for a slot because too many results were not committed.
func (s *settler) release(batch []ended) {
	for i := range batch {
		if batch[i].committed != nil {
			close(batch[i].committed)
		}
	}
	for _, r := range s.rn.slots.committed(len(batch)) {
		s.rn.start(*s.rn.sending.Load(), r)
	}
}

// settle settles the leases of a committed batch in the index.
func (s *settler) settle(ctx context.Context, c committedBatch) {
	rn := s.rn
	rn.limits.addSuccessors(c.settlements)
	applied := rn.index.Settle(ctx, c.settlements)
	rn.putBackAsync(ctx, rn.limits.resultsKnown(c.batch))
	if dueSoon(c.settlements, rn.clock.Now()) {
		rn.index.HintOnlyShard()
	}
	process.Failpoint("after_settle")
	endSpans(c.batch)
	rn.index.BringForward(ctx, collectNext(c.batch))
	s.unlockAfterRebuild(ctx, c.batch, applied)
}

// endSpans ends the attempts of a batch in their traces.
func endSpans(batch []ended) {
	for i := range batch {
		batch[i].span.EndSettle()
	}
}

// settleLater leaves the settlements of a batch to the catch-up of an index that does not answer.
func (s *settler) settleLater(ctx context.Context, c committedBatch) {
	s.rn.limits.addSuccessors(c.settlements)
	s.rn.index.MissedSettlements(c.settlements)
	s.rn.putBackAsync(ctx, s.rn.limits.resultsKnown(c.batch))
	endSpans(c.batch)
	s.unlockAfterRebuild(ctx, c.batch, false)
}

// collectNext returns the callbacks whose turn it is in strict order after the results of a batch.
func collectNext(batch []ended) (next []store.OpenRow) {
	for i := range batch {
		if batch[i].nextInOrder != nil {
			next = append(next, *batch[i].nextInOrder)
		}
	}
	return next
}

// dueSoon returns whether a settled callback is due so soon that a sleeping claimer could miss the time.
func dueSoon(settlements []schedule.Settlement, now int64) bool {
	return slices.ContainsFunc(settlements, func(s schedule.Settlement) bool {
		return (s.Outcome == schedule.Reschedule || s.Outcome == schedule.Divert) &&
			s.Due <= now+urgentWithin.Milliseconds()
	})
}

// unlockAfterRebuild releases again the locks of a batch that a rebuild may have taken for it. Such a rebuild
// ran after the locks were released and before the results were committed, so it found the claims in SQL and
// adopted them with their locks. Without this, the locks would be held until the claims expire.
func (s *settler) unlockAfterRebuild(ctx context.Context, batch []ended, applied bool) {
	now := s.rn.generation.Load()
	var again []*schedule.Lease
	for i := range batch {
		switch l := batch[i].lease; {
		case l.Lock == "":
		case !applied:
			s.rn.index.MissedUnlocks(l) // the index did not answer, and may be rebuilt before it does
		case batch[i].generation != now:
			again = append(again, l)
		}
	}
	s.rn.index.Unlock(ctx, again...)
}

// gather returns the next batch: as soon as settleBatch results or an urgent one have gathered, or settleWait
// after the first. An empty batch means that ctx has ended and no result is left.
func (s *settler) gather(ctx context.Context) []ended {
	var batch []ended
	var timeout <-chan time.Time
	for {
		for more := true; more && len(batch) < maxCommit; {
			select {
			case r := <-s.results:
				batch = append(batch, r)
			default:
				more = false
			}
		}
		if len(batch) > 0 {
			if s.full(batch) {
				return batch
			}
			if timeout == nil {
				timer := time.NewTimer(settleWait)
				defer timer.Stop()
				timeout = timer.C
			}
		}
		select {
		case r := <-s.results:
			batch = append(batch, r)
		case <-timeout:
			return batch
		case <-ctx.Done():
			if len(s.results) == 0 {
				return batch
			}
		}
	}
}

// full returns whether a batch is committed without waiting for more results.
func (s *settler) full(batch []ended) bool {
	if len(batch) >= settleBatch {
		return true
	}
	for i := range batch {
		if batch[i].urgent {
			return true
		}
	}
	return false
}

// commit writes a batch, and tries again for as long as SQL is down. It returns the settlements for the
// index. It gives up results only in a drain (ctx has ended) when SQL was down for DrainTimeout.
func (s *settler) commit(ctx context.Context, batch []ended) []schedule.Settlement {
	settlements := make([]schedule.Settlement, 0, len(batch))
	left := make([]*ended, len(batch)) // those without a reply of SQL
	for i := range batch {
		left[i] = &batch[i]
	}
	for {
		results := make([]store.Result, len(left))
		for i := range left {
			results[i] = left[i].result
		}
		committed, err := s.rn.o.Store.Commit(context.WithoutCancel(ctx), results, s.rn.clock.Now())
		if err == nil {
			s.rn.observer.Settled(results, committed, s.rn.clock.Now())
			settlements, left, err = s.record(settlements, left, committed)
		}
		if err == nil {
			s.rn.index.SQLCommitted()
			// Results that gathered meanwhile come before the next claim: their own claims may have expired.
			if s.stuck.Load() && len(s.results) == 0 {
				s.rn.putBackAsync(ctx, s.rn.limits.resetPlaces()) // before the next claim
				s.stuck.Store(false)
				s.rn.wakeAll()
			}
			return settlements
		}
		s.stuck.Store(true)
		s.rn.index.SQLFailed(err)
		if errors.Is(ctx.Err(), context.Canceled) && (s.gaveUp || !s.rn.keepCommitting(err, len(left))) {
			s.gaveUp = true
			return settlements
		}
		time.Sleep(commitRetry)
	}
}

// record evaluates the replies of SQL to a batch. It returns the settlements with those of this batch added.
// left are the results that SQL did not take because it went down in the middle of the group; the error is
// then SQL's.
func (s *settler) record(
	settlements []schedule.Settlement, batch []*ended, committed []store.Committed,
) ([]schedule.Settlement, []*ended, error) {
	var left []*ended
	var down error
	for i := range batch {
		b, c := batch[i], &committed[i]
		switch {
		case errors.Is(c.Err, store.ErrUnavailable):
			left, down = append(left, b), c.Err
		case c.Err != nil:
			// Only this row cannot be recorded, for good. Its claim expires, and its claims without a result
			// grow. At the latest that ends it, with a result that has no attempt to record.
			b.span.Logger(s.rn.log).Error("result cannot be recorded",
				"callback_id", store.CallbackPrefix+b.result.ID, "error", c.Err)
			b.span.Uncommitted()
		default:
			b.span.Committed(c)
			s.rn.metrics.ended(b, c)
			b.nextInOrder = c.Next
			// A result that lost the fence is not settled: another claim has the row. This lease, if it still
			// exists, expires, and the stamp of the next claim decides.
			if c.Won {
				settlements = append(settlements, settlement(b, c))
			} else if c.State.Terminal() {
				// It was canceled or ended by other means during the attempt. Its lease is settled, or it
				// would keep a place in its lane until it expires.
				settlements = append(settlements, settlement(b, c))
			}
		}
	}
	return settlements, left, down
}

// keepCommitting returns whether a drain goes on trying while SQL is down. Results that are given up are lost
// with the process: their claims expire and their callbacks are attempted again, as after a crash.
func (rn *Runner) keepCommitting(err error, results int) bool {
	if time.Since(rn.index.SQLDownSince()) < rn.o.DrainTimeout {
		return true
	}
	rn.log.Error("results dropped at shutdown because SQL is down; their callbacks will be attempted again",
		"error", err, "results", results)
	return false
}

// settlement returns the settlement of a committed result.
func settlement(b *ended, c *store.Committed) schedule.Settlement {
	s := schedule.Settlement{
		Item:      b.lease.Item,
		Token:     b.lease.Token,
		Signal:    b.signal,
		Won:       c.Won,
		HoldUntil: b.hold,
	}
	switch c.State {
	case store.Scheduled:
		s.Outcome, s.Due = schedule.Reschedule, c.DueAt
		s.Retry = s.Retry || b.result.Charge
		s.Forced = s.Forced && b.result.Attempt == nil
	case store.Dead:
		s.Outcome = schedule.Bury
	default:
		s.Outcome = schedule.Ack
	}
	return s
}
