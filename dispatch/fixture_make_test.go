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

// This file is what tests make with a fixture, and what they look at: callbacks, endpoints, schedules, polls.
// All of it is of the default project, and done by the operator.

const project = store.DefaultProject

var operator = store.Actor{Name: "operator", Reason: "a test"}

// bare is an id without its prefix.
func bare(id string) string { return strings.TrimPrefix(id, store.CallbackPrefix) }

// tiers is an inline policy.
func tiers(d ...time.Duration) accept.Submission {
	p := accept.DefaultPolicy()
	p.Tiers = d
	return accept.Submission{Choice: accept.Choice{Policy: p, PolicyGiven: true}}
}

func to(url string) accept.Submission { return accept.Submission{URL: url} }

// in is what is due after d, at what is due then.
func in(d time.Duration) accept.Submission { return at(time.Now().Add(d)) }

func at(due time.Time) accept.Submission { return accept.Submission{DueAt: new(due.UnixMilli())} }

// completed gives submissions what a test leaves out: an address and a body.
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

// offer hands submissions over, and returns what became of each.
func (b *fixture) offer(project string, subs ...accept.Submission) []store.Accepted {
	b.Helper()
	return must(b.engine.Accept(b.Context(), project, completed(subs)))
}

// accept submits callbacks, all of which must be taken, and returns the last one.
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

// backlog accepts so many callbacks that are alike.
func (b *fixture) backlog(n int, s accept.Submission) {
	b.Helper()
	b.accept(slices.Repeat([]accept.Submission{s}, n)...)
}

// wrongFields are those that an error names.
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

// attempts are those of a callback by number.
func (b *fixture) attempts(id string) []store.Attempt {
	b.Helper()
	a := must(b.db.Attempts(b.Context(), project, id, 0, 500))
	slices.Reverse(a)
	return a
}

// await sleeps, in the bubble's time, until the callback is terminal: to its due time while that is far, else
// in small steps.
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

// ends awaits callbacks, and checks how each has ended: "succeeded 2", "dead exhausted 3", with the number of
// charged attempts or without it.
func (b *fixture) ends(want string, within time.Duration, ids ...string) {
	b.Helper()
	for _, id := range ids {
		c := b.await(id, within)
		b.stands(c, want)
	}
}

// stands checks a callback's state, reason and number of charged attempts.
func (b *fixture) stands(c store.Callback, want string) {
	b.Helper()
	got := became(c)
	b.check(strings.HasPrefix(got+" ", want+" "), "%s to %s: %s, want %s", c.ID, c.URL, got, want)
}

// seen are the requests so far.
func (r *receiver) seen() []hit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.hits)
}

// turn has the receiver answer otherwise from now on.
func (b *fixture) turn(answer answers) {
	b.receiver.mu.Lock()
	defer b.receiver.mu.Unlock()
	b.receiver.answer = answer
}

// hits are the requests so far to addresses with that in them.
func (b *fixture) hits(part string) []hit {
	synctest.Wait()
	return slices.DeleteFunc(b.receiver.seen(), func(h hit) bool { return !strings.Contains(h.url, part) })
}

// sent checks how many requests there were so far.
func (b *fixture) sent(want int, when string) {
	b.Helper()
	b.is("requests "+when, len(b.hits("")), want)
}

// counts are how many callbacks there are in each state.
func (b *fixture) counts() map[store.State]int64 {
	b.Helper()
	return must(b.db.Counts(b.Context(), project)).States
}

// health is what the engine says of itself: "ready", or why it is not, and what is degraded.
func (b *fixture) health() string {
	h := b.engine.Health(b.Context())
	words := append([]string{h.Why}, h.Degraded...)
	if h.Ready {
		words = append([]string{"ready"}, words...)
	}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

// endpoint makes one.
func (b *fixture) endpoint(ch control.EndpointChange) store.Endpoint {
	b.Helper()
	if ch.URL == nil {
		ch.URL = new("https://shop.example/hooks")
	}
	return must(b.engine.CreateEndpoint(b.Context(), project, ch, operator)).Endpoint
}

// What people do.

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

// soon is a time from now, in Unix milliseconds.
func soon(d time.Duration) int64 { return time.Now().Add(d).UnixMilli() }

// bury accepts n callbacks that die with their first attempt.
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

// readTemplate stands for the API's reader.
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

// untilPaid is the rule of most polls here.
const untilPaid = `{"success": [{"pointer": "/trade_state", "in": ["SUCCESS"]}], "failure": [{"pointer": "/trade_state", "in": ["CLOSED"]}]}`

// A bank is an upstream that says states in turn, the last one again and again, and a merchant that hears
// results; it answers whatever else comes with 200.
func bank(states ...string) answers {
	return answering("https://bank.example/", func(_ context.Context, _ hit, before int) (*http.Response,
		error) {
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
	})
}

// paidPoll is a poll of an order with these tiers.
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

// awaitChain waits until no entry is unchained, and returns the chain's last link.
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
