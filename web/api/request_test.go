package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

// empty checks that all bytes were released.
func (r *bodyBudget) empty(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used != 0 || len(r.byProject) != 0 {
		t.Errorf("the budget has %d bytes in use, by project %v", r.used, r.byProject)
	}
}

// TestBodyBudget checks the limits of a budget, the timeout of a waiter, and that a release wakes waiters.
func TestBodyBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBodyBudget(100)
		acquire := func(project string, n int64) error { return r.acquire(t.Context(), project, n) }
		for project, n := range map[string]int64{"a": 50, "b": 40} {
			if err := acquire(project, n); err != nil {
				t.Fatal(err)
			}
		}
		// One project gets at most half, all projects together the whole, and no one waits forever.
		for project, n := range map[string]int64{"a": 1, "b": 11, "c": 11} {
			began := time.Now()
			err := acquire(project, n)
			if !errors.Is(err, httperr.ErrBusy) || time.Since(began) != budgetTimeout {
				t.Errorf("%d more bytes for %s: %v after %v", n, project, err, time.Since(began))
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.acquire(ended, "a", 1); !errors.Is(err, httperr.ErrBusy) {
			t.Errorf("for a request that has ended: %v", err)
		}
		got := make(chan error, 2)
		for _, project := range []string{"a", "c"} {
			go func() { got <- acquire(project, 20) }()
		}
		synctest.Wait()
		r.release("a", 20)
		for range 2 {
			if err := <-got; err != nil && !errors.Is(err, httperr.ErrBusy) {
				t.Error(err)
			} else if err == nil {
				r.release("c", 0) // wakes the other waiter, which does not fit
			}
		}
		if r.used != 90 {
			t.Errorf("%d bytes are in use, want 90: exactly one of the two waiters fits", r.used)
		}
	})
}

// dripping returns a reader of n bytes that returns at most step bytes at once.
func dripping(n int64, step int) io.Reader { return &drip{left: n, step: step} }

type drip struct {
	left int64
	step int
}

func (d *drip) Read(b []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	n := min(len(b), d.step, int(d.left))
	d.left -= int64(n)
	return n, nil
}

// TestBodyBuffers checks the buffer size, the acquired bytes and the budget of bodies around every limit. It
// is not parallel, because it counts allocations.
func TestBodyBuffers(t *testing.T) {
	const limit = 4 << 20
	for _, n := range []int64{
		0, 1, freeBody - 1, freeBody, freeBody + 1, exactBody, exactBody + 1, maxRequest, maxRequest + 1,
		maxRequest + 2, limit - 1, limit,
	} {
		for _, length := range []int64{n, -1} {
			in := &budgetedBody{ctx: t.Context(), project: "a", budgets: newBodyBudgets()}
			body, err := in.read(dripping(n, 1<<20), length, limit)
			if err != nil || int64(len(body)) != n {
				t.Errorf("%d bytes, declared as %d: %d arrived, %v", n, length, len(body), err)
			}
			most := max(2*n, freeBody)
			if int64(cap(body)) > most || cap(body) > freeBody && int64(cap(body)) != in.acquired {
				t.Errorf("%d bytes, declared as %d: the buffer has %d bytes, %d are acquired", n, length,
					cap(body), in.acquired)
			}
			if batch := in.budget == in.budgets.batches; batch != (cap(body) > maxRequest+1) {
				t.Errorf("%d bytes count as a batch: %v", n, batch)
			}
			in.release()
			in.budgets.requests.empty(t)
			in.budgets.batches.empty(t)
		}
	}
	for _, n := range []int64{0, 1, 100_000, 1 << 20} { // fewer bytes than declared
		in := &budgetedBody{ctx: t.Context(), project: "a", budgets: newBodyBudgets()}
		if _, err := in.read(dripping(n, 1<<20), limit, limit); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of %d bytes: %v", n, limit, err)
		}
		if most := max(2*n, freeBody); in.acquired > most {
			t.Errorf("%d of %d bytes arrived: %d are acquired", n, limit, in.acquired)
		}
	}
	// A small body needs one buffer and no budget.
	from := bytes.NewReader(nil)
	for n, budgets := range map[int]bodyBudgets{1: {}, 1000: {}, freeBody: {}, exactBody: newBodyBudgets()} {
		in, body := &budgetedBody{ctx: t.Context(), project: "a", budgets: budgets}, make([]byte, n)
		if allocs := testing.AllocsPerRun(100, func() {
			from.Reset(body)
			if _, err := in.read(from, int64(n), maxRequest); err != nil {
				t.Error(err)
			}
		}); allocs > 1 {
			t.Errorf("a body of %d bytes needs %v allocations", n, allocs)
		}
	}
}

// TestBudgetIsReleased checks that a route releases the budget of its request's body, however the request
// ends. Without budget it returns an error and closes the connection, and smaller requests are still served.
func TestBudgetIsReleased(t *testing.T) { synctest.Test(t, testBudgetIsReleased) }

func testBudgetIsReleased(t *testing.T) {
	a := &API{budgets: bodyBudgets{requests: newBodyBudget(1 << 20), batches: newBodyBudget(4 << 20)}}
	post := func(h handler, body io.Reader, length int64) (rec *httptest.ResponseRecorder, err error) {
		rec = httptest.NewRecorder()
		c, _ := gin.CreateTestContext(rec)
		c.Request = httptest.NewRequest(http.MethodPost, "/", body)
		c.Request.ContentLength = length
		defer func() { _ = recover() }()
		err = a.withBudget(t.Context(), c, caller{Project: "a"}, h)
		return rec, err
	}
	reads := func(then error) handler {
		return func(_ context.Context, c *gin.Context, _ caller) error {
			body, err := readBody(c, maxBatch)
			if err == nil {
				err = then
			}
			if err == nil && len(body) == 0 {
				panic("a handler")
			}
			return err
		}
	}
	cut := func() io.Reader {
		return io.MultiReader(dripping(1<<20, 1<<20), iotest.ErrReader(errors.New("connection reset")))
	}
	for range 10 { // each iteration would use up the budget
		for _, c := range []struct {
			then   error
			body   io.Reader
			length int64
		}{
			{nil, dripping(2<<20, 1<<20), 2 << 20}, {errors.New("failed"), dripping(2<<20, 1<<20), 2 << 20},
			{nil, cut(), 2 << 20}, {nil, cut(), -1}, {nil, dripping(1<<19, 1<<19), -1},
			{nil, strings.NewReader(""), 0},
		} {
			_, _ = post(reads(c.then), c.body, c.length)
		}
		a.budgets.requests.empty(t)
		a.budgets.batches.empty(t)
	}
	rec, err := post(reads(nil), dripping(2<<20+1, 1<<20), -1)
	if !errors.Is(err, httperr.ErrBusy) || rec.Header().Get("Connection") != "close" {
		t.Errorf("a body without budget: %v, %v", err, rec.Header())
	}
	a.budgets.batches.empty(t)
	// Used-up budgets do not block bodies that need none, and batches do not block single requests.
	for _, project := range []string{"x", "y"} {
		if err := a.budgets.batches.acquire(t.Context(), project, 2<<20); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := post(reads(nil), dripping(100_000, 1<<20), 100_000); err != nil {
		t.Errorf("a request while batches use up their budget: %v", err)
	}
	for _, project := range []string{"x", "y"} {
		if err := a.budgets.requests.acquire(t.Context(), project, 1<<19); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := post(reads(nil), dripping(freeBody, 1<<20), freeBody); err != nil {
		t.Errorf("a small request while large ones use up their budget: %v", err)
	}
}
