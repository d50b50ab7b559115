package ui

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// callbackRows has callbacks, newest first, and what was attempted of them.
type callbackRows struct {
	all      []store.Callback
	attempts []store.Attempt
	payload  store.Payload
	counts   store.Counts
	err      error
	// left is where each list that no index serves was left, when there is nothing in it.
	left *store.Cursor
	// asked is the last filter.
	asked *store.Filter
	// lists counts how often attempts are listed.
	lists *int
}

func (s callbackRows) Get(_ context.Context, _, id string) (store.Callback, error) {
	return rowOf(s.all, s.err, func(c store.Callback) bool { return c.ID == id })
}

func (s callbackRows) List(_ context.Context, _ string, f store.Filter) (store.Page, error) {
	if s.asked != nil {
		*s.asked = f
	}
	var p store.Page
	if f.Ref == "" && f.LockKey == "" {
		p.Next = s.left
	}
	for _, c := range s.all {
		switch {
		case f.After != nil && c.ID >= f.After.ID,
			f.Ref != "" && c.Ref != f.Ref, f.LockKey != "" && c.LockKey != f.LockKey, f.Kind != "" && c.Kind != f.Kind,
			len(f.States) > 0 && !slices.Contains(f.States, c.StateAt(f.Now)),
			slices.ContainsFunc(slices.Collect(maps.Keys(f.Labels)), func(name string) bool { return c.Labels[name] != f.Labels[name] }):
			continue
		}
		if len(p.Callbacks) == f.Limit {
			p.Next = &store.Cursor{ID: p.Callbacks[f.Limit-1].ID}
			break
		}
		p.Callbacks = append(p.Callbacks, c)
	}
	return p, s.err
}

// Attempts reads the attempts, which are by number, as the store does.
func (s callbackRows) Attempts(
	_ context.Context, _, _ string, before, limit int,
) (page []store.Attempt, err error) {
	if s.lists != nil {
		*s.lists++
	}
	for _, a := range slices.Backward(s.attempts) {
		if len(page) < limit && (before == 0 || a.Number < before) {
			page = append(page, a)
		}
	}
	return page, s.err
}

func (s callbackRows) Attempt(_ context.Context, _, _ string, number int) (store.Attempt, error) {
	return rowOf(s.attempts, s.err, func(a store.Attempt) bool { return a.Number == number })
}

func (s callbackRows) Payload(context.Context, string, string) (store.Payload, error) {
	return s.payload, s.err
}
func (s callbackRows) Counts(context.Context, string) (store.Counts, error) { return s.counts, s.err }

// callbackEngine answers what is asked of the engine for one callback, and remembers what was done.
type callbackEngine struct {
	diary
	why control.Explanation
	err error
}

func (e callbackEngine) Explain(context.Context, string, string) (control.Explanation, error) {
	return e.why, nil
}

func (e callbackEngine) Evidence(context.Context, string, string) (string, error) {
	return "evidence of " + hostile, e.err
}

func (e callbackEngine) Retry(_ context.Context, _, id string, r control.RetryRequest, by store.Actor) (store.Callback, error) {
	e.note("retry %s %s %s %s %s", id, r.Ladder, r.URL, by.Name, by.Reason)
	return store.Callback{}, e.err
}

func (e callbackEngine) Cancel(_ context.Context, _, id string, by store.Actor) (store.CanceledCallback, error) {
	e.note("cancel %s %s", id, by.Reason)
	if by.Address != "192.0.2.1" { // what httptest says
		e.note("from %q", by.Address)
	}
	return store.CanceledCallback{Result: store.CancelDone}, e.err
}

func (e callbackEngine) Reschedule(_ context.Context, _, id string, due *int64, delay *time.Duration, by store.Actor) (store.Callback, error) {
	if delay != nil {
		e.note("reschedule %s in %s", id, *delay)
	} else {
		e.note("reschedule %s at %d", id, *due)
	}
	return store.Callback{DueAt: testNow + 1000}, e.err
}

