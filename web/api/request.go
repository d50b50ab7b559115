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
)

const (
	// maxRequest is the most bytes of a request's body, maxBatch of a batch's.
	maxRequest = 512 << 10
	maxBatch   = 16 << 20
)

// readBody reads the whole body, which is at most limit bytes; a longer one is refused before it is read, or,
// where it does not say its length, as soon as it goes over. It is for handlers, whose requests have an
// intake as their body.
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
		return nil, errors.New("the request's body was not taken in")
	}
	var from io.Reader = in
	if r.ContentLength < 0 {
		// The writer below gin's is the one that knows how to close the connection.
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

// readError is what is answered where a body could not be read.
func readError(c *gin.Context, err error, limit int64) error {
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return tooLarge(limit)
	}
	if errors.Is(err, httperr.ErrBusy) {
		c.Header("Connection", "close") // the rest of the body is not waited for
		return err
	}
	return fmt.Errorf("%w: %w", httperr.ErrIncomplete, err)
}

func tooLarge(limit int64) error {
	return fmt.Errorf("%w: at most %d KiB are taken here", httperr.ErrTooLarge, limit>>10)
}

// readJSON reads a body that must be there, and finds it valid JSON.
func readJSON(c *gin.Context, limit int64) ([]byte, error) {
	body, err := readBody(c, limit)
	if err != nil {
		return nil, err
	}
	return body, checkJSON(body)
}

// readObject reads a small object whose fields member decodes. Where optional, no body at all is an empty
// object. What is wrong with the fields is in f: for the caller to say, or for the engine, which names all of
// it at once.
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

// readItems reads a batch: an object whose one member of that name is an array of 1 to most items, which are
// returned as they stand in the request. Other members are for the rest to decode.
func readItems(c *gin.Context, f *fields, name string, most int,
	rest func(key, value []byte) bool) ([][]byte, error) {
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
		f.add(name, "is needed")
	case n == 0:
		f.add(name, "must have at least one element")
	case n > most:
		f.add(name, fmt.Sprintf("has %d elements; at most %d are taken at once", n, most))
	}
	return items, f.err()
}

const (
	// freeBody bounds what a body takes without asking for room: what most requests need, and no more than
	// their connections hold in any case.
	freeBody = 16 << 10
	// exactBody bounds the bodies that are given their buffer at once, if they say their length. The buffers
	// of longer ones begin with freeBody, and double as it comes.
	exactBody = 64 << 10
	// requestBudget and batchRoom bound the bytes of longer bodies that are in memory at the same time: those
	// up to maxRequest, and those that have grown beyond it. A batch that does not come holds nothing up but
	// batches.
	requestBudget = 128 << 20
	batchBudget   = 256 << 20
	// roomTimeout is how long a body waits for room. A crowd of batches passes in less; a sender that gets
	// 503 after that sends again, to another process perhaps.
	roomTimeout = 2 * time.Second
)

// A bodyBudget bounds the bytes of bodies that are in memory at the same time. One project has at most half of it.
type bodyBudget struct {
	limit int64

	mu   sync.Mutex
	used int64
	byProject   map[string]int64 // used by projects; none has zero
	// freed is closed, and replaced, when a part of the room comes free.
	freed chan struct{}
}

func newBodyBudget(most int64) *bodyBudget {
	return &bodyBudget{limit: most, byProject: make(map[string]int64), freed: make(chan struct{})}
}

// acquire waits for n bytes, at most roomPatience and until the context ends. Its error is httperr.ErrBusy.
func (r *bodyBudget) acquire(ctx context.Context, project string, n int64) error {
	var late <-chan time.Time
	for {
		freed, ok := r.tryAcquire(project, n)
		if ok {
			return nil
		}
		if late == nil {
			timer := time.NewTimer(roomTimeout)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-freed:
		case <-late:
			return httperr.ErrBusy
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", httperr.ErrBusy, ctx.Err())
		}
	}
}

// tryAcquire takes n bytes if they are free; otherwise it returns what is closed when some come free.
func (r *bodyBudget) tryAcquire(project string, n int64) (freed <-chan struct{}, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used+n > r.limit || r.byProject[project]+n > r.limit/2 {
		return r.freed, false
	}
	r.used += n
	r.byProject[project] += n
	return nil, true
}

// release takes n bytes back.
func (r *bodyBudget) release(project string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
	r.byProject[project] -= n
	if r.byProject[project] == 0 {
		delete(r.byProject, project)
	}
	close(r.freed)
	r.freed = make(chan struct{})
}

// bodyBudgets are those of one process.
type bodyBudgets struct{ requests, batches *bodyBudget }

func newBodyBudgets() bodyBudgets { return bodyBudgets{requests: newBodyBudget(requestBudget), batches: newBodyBudget(batchBudget)} }

// An budgetedBody is the body of one request. Its buffer grows with what comes: what a request declares is only a
// promise.
type budgetedBody struct {
	io.ReadCloser
	ctx     context.Context
	project string
	budgets   bodyBudgets
	// held bytes are taken from the budget; nil: none.
	budget *bodyBudget
	acquired int64
	// onRead is called when the body has been read; it may be nil.
	onRead func() error
}

// withBudget runs a handler, for which the request's body is an intake.
func (a *API) withBudget(ctx context.Context, c *gin.Context, who caller, h handler) error {
	in := &budgetedBody{ReadCloser: c.Request.Body, ctx: ctx, project: who.Project, budgets: a.budgets}
	defer in.release()
	c.Request.Body = in
	return h(ctx, c, who)
}

// read reads a body of that length, which is at most limit; negative: until its end, which r keeps within
// limit.
func (in *budgetedBody) read(r io.Reader, length, limit int64) ([]byte, error) {
	most := limit + 1 // one more than comes, to read the end
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

// grow has the room hold as many bytes in all.
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

// release gives back what is held, when nothing refers to the body any more.
func (in *budgetedBody) release() {
	if in.budget != nil {
		in.budget.release(in.project, in.acquired)
		in.budget, in.acquired = nil, 0
	}
}
