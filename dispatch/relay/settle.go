package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

const (
	// A change of several rows is tried changeTries times as a whole. Then each row is changed alone, until
	// maxChangeFailures rows failed: a locked row takes a timeout each time.
	changeTries       = 2
	changeWait        = 100 * time.Millisecond
	maxChangeFailures = 10
)

// handOver hands a page over, removes what was accepted and moves aside what was refused. A *sinkError is the
// dispatcher's; every other error is the source's.
func (sc *scan) handOver(page []source.Row) error {
	rows := make([]source.Row, 0, len(page))
	now := time.Now()
	for i := range page {
		if !sc.parked.has(page[i].Key, now) {
			rows = append(rows, page[i])
		}
	}
	sub := submission{sink: sc.sink, source: sc.c.Name, maxFailing: maxParked - sc.parked.count(now)}
	failed := sub.submit(sc.page, rows)
	sc.count(&sub.answer)
	sc.keepBack(rows, &sub.answer)
	if err := sc.remove(rows, sub.done); err != nil {
		return err
	}
	sc.refuse(rows, sub.refused)
	switch {
	case failed != nil:
		return failed
	case sc.parked.count(now) >= maxParked || sc.stayed >= maxStayed && len(sub.done) == 0:
		return &sinkError{err: fmt.Errorf("%d rows cannot be submitted: %s", maxStayed, sc.problem)}
	}
	return nil
}

// count counts the rows that the dispatcher has.
func (r *reader) count(a *answer) {
	r.metrics.rows.WithLabelValues(r.c.Label(), resultAccepted).Add(float64(a.accepted))
	r.metrics.rows.WithLabelValues(r.c.Label(), resultReplayed).Add(float64(a.replayed))
	r.state.handedOver(len(a.done))
}

// keepBack notes the rows that stay in the table.
func (sc *scan) keepBack(rows []source.Row, a *answer) {
	if len(a.stayed)+len(a.failing) == 0 {
		return
	}
	byKey := index(rows)
	for _, s := range a.stayed {
		sc.stay(byKey[s.Key], s.Problem)
	}
	for _, f := range a.failing {
		sc.park(byKey[f.Key], f.Problem)
	}
}

func index(rows []source.Row) map[source.Key]*source.Row {
	byKey := make(map[source.Key]*source.Row, len(rows))
	for i := range rows {
		byKey[rows[i].Key] = &rows[i]
	}
	return byKey
}

// park leaves a row alone for a while.
func (s *session) park(row *source.Row, problem string) {
	s.parked.add(row.Key, time.Now(), s.since(row))
	s.problem = problem
}

// remove deletes accepted rows. A few that cannot be deleted, such as locked ones, are parked. Its error
// means that the source cannot be changed: the page is not removed, and no other may be read.
func (s *session) remove(rows []source.Row, keys []source.Key) error {
	if len(keys) == 0 {
		return nil
	}
	process.Failpoint("relay_before_remove")
	failed, err := apply(s.page, keys, s.conn.Remove)
	process.Failpoint("relay_after_remove")
	if err == nil {
		return nil
	}
	if len(failed) == len(keys) || len(failed) >= maxChangeFailures {
		return err
	}
	s.failed(sideSource, err)
	byKey := index(rows)
	for _, key := range failed {
		s.park(byKey[key], err.Error())
	}
	return nil
}

// refuse moves refused rows aside. Rows that cannot be moved are parked.
func (s *session) refuse(rows []source.Row, refused []source.Refusal) {
	if len(refused) == 0 {
		return
	}
	process.Failpoint("relay_in_refuse")
	failed, err := apply(s.page, refused, s.conn.Refuse)
	s.upkeep.changed = true
	moved := len(refused) - len(failed)
	s.metrics.rows.WithLabelValues(s.c.Label(), resultRefused).Add(float64(moved))
	if moved > 0 && s.refusing.Again(time.Now()) {
		s.log.Warn("relay rows refused", "rows", moved, "id", refused[0].ID, "code", refused[0].Code)
	}
	if err == nil {
		return
	}
	s.failed(sideSource, err)
	byKey := index(rows)
	for _, f := range failed {
		s.park(byKey[f.Key], err.Error())
	}
}

// apply changes rows in one call; if it fails repeatedly, one by one. It returns the rows that were not
// changed, and the last error.
func apply[T any](ctx context.Context, rows []T, change func(context.Context, []T) (int, error)) (
	failed []T, err error,
) {
	for try := range changeTries {
		if try > 0 {
			process.Sleep(ctx, changeWait<<try)
		}
		_, err = change(ctx, rows)
		if err == nil {
			return nil, nil
		}
		if errors.Is(err, source.ErrBroken) {
			return rows, err
		}
	}
	if len(rows) == 1 {
		return rows, err
	}
	err = nil
	for i := range rows {
		if _, alone := change(ctx, rows[i:i+1]); alone != nil {
			failed, err = append(failed, rows[i]), alone
		}
		if len(failed) >= maxChangeFailures {
			return append(failed, rows[i+1:]...), err
		}
	}
	return failed, err
}