func (e callbackEngine) Mend(_ context.Context, _, id string, r control.MendRequest, _ store.Actor) (store.Callback, error) {
	if r.URL != nil {
		e.note("mend %s url %s", id, *r.URL)
	}
	if r.Headers != nil {
		e.note("mend %s headers %v", id, *r.Headers)
	}
	return store.Callback{}, e.err
}

type auditRows struct {
	page store.AuditPage
	err  error
	// asked is the last filter.
	asked *store.AuditFilter
}

func (a auditRows) Audit(_ context.Context, _ string, f store.AuditFilter) (store.AuditPage, error) {
	if a.asked != nil {
		*a.asked = f
	}
	return a.page, a.err
}

type pollEngine struct{ view control.PollView }

func (p pollEngine) ResolvePoll(
	context.Context, string, string, control.ResolveRequest, store.Actor,
) (store.ResolvedPoll, error) {
	return store.ResolvedPoll{}, nil
}

func (p pollEngine) Poll(context.Context, string, string) (control.PollView, error) {
	return p.view, nil
}

// sample is a callback that has failed twice and waits for its third attempt.
func sample(n int) store.Callback {
	return store.Callback{
		ID: testID(n), Project: store.DefaultProject, Kind: store.Notify, URL: "https://user:pw@shop.example/notify?token=secret", Method: "POST",
		Topic: "payment.succeeded", Ref: fmt.Sprintf("order-%04d", n), LockKey: "lock-1", Lane: "https://shop.example:443", LaneID: 1,
		Labels: map[string]string{"channel": "alipay"}, Policy: accept.PaymentPolicy(), Success: store.Success{Name: "body-success"},
		State: store.Scheduled, DueAt: testNow + 600_000, AttemptCount: 2, AttemptSeq: 2, LastStatus: 500, LastClass: store.ClassHTTP5xx,
		CreatedAt: testNow - 200_000, UpdatedAt: testNow - 1000, PayloadID: "p", ContentType: "application/json",
		Headers: []store.Header{{Name: "X-Shop", Value: "7"}, {Name: "Authorization", Value: "Bearer hunter2"}},
	}
}

func sampleAttempt(number int) store.Attempt {
	return store.Attempt{
		CallbackID: testID(1), Number: number, Trigger: store.BySchedule, Outcome: store.AttemptFailed, Charged: true, Class: store.ClassRuleMismatch, Status: 200,
		StartedAt: testNow - 190_000 + int64(number), EndedAt: testNow - 189_900, DueAt: testNow - 190_001, Lateness: 1.5,
		Timings: store.Timings{DNS: 1.2, Connect: 3, TLS: 9, FirstByte: 80, Total: 100}, RequestHeaders: []store.Header{{Name: "webhook-id", Value: "cb_" + testID(1)}},
		ResponseHeaders: []store.Header{{Name: "Content-Type", Value: "text/html"}}, ResponseBody: "fail", Rule: &store.Rule{Name: "body-success", Expected: "success", Saw: "fail"},
		NextDueAt: testNow + 600_000,
	}
}

// spoil puts what is hostile wherever a sender, a receiver or an operator can write.
func spoil(c store.Callback) store.Callback {
	c.URL, c.Topic, c.Ref, c.LockKey, c.Lane = "https://shop.example/"+hostile, hostile, hostile, hostile, hostile
	c.Labels = map[string]string{hostile: hostile}
	c.Headers = []store.Header{{Name: hostile, Value: hostile}}
	c.Method, c.ContentType, c.Success.Name, c.Policy.Name = hostile, hostile, hostile, hostile
	return c
}

func spoiledAttempt() store.Attempt {
	a := sampleAttempt(1)
	a.ResponseBody, a.Error, a.URL = strings.Repeat(hostile, 30), hostile, "https://x.example/"+hostile
	a.RequestHeaders, a.ResponseHeaders = []store.Header{{Name: hostile, Value: hostile}}, []store.Header{{Name: hostile, Value: hostile}}
	a.Rule = &store.Rule{Name: hostile, Expected: hostile, Saw: hostile}
	return a
}

