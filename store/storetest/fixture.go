package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	project = store.DefaultProject
	// start is the tests' clock at the beginning.
	start = int64(1_790_000_000_000)
	// margin is what a stamp adds to an attempt's timeout, and timeout is the drafts'.
	margin  = int64(15_000)
	timeout = 2 * time.Second
	// claimLasts is how long a claim of a draft is alive.
	claimLasts = int64(2_000) + margin
)

// A fixture is one test's store, clock and ids.
type fixture struct {
	*testing.T
	Store
	now int64

	mu      sync.Mutex
	entropy io.Reader
	tokens  int
	// known turns with every result: the one says what the row was when it was stamped, the next does not.
	known bool
	// histories is how many the model runs.
	histories int
}

func newFixture(t *testing.T, s Store) *fixture {
	return &fixture{T: t, Store: s, now: start, entropy: ulid.Monotonic(rand.Reader, 0)}
}

func (f *fixture) ctx() context.Context { return f.Context() }

// ok ends the test if a call failed that may not.
func (f *fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// must returns the result of a call that may not fail. An error ends the test.
func must[T any](result T, err error) T {
	if err != nil {
		panic(err)
	}
	return result
}

// endOnPanic fails a test that has panicked, and lets the others go on.
func (f *fixture) endOnPanic() {
	if e := recover(); e != nil {
		f.Fatalf("%v\n%s", e, debug.Stack())
	}
}

// errOf is the error of a call whose other result does not matter.
func errOf[T any](_ T, err error) error { return err }

// fails reports a call that did not fail as wanted.
func (f *fixture) fails(want error, what string, err error) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Errorf("%s: %v, want %v", what, err, want)
	}
}

// same reports two values that differ.
func same[T any](f *fixture, what string, want, got T) {
	f.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		f.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// none reports rows where there are to be none.
func none[T any](f *fixture, what string, got []T) {
	f.Helper()
	if len(got) != 0 {
		f.Errorf("%s: %+v, want none", what, got)
	}
}

// purge removes payloads and rows that ended before those times, and what is known of references since.
func (f *fixture) purge(payloadBefore, metadataBefore int64) {
	f.Helper()
	f.ok(errOf(f.Purge(f.ctx(),
		store.Retention{Now: f.now, Payloads: payloadBefore, Callbacks: metadataBefore}, 100)))
	_, _, err := f.PurgeVersions(f.ctx(), f.now, metadataBefore, 100)
	f.ok(err)
}

// id makes a ULID above all that were made before.
func (f *fixture) id() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, err := ulid.New(uint64(f.now), f.entropy)
	if err != nil {
		panic(err)
	}
	return id.String()
}

func (f *fixture) token() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens++
	return fmt.Sprintf("token-%d", f.tokens)
}

// draft makes a draft that is due now; change may be nil.
func (f *fixture) draft(change func(*store.Draft)) store.Draft {
	d := store.Draft{
		Callback: store.Callback{
			ID:          f.id(),
			Project:     project,
			Kind:        store.Notify,
			URL:         "https://shop.example/notify",
			Method:      "POST",
			Topic:       "payment.succeeded",
			Ref:         "order-1",
			Lane:        "default+https+shop.example+443",
			Policy:      store.Policy{Tiers: []time.Duration{time.Second, 2 * time.Second}, Timeout: timeout, RetryAfterCap: time.Hour},
			Success:     store.Success{Name: "http-2xx"},
			Signer:      "standard-v1",
			State:       store.Scheduled,
			DueAt:       f.now,
			FirstDueAt:  f.now,
			Trigger:     store.BySchedule,
			CreatedAt:   f.now,
			UpdatedAt:   f.now,
			ContentType: "application/json",
		},
		Body: []byte(`{"paid":10000}`),
	}
	if change != nil {
		change(&d)
	}
	return d
}

// accept accepts one draft and fails the test if it is refused.
func (f *fixture) accept(change func(*store.Draft)) store.Callback {
	f.Helper()
	a := f.acceptAll(f.draft(change))[0]
	if a.Err != nil {
		f.Fatalf("accept: %v", a.Err)
	}
	return a.Callback
}

