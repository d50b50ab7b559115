package api

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// acceptRoute is the route in idempotency keys. A callback of a batch uses it too, because it is accepted
// like a single request. So a sender that repeats single requests in a batch creates nothing twice.
const acceptRoute = "POST /v1/callbacks"

// accept handles POST /v1/callbacks: 202 with the callback, or 200 with the first callback of the same
// idempotency key.
func (a *API) accept(ctx context.Context, c *gin.Context, who caller) error {
	sub, err := readSubmission(c, acceptRoute)
	if err != nil {
		return err
	}
	accepted, err := a.submit(ctx, who, []accept.Submission{sub})
	if err != nil {
		return err
	}
	return a.accepted(c, &accepted[0])
}

// readSubmission reads the submission of a request. The route becomes a part of its idempotency key.
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

// accepted responds with the result of one submission.
func (a *API) accepted(c *gin.Context, r *store.Accepted) error {
	if r.Err != nil {
		return r.Err
	}
	b := getBuffer()
	defer putBuffer(b)
	*b = appendCallback(*b, &r.Callback, a.Engine.Now(), r.Replayed)
	a.writeJSON(c, acceptedStatus(r.Replayed), *b)
	return nil
}

func acceptedStatus(replayed bool) int {
	if replayed {
		return http.StatusOK
	}
	return http.StatusAccepted
}

// submit calls the engine, and checks that it returns one result per submission.
func (a *API) submit(ctx context.Context, who caller, subs []accept.Submission) ([]store.Accepted, error) {
	if len(subs) == 0 {
		return nil, nil
	}
	by := who.Creator()
	for i := range subs {
		subs[i].CreatedBy = by
	}
	accepted, err := a.Engine.Accept(ctx, who.Project, subs)
	if err != nil {
		return nil, err
	}
	if len(accepted) != len(subs) {
		return nil, fmt.Errorf("accept: %d results for %d submissions", len(accepted), len(subs))
	}
	return accepted, nil
}

// acceptBatch handles POST /v1/callbacks/batch: 207, with the result that each callback would get as a single
// request. All valid callbacks are one commit. Submissions with invalid fields go to the engine too, which
// returns their errors; only a payload over the limit is rejected before.
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
	accepted, err := a.submit(ctx, who, subs)
	if err != nil {
		return err
	}
	now := a.Engine.Now()
	kept := getBuffer()
	defer putBuffer(kept)
	b := append(slices.Grow(*kept, 1024*len(items)), `{"results":[`...)
	for i := range items {
		if i > 0 {
			b = append(b, ',')
		}
		// accepted has one result per submission, in the order of the items that were not refused.
		var r store.Accepted
		if err, bad := refused[i]; bad {
			r.Err = err
		} else {
			r, accepted = accepted[0], accepted[1:]
		}
		b, err = a.appendResult(c, b, &r, now)
		if err != nil {
			return err
		}
	}
	*kept = append(b, "]}"...)
	a.writeJSON(c, http.StatusMultiStatus, *kept)
	return nil
}

// appendResult writes the result of one callback of a batch.
func (a *API) appendResult(c *gin.Context, b []byte, r *store.Accepted, now int64) ([]byte, error) {
	if r.Err == nil {
		b = append(b, `{"status":`...)
		b = strconv.AppendInt(b, int64(acceptedStatus(r.Replayed)), 10)
		b = append(b, `,"callback":`...)
		return append(appendCallback(b, &r.Callback, now, r.Replayed), '}'), nil
	}
	p := a.problem(c, r.Err)
	return client.AppendJSON(b, client.CallbackResult{Status: p.Status, Problem: &p.Problem})
}

// readBatch returns the callbacks of a batch as they are in the request.
func readBatch(c *gin.Context) ([][]byte, error) {
	var f fields
	if len(c.Request.Header["Idempotency-Key"]) > 0 {
		f.add("Idempotency-Key", "is for a single callback; set idempotency_key in each callback of a batch")
	}
	return readItems(c, &f, "callbacks", accept.MaxAccept, func(_, _ []byte) bool { return false })
}

// eventRoute is the route of events in idempotency keys.
const eventRoute = "POST /v1/events"

