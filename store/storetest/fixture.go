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
	// start is the tests' clock at the beginning.
	start = int64(1_790_000_000_000)
	hour  = int64(3_600_000)
	day   = 24 * hour
)

var actor = store.Actor{Name: "key_ops", Address: "192.0.2.7", Reason: "asked by the merchant"}

// errRefused is what changes return that refuse.
var errRefused = errors.New("refused")

// A fixture is one test's store, clock and ids. Its methods may be called from several goroutines.
type fixture struct {
	*testing.T
	Store
	now int64

	mu      sync.Mutex
	entropy io.Reader
	tokens  int
	// known turns with every result: one has the row as it was stamped, the next does not.
	known bool
	// histories is how many the model runs.
	histories int
}

func newFixture(t *testing.T, s Store) *fixture {
	return &fixture{T: t, Store: s, now: start, entropy: ulid.Monotonic(rand.Reader, 0)}
}

func (f *fixture) ctx() context.Context { return f.Context() }

// id makes a ULID above all that were made before.
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

// must returns the result of a call that may not fail. An error ends the test, also in a goroutine of a
// crowd.
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

// reportPanic fails a test that has panicked, and lets the others go on. It is deferred.
func (f *fixture) reportPanic() {
	if e := recover(); e != nil {
		f.Errorf("%v\n%s", e, debug.Stack())
	}
}

// ok ends the test if a call failed that may not.
func (f *fixture) ok(err error) {
	if err != nil {
		panic(err)
	}
}

// check reports what does not hold, and the lines of the suite that led there; require ends the test, too.
func (f *fixture) check(holds bool, format string, args ...any) {
	if !holds {
		f.Errorf(format+"%s", append(args, callers())...)
	}
}

// callers are the lines of the suite that are being called, the innermost first.
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

// errOf returns the error of a call whose other result does not matter.
func errOf[T any](_ T, err error) error { return err }

// fails reports a call that did not fail as wanted.
func (f *fixture) fails(want error, what string, err error) {
	f.check(errors.Is(err, want), "%s: %v, want %v", what, err, want)
}

// same reports two values that differ.
func same[T any](f *fixture, what string, want, got T) {
	diff := cmp.Diff(want, got)
	f.check(diff == "", "%s (-want +got):\n%s", what, diff)
}

// each returns what a function makes of each row.
func each[T, R any](rows []T, of func(T) R) []R {
	var all []R
	for _, row := range rows {
		all = append(all, of(row))
	}
	return all
}

// crowd makes n calls at once and returns what each returned. The name of its test must end in Crowd: by that
// the race detector's run picks its tests.
func crowd[R any](f *fixture, n int, call func(i int) R) []R {
	if !strings.HasSuffix(f.Name(), "Crowd") {
		f.Errorf("%s makes calls at once: its name must end in Crowd", f.Name())
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

// winners makes n calls at once and returns which of them succeeded. All others must fail as wanted.
func (f *fixture) winners(n int, want error, call func(i int) error) (won []int) {
	for i, err := range crowd(f, n, call) {
		if err == nil {
			won = append(won, i)
		} else {
			f.fails(want, "a call that lost", err)
		}
	}
	return won
}

// during repeats a call in n goroutines until the work is done, and then once more.
func (f *fixture) during(work func(), n int, again func()) {
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
			again()
		}
		return nil
	})
}

// newest are the last n entries of the project's audit, the newest first.
func (f *fixture) newest(n int) []store.AuditEntry {
	return must(f.Audit(f.ctx(), project, store.AuditFilter{Limit: n})).Entries
}

func (f *fixture) appendAudit(e store.AuditEntry) { f.ok(f.AppendAudit(f.ctx(), e)) }

// ids are those of callbacks.
func ids(callbacks ...store.Callback) []string {
	return each(callbacks, func(c store.Callback) string { return c.ID })
}

// rowIDs are those of open rows, in their order.
func rowIDs(rows []store.OpenRow) []string {
	return each(rows, func(r store.OpenRow) string { return r.ID })
}
