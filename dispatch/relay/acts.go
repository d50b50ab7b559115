package relay

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

const (
	actRetry  = "retry"
	actDrop   = "drop"
	actReplay = "replay"

	actRunning = "running"
	actDone    = "done"
	actFailed  = "failed"

	// A slice of an act may fail actTries times in the source or actWaits times in the dispatcher, with the
	// pause actPause after each failure, before the act fails.
	actTries = 5
	actWaits = 120
	actPause = 5 * time.Second
	// actMargin is how long after the begin of an act rows still belong to it, because the clock of a
	// database may step back.
	actMargin = time.Minute
	// dropSlice is how many refused rows one statement deletes.
	dropSlice   = 1000
	defaultRate = 500
	// maxCount bounds the count of a dry run, which holds scans up.
	maxCount = 1_000_000
)

// acts have the newest act of the source. Renewals bring it and report its progress; the loop carries it out
// in slices between scans. After a crash the next holder begins it again: a row that was handed over is
// replayed, and one that was deleted is not there.
type acts struct {
	mu  sync.Mutex
	run *actRun
}

// An actRun is an act in this process. Only the loop uses it; it changes p with the lock.
type actRun struct {
	act client.RelayAct
	p   client.RelayActProgress
	// requested is when the act was requested, and begun when this process learned of it.
	requested, begun time.Time
	// after and kept are the last rows that were read.
	after source.Key
	kept  source.Kept
	// next is when the next slice is due. failures and waits count its failed tries in the source and in the
	// dispatcher, tries those in which only rows failed.
	next                   time.Time
	failures, waits, tries int
	// accepted and refused are the rows of this slice that an earlier try counted.
	accepted int
	refused  map[source.Key]bool
	// note is what to say about an act that is done.
	note string
}

// take takes the act of a reply, and drops one that the server ended. It reports whether there is a new one.
// A retry or drop goes on with the counts of another relay, without the refused rows, which it reads again.
// A replay begins again. now is the server's time.
func (a *acts) take(act *client.RelayAct, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if act == nil {
		a.run = nil
		return false
	}
	if a.run != nil && a.run.act.ID == act.ID {
		return false
	}
	run := &actRun{act: *act, begun: time.Now(), refused: make(map[source.Key]bool)}
	run.requested = run.begun.Add(-now.Sub(act.RequestedAt))
	if act.Action != actReplay {
		run.p = act.RelayActProgress
		run.p.Matched -= run.p.Refused
		run.p.Refused = 0
	}
	run.p.ActID, run.p.State, run.p.Error = act.ID, actRunning, ""
	a.run = run
	return true
}

// progress returns the progress to report; nil: there is no act.
func (a *acts) progress() *client.RelayActProgress {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.run == nil {
		return nil
	}
	p := a.run.p
	return &p
}

// open returns the act that is to be carried out; nil: none.
func (a *acts) open() *actRun {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.run == nil || a.run.p.State != actRunning {
		return nil
	}
	return a.run
}

// update changes the progress of an act.
func (a *acts) update(run *actRun, change func(p *client.RelayActProgress)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&run.p)
}

// act carries out a slice of an act, if it is due. Its error is that of a broken connection.
func (s *session) act(run *actRun) error {
	if time.Now().Before(run.next) {
		return nil
	}
	run.next = time.Now()
	var done bool
	var err error
	switch run.act.Action {
	case actRetry:
		done, err = s.retrySlice(run)
	case actDrop:
		done, err = s.dropSlice(run)
	case actReplay:
		done, err = s.replaySlice(run)
	default:
		err = fmt.Errorf("this relay does not know the action %q; update it", clip(run.act.Action, 64))
		run.failures = actTries
	}
	s.upkeep.changed = s.upkeep.changed || run.act.Action != actReplay
	_, bySink := err.(*sinkError)
	switch {
	case err == nil && !done:
		run.failures, run.waits, run.tries = 0, 0, 0
		run.accepted = 0
		clear(run.refused)
		s.acts.update(run, func(p *client.RelayActProgress) { p.Error = "" })
		return nil
	case err == nil:
		s.acts.update(run, func(p *client.RelayActProgress) { p.State, p.Error = actDone, run.note })
		s.log.Info("relay act done", "action", run.act.Action, "act", run.act.ID)
		return nil
	case bySink:
		s.failed(sideDispatcher, err)
		run.waits++
	default:
		s.failed(sideSource, err)
		run.failures++
	}
	s.acts.update(run, func(p *client.RelayActProgress) {
		p.Error = clip(err.Error(), maxErrorText)
		if run.failures >= actTries || run.waits >= actWaits {
			p.State = actFailed
		}
	})
	run.next = time.Now().Add(actPause)
	return broken(err)
}

// broken returns an error if it is that of a broken connection.
func broken(err error) error {
	if errors.Is(err, source.ErrBroken) {
		return err
	}
	return nil
}

// filter returns which refused rows the act is about.
func (run *actRun) filter() source.Filter {
	return source.Filter{ID: run.act.RowID, Code: run.act.Code}
}

