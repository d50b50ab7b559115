package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file has helpers of tests that create and read callbacks, endpoints, schedules and polls. All belong
// to the default project, and the operator is the actor.

const project = store.DefaultProject

var operator = store.Actor{Name: "operator", Reason: "a test"}

// bare returns an id without its prefix.
func bare(id string) string { return strings.TrimPrefix(id, store.CallbackPrefix) }

// tiers returns a submission with these tiers.
func tiers(d ...time.Duration) accept.Submission {
	p := accept.DefaultPolicy()
	p.Tiers = d
	return accept.Submission{Choice: accept.Choice{Policy: p, PolicyGiven: true}}
}

func to(url string) accept.Submission { return accept.Submission{URL: url} }

// in returns a submission that is due after d, at one that is due then.
func in(d time.Duration) accept.Submission { return at(time.Now().Add(d)) }

func at(due time.Time) accept.Submission { return accept.Submission{DueAt: new(due.UnixMilli())} }

// completed adds a URL and a body to submissions without one.
func completed(subs []accept.Submission) []accept.Submission {
	for i := range subs {
		if subs[i].URL == "" && subs[i].Endpoint == "" {
			subs[i].URL = "https://shop.example/notify"
		}
		if subs[i].Body == nil {
			subs[i].Body = []byte(`{"paid": 1}`)
		}
	}
	return subs
}

// offer submits callbacks and returns all results.
func (b *fixture) offer(project string, subs ...accept.Submission) []store.Accepted {
	b.Helper()
	return must(b.engine.Accept(b.Context(), project, completed(subs)))
}

// accept submits callbacks, checks that all are accepted, and returns the last one.
func (b *fixture) accept(subs ...accept.Submission) (last store.Callback) {
	b.Helper()
	for part := range slices.Chunk(subs, 1000) {
		for _, r := range b.offer(project, part...) {
			b.ok(r.Err)
			last = r.Callback
		}
	}
	return last
}

// backlog accepts n equal callbacks.
func (b *fixture) backlog(n int, s accept.Submission) {
	b.Helper()
	b.accept(slices.Repeat([]accept.Submission{s}, n)...)
}

// wrongFields returns the fields that an error names.
func (b *fixture) wrongFields(err error) (fields []string) {
	b.Helper()
	wrong, ok := errors.AsType[*store.InvalidError](err)
	b.check(ok || err == nil, "%v names no field", err)
	if ok {
		for _, f := range wrong.Fields {
			fields = append(fields, f.Field)
		}
	}
	return fields
}

func (b *fixture) get(id string) store.Callback {
	b.Helper()
	return must(b.db.Get(b.Context(), project, id))
}

// attempts returns the attempts of a callback by number.
func (b *fixture) attempts(id string) []store.Attempt {
	b.Helper()
	a := must(b.db.Attempts(b.Context(), project, id, 0, 500))
	slices.Reverse(a)
	return a
}

// await waits in virtual time until the callback is terminal. It sleeps until a distant due time, and else in
// short steps.
func (b *fixture) await(id string, within time.Duration) store.Callback {
	b.Helper()
	deadline := time.Now().Add(within)
	for {
		synctest.Wait()
		c := b.get(id)
		if c.State.Terminal() {
			return c
		}
		if time.Now().After(deadline) {
			b.Fatalf("callback is still %s after %v: due %s, attempts %d, now %s", c.State, within,
				time.UnixMilli(c.DueAt).UTC(), c.AttemptCount, time.Now().UTC())
		}
		time.Sleep(max(50*time.Millisecond, time.Until(time.UnixMilli(c.DueAt))))
	}
}

// ends waits for callbacks and checks their outcome, such as "succeeded 2" or "dead exhausted 3". The number
// of counted attempts is optional.
func (b *fixture) ends(want string, within time.Duration, ids ...string) {
	b.Helper()
	for _, id := range ids {
		c := b.await(id, within)
		b.checkState(c, want)
	}
}

// checkState checks a callback's state, reason and number of counted attempts.
func (b *fixture) checkState(c store.Callback, want string) {
	b.Helper()
	got := outcomeOf(c)
	b.check(strings.HasPrefix(got+" ", want+" "), "%s to %s: %s, want %s", c.ID, c.URL, got, want)
}

// seen returns the requests so far.
func (r *receiver) seen() []hit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.hits)
}

// turn changes the receiver's responses.
func (b *fixture) turn(answer answers) {
	b.receiver.mu.Lock()
	defer b.receiver.mu.Unlock()
	b.receiver.answer = answer
}

// hits returns the requests so far to URLs that contain part.
func (b *fixture) hits(part string) []hit {
	synctest.Wait()
	return slices.DeleteFunc(b.receiver.seen(), func(h hit) bool { return !strings.Contains(h.url, part) })
}

// sent checks the number of requests so far.
func (b *fixture) sent(want int, when string) {
	b.Helper()
	b.is("requests "+when, len(b.hits("")), want)
}

