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

// empty checks that everything was given back.
func (r *bodyBudget) empty(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used != 0 || len(r.byProject) != 0 {
		t.Errorf("the room has %d bytes in use, of %v", r.used, r.byProject)
	}
}

func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newBodyBudget(100)
		take := func(project string, n int64) error { return r.acquire(t.Context(), project, n) }
		for project, n := range map[string]int64{"a": 50, "b": 40} {
			if err := take(project, n); err != nil {
				t.Fatal(err)
			}
		}
		// One project has half at most, all of them have no more than there is, and none waits for ever.
		for project, n := range map[string]int64{"a": 1, "b": 11, "c": 11} {
			began := time.Now()
			if err := take(project, n); !errors.Is(err, httperr.ErrBusy) ||
				time.Since(began) != budgetTimeout {
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
			go func() { got <- take(project, 20) }()
		}
		synctest.Wait()
		r.release("a", 20)
		for range 2 {
			if err := <-got; err != nil && !errors.Is(err, httperr.ErrBusy) {
				t.Error(err)
			} else if err == nil {
				r.release("c", 0) // wakes the other one, which does not fit
			}
		}
		if r.used != 90 {
			t.Errorf("%d bytes are in use, want 90: one of the two who waited fits", r.used)
		}
	})
}

// dripping sends n bytes, at most step at once.
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

func TestBodiesGrowWithWhatComes(t *testing.T) { // not parallel: it counts allocations
	const limit = 4 << 20
	for _, n := range []int64{
		0, 1, freeBody - 1, freeBody, freeBody + 1, exactBody, exactBody + 1, maxRequest, maxRequest + 1,
		maxRequest + 2, limit - 1, limit,
	} {
		for _, length := range []int64{n, -1} {
			in := &budgetedBody{ctx: t.Context(), project: "a", budgets: newBodyBudgets()}
			body, err := in.read(dripping(n, 1<<20), length, limit)
			if err != nil || int64(len(body)) != n {
				t.Errorf("%d bytes, declared as %d: %d came, %v", n, length, len(body), err)
			}
			most := max(2*n, freeBody)
			if int64(cap(body)) > most || cap(body) > freeBody && int64(cap(body)) != in.acquired {
				t.Errorf("%d bytes, declared as %d, have a buffer of %d, and hold %d", n, length, cap(body),
					in.acquired)
			}
			if batch := in.budget == in.budgets.batches; batch != (cap(body) > maxRequest+1) {
				t.Errorf("%d bytes have room among batches: %v", n, batch)
			}
			in.release()
			in.budgets.requests.empty(t)
			in.budgets.batches.empty(t)
		}
	}
	for _, n := range []int64{0, 1, 100_000, 1 << 20} { // it declares more than comes
		in := &budgetedBody{ctx: t.Context(), project: "a", budgets: newBodyBudgets()}
		if _, err := in.read(dripping(n, 1<<20), limit, limit); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of %d bytes: %v", n, limit, err)
		}
		if held := max(2*n, freeBody); in.acquired > held {
			t.Errorf("%d of %d bytes hold %d", n, limit, in.acquired)
		}
	}
	// What most requests have is read into one buffer, and asks for no room.
	from := bytes.NewReader(nil)
	for n, rooms := range map[int]bodyBudgets{1: {}, 1000: {}, freeBody: {}, exactBody: newBodyBudgets()} {
		in, body := &budgetedBody{ctx: t.Context(), project: "a", budgets: rooms}, make([]byte, n)
		if allocs := testing.AllocsPerRun(100, func() {
			from.Reset(body)
			if _, err := in.read(from, int64(n), maxRequest); err != nil {
				t.Error(err)
			}
		}); allocs > 1 {
			t.Errorf("a body of %d bytes takes %v allocations", n, allocs)
		}
	}
}

// TestRoomIsGivenBack: a route gives back what its request's body held, however it ends; and while there is
// no room it says so, closes the connection, and serves what needs none.
func TestRoomIsGivenBack(t *testing.T) { synctest.Test(t, testRoomIsGivenBack) }

func testRoomIsGivenBack(t *testing.T) {
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
	for range 10 { // each would fill the room
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
		t.Errorf("a body that has no room: %v, %v", err, rec.Header())
	}
	a.budgets.batches.empty(t)
	// Full rooms do not hold up what needs none, nor batches what is no batch.
	for _, project := range []string{"x", "y"} {
		if err := a.budgets.batches.acquire(t.Context(), project, 2<<20); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := post(reads(nil), dripping(100_000, 1<<20), 100_000); err != nil {
		t.Errorf("a request beside batches: %v", err)
	}
	for _, project := range []string{"x", "y"} {
		if err := a.budgets.requests.acquire(t.Context(), project, 1<<19); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := post(reads(nil), dripping(freeBody, 1<<20), freeBody); err != nil {
		t.Errorf("a small request beside large ones: %v", err)
	}
}
