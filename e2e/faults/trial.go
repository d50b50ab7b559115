package faults

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A trial is one run of the program under a fault.
type trial struct{ *harness.Trial }

// newTrial prepares a trial without a backend.
func newTrial(t *testing.T, name string) *trial {
	return &trial{harness.NewTrial(t, name)}
}

// sized is the value for the size of the run: see package testserver.
func sized[T any](small, full, long T) T {
	switch {
	case testserver.Long():
		return long
	case testserver.Full():
		return full
	}
	return small
}

// trialsAtOnce bounds the tests and trials that run at the same time. They wait most of the time.
const trialsAtOnce = 8

var places = semaphore.NewWeighted(trialsAtOnce)

// mostlyWaits has a test run beside others that do nothing most of the time.
func mostlyWaits(t *testing.T) {
	t.Helper()
	harness.BlackBox(t)
	t.Parallel()
	if err := places.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { places.Release(1) })
}

// atLeast says whether a metric of a process has come to a value.
func atLeast(p *harness.Process, name string, want float64) error {
	got, err := p.Metric(name)
	if err == nil && got < want {
		err = fmt.Errorf("%s is %v, want %v", name, got, want)
	}
	return err
}

// sum adds up a metric over all processes that live.
func (tr *trial) sum(name string, parts ...string) float64 {
	tr.Helper()
	sum := 0.0
	for _, p := range tr.Alive() {
		v, err := p.Metric(name, parts...)
		if err != nil {
			tr.Fatal(err)
		}
		sum += v
	}
	return sum
}

// awaitEmptyIndex waits until Redis holds nothing any more: the verdict, which asks too, reads everything
// else each time.
func (tr *trial) awaitEmptyIndex(limit time.Duration) {
	tr.Helper()
	if tr.Backend.Redis == "" {
		return
	}
	harness.Eventually(tr, limit, "the index is empty", func() error {
		items, err := tr.Backend.ReadIndex(tr.Context())
		if err == nil && len(items) > 0 {
			err = fmt.Errorf("it holds %d", len(items))
		}
		return err
	})
}

// sqlCount reads one number.
func (tr *trial) sqlCount(query string, args ...any) (n int) {
	tr.Helper()
	if err := tr.Database().QueryRowContext(tr.Context(), query, args...).Scan(&n); err != nil {
		tr.Fatal(err)
	}
	return n
}

// lateness is how late the attempts of callbacks were whose references are like that.
func (tr *trial) lateness(like string) (all []time.Duration) {
	tr.Helper()
	rows, err := tr.Database().QueryContext(tr.Context(), `SELECT attempts.lateness FROM attempts
		JOIN requests ON requests.id = attempts.callback_id WHERE requests.ref LIKE $1`, like)
	if err != nil {
		tr.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var ms float64
		if err := rows.Scan(&ms); err != nil {
			tr.Fatal(err)
		}
		all = append(all, time.Duration(ms*float64(time.Millisecond)))
	}
	if err := rows.Err(); err != nil {
		tr.Fatal(err)
	}
	return all
}

// awaitEnds waits until no callback is open whose reference is like that.
func (tr *trial) awaitEnds(limit time.Duration, like string) {
	tr.Helper()
	harness.Eventually(tr, limit, "all of "+like+" have ended", func() error {
		if n := tr.sqlCount(`SELECT count(*) FROM callbacks JOIN requests USING (project, id)
			WHERE ref LIKE $1 AND state = 'scheduled'`, like); n > 0 {
			return fmt.Errorf("%d are open", n)
		}
		return nil
	})
}

// laneName is one of as many lanes that every shard of an index has some.
func laneName(i int) string { return fmt.Sprint("lane-", i%clusterLanes) }

// shared is the usual load over some lanes. Its timeout is long, because these trials start many servers at
// once.
func (tr *trial) shared(i int) harness.Submission {
	s := tr.Mixed(i)
	s["lane"] = laneName(i)
	s["policy"].(harness.Submission)["timeout"] = "10s"
	return s
}

// finishUnhindered ends a load whose accepts no fault was to hinder, because accepting needs no index: half
// of them took less than a second, on however busy a machine.
func (tr *trial) finishUnhindered(ld *harness.Load) {
	tr.Helper()
	report := ld.Finish()
	if report.Took.P50 > time.Second {
		tr.Errorf("accepts took p50 %s: they do not need the index", report.Took.P50)
	}
}