func (f *fixture) acceptAll(drafts ...store.Draft) []store.Accepted {
	f.Helper()
	accepted := must(f.Accept(f.ctx(), drafts))
	if len(accepted) != len(drafts) {
		f.Fatalf("accepted %d of %d drafts", len(accepted), len(drafts))
	}
	return accepted
}

func (f *fixture) stamp(token string, ids ...string) ([]*store.Stamped, []store.Refusal) {
	f.Helper()
	return f.stampAs(store.Stamp{Token: token}, ids...)
}

// stampAs stamps rows at the test's time, else as the stamp says.
func (f *fixture) stampAs(s store.Stamp, ids ...string) ([]*store.Stamped, []store.Refusal) {
	f.Helper()
	s.Now, s.Margin = f.now, margin
	for _, id := range ids {
		s.Claims = append(s.Claims, store.StampClaim{ID: id})
	}
	stamped, refused, err := f.Stamp(f.ctx(), s)
	f.ok(err)
	if len(stamped)+len(refused) != len(ids) {
		f.Fatalf("stamp of %d rows answered %d stamped and %d refused", len(ids), len(stamped), len(refused))
	}
	return stamped, refused
}

// claim stamps one row that must be free and due.
func (f *fixture) claim(id string) *store.Stamped {
	f.Helper()
	stamped, refused := f.stamp(f.token(), id)
	if len(stamped) != 1 {
		f.Fatalf("stamp of %s was refused: %+v", id, refused)
	}
	return stamped[0]
}

// failed is a result of a charged attempt that failed, with the next one due after a second.
func (f *fixture) failed(s *store.Stamped) store.Result {
	r := store.Result{
		ID: s.ID, Fence: s.Fence, State: store.Scheduled, DueAt: f.now + 1000, Charge: true,
		Attempt: &store.Attempt{
			Trigger: s.Trigger, Outcome: store.AttemptFailed, Charged: true, Class: store.ClassHTTP5xx, Status: 500,
			StartedAt: f.now, EndedAt: f.now, DueAt: s.DueAt,
		},
	}
	if f.known = !f.known; f.known {
		r.Stamped = s
	}
	return r
}

// succeeded is a result of an attempt that succeeded.
func (f *fixture) succeeded(s *store.Stamped) store.Result {
	r := f.failed(s)
	r.State, r.DueAt = store.Succeeded, 0
	r.Attempt.Outcome, r.Attempt.Class, r.Attempt.Status = store.AttemptSucceeded, store.ClassOK, 200
	return r
}

// died is a result of a charged attempt that ended the callback.
func (f *fixture) died(s *store.Stamped) store.Result {
	r := f.failed(s)
	r.State, r.Reason, r.DueAt = store.Dead, store.Exhausted, 0
	return r
}

func (f *fixture) commit(r store.Result) store.Committed {
	f.Helper()
	committed := must(f.Commit(f.ctx(), []store.Result{r}, f.now))
	if len(committed) != 1 || committed[0].Err != nil {
		f.Fatalf("commit answered %+v", committed)
	}
	return committed[0]
}

// win commits a result that must win.
func (f *fixture) win(r store.Result) store.Committed {
	f.Helper()
	c := f.commit(r)
	if !c.Won {
		f.Fatalf("result of %s under fence %d lost", r.ID, r.Fence)
	}
	return c
}

func (f *fixture) get(id string) store.Callback {
	return must(f.Get(f.ctx(), project, id))
}

// attempts are those of a callback by number.
func (f *fixture) attempts(id string) []store.Attempt {
	all := must(f.Attempts(f.ctx(), project, id, 0, 500))
	slices.Reverse(all)
	return all
}

func (f *fixture) counts() store.Counts {
	return must(f.Counts(f.ctx(), project))
}

// dead accepts a callback and lets its first attempt end it.
func (f *fixture) dead(change func(*store.Draft)) store.Callback {
	f.Helper()
	c := f.accept(change)
	f.win(f.died(f.claim(c.ID)))
	return f.get(c.ID)
}

func (f *fixture) wantState(c store.Callback, state store.State, reason store.Reason) {
	f.Helper()
	if c.State != state || c.Reason != reason {
		f.Errorf("callback is %q, %q; want %q, %q", c.State, c.Reason, state, reason)
	}
}

var actor = store.Actor{Name: "key_ops", Address: "192.0.2.7", Reason: "asked by the merchant"}
