package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	project = store.DefaultProject
	// start is the first value of the tests' clock.
	start = int64(1_790_000_000_000)
	hour  = int64(3_600_000)
	day   = 24 * hour
)

var actor = store.Actor{Name: "key_ops", Address: "192.0.2.7", Reason: "asked by the merchant"}

// errRefused is the error of changes that refuse.
var errRefused = errors.New("refused")

// A fixture has the store, the clock and the ids of one test. Its methods are safe for concurrent use.
type fixture struct {
	*testing.T
	Store
	now int64

	mu      sync.Mutex
	entropy io.Reader
	tokens  int
	// withStamped alternates: every second result has its Stamped row.
	withStamped bool
	// histories is Options.Histories.
	histories int
}

func newFixture(t *testing.T, s Store) *fixture {
	return &fixture{T: t, Store: s, now: start, entropy: ulid.Monotonic(rand.Reader, 0)}
}

func (f *fixture) ctx() context.Context { return f.Context() }

// id returns a new ULID that is higher than all before it.
func (f *fixture) id() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return must(ulid.New(uint64(f.now), f.entropy)).String()
}

func (f *fixture) token() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens++
	return fmt.Sprintf("token-%d", f.tokens)
}

// must returns the result of a call that must not fail. It panics on an error, which ends the test, also from
// a goroutine of a crowd (reportPanic).
func must[T any](result T, err error) T {
	if err != nil {
		panic(err)
	}
	return result
}

func must2[A, B any](a A, b B, err error) (A, B) {
	if err != nil {
		panic(err)
	}
	return a, b
}

// reportPanic turns a panic into a failure of this test only. Callers defer it.
func (f *fixture) reportPanic() {
	if e := recover(); e != nil {
		f.Errorf("%v\n%s", e, debug.Stack())
	}
}

// ok ends the test if a call failed.
func (f *fixture) ok(err error) {
	if err != nil {
		panic(err)
	}
}

// check reports a failure with the lines of the suite that led to it, unless the condition holds. require
// also ends the test.
func (f *fixture) check(holds bool, format string, args ...any) {
	if !holds {
		f.Errorf(format+"%s", append(args, callers())...)
	}
}

// callers returns the suite's lines of the call stack, innermost first.
func callers() (lines string) {
	all := make([]uintptr, 30)
	frames := runtime.CallersFrames(all[:runtime.Callers(3, all)])
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		if strings.Contains(frame.Function, "/storetest.") {
			lines += fmt.Sprintf("\n\tat %s:%d", path.Base(frame.File), frame.Line)
		}
	}
	return lines
}

func (f *fixture) require(holds bool, format string, args ...any) {
	if !holds {
		panic(fmt.Sprintf(format, args...))
	}
}

// errOf drops the first result of a call.
func errOf[T any](_ T, err error) error { return err }

// fails checks that a call failed with the error want.
func (f *fixture) fails(want error, name string, err error) {
	f.check(errors.Is(err, want), "%s: %v, want %v", name, err, want)
}

// same checks that two values are equal.
func same[T any](f *fixture, name string, want, got T) {
	diff := cmp.Diff(want, got)
	f.check(diff == "", "%s (-want +got):\n%s", name, diff)
}

// each returns the results of a function for each row.
func each[T, R any](rows []T, of func(T) R) []R {
	var all []R
	for _, row := range rows {
		all = append(all, of(row))
	}
	return all
}

// crowd makes n calls concurrently and returns their results. The name of its test must end in Crowd: the run
// with the race detector selects tests by that suffix.
func crowd[R any](f *fixture, n int, call func(i int) R) []R {
	if !strings.HasSuffix(f.Name(), "Crowd") {
		f.Errorf("%s makes concurrent calls: its name must end in Crowd", f.Name())
	}
	results := make([]R, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			defer f.reportPanic()
			results[i] = call(i)
		})
	}
	calls.Wait()
	return results
}

// winners makes n calls concurrently and returns the numbers of those that succeeded. All others must fail
// with the error want.
func (f *fixture) winners(n int, want error, call func(i int) error) (won []int) {
	for i, err := range crowd(f, n, call) {
		if err == nil {
			won = append(won, i)
		} else {
			f.fails(want, "losing call", err)
		}
	}
	return won
}

// during runs work, and meanwhile repeats a call in n goroutines. Each of them repeats it once more after
// work is done.
func (f *fixture) during(work func(), n int, repeat func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer f.reportPanic()
		work()
	}()
	crowd(f, n, func(int) (_ error) {
		for ended := false; !ended; {
			select {
			case <-done:
				ended = true
			default:
			}
			repeat()
		}
		return nil
	})
}

// newest returns the last n audit entries of the project, newest first.
func (f *fixture) newest(n int) []store.AuditEntry {
	return must(f.Audit(f.ctx(), project, store.AuditFilter{Limit: n})).Entries
}

func (f *fixture) appendAudit(e store.AuditEntry) { f.ok(f.AppendAudit(f.ctx(), e)) }

// ids returns the ids of callbacks.
func ids(callbacks ...store.Callback) []string {
	return each(callbacks, func(c store.Callback) string { return c.ID })
}

// rowIDs returns the ids of open rows.
func rowIDs(rows []store.OpenRow) []string {
	return each(rows, func(r store.OpenRow) string { return r.ID })
}
