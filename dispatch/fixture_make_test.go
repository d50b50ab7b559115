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

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file is what tests make with a fixture: endpoints, schedules, polls, dead callbacks, a backlog.

var operator = store.Actor{Name: "operator", Reason: "a test"}

func ptr[T any](v T) *T { return &v }

// endpoint makes one.
func (b *fixture) endpoint(ch control.EndpointChange) store.Endpoint {
	b.t.Helper()
	if ch.URL == nil {
		ch.URL = ptr("https://shop.example/hooks")
	}
	r, err := b.engine.CreateEndpoint(b.t.Context(), store.DefaultProject, ch, operator)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.Endpoint
}

// refused returns the fields that a submission is refused for.
func (b *fixture) refused(s accept.Submission) (fields []string) {
	b.t.Helper()
	if s.Body == nil {
		s.Body = []byte("{}")
	}
	receipts, err := b.engine.Accept(b.t.Context(), store.DefaultProject, []accept.Submission{s})
	if err != nil {
		b.t.Fatal(err)
	}
	if receipts[0].Err == nil {
		return nil
	}
	wrong, ok := errors.AsType[*store.InvalidError](receipts[0].Err)
	if !ok {
		b.t.Fatal(receipts[0].Err)
	}
	for _, f := range wrong.Fields {
		fields = append(fields, f.Field)
	}
	return fields
}

// bury accepts n callbacks that die with their first attempt.
func (b *fixture) bury(n int) (ids []string) {
	b.t.Helper()
	for done := 0; done < n; {
		subs := make([]accept.Submission, min(n-done, 1000))
		for i := range subs {
			subs[i] = tiers()
			subs[i].URL, subs[i].Body, subs[i].Topic = "https://shop.example/", []byte("{}"), "payment"
		}
		receipts, err := b.engine.Accept(b.t.Context(), store.DefaultProject, subs)
		if err != nil {
			b.t.Fatal(err)
		}
		for i := range receipts {
			ids = append(ids, receipts[i].Callback.ID)
		}
		done += len(subs)
	}
	for _, id := range ids {
		if c := b.await(id, time.Hour); c.State != store.Dead {
			b.t.Fatalf("%s is %s", id, c.State)
		}
	}
	return ids
}

// awaitRedrive waits, in the bubble's time, until a redrive has ended.
func (b *fixture) awaitRedrive(id string, within time.Duration) store.Redrive {
	b.t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		r, err := b.db.Redrive(b.t.Context(), store.DefaultProject, id)
		if err != nil {
			b.t.Fatal(err)
		}
		if !r.Open() {
			return r
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the redrive is still %s after %s: %d of %d", r.State, within, r.Done, r.Matched)
		}
	}
}

// isInvalid says whether the error names the field.
func isInvalid(err error, field string) bool {
	wrong, ok := errors.AsType[*store.InvalidError](err)
	return ok && slices.ContainsFunc(wrong.Fields, func(f store.FieldError) bool { return f.Field == field })
}

// readTemplate stands for the API's reader.
func readTemplate(raw []byte) (s accept.Submission, err error) {
	var t struct {
		URL, Endpoint, Ref string
		Delay              *time.Duration
		Expires            *time.Duration
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return s, &store.InvalidError{Fields: []store.FieldError{{Field: "callback", Message: err.Error()}}}
	}
	s.URL, s.Endpoint, s.Ref, s.Delay, s.ExpiresIn, s.Body, s.BodyField = t.URL, t.Endpoint, t.Ref, t.Delay, t.Expires, []byte(`{}`), "payload"
	return s, nil
}

func withTemplates(o *dispatch.Options) { o.ReadTemplate = readTemplate }

// everyMinute is a schedule of a callback a minute.
func everyMinute(name string) control.ScheduleChange {
	return control.ScheduleChange{Name: &name, Cron: new("* * * * *"), Template: []byte(`{"url": "https://shop.example/sweep"}`)}
}

