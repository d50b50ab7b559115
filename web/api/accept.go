package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// acceptRoute is the route as idempotency keys know it. A callback of a batch gets what a request of its own would have got, so
// its key is that route's too: whoever sends again in a batch what was sent one by one makes nothing twice.
const acceptRoute = "POST /v1/callbacks"

// accept is POST /v1/callbacks: 202 with the callback, or 200 with the first one of the same idempotency key.
func (a *API) accept(ctx context.Context, c *gin.Context, who caller) error {
	sub, err := readSubmission(c, acceptRoute)
	if err != nil {
		return err
	}
	receipts, err := a.submit(ctx, who, []accept.Submission{sub})
	if err != nil {
		return err
	}
	return a.accepted(c, &receipts[0])
}

// readSubmission reads what a request of that route submits.
func readSubmission(c *gin.Context, route string) (accept.Submission, error) {
	body, err := readJSON(c, maxRequest)
	if err != nil {
		return accept.Submission{}, err
	}
	sub, err := decodeSubmission(body)
	if err != nil {
		return accept.Submission{}, err
	}
	headerIdempotency(&sub, c.Request.Header)
	bindIdempotency(&sub, route, body)
	return sub, nil
}

// accepted answers with what became of one submission.
func (a *API) accepted(c *gin.Context, r *accept.Receipt) error {
	if r.Err != nil {
		return r.Err
	}
	b := takeBuffer()
	defer giveBuffer(b)
	*b = appendCallback(*b, &r.Callback, a.Engine.Now(), r.Replayed)
	a.answer(c, acceptedStatus(r.Replayed), *b)
	return nil
}

func acceptedStatus(replayed bool) int {
	if replayed {
		return http.StatusOK
	}
	return http.StatusAccepted
}

// submit asks the engine, and holds it to one receipt for each submission.
func (a *API) submit(ctx context.Context, who caller, subs []accept.Submission) ([]accept.Receipt, error) {
	if len(subs) == 0 {
		return nil, nil
	}
	receipts, err := a.Engine.Accept(ctx, who.Project, subs)
	if err != nil {
		return nil, err
	}
	if len(receipts) != len(subs) {
		return nil, fmt.Errorf("accept: %d receipts for %d submissions", len(receipts), len(subs))
	}
	return receipts, nil
}

// acceptBatch is POST /v1/callbacks/batch: 207, and for each callback what a request of its own would have got. The
// good ones are one commit.
func (a *API) acceptBatch(ctx context.Context, c *gin.Context, who caller) error {
	items, err := readBatch(c)
	if err != nil {
		return err
	}
	var (
		subs    = make([]accept.Submission, 0, len(items))
		refused = make(map[int]error)
	)
	for i, raw := range items {
		sub, err := decodeSubmission(raw)
		if err != nil {
			refused[i] = err
			continue
		}
		bindIdempotency(&sub, acceptRoute, raw)
		subs = append(subs, sub)
	}
	receipts, err := a.submit(ctx, who, subs)
	if err != nil {
		return err
	}
	now := a.Engine.Now()
	kept := takeBuffer()
	defer giveBuffer(kept)
	b := append(slices.Grow(*kept, 1024*len(items)), `{"results":[`...)
	for i := range items {
		if i > 0 {
			b = append(b, ',')
		}
		var r accept.Receipt
		if err, bad := refused[i]; bad {
			r.Err = err
		} else {
			r, receipts = receipts[0], receipts[1:]
		}
		if b, err = a.appendResult(c, b, &r, now); err != nil {
			return err
		}
	}
	*kept = append(b, "]}"...)
	a.answer(c, http.StatusMultiStatus, *kept)
	return nil
}

// appendResult writes what became of one callback of a batch.
func (a *API) appendResult(c *gin.Context, b []byte, r *accept.Receipt, now int64) ([]byte, error) {
	if r.Err == nil {
		b = append(b, `{"status":`...)
		b = strconv.AppendInt(b, int64(acceptedStatus(r.Replayed)), 10)
		b = append(b, `,"callback":`...)
		return append(appendCallback(b, &r.Callback, now, r.Replayed), '}'), nil
	}
	p := a.problem(c, r.Err)
	return client.AppendJSON(b, client.CallbackResult{Status: p.Status, Problem: &p.Problem})
}

// readBatch returns the callbacks of a batch as they stand in the request.
func readBatch(c *gin.Context) ([][]byte, error) {
	var f fields
	if len(c.Request.Header["Idempotency-Key"]) > 0 {
		f.add("Idempotency-Key", "belongs to one callback: give idempotency_key in each callback of a batch")
	}
	return readItems(c, &f, "callbacks", accept.MaxAccept, func(_, _ []byte) bool { return false })
}

// eventRoute is the route as idempotency keys know it.
const eventRoute = "POST /v1/events"

// event is POST /v1/events: 202 with what became of it, or 200 with what became of the first one of the same idempotency key. Its fields
// are a callback's; those that are each endpoint's own the engine refuses by their names.
func (a *API) event(ctx context.Context, c *gin.Context, who caller) error {
	sub, err := readSubmission(c, eventRoute)
	if err != nil {
		return err
	}
	r, err := a.Engine.AcceptEvent(ctx, who.Project, sub)
	if err != nil {
		return err
	}
	return a.show(c, acceptedStatus(r.Replayed), client.Event{
		ID: store.EventPrefix + r.ID, Replayed: r.Replayed,
		Callbacks: each(r.Callbacks, func(id *string) string { return store.CallbackPrefix + *id }),
	})
}