var someBlocks = control.Explanation{NextAt: testNow + 600_000, Blocking: []control.Block{
	{Code: control.BlockLanePaused, Since: testNow - 5000, Until: store.Forever, Detail: "paused by " + hostile, Cure: "resume it"},
	{Code: control.BlockNotDue, Until: testNow + 600_000, Detail: "it is due later", Cure: "wait"},
}}

func callbackCases() []pageCase {
	give := func(rows callbackRows, engine ...callbackEngine) func(o *fakes) {
		return func(o *fakes) {
			o.callbackRows = rows
			if len(engine) > 0 {
				o.callbackEngine = engine[0]
			}
		}
	}
	many := callbackRows{counts: store.Counts{States: map[store.State]int64{store.Scheduled: 1_234_567, store.Dead: 3}}}
	for n := 120; n > 0; n-- {
		many.all = append(many.all, sample(n))
	}
	one := callbackRows{all: []store.Callback{sample(1)}, attempts: []store.Attempt{sampleAttempt(1), sampleAttempt(2)},
		payload: store.Payload{Body: []byte(`{"paid": 10000}`)}}
	evil := callbackRows{all: []store.Callback{spoil(sample(1))}, attempts: []store.Attempt{spoiledAttempt()}, payload: store.Payload{Body: []byte(strings.Repeat(hostile, 300))}}
	broken := callbackRows{all: []store.Callback{sample(1)}, err: errBroken}
	spoiledAudit := auditRows{page: store.AuditPage{Entries: []store.AuditEntry{{At: testNow - 50_000, Actor: hostile, Action: "callback.retry", Reason: hostile}}}}
	done := sample(1)
	done.State, done.DueAt, done.FinishedAt, done.LastStatus, done.LastClass = store.Succeeded, 0, testNow-1000, 200, store.ClassOK
	dead := sample(1)
	dead.State, dead.Reason, dead.DueAt, dead.FinishedAt = store.Dead, store.Exhausted, 0, testNow-1000
	poll := sample(1)
	poll.Kind = store.Poll
	id := "/ui/callbacks/cb_" + testID(1)
	attempts := callbackRows{all: []store.Callback{dead}}
	for n := 1; n <= 60; n++ {
		attempts.attempts = append(attempts.attempts, sampleAttempt(n))
	}
	cases := []pageCase{
		{name: "callbacks/empty", set: give(callbackRows{}), want: wants{{".empty", "No callbacks yet"}}, unwanted: []string{"table"}},
		{name: "callbacks/one", set: give(one), want: wants{{"td a", "order-0001"}, {"td .badge", "scheduled"}, {"td", "shop.example/notify?token="}}},
		{name: "callbacks/many", path: "/ui/callbacks?state=scheduled&order=due", set: give(many), want: wants{{".chips .count", "1,234,567"}, {".pager a", "Next page"}, {".bulk a", "Cancel"}}},
		{name: "callbacks/nomatch", path: "/ui/callbacks?ref=none", set: give(one), want: wants{{".empty", "Nothing matches"}}},
		{name: "callbacks/looked", path: "/ui/callbacks?topic=rare", set: give(callbackRows{left: &store.Cursor{ID: testID(1)}}), want: wants{{".empty", "Nothing found so far"}, {".empty time", "2025-11-26"}, {".empty a[data-lookon]", "Look on"}}, unwanted: []string{"table", "a[rel=next]:not([data-lookon])"}},
		{name: "callbacks/looked-due", path: "/ui/callbacks?topic=rare&order=due", set: give(callbackRows{left: &store.Cursor{ID: testID(1), DueAt: testNow + 60_000}}), want: wants{{".empty time", "in 1m"}}},
		{name: "callbacks/wrong", path: "/ui/callbacks?status_code=abc&from=yesterday", set: give(one), want: wants{{".banner.bad", "HTTP status: abc"}}, unwanted: []string{"table"}},
		{name: "callbacks/hostile", path: "/ui/callbacks?ref=" + queryEscape(hostile) + "&label.x=" + queryEscape(hostile), set: give(evil)},
		{
			name: "callbacks/labels", path: "/ui/callbacks?" + labelParameters(21), set: give(one),
			want: wants{{".banner.bad", "Label: 21 (≤ 20)"}}, unwanted: []string{"table"},
		},
		{
			name: "callbacks/label", path: "/ui/callbacks?label.x=1&label.x=2", set: give(one),
			want: wants{{".banner.bad", "Label: x"}}, unwanted: []string{"table"},
		},
		{name: "callbacks/error", set: give(broken), want: wants{{"main", "Something went wrong"}}},
		{name: "polls/empty", set: give(callbackRows{}), want: wants{{".empty", "No polls yet"}}},
		{name: "polls/one", set: give(callbackRows{all: []store.Callback{poll}}), want: wants{{"td a", "order-0001"}}},
		{name: "polls/hostile", set: give(evil)},
		{name: "polls/error", set: give(broken)},
		{name: "callback/one", path: id, set: give(one, callbackEngine{why: someBlocks}), want: wants{
			{".why h2", "Its lane is paused"}, {".why", "Resume the lane."}, {".timeline", "Attempt 2"}, {".timeline", "Created"}, {"pre", `{"paid": 10000}`},
			{".timeline", "Expected success"}, {"#curl", "curl --globoff -i -X 'POST'"}, {"td", "***"}, {"button#retry", "Retry now"},
		}},
		{name: "callback/done", path: id, set: give(callbackRows{all: []store.Callback{done}, attempts: one.attempts, payload: one.payload}), want: wants{{".why.good", "It was delivered"}}},
		{name: "callback/dead-many", path: id, set: give(attempts), want: wants{{".why.bad", "all attempts used up"}, {"section a", "40 older attempts"}}},
		{name: "callback/hostile", path: id, set: func(o *fakes) {
			give(evil, callbackEngine{why: someBlocks})(o)
			o.auditRows = spoiledAudit
		}},
		{name: "callback/poll", path: id, set: func(o *fakes) {
			give(callbackRows{all: []store.Callback{poll}})(o)
			o.pollEngine = pollEngine{view: control.PollView{Callback: poll, Rule: `{"until":{"success":[{"pointer":"/x","eq":"` + "<b>" + `"}]}}`, Detail: store.PollDetail{Context: `{"a":1}`}}}
		}, want: wants{{"h2", "Poll"}, {"pre", `"until"`}, {".buttons a", "Resolve"}}},
		{name: "callback/error", path: id, set: give(broken)},
		{name: "callback/none", path: "/ui/callbacks/cb_" + testID(9), set: give(one), status: http.StatusNotFound, want: wants{{"main", "no such thing in this project"}}},
		{name: "attempt/one", path: id + "/attempts/2", set: give(one), want: wants{{"h1", "Attempt 2"}, {"pre", "fail"}}},
		{name: "attempt/hostile", path: id + "/attempts/1", set: give(evil)},
		{name: "attempt/error", path: id + "/attempts/1", set: give(broken)},
		{name: "evidence/one-hostile", path: id + "/evidence", set: give(one), want: wants{{"pre", "evidence of"}}},
		{name: "evidence/hostile", path: id + "/evidence", set: give(evil)},
		{name: "evidence/error", path: id + "/evidence", set: give(one, callbackEngine{err: errBroken})},
		{name: "order/empty", path: "/ui/orders?ref=none", set: give(one), want: wants{{".empty", "No callback has this reference"}}},
		{name: "order/one", path: "/ui/orders?ref=order-0001", set: give(one), want: wants{{"h1", "Everything of order-0001"}, {"h2", "https://shop.example:443"}}},
		{name: "order/hostile", path: "/ui/orders?ref=" + queryEscape(hostile), set: give(evil)},
		{name: "order/error", path: "/ui/orders?ref=x", set: give(broken)},
		{name: "search/empty", path: "/ui/search?q=nothing", set: func(o *fakes) {
			give(one)(o)
		}, want: wants{{".empty", "Nothing was found"}}},
		{name: "search/one-of-each", path: "/ui/search?q=lock-1", set: func(o *fakes) {
			give(one)(o)
			o.endpointRows = endpointRows{all: []store.Endpoint{{ID: testID(7), Name: "shop " + hostile}}}
		}, want: wants{{"h2", "By lock key"}, {"h2", "Endpoints"}, {"li a", "shop"}}},
		{name: "search/looked", path: "/ui/search?q=shop=7", set: func(o *fakes) {
			give(callbackRows{left: &store.Cursor{ID: testID(1)}})(o)
			o.endpointRows = endpointRows{all: []store.Endpoint{{ID: testID(7), Name: "shop"}}}
		}, want: wants{{"h2", "By label"}, {"section p", "Nothing found so far"}, {"section a[href=/ui/callbacks?label.shop=7]", "Look on"}, {"li a", "shop"}}},
		{name: "search/hostile", path: "/ui/search?q=" + queryEscape(hostile), set: func(o *fakes) {
			give(evil)(o)
			o.endpointRows = endpointRows{all: []store.Endpoint{{ID: testID(7), Name: hostile, ExternalID: hostile}}}
		}},
		{name: "search/error", path: "/ui/search?q=x", set: func(o *fakes) {
			give(broken)(o)
		}, status: http.StatusInternalServerError},
	}
	for name, form := range map[string]struct {
		one  store.Callback
		want [][2]string
	}{
		"retry": {dead, wants{{"h1", "Retry"}, {"option", "a new ladder"}}}, "cancel": {sample(1), wants{{".act.danger", "No attempt is made any more"}}},
		"reschedule": {sample(1), nil}, "mend": {sample(1), nil}, "resolve": {poll, nil},
	} {
		cases = append(cases, threeStates("form-"+name, id+"/"+name, give(callbackRows{all: []store.Callback{form.one}}),
			give(evil), give(callbackRows{err: errBroken}), form.want...)...)
	}
	return cases
}

