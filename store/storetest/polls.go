package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// polling makes drafts polls of a reference; their results have a reference of their own.
func polling(ref string) func(*store.Draft) {
	return func(d *store.Draft) {
		c := &d.Callback
		c.Kind, c.Ref, c.URL, c.Method, c.Topic = store.Poll, ref, "https://shop.example/query", "GET", "payment.pending"
		d.Body = nil
		d.Poll = &store.PollDetail{Context: `{"order": "<1>", "n": 12345678901234567890}`, OnResult: &store.ResultDraft{Callback: store.Callback{
			Kind: store.Notify, URL: "https://shop.example/polled", Method: "POST", Topic: "payment.polled", Ref: resultOf(ref), Lane: "results",
			Headers: []store.Header{{Name: "X-A", Value: "1"}}, Labels: map[string]string{"a": "b"}, LockKey: "lock " + ref,
			Policy:  store.Policy{Tiers: []time.Duration{time.Second}, Timeout: timeout, RetryAfterCap: time.Hour},
			Success: store.Success{Name: "http-2xx"}, Signer: "standard-v1", ContentType: "application/json",
		}}}
	}
}

// resultOf is the reference of the results of polls of a reference.
func resultOf(ref string) string { return "result of " + ref }

// answered is a result of an attempt at a poll, whose answer ended it or not.
func (f *fixture) answered(s *store.Stamped, state store.State, reason store.Reason, status int, body string) store.Result {
	r := f.failed(s)
	r.State, r.Reason = state, reason
	if state.Terminal() {
		r.DueAt = 0
	}
	if state == store.Succeeded {
		r.Attempt.Outcome, r.Attempt.Class = store.AttemptSucceeded, store.ClassOK
	}
	r.Attempt.Status, r.Attempt.ResponseBody = status, body
	return r
}

// solved is a result that ends a poll as a success.
func (f *fixture) solved(s *store.Stamped) store.Result {
	return f.answered(s, store.Succeeded, store.PollSucceeded, 200, `{"paid":true}`)
}

func (f *fixture) pollDetail(id string) store.PollDetail {
	return must(f.PollDetail(f.ctx(), project, id))
}

// bornNow takes what was told of callbacks that nobody asked for.
func (f *fixture) bornNow() (rows []store.OpenRow) {
	for {
		select {
		case r := <-f.Born():
			rows = append(rows, r)
		default:
			return rows
		}
	}
}

// An endOfPoll is what is to be told of a poll.
type endOfPoll struct {
	outcome store.PollOutcome
	reason  store.Reason
	// status is that of the last answer; zero: there was none.
	status   int
	body     string
	polls    int
	observed int64
	data     any
}

func (f *fixture) results(ref string) []string {
	f.Helper()
	return f.list(store.Filter{Ref: resultOf(ref), Limit: 100, Now: f.now})
}

