package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

const (
	// maxRequest is the maximum size of a request's body in bytes, maxBatch that of a batch.
	maxRequest = 512 << 10
	maxBatch   = 16 << 20
)

// readBody reads the whole body, of at most limit bytes. It rejects a longer body before it reads it if the
// length is declared, otherwise as soon as the body exceeds the limit. The request's body must be a
// budgetedBody, as serve makes it.
func readBody(c *gin.Context, limit int64) ([]byte, error) {
	r := c.Request
	if len(r.Header["Content-Encoding"]) > 0 {
		return nil, httperr.ErrEncoding
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	in, ok := r.Body.(*budgetedBody)
	if !ok {
		return nil, errors.New("read body: the handler was called without withBudget")
	}
	var from io.Reader = in
	if r.ContentLength < 0 {
		// MaxBytesReader closes the connection only through the writer of net/http, which gin's writer wraps.
		var w http.ResponseWriter = c.Writer
		if under, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
			w = under.Unwrap()
		}
		from = http.MaxBytesReader(w, in, limit)
	}
	body, err := in.read(from, r.ContentLength, limit)
	if err != nil {
		return nil, readError(c, err, limit)
	}
	if in.onRead != nil {
		err = in.onRead()
	}
	return body, err
}

// readError returns the error for a body that could not be read.
func readError(c *gin.Context, err error, limit int64) error {
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return tooLarge(limit)
	}
	if errors.Is(err, httperr.ErrBusy) {
		c.Header("Connection", "close") // the rest of the body is not read
		return err
	}
	return fmt.Errorf("%w: %w", httperr.ErrIncomplete, err)
}

func tooLarge(limit int64) error {
	return fmt.Errorf("%w: the limit is %d KiB", httperr.ErrTooLarge, limit>>10)
}

// readJSON reads a required body and checks that it is valid JSON.
func readJSON(c *gin.Context, limit int64) ([]byte, error) {
	body, err := readBody(c, limit)
	if err != nil {
		return nil, err
	}
	return body, checkJSON(body)
}

// readObject reads an object; member decodes its fields. If optional is true, an empty body is an empty
// object. Invalid fields are in f. The caller returns them, or passes them to the engine, which reports them
// together with its own findings.
func readObject(c *gin.Context, optional bool, f *fields, member func(key, value []byte) bool) error {
	body, err := readBody(c, maxRequest)
	if err != nil {
		return err
	}
	if optional && skipSpace(body, 0) == len(body) {
		return nil
	}
	if err := checkJSON(body); err != nil {
		return err
	}
	f.object(request, "", body, member)
	return nil
}

// readItems reads a batch: an object that has an array of 1 to most items in the member with that name. It
// returns the items as they are in the request. rest decodes other members.
func readItems(
	c *gin.Context, f *fields, name string, most int, rest func(key, value []byte) bool,
) ([][]byte, error) {
	body, err := readJSON(c, maxBatch)
	if err != nil {
		return nil, err
	}
	var (
		items [][]byte
		n     int
		given bool
	)
	f.object(request, "", body, func(key, value []byte) bool {
		if string(key) != name {
			return rest(key, value)
		}
		given = true
		f.array(name, value, func(i int, item []byte) {
			n = i + 1
			if n <= most {
				items = append(items, item)
			}
		})
		return true
	})
	switch {
	case len(f.invalid) > 0:
	case !given:
		f.add(name, query.Needed)
	case n == 0:
		f.add(name, "must have at least one element")
	case n > most:
		f.add(name, fmt.Sprintf("has %d elements; the maximum is %d", n, most))
	}
	return items, f.err()
}

const (
	// freeBody is the size up to which a body needs no budget. Most requests are smaller, and a connection's
	// own buffers are of a similar size.
	freeBody = 16 << 10
	// exactBody is the size up to which a body with a declared length gets its whole buffer at once. The
	// buffer of a longer body begins with freeBody bytes and doubles as data arrives: the declared length is
	// only a promise.
	exactBody = 64 << 10
	// requestBudget and batchBudget limit the bytes of larger bodies that are in memory at the same time:
	// bodies up to maxRequest, and bodies that have grown beyond it. With two budgets a batch that does not
	// arrive can only block batches.
	requestBudget = 128 << 20
	batchBudget   = 256 << 20
	// budgetTimeout is how long a body waits for its budget. A burst of batches usually ends sooner. After it
	// the sender gets a 503 and may try another process.
	budgetTimeout = 2 * time.Second
)

