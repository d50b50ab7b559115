package attempt

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// settleBatch and settleWait bound how long results gather before they are committed. Recording is not on
	// the way of an attempt, so waiting is nearly free and makes a commit ten times cheaper.
	settleBatch = 128
	settleWait  = 10 * time.Millisecond
	// maxCommit is how many are committed together when more have gathered while the last batch was
	// committed: so many as a group of the store has rows. With no more than settleBatch a busy store would
	// let results fall behind the stamps it is asked for meanwhile.
	maxCommit = 256
	// commitRetry is how long to wait before results that SQL did not take are committed again.
	commitRetry = 250 * time.Millisecond
)

// A settler commits results and then tells the index: in that order, always.
type settler struct {
	rn      *Runner
	results chan ended
	// stuck says that results wait for a commit that failed. What is sent meanwhile could not be recorded
	// either, and would be sent again when its claim runs out.
	stuck atomic.Bool
	// gaveUp says that results were gaveUp up at the end of a drain: those that are left are not waited for any
	// more.
	gaveUp bool
}

func newSettler(rn *Runner) *settler {
	return &settler{rn: rn, results: make(chan ended, rn.slots.maxCallbacks())}
}

// settleQueue is how many batches may wait for the index. What is more while it is down is committedBatch when it catches
// up: commits must not wait for it, or claims run out.
const settleQueue = 128

// add passes a result on. There is room for as many as the slots let be claimed, so it hardly ever waits.
func (s *settler) add(r ended) { s.results <- r }

// run settles until ctx ends and nothing is left. While one batch is committedBatch to the index, the next one gathers.
func (s *settler) run(ctx context.Context) {
	type committedBatch struct {
		settlements []schedule.Settlement
		batch       []ended
	}
	rn := s.rn
	toIndex := make(chan committedBatch, settleQueue)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for t := range toIndex {
			rn.limits.addSuccessors(t.settlements)
			applied := rn.index.Settle(ctx, t.settlements)
			rn.putBackAsync(ctx, rn.limits.resultsKnown(t.batch))
			if dueSoon(t.settlements, rn.clock.Now()) {
				rn.index.HintOnlyShard()
			}
			part.Failpoint("after_settle")
			rn.index.BringForward(ctx, collectNext(t.batch))
			s.unlockAfterRebuild(ctx, t.batch, applied)
		}
	}()
	for {
		batch := s.gather(ctx)
		if len(batch) == 0 {
			break
		}
		part.Failpoint("before_result_commit")
		settlements := s.commit(ctx, batch)
		part.Failpoint("after_result_commit")
		for i := range batch {
			if batch[i].committed != nil {
				close(batch[i].committed)
			}
		}
		for _, r := range rn.slots.committed(len(batch)) {
			rn.start(*rn.sending.Load(), r)
		}
		if len(settlements) == 0 {
			rn.putBackAsync(ctx, rn.limits.resultsKnown(batch))
			continue
		}
		t := (committedBatch{settlements, batch})
		if len(toIndex) < settleQueue || !s.rn.index.Failing() {
			toIndex <- t // which waits, if at all, for an index that answers
		} else {
			rn.limits.addSuccessors(settlements)
			rn.index.Unheard(settlements)
			rn.putBackAsync(ctx, rn.limits.resultsKnown(batch))
			s.unlockAfterRebuild(ctx, batch, false)
		}
	}
	close(toIndex)
	<-done
}

// nextInOrder are those whose turn it is in strict order after the results of a batch.
func collectNext(batch []ended) (next []store.OpenRow) {
	for i := range batch {
		if batch[i].nextInOrder != nil {
			next = append(next, *batch[i].nextInOrder)
		}
	}
	return next
}

// dueSoon says whether some of the settled are due now, or so soon that who sleeps may oversleep.
func dueSoon(settlements []schedule.Settlement, now int64) bool {
	return slices.ContainsFunc(settlements, func(s schedule.Settlement) bool {
		return (s.Outcome == schedule.Reschedule || s.Outcome == schedule.Divert) &&
			s.Due <= now+urgentWithin.Milliseconds()
	})
}

// unlockAfterRebuild releases locks once more that a rebuild may have taken again: it found the claims of attempts
// that had ended, and whose results were not committed yet. Otherwise they would be held until those claims
// run out.
func (s *settler) unlockAfterRebuild(ctx context.Context, batch []ended, applied bool) {
	now := s.rn.generation.Load()
	var again []*schedule.Lease
	for i := range batch {
		switch l := batch[i].lease; {
		case l.Lock == "":
		case !applied: // The index may be another one by now.
			s.rn.index.Locked(l)
		case batch[i].generation != now:
			again = append(again, l)
		}
	}
	s.rn.index.Unlock(ctx, again...)
}

// gather returns the next batch: as soon as settleBatch results have gathered, or an urgent one, or
// settleWait after its first. Empty: ctx has ended and nothing is left.
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

// commit writes a batch, however long SQL is away, and returns what the index is to be committedBatch.
func (s *settler) commit(ctx context.Context, batch []ended) []schedule.Settlement {
	settlements := make([]schedule.Settlement, 0, len(batch))
	left := make([]*ended, len(batch)) // those that SQL has not answered yet
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
			if s.stuck.Load() {
				s.rn.putBackAsync(ctx, s.rn.limits.resetPlaces()) // before anything is claimed
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

// record goes through what SQL said of a batch. It returns the settlements with those of this batch, and what
// is left because SQL went away after a part of the group, with the error of that.
func (s *settler) record(
	settlements []schedule.Settlement, batch []*ended, committed []store.Committed,
) ([]schedule.Settlement, []*ended, error) {
	var left []*ended
	var away error
	for i := range batch {
		b, c := batch[i], &committed[i]
		switch {
		case errors.Is(c.Err, store.ErrUnavailable):
			left, away = append(left, b), c.Err
		case c.Err != nil:
			// This row alone cannot be recorded. Its claim runs out, and the count of claims without a result
			// grows: at the latest that ends it, with a result that has no attempt to record.
			s.rn.log.Error("a result cannot be recorded", "callback_id", store.CallbackPrefix+b.result.ID,
				"error", c.Err)
		default:
			s.rn.metrics.ended(b, c)
			b.nextInOrder = c.Next
			// Otherwise another claim has the row by now. Our lease, if there still is one, runs out; its
			// stamp then decides.
			if c.Won {
				settlements = append(settlements, settlement(b, c))
			} else if c.State.Terminal() {
				// It was ended from outside while it was attempted: its lease must not keep a place in its
				// lane until it runs out.
				settlements = append(settlements, settlement(b, c))
			}
		}
	}
	return settlements, left, away
}

// keepCommitting says, while draining without SQL, whether to go on trying. Results that cannot be committed
// are lost with the process: their claims run out, and they are attempted again, as after any crash.
func (rn *Runner) keepCommitting(err error, results int) bool {
	if time.Since(rn.index.SQLDownSince()) < rn.o.DrainTimeout {
		return true
	}
	rn.log.Error("results could not be committed before the end; their callbacks will be attempted again",
		"error", err, "results", results)
	return false
}

// settlement is what the index is committedBatch of a committed result.
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