// told checks that a poll has ended so, and that it was told so by the last of n callbacks, which it returns. That one is the only
// one that was born since the last time.
func (f *fixture) told(id string, n int, want endOfPoll) store.Callback {
	f.Helper()
	p, d := f.get(id), f.pollDetail(id)
	born := f.bornNow()
	if p.PollOutcome() != want.outcome || p.Reason != want.reason || d.Outcome != want.outcome || d.ResultID == "" {
		f.Fatalf("poll is %s, %s; outcome %s, told %s by %q; want %+v", p.State, p.Reason, p.PollOutcome(), d.Outcome, d.ResultID, want)
	}
	if all := f.results(p.Ref); len(all) != n || all[0] != d.ResultID {
		f.Errorf("results of %s: %v, the last is said to be %s; want %d", p.Ref, all, d.ResultID, n)
	}
	c := f.get(d.ResultID)
	open := must(f.ByID(f.ctx(), []string{c.ID}))
	same(f, "born", open, born)
	payload := must(f.Payload(f.ctx(), project, c.ID))
	if !bytes.Contains(payload.Body, []byte(`"<1>"`)) || !bytes.Contains(payload.Body, []byte(`12345678901234567890`)) {
		f.Errorf("the context is not as it was given: %s", payload.Body)
	}
	members := map[string]any{
		"poll_id": store.CallbackPrefix + id, "ref": p.Ref, "context": map[string]any{"order": "<1>", "n": 12345678901234567890.0},
		"outcome": string(want.outcome), "reason": string(want.reason), "last": nil, "polls": float64(want.polls),
		"observed_at": time.UnixMilli(want.observed).UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	if want.status != 0 {
		members["last"] = map[string]any{"status_code": float64(want.status), "body": want.body}
	}
	if want.data != nil {
		members["data"] = want.data
	}
	var got map[string]any
	if err := json.Unmarshal(payload.Body, &got); err != nil {
		f.Fatalf("%s: %v", payload.Body, err)
	}
	same(f, "the result's body", members, got)
	return c
}

// toldNothing checks that nothing more was told of a poll than n results.
func (f *fixture) toldNothing(ref string, n int) {
	f.Helper()
	if all := f.results(ref); len(all) != n {
		f.Errorf("results of %s: %v, want %d", ref, all, n)
	}
	none(f, "born", f.bornNow())
}

// testPollEnds ends polls in every way that there is: each is told once, by what is committed with the end.
func testPollEnds(f *fixture) {
	e := f.endpoint(nil)
	redrive := func(id string) {
		r := f.redrive(store.Redrive{Action: store.RedriveCancel, Filter: store.Filter{Ref: f.get(id).Ref}})
		must(f.StepRedrive(f.ctx(), r.ID, 10, f.now))
	}
	for _, c := range []struct {
		name   string
		change func(*store.Draft)
		end    func(id string)
		want   endOfPoll
	}{
		{"success", nil, func(id string) { f.win(f.solved(f.claim(id))) },
			endOfPoll{outcome: store.PollSuccess, reason: store.PollSucceeded, status: 200, body: `{"paid":true}`, polls: 2}},
		{"failure", nil, func(id string) { f.win(f.answered(f.claim(id), store.Succeeded, store.PollFailed, 404, "gone")) },
			endOfPoll{outcome: store.PollFailure, reason: store.PollFailed, status: 404, body: "gone", polls: 2}},
		{"unresolved", nil, func(id string) {
			r := f.answered(f.claim(id), store.Dead, store.Unresolved, 0, "")
			r.Attempt.Class = store.ClassConnReset
			f.win(r)
		}, endOfPoll{outcome: store.PollUnresolved, reason: store.Unresolved, status: 500, body: "busy", polls: 2}},
		{"cancel", nil, func(id string) { f.cancel(id) },
			endOfPoll{outcome: store.PollCanceled, reason: store.Requested, status: 500, body: "busy", polls: 1}},
		{"cancel by reference", nil, func(id string) {
			must(f.CancelRef(f.ctx(), project, f.get(id).Ref, "", 10, f.now, actor))
		}, endOfPoll{outcome: store.PollCanceled, reason: store.Requested, status: 500, body: "busy", polls: 1}},
		{"cancel in flight", nil, func(id string) {
			s := f.claim(id)
			f.cancel(id)
			f.win(f.answered(s, store.Scheduled, "", 503, "later"))
		}, endOfPoll{outcome: store.PollCanceled, reason: store.Requested, status: 503, body: "later", polls: 2}},
		{"cancel too late", nil, func(id string) {
			s := f.claim(id)
			f.cancel(id)
			f.win(f.solved(s))
		}, endOfPoll{outcome: store.PollSuccess, reason: store.PollSucceeded, status: 200, body: `{"paid":true}`, polls: 2}},
		{"expiry", func(d *store.Draft) { d.Callback.ExpiresAt = f.now + 1500 }, func(string) {
			f.now += 1000
			must(f.Expire(f.ctx(), f.now, 10))
		}, endOfPoll{outcome: store.PollUnresolved, reason: store.Expired, status: 500, body: "busy", polls: 1}},
		{"crash after a cancel", nil, func(id string) {
			f.claim(id)
			f.cancel(id)
			f.now += claimLasts
			f.stamp(f.token(), id)
		}, endOfPoll{outcome: store.PollCanceled, reason: store.Requested, status: 500, body: "busy", polls: 1}},
		{"poison", nil, func(id string) {
			f.win(store.Result{ID: id, Fence: f.claim(id).Fence, State: store.Dead, Reason: store.Poison})
		}, endOfPoll{outcome: store.PollUnresolved, reason: store.Poison, status: 500, body: "busy", polls: 1}},
		{"corrupt", nil, func(id string) {
			f.ok(f.Damage(f.ctx(), id))
			f.stamp(f.token(), id)
		}, endOfPoll{outcome: store.PollUnresolved, reason: store.Invalid, status: 500, body: "busy", polls: 1}},
		{"redrive", nil, redrive, endOfPoll{outcome: store.PollCanceled, reason: store.Requested, status: 500, body: "busy", polls: 1}},
		{"resolve", nil, func(id string) {
			must(f.ResolvePoll(f.ctx(), project, id, `{"by": "phone"}`, f.now, actor))
		}, endOfPoll{
			outcome: store.PollResolved, reason: store.ResolvedOutside, status: 500, body: "busy", polls: 1,
			data: map[string]any{"by": "phone"},
		}},
		{"endpoint deleted", to(e), func(string) {
			must(f.DeleteEndpoint(f.ctx(), project, e.ID, f.now, actor))
			must(f.CancelDeleted(f.ctx(), f.now, 10))
		}, endOfPoll{outcome: store.PollCanceled, reason: store.EndpointDeleted, status: 500, body: "busy", polls: 1}},
	} {
		p := f.accept(func(d *store.Draft) {
			polling(c.name)(d)
			if c.change != nil {
				c.change(d)
			}
		})
		f.win(f.answered(f.claim(p.ID), store.Scheduled, "", 500, "busy"))
		f.now += 1000
		f.Logf("%s", c.name)
		c.end(p.ID)
		c.want.observed = f.now
		at := f.now
		f.now += 7
		result := f.told(p.ID, 1, c.want)
		want := store.Callback{
			ID: result.ID, Project: project, Kind: store.Notify, URL: "https://shop.example/polled", Method: "POST", Topic: "payment.polled",
			Ref: resultOf(c.name), LockKey: "lock " + c.name, Lane: "results", LaneID: result.LaneID, Headers: []store.Header{{Name: "X-A", Value: "1"}},
			Labels: map[string]string{"a": "b"}, State: store.Scheduled, Trigger: store.BySchedule, DueAt: at, FirstDueAt: at, CreatedAt: at,
			UpdatedAt: at, PayloadID: result.ID, ContentType: "application/json", Signer: "standard-v1", Success: store.Success{Name: "http-2xx"},
			Policy: store.Policy{Tiers: []time.Duration{time.Second}, Timeout: timeout, RetryAfterCap: time.Hour},
		}
		same(f, c.name+": the result callback", want, result)
		f.win(f.succeeded(f.claim(result.ID)))
	}
}

// testPollTells: what is told once is not told again, and a poll whose end nobody wants to hear of tells nothing.
func testPollTells(f *fixture) {
	silent := f.accept(func(d *store.Draft) { polling("silent")(d); d.Poll.OnResult = nil })
	f.win(f.solved(f.claim(silent.ID)))
	f.toldNothing("silent", 0)
	if d := f.pollDetail(silent.ID); d.Outcome != "" || d.ResultID != "" || d.OnResult != nil {
		f.Errorf("one without a result callback: %+v", d)
	}
	bare := f.accept(func(d *store.Draft) { polling("bare")(d); d.Poll.Context = "" })
	f.cancel(bare.ID)
	payload, err := f.Payload(f.ctx(), project, f.pollDetail(bare.ID).ResultID)
	if err != nil || !bytes.Contains(payload.Body, []byte(`"context":null`)) || !bytes.Contains(payload.Body, []byte(`"last":null`)) {
		f.Errorf("without a context: %v, %s", err, payload.Body)
	}
	f.bornNow()

	// The reply was lost: the same result is committed again.
	p := f.accept(polling("r"))
	ended := f.died(f.claim(p.ID))
	ended.Reason, ended.Attempt.ResponseBody = store.Unresolved, "no"
	f.win(ended)
	dead := endOfPoll{outcome: store.PollUnresolved, reason: store.Unresolved, status: 500, body: "no", polls: 1, observed: f.now}
	f.told(p.ID, 1, dead)
	if again := f.commit(ended); !again.Won || again.State != store.Dead {
		f.Errorf("committed again: %+v", again)
	}
	f.toldNothing("r", 1)

	// Retried, it is told with all polls that there were.
	f.now += 1000
	f.retry(p.ID, store.Restart)
	if d := f.pollDetail(p.ID); d.Outcome != store.PollUnresolved {
		f.Errorf("while it is open again: %+v", d)
	}
	f.win(f.failed(f.claim(p.ID)))
	f.now += 1000
	f.win(f.solved(f.claim(p.ID)))
	f.told(p.ID, 2, endOfPoll{
		outcome: store.PollSuccess, reason: store.PollSucceeded, status: 200, body: `{"paid":true}`, polls: 3, observed: f.now,
	})
}

// testPollStays: what does not move a poll on in its ladder counts, and the counters of tiers follow.
func testPollStays(f *fixture) {
	p := f.accept(polling("r"))
	tiers := func(want map[int]int64) {
		f.Helper()
		f.checkCounters()
		if got := f.counts().Tiers; fmt.Sprint(got) != fmt.Sprint(want) {
			f.Errorf("tiers %v, want %v", got, want)
		}
	}
	for n := 1; n <= 3; n++ {
		s := f.claim(p.ID)
		if s.PollErrors != n-1 || s.LadderBase != n-1 || s.AttemptCount != n-1 {
			f.Errorf("claimed: %+v", s)
		}
		r := f.failed(s)
		r.Stays, r.PollErrors = true, n
		f.win(r)
		if c := f.get(p.ID); c.PollErrors != n || c.LadderBase != n || c.AttemptCount != n || f.pollDetail(p.ID).Errors != n {
			f.Errorf("after error %d: %+v", n, c)
		}
		tiers(map[int]int64{0: 1})
		f.now += 1000
	}
	s := f.claim(p.ID)
	f.win(store.Result{ID: p.ID, Fence: s.Fence, State: store.Scheduled, DueAt: f.now, Diverts: 1, PollErrors: 0})
	if c := f.get(p.ID); c.PollErrors != 3 || c.LadderBase != 3 {
		f.Errorf("what was not charged: %+v", c)
	}
	f.win(f.answered(f.claim(p.ID), store.Scheduled, "", 200, "pending"))
	if c := f.get(p.ID); c.PollErrors != 0 || c.LadderBase != 3 || c.AttemptCount != 4 {
		f.Errorf("after an answer: %+v", c)
	}
	tiers(map[int]int64{1: 1})
	f.now += 1000
	r := f.failed(f.claim(p.ID))
	r.Stays, r.PollErrors, r.State, r.Reason, r.DueAt = true, 1, store.Dead, store.Unresolved, 0
	f.win(r)
	tiers(map[int]int64{0: 1}) // its result
	if c := f.retry(p.ID, store.Restart); c.PollErrors != 0 || c.LadderBase != c.AttemptCount {
		f.Errorf("retried: %+v", c)
	}
	tiers(map[int]int64{0: 2})
	// Of one that is retried once an error is a failure, whether it stays or not.
	f.win(f.solved(f.claim(p.ID)))
	f.retry(p.ID, store.Once)
	r = f.failed(f.claim(p.ID))
	r.Stays, r.PollErrors = true, 1
	f.win(r)
	f.wantState(f.get(p.ID), store.Succeeded, store.PollSucceeded)
}

func testResolvePoll(f *fixture) {
	p := f.accept(polling("waiting"))
	was := must(f.ByID(f.ctx(), []string{p.ID}))
	f.now++
	r := f.resolve(p.ID, "")
	if r.Result != store.ResolveDone || r.Was == nil || !cmp.Equal(*r.Was, was[0]) || !cmp.Equal(r.Callback, f.get(p.ID)) {
		f.Errorf("resolved: %+v", r)
	}
	want := endOfPoll{outcome: store.PollResolved, reason: store.ResolvedOutside, observed: f.now}
	f.told(p.ID, 1, want)
	f.now++
	if r := f.resolve(p.ID, `{"late":1}`); r.Result != store.ResolveAlreadyTerminal || r.Was != nil || r.Callback.State != store.Succeeded {
		f.Errorf("resolved again: %+v", r)
	}
	if d := f.pollDetail(p.ID); d.Data != "" {
		f.Errorf("what came too late was kept: %+v", d)
	}
	f.toldNothing("waiting", 1)
	f.wantAudit("poll.resolve " + p.ID)

	// In flight: the attempt is recorded, what it brings has no effect.
	p = f.accept(polling("busy"))
	s := f.claim(p.ID)
	f.now++
	if r := f.resolve(p.ID, `"given"`); r.Result != store.ResolveDone || r.Was == nil || r.Was.ClaimToken != s.ClaimToken {
		f.Errorf("resolved in flight: %+v", r)
	}
	want.observed, want.data = f.now, "given"
	f.told(p.ID, 1, want)
	f.now++
	late := f.commit(f.answered(s, store.Succeeded, store.PollFailed, 404, "no"))
	if late.Won || late.State != store.Succeeded || late.Reason != store.ResolvedOutside || late.DueAt != 0 {
		f.Errorf("the late result: %+v", late)
	}
	f.wantState(f.get(p.ID), store.Succeeded, store.ResolvedOutside)
	if a := f.attempts(p.ID); len(a) != 1 || !a[0].Stale || a[0].Status != 404 {
		f.Errorf("attempts: %+v", a)
	}
	f.toldNothing("busy", 1)

	p = f.accept(polling("theirs"))
	plain := f.accept(nil)
	for what, id := range map[string]string{"of another project": p.ID, "no poll": plain.ID, "nothing": f.id()} {
		in := project
		if id == p.ID {
			in = "other"
		}
		f.fails(store.ErrNotFound, what, errOf(f.ResolvePoll(f.ctx(), in, id, "", f.now, actor)))
		f.fails(store.ErrNotFound, "detail of "+what, errOf(f.PollDetail(f.ctx(), in, id)))
	}
	f.wantState(f.get(p.ID), store.Scheduled, "")
	if d := f.pollDetail(p.ID); d.Outcome != "" || d.ResultID != "" || !cmp.Equal(d.OnResult, f.draft(polling("theirs")).Poll.OnResult) ||
		d.Context != f.draft(polling("theirs")).Poll.Context {
		f.Errorf("detail of an open one: %+v", d)
	}
	if i := slices.Index(f.results("theirs"), p.ID); i >= 0 {
		f.Error("a poll is its own result")
	}
}