// counts returns the number of callbacks in each state.
func (b *fixture) counts() map[store.State]int64 {
	b.Helper()
	return must(b.db.Counts(b.Context(), project)).States
}

// health returns the engine's health in words: "ready" or why it is not, and what is degraded.
func (b *fixture) health() string {
	h := b.engine.Health(b.Context())
	words := append([]string{h.Why}, h.Degraded...)
	if h.Ready {
		words = append([]string{"ready"}, words...)
	}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

// endpoint creates an endpoint.
func (b *fixture) endpoint(ch control.EndpointChange) store.Endpoint {
	b.Helper()
	if ch.URL == nil {
		ch.URL = new("https://shop.example/hooks")
	}
	return must(b.engine.CreateEndpoint(b.Context(), project, ch, operator)).Endpoint
}

func (b *fixture) retryAt(id, url string) {
	b.Helper()
	must(b.engine.Retry(b.Context(), project, id, control.RetryRequest{URL: url}, operator))
}

func (b *fixture) cancel(id string) {
	b.Helper()
	b.is("cancel", must(b.engine.Cancel(b.Context(), project, id, operator)).Result, store.CancelDone)
}

func (b *fixture) setLane(lane string, limit int) {
	b.Helper()
	must(b.engine.SetLane(b.Context(), project, lane, &limit, nil, operator))
}

func (b *fixture) patchProject(ch control.ProjectChange) error {
	_, err := b.engine.PatchProject(b.Context(), project, ch, operator)
	return err
}

func (b *fixture) createProject(ch control.ProjectChange) {
	b.Helper()
	must(b.engine.CreateProject(b.Context(), ch, operator))
}

// soon returns a time from now in Unix milliseconds.
func soon(d time.Duration) int64 { return time.Now().Add(d).UnixMilli() }

// bury accepts n callbacks that die at their first attempt, and waits for that.
func (b *fixture) bury(n int) (ids []string) {
	b.Helper()
	s := tiers()
	s.URL, s.Topic = "https://shop.example/", "payment"
	for _, r := range b.offer(project, slices.Repeat([]accept.Submission{s}, n)...) {
		b.ok(r.Err)
		ids = append(ids, r.Callback.ID)
	}
	b.ends("dead", time.Hour, ids...)
	return ids
}

// readTemplate replaces the API's reader of templates.
func readTemplate(raw []byte) (s accept.Submission, err error) {
	var t struct {
		URL, Endpoint, Ref string
		Delay, Expires     *time.Duration
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return s, &store.InvalidError{Fields: []store.FieldError{{Field: "callback", Message: err.Error()}}}
	}
	s.URL, s.Endpoint, s.Ref, s.Delay, s.ExpiresIn, s.Body, s.BodyField = t.URL, t.Endpoint, t.Ref, t.Delay,
		t.Expires, []byte(`{}`), "payload"
	return s, nil
}

// untilPaid is the default rule of polls in these tests.
const untilPaid = `{"success": [{"pointer": "/trade_state", "in": ["SUCCESS"]}], ` +
	`"failure": [{"pointer": "/trade_state", "in": ["CLOSED"]}]}`

// bank returns an upstream that responds to a poll with the states in turn and repeats the last one. It
// responds to all other requests with 200.
func bank(states ...string) answers {
	respond := func(_ context.Context, _ hit, before int) (*http.Response, error) {
		switch s := states[min(before, len(states)-1)]; s {
		case "500":
			return answer(500, "oops"), nil
		case "WAIT":
			return answer(429, `{"code": "FREQUENCY_LIMITED"}`), nil
		case "410":
			return answer(410, "gone"), nil
		case "404":
			return answer(404, `{"code": "ORDER_NOT_EXIST"}`), nil
		default:
			return answer(200, `{"trade_state": "`+s+`", "amount": 12345678901234567890.10}`), nil
		}
	}
	return answering("https://bank.example/", respond)
}

// paidPoll returns a poll of an order with these tiers.
func paidPoll(ref string, d ...time.Duration) accept.PollSubmission {
	p := accept.PollSubmission{Submission: tiers(d...), Until: []byte(untilPaid),
		Context: []byte(`{"shop": 7, "n": 1.50}`)}
	p.URL, p.Ref, p.Topic = "https://bank.example/orders/"+ref, ref, "order.sync"
	p.OnResult = &accept.Submission{URL: "https://shop.example/result"}
	return p
}

func (b *fixture) poll(p accept.PollSubmission) store.Callback {
	b.Helper()
	return must(b.engine.AcceptPoll(b.Context(), project, p)).Callback
}

// awaitChain waits until every audit entry is chained, and returns the last link.
func (b *fixture) awaitChain() store.AuditLink {
	b.Helper()
	for range 10 {
		time.Sleep(time.Second)
		if head := must(b.db.AuditHead(b.Context())); head.Unchained == 0 {
			return head.Link
		}
	}
	b.Fatal("entries are not chained within ten seconds")
	return store.AuditLink{}
}