// retrySlice hands refused rows over again, but none that was refused after the act began: so the act ends.
// What is refused again gets its new code and problem. With rows that stay, the slice is to be repeated.
func (s *session) retrySlice(run *actRun) (done bool, err error) {
	f := run.filter()
	f.Before = time.Since(run.begun) - actMargin
	rows, err := s.conn.ReadRefused(s.page, f, run.after, s.c.Batch)
	if err != nil || len(rows) == 0 {
		return err == nil, err
	}
	for i := range rows {
		rows[i].Age = 0 // a person wants it, however old it is
	}
	sub, failed := s.resubmit(run, rows)
	if len(sub.done) > 0 {
		if _, err := s.conn.RemoveRefused(s.page, sub.done); err != nil {
			return false, err
		}
		s.countReplayed(run, sub)
	}
	refused := append(sub.refused, sub.failing...)
	if len(refused) > 0 {
		if _, err := s.conn.UpdateRefused(s.page, refused); err != nil {
			return false, err
		}
		s.countRefused(run, refused)
	}
	if failed == nil {
		failed = left(sub.stayed)
	}
	if failed != nil {
		return false, failed
	}
	run.after = rows[len(rows)-1].Key
	return false, nil
}

// left returns the error of rows that the dispatcher does not take yet; nil: there are none.
func left(rows []source.Refusal) error {
	if len(rows) == 0 {
		return nil
	}
	return &sinkError{err: fmt.Errorf("%d rows cannot be submitted: %s", len(rows), rows[0].Problem)}
}

// dropSlice deletes refused rows, but none that was refused after a person asked for it.
func (s *session) dropSlice(run *actRun) (done bool, err error) {
	f := run.filter()
	f.Before = time.Since(run.requested)
	n, err := s.conn.DropRefused(s.page, f, dropSlice)
	if err != nil {
		return false, err
	}
	s.acts.update(run, func(p *client.RelayActProgress) {
		p.Matched += n
		p.Dropped += n
	})
	return n < dropSlice, nil
}

// replaySlice hands kept rows over again, or counts them, but not those that were kept after the act began.
func (s *session) replaySlice(run *actRun) (done bool, err error) {
	if s.c.Keep == 0 {
		run.failures = actTries
		return false, errors.New("this source does not keep the rows that it removes; set keep")
	}
	perSecond := run.act.Rate
	if perSecond <= 0 {
		perSecond = defaultRate
	}
	began := time.Now()
	if run.act.DryRun {
		n, err := s.conn.CountKept(s.page, run.act.Since, run.begun, maxCount+1)
		s.acts.update(run, func(p *client.RelayActProgress) { p.Matched = min(n, maxCount) })
		if n > maxCount {
			run.note = "there are more rows; the count ends here"
		}
		return err == nil, err
	}
	kept, err := s.conn.ReadKept(s.page, run.act.Since, run.begun, run.kept, min(s.c.Batch, perSecond))
	if err != nil || len(kept) == 0 {
		return err == nil, err
	}
	rows := make([]source.Row, len(kept))
	for i := range kept {
		rows[i] = kept[i].Row
	}
	sub, err := s.resubmit(run, rows)
	if err == nil {
		err = left(sub.stayed)
	}
	if err != nil {
		return false, err
	}
	if len(sub.failing) > 0 && run.tries < sub.repeats() {
		run.waits = 0
		run.tries++
		return false, left(sub.failing)
	}
	for _, f := range sub.failing {
		s.log.Warn("relay row cannot be replayed", "id", f.ID, "code", f.Code)
	}
	run.kept = kept[len(kept)-1].Kept()
	run.next = began.Add(time.Duration(len(kept)) * time.Second / time.Duration(perSecond))
	s.countReplayed(run, sub)
	s.countRefused(run, append(sub.refused, sub.failing...))
	return false, nil
}

// repeats returns how often a slice is repeated because of its failing rows, before they count as refused.
// If all rows fail, the cause is more likely the dispatcher.
func (a *answer) repeats() int {
	if len(a.done)+len(a.refused) > 0 {
		return actTries
	}
	return actWaits - 1
}

// resubmit hands rows of an act over and counts those that are accepted. If the slice is repeated, they are
// replayed.
func (s *session) resubmit(run *actRun, rows []source.Row) (*submission, error) {
	sub := &submission{sink: s.sink, source: s.c.Name, maxFailing: maxParked}
	err := sub.submit(s.page, rows)
	s.count(&sub.answer)
	run.accepted += sub.accepted
	s.acts.update(run, func(p *client.RelayActProgress) {
		p.Matched += sub.accepted
		p.Accepted += sub.accepted
	})
	return sub, err
}

// countReplayed counts the rows of a slice that no try of it got accepted. A row that an earlier try counted
// as refused is not.
func (s *session) countReplayed(run *actRun, sub *submission) {
	replayed, refused := max(len(sub.done)-run.accepted, 0), 0
	run.accepted = 0
	for _, key := range sub.done {
		if run.refused[key] {
			delete(run.refused, key)
			refused++
		}
	}
	s.acts.update(run, func(p *client.RelayActProgress) {
		p.Matched += replayed - refused
		p.Replayed += replayed
		p.Refused -= refused
	})
}

// countRefused counts refused rows of a slice, each once.
func (s *session) countRefused(run *actRun, rows []source.Refusal) {
	n := 0
	for i := range rows {
		if !run.refused[rows[i].Key] {
			run.refused[rows[i].Key] = true
			n++
		}
	}
	s.acts.update(run, func(p *client.RelayActProgress) {
		p.Matched += n
		p.Refused += n
	})
}