// event handles POST /v1/events: 202 with the event, or 200 with the first event of the same idempotency key.
// Its fields are those of a callback. The engine rejects the fields that each endpoint sets, by name.
func (a *API) event(ctx context.Context, c *gin.Context, who caller) error {
	sub, err := readSubmission(c, eventRoute)
	if err != nil {
		return err
	}
	sub.CreatedBy = who.Creator()
	r, err := a.Engine.AcceptEvent(ctx, who.Project, sub)
	if err != nil {
		return err
	}
	return a.respond(c, acceptedStatus(r.Replayed), client.Event{
		ID: store.EventPrefix + r.ID, Replayed: r.Replayed,
		Callbacks: each(r.Callbacks, func(id *string) string { return store.CallbackPrefix + *id }),
	})
}

// Limits while decoding. They are higher than those of the engine, which checks the values.
const (
	maxHeaders  = 1000
	maxTiers    = 1000
	maxStatuses = 1000
)

// A submissionDecoder decodes one callback. Fields that it cannot decode are in the submission's Invalid. The
// engine checks what the values mean.
type submissionDecoder struct {
	fields
	sub      accept.Submission
	tooLarge bool
}

// decodeSubmission decodes one callback from valid JSON. The result refers to raw, because the payload is a
// part of it. The only error is ErrPayloadTooLarge.
func decodeSubmission(raw []byte) (accept.Submission, error) {
	var d submissionDecoder
	d.object(request, "", raw, d.member)
	return d.done()
}

// done returns the decoded submission. The only error is ErrPayloadTooLarge.
func (d *submissionDecoder) done() (accept.Submission, error) {
	if d.tooLarge {
		return accept.Submission{}, httperr.ErrPayloadTooLarge
	}
	d.sub.Invalid = d.invalid
	return d.sub, nil
}

// without returns a member function for requests that lack some fields of a callback. refused has an error
// message for each of these fields.
func (d *submissionDecoder) without(refused map[string]string) func(key, raw []byte) bool {
	return d.lacking(refused, d.member)
}

// lacking returns a member function for requests that lack some fields that member decodes.
func (f *fields) lacking(
	refused map[string]string, member func(key, raw []byte) bool,
) func(key, raw []byte) bool {
	return func(key, raw []byte) bool {
		why := refused[string(key)]
		if why == "" {
			return member(key, raw)
		}
		if !isNull(raw) {
			f.add(string(key), why)
		}
		return true
	}
}

// member decodes one field. It returns false for an unknown field.
func (d *submissionDecoder) member(key, raw []byte) bool {
	if to := d.textField(key); to != nil {
		d.text(string(key), raw, to)
		return true
	}
	switch string(key) {
	case "policy", "success", "signer", "profile":
		d.choose(string(key), raw, &d.sub.Choice)
	case "headers":
		d.headers(raw, &d.sub.Headers)
	case "labels":
		d.labels(raw)
	case "payload", "body", "body_base64":
		d.payload(string(key), raw)
	case "due_at":
		setPointer(&d.fields, "due_at", raw, &d.sub.DueAt, decodeInstant)
	case "delay":
		d.duration("delay", raw, &d.sub.Delay)
	case "expires_in":
		d.duration("expires_in", raw, &d.sub.ExpiresIn)
	case "supersede":
		d.boolean("supersede", raw, &d.sub.Supersede)
	case "version":
		setPointer(&d.fields, "version", raw, &d.sub.Version, decodeInteger)
	case "start_attempt":
		set(&d.fields, "start_attempt", raw, &d.sub.StartAttempt, decodeCount)
	case "idempotency_key":
		set(&d.fields, "idempotency_key", raw, &d.sub.IdempotencyKey, func(raw []byte) (string, string) {
			key, wrong := decodeLine(raw)
			return key, checkKey(wrong, key)
		})
	default:
		return false
	}
	return true
}