// A bodyBudget limits the bytes of request bodies that are in memory at the same time. One project gets at
// most half of it.
type bodyBudget struct {
	limit int64

	mu   sync.Mutex
	used int64
	// byProject has the used bytes of each project; no entry is zero.
	byProject map[string]int64
	// freed is closed and replaced when bytes are released. It wakes all waiters, and each tries again.
	freed chan struct{}
}

func newBodyBudget(limit int64) *bodyBudget {
	return &bodyBudget{limit: limit, byProject: make(map[string]int64), freed: make(chan struct{})}
}

// acquire waits until n bytes are free, at most budgetTimeout and until the context ends. Its error is
// httperr.ErrBusy.
func (b *bodyBudget) acquire(ctx context.Context, project string, n int64) error {
	var expired <-chan time.Time
	for {
		freed, ok := b.tryAcquire(project, n)
		if ok {
			return nil
		}
		if expired == nil {
			timer := time.NewTimer(budgetTimeout)
			defer timer.Stop()
			expired = timer.C
		}
		select {
		case <-freed:
		case <-expired:
			return httperr.ErrBusy
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", httperr.ErrBusy, ctx.Err())
		}
	}
}

// tryAcquire takes n bytes if they are free. Otherwise it returns a channel that is closed when bytes are
// released.
func (b *bodyBudget) tryAcquire(project string, n int64) (freed <-chan struct{}, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.limit || b.byProject[project]+n > b.limit/2 {
		return b.freed, false
	}
	b.used += n
	b.byProject[project] += n
	return nil, true
}

// release returns n bytes.
func (b *bodyBudget) release(project string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.byProject[project] -= n
	if b.byProject[project] == 0 {
		delete(b.byProject, project)
	}
	close(b.freed)
	b.freed = make(chan struct{})
}

// bodyBudgets are the budgets of one process.
type bodyBudgets struct{ requests, batches *bodyBudget }

func newBodyBudgets() bodyBudgets {
	return bodyBudgets{requests: newBodyBudget(requestBudget), batches: newBodyBudget(batchBudget)}
}

// A budgetedBody is the body of one request. Its buffer grows as data arrives, and larger buffers need a
// budget.
type budgetedBody struct {
	io.ReadCloser
	ctx     context.Context
	project string
	budgets bodyBudgets
	// budget is the budget that has acquired bytes for this body. Nil: none.
	budget   *bodyBudget
	acquired int64
	// onRead is called after the body has been read. It may be nil.
	onRead func() error
}

// withBudget calls a handler with a budgetedBody as the request's body. It releases the budget when the
// handler returns, so a handler must not keep the body.
func (a *API) withBudget(ctx context.Context, c *gin.Context, who caller, h handler) error {
	in := &budgetedBody{ReadCloser: c.Request.Body, ctx: ctx, project: who.Project, budgets: a.budgets}
	defer in.release()
	c.Request.Body = in
	return h(ctx, c, who)
}

// read reads a body of length bytes, which is at most limit. If length is negative it reads to the end; r
// must enforce the limit.
func (in *budgetedBody) read(r io.Reader, length, limit int64) ([]byte, error) {
	most := limit + 1 // one byte more than the body, to read its end
	if length >= 0 {
		most = length
	}
	size := int64(freeBody)
	if length >= 0 && length <= exactBody {
		size = length
	}
	if size > freeBody {
		if err := in.grow(size); err != nil {
			return nil, err
		}
	}
	body := make([]byte, 0, size)
	for int64(len(body)) != length {
		if len(body) == cap(body) {
			size = min(2*size, most)
			if err := in.grow(size); err != nil {
				return nil, err
			}
			body = append(make([]byte, 0, size), body...)
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case err == nil, int64(len(body)) == length:
		case err == io.EOF && length < 0:
			length = int64(len(body))
		case err == io.EOF:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
	return body, nil
}

// grow acquires size bytes in total. Beyond maxRequest it moves the body to the budget of batches: it
// acquires all bytes there before it releases those of the other budget.
func (in *budgetedBody) grow(size int64) error {
	next := in.budgets.requests
	if size > maxRequest+1 {
		next = in.budgets.batches
	}
	more := size
	if next == in.budget {
		more -= in.acquired
	}
	if err := next.acquire(in.ctx, in.project, more); err != nil {
		return err
	}
	if next != in.budget {
		in.release()
	}
	in.budget, in.acquired = next, size
	return nil
}

// release returns the acquired bytes. Nothing may refer to the body after it.
func (in *budgetedBody) release() {
	if in.budget != nil {
		in.budget.release(in.project, in.acquired)
		in.budget, in.acquired = nil, 0
	}
}