func (b *fixture) schedule(ch control.ScheduleChange) store.Schedule {
	b.t.Helper()
	s, err := b.engine.CreateSchedule(b.t.Context(), store.DefaultProject, ch, store.Actor{Name: "test"})
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *fixture) scheduleNow(id string) store.Schedule {
	b.t.Helper()
	synctest.Wait()
	s, err := b.db.Schedule(b.t.Context(), store.DefaultProject, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// arrivals are the times at which requests came, to the second.
func (b *fixture) arrivals() (at []time.Time) {
	synctest.Wait()
	for _, h := range b.receiver.seen() {
		at = append(at, h.at.UTC().Truncate(time.Second))
	}
	return at
}

// untilMinute sleeps until a whole minute and a part of one more.
func untilMinute(more time.Duration) {
	time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + more)))
}

// untilPaid is the rule of most polls here.
const untilPaid = `{"success": [{"pointer": "/trade_state", "in": ["SUCCESS"]}], "failure": [{"pointer": "/trade_state", "in": ["CLOSED"]}]}`

// A bank is an upstream that says states in turn, the last one again and again, and a merchant that hears results; it answers whatever
// else comes with 200.
func bank(states ...string) func(context.Context, hit, int) (*http.Response, error) {
	return func(_ context.Context, h hit, before int) (*http.Response, error) {
		if !strings.HasPrefix(h.url, "https://bank.example/") {
			return answer(200, ""), nil
		}
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
}

// paidPoll is a poll of an order with these tiers.
func paidPoll(ref string, d ...time.Duration) accept.PollSubmission {
	p := accept.PollSubmission{Submission: tiers(d...), Until: []byte(untilPaid), Context: []byte(`{"shop": 7, "n": 1.50}`)}
	p.URL, p.Ref, p.Topic = "https://bank.example/orders/"+ref, ref, "order.sync"
	p.OnResult = &accept.Submission{URL: "https://shop.example/result"}
	return p
}

func (b *fixture) poll(p accept.PollSubmission) store.Callback {
	b.t.Helper()
	r, err := b.engine.AcceptPoll(b.t.Context(), store.DefaultProject, p)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.Callback
}

// results are the results that the merchant heard, those of one poll in order.
func (b *fixture) results(pollID string) (list []store.PollResult) {
	b.t.Helper()
	for _, h := range b.receiver.seen() {
		if !strings.HasPrefix(h.url, "https://shop.example/result") {
			continue
		}
		var r store.PollResult
		if err := json.Unmarshal([]byte(h.body), &r); err != nil {
			b.t.Fatalf("result %s: %v", h.body, err)
		}
		if r.PollID == "cb_"+pollID {
			list = append(list, r)
		}
	}
	return list
}

// result is the one result of a poll.
func (b *fixture) result(pollID string) store.PollResult {
	b.t.Helper()
	time.Sleep(5 * time.Second)
	synctest.Wait()
	list := b.results(pollID)
	if len(list) != 1 {
		b.t.Fatalf("%d results of the poll, want 1: %+v", len(list), list)
	}
	return list[0]
}

// asked are the times at which the upstream was asked for a poll, since its first.
func (b *fixture) asked(pollID string) (at []time.Duration) {
	var first time.Time
	for _, h := range b.receiver.seen() {
		if h.id != "cb_"+pollID {
			continue
		}
		if first.IsZero() {
			first = h.at
		}
		at = append(at, h.at.Sub(first).Round(10*time.Millisecond))
	}
	return at
}

// backlog accepts so many callbacks of one lane.
func (b *fixture) backlog(n int, s accept.Submission) {
	b.t.Helper()
	s.URL, s.Body = "https://shop.example/notify", []byte(`{}`)
	for n > 0 {
		batch := make([]accept.Submission, min(n, 500))
		for i := range batch {
			batch[i] = s
		}
		n -= len(batch)
		receipts, err := b.engine.Accept(b.t.Context(), store.DefaultProject, batch)
		if err != nil || receipts[0].Err != nil {
			b.t.Fatal(err, receipts)
		}
	}
}

func dueAt(at time.Time) accept.Submission {
	ms := at.UnixMilli()
	return accept.Submission{DueAt: &ms}
}