// textField returns the destination of a single-line text field, or nil for other fields.
func (d *submissionDecoder) textField(key []byte) *string {
	switch string(key) {
	case "url":
		return &d.sub.URL
	case "endpoint":
		return &d.sub.Endpoint
	case "method":
		return &d.sub.Method
	case "topic":
		return &d.sub.Topic
	case "ref":
		return &d.sub.Ref
	case "content_type":
		return &d.sub.ContentType
	case "lock_key":
		return &d.sub.LockKey
	case "order":
		return &d.sub.Order
	case "lane":
		return &d.sub.Lane
	}
	return nil
}

// payload sets the body from payload, body or body_base64. A payload keeps its bytes.
func (d *submissionDecoder) payload(name string, raw []byte) {
	if isNull(raw) {
		return
	}
	if d.sub.BodyField != "" {
		d.add(name, "conflicts with "+d.sub.BodyField+"; set only one of payload, body and body_base64")
		return
	}
	// Set even for an invalid body, so that the engine does not also report a missing body.
	d.sub.Body, d.sub.BodyField = []byte{}, name
	const otherwise = "; use body_base64 instead"
	body, wrong := raw, ""
	switch name {
	case "payload":
		if !utf8.Valid(raw) {
			wrong = notUTF8 + otherwise
		}
	case "body":
		var s string
		s, wrong = decodeText(raw, true)
		if wrong != "" {
			wrong += otherwise
		}
		body = []byte(s)
	case "body_base64":
		body, wrong = decodeBase64(raw)
	}
	switch {
	case wrong != "":
		d.add(name, wrong)
	case len(body) > accept.MaxBody:
		d.tooLarge = true
	default:
		d.sub.Body = body
	}
}

// headers decodes headers in order.
func (f *fields) headers(raw []byte, to *[]store.Header) {
	f.texts("headers", raw, func(name, value string) {
		switch {
		case len(*to) == maxHeaders:
			f.add("headers", fmt.Sprintf("has more than %d headers", maxHeaders))
		case len(*to) < maxHeaders:
			*to = append(*to, store.Header{Name: name, Value: value})
		}
	})
}

func (d *submissionDecoder) labels(raw []byte) {
	d.texts("labels", raw, func(name, value string) {
		if d.sub.Labels == nil {
			d.sub.Labels = make(map[string]string)
		}
		d.sub.Labels[name] = value
	})
}

// checkKey rejects an empty idempotency key. It is probably a variable that the caller did not fill, and
// treating it as no key could send the callback twice.
func checkKey(wrong, key string) string {
	if wrong == "" && key == "" {
		return "must not be empty"
	}
	return wrong
}

// bindIdempotency adds the route and a fingerprint of the request to a submission that has an idempotency
// key. The fingerprint is a hash over the route and raw, the callback as it is in the request.
func bindIdempotency(sub *accept.Submission, route string, raw []byte) {
	if sub.IdempotencyKey == "" {
		return
	}
	h := sha256.New()
	h.Write([]byte(route))
	h.Write([]byte{'\n'})
	h.Write(raw)
	sub.Route, sub.Fingerprint = route, h.Sum(nil)
}

// headerIdempotency sets the key from the Idempotency-Key header. If the body has a key too, both must be
// equal.
func headerIdempotency(sub *accept.Submission, h http.Header) {
	values := h["Idempotency-Key"]
	if len(values) == 0 {
		return
	}
	f := fields{invalid: sub.Invalid}
	key := values[0]
	wrong := checkKey(query.CheckText(key, false), key)
	for _, other := range values[1:] {
		if other != values[0] {
			wrong = "is set twice with different values"
		}
	}
	switch {
	case wrong != "":
		f.add("Idempotency-Key", wrong)
	case sub.IdempotencyKey != "" && sub.IdempotencyKey != key:
		f.add("idempotency_key", "differs from the Idempotency-Key header")
	default:
		sub.IdempotencyKey = key
	}
	sub.Invalid = f.invalid
}

// Check validates the body of one POST /v1/callbacks without a server, as the server would. Its error is one
// that package httperr knows. It does not check whether the URL is allowed; only a server can.
func Check(body []byte, now time.Time) error {
	if err := checkJSON(body); err != nil {
		return err
	}
	sub, err := decodeSubmission(body)
	if err != nil {
		return err
	}
	return accept.Check(&sub, now)
}