// endpointRows has endpoints.
type endpointRows struct {
	all      []store.Endpoint
	activity []store.Activity
	err      error
}

func (e endpointRows) Endpoint(_ context.Context, _, id string) (store.Endpoint, error) {
	return rowOf(e.all, e.err, func(ep store.Endpoint) bool { return ep.ID == id && ep.DeletedAt == 0 })
}

func (e endpointRows) AnyEndpoint(_ context.Context, _, id string) (store.Endpoint, error) {
	return rowOf(e.all, e.err, func(ep store.Endpoint) bool { return ep.ID == id })
}

func (e endpointRows) EndpointByExternalID(_ context.Context, _, name string) (store.Endpoint, error) {
	return rowOf(e.all, e.err, func(ep store.Endpoint) bool { return ep.ExternalID == name })
}

func (e endpointRows) Endpoints(_ context.Context, _ string, f store.EndpointFilter) ([]store.Endpoint, error) {
	all := slices.Clone(e.all)
	if f.After != "" {
		all = slices.DeleteFunc(all, func(ep store.Endpoint) bool { return ep.ID >= f.After })
	}
	return all[:min(len(all), max(f.Limit, 1))], e.err
}

func (e endpointRows) FindEndpoints(_ context.Context, _ string, names []string) (map[string]store.Endpoint, error) {
	found := make(map[string]store.Endpoint)
	for _, ep := range e.all {
		if name := store.EndpointPrefix + ep.ID; slices.Contains(names, name) {
			found[name] = ep
		}
	}
	return found, e.err
}

func (e endpointRows) LaneActivity(context.Context, string, []int64, int64) ([]store.Activity, error) {
	return e.activity, e.err
}

// labelParameters are filters by n labels.
func labelParameters(n int) string {
	q := url.Values{}
	for i := range n {
		q.Set(fmt.Sprintf("label.x%d", i), "1")
	}
	return q.Encode()
}
