package dispatch_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestAPollAsksAtItsTiersAndTellsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, bank("PROCESSING", "PROCESSING", "PROCESSING", "PROCESSING", "SUCCESS"))
		p := b.poll(paidPoll("o-1", 5*time.Second, 30*time.Second, time.Minute, 3*time.Minute, 5*time.Minute))
		if p.Kind != store.Poll || p.Method != "GET" {
			t.Fatalf("accepted %+v", p)
		}
		c := b.await(p.ID, time.Hour)
		if c.State != store.Succeeded || c.Reason != store.PollSucceeded || c.AttemptCount != 5 {
			t.Errorf("ended %s, %s after %d polls", c.State, c.Reason, c.AttemptCount)
		}
		want := []time.Duration{0, 5 * time.Second, 35 * time.Second, 95 * time.Second, 275 * time.Second}
		if got := b.asked(p.ID); !slices.Equal(got, want) {
			t.Errorf("asked at %v, want %v", got, want)
		}
		r := b.result(p.ID)
		if r.Outcome != store.PollSuccess || r.Ref != "o-1" || r.Polls != 5 || string(r.Context) != `{"shop":7,"n":1.50}` || r.Last == nil ||
			r.Last.StatusCode != 200 || !strings.Contains(r.Last.Body, "SUCCESS") || r.ObservedAt == "" {
			t.Errorf("result %+v, context %s", r, r.Context)
		}
		for i, a := range b.attempts(p.ID) {
			wantClass, wantOutcome := store.ClassRuleMismatch, store.AttemptFailed
			if i == 4 {
				wantClass, wantOutcome = store.ClassOK, store.AttemptSucceeded
			}
			if a.Class != wantClass || a.Outcome != wantOutcome || a.Rule == nil || !strings.Contains(a.Rule.Saw, "/trade_state") {
				t.Errorf("attempt %d: %s, %s, rule %+v", a.Number, a.Class, a.Outcome, a.Rule)
			}
		}
		v, err := b.engine.Poll(t.Context(), store.DefaultProject, p.ID)
		if err != nil || v.Detail.Outcome != store.PollSuccess || v.Detail.ResultID == "" || !strings.Contains(string(v.Rule), "trade_state") {
			t.Errorf("view %+v, %v", v.Detail, err)
		}
		if told := b.get(v.Detail.ResultID); told.Kind != store.Notify || told.Topic != "order.sync" || told.Ref != "o-1" || told.State != store.Succeeded {
			t.Errorf("the result callback is %+v", told)
		}
	})
}

// What answers make of a poll: an error waits for the tier that came before once more and does not use up the next one, so many
// errors in a row end it as its budget has, and stop_on is not for polls.
func TestAnswersOfPolls(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, c := range []struct {
		name    string
		states  string
		tiers   []time.Duration
		change  func(*accept.PollSubmission)
		reason  store.Reason
		outcome store.PollOutcome
		asked   []time.Duration
	}{
		{name: "final, and a failure", states: "PROCESSING CLOSED", tiers: []time.Duration{s, s},
			reason: store.PollFailed, outcome: store.PollFailure, asked: []time.Duration{0, s}},
		{name: "errors", states: "500 500 PROCESSING 404 500 PROCESSING 500 SUCCESS", tiers: []time.Duration{s, 10 * s},
			reason: store.PollSucceeded, outcome: store.PollSuccess, asked: []time.Duration{0, s, 2 * s, 3 * s, 4 * s, 5 * s, 15 * s, 25 * s}},
		{name: "two errors in a row are allowed", states: "500 500 PROCESSING 500 500 500", tiers: []time.Duration{s, s, s, s},
			change: func(p *accept.PollSubmission) { p.ErrorBudget = new(2) },
			reason: store.Unresolved, outcome: store.PollUnresolved, asked: []time.Duration{0, s, 2 * s, 3 * s, 4 * s, 5 * s}},
		{name: "until its deadline", states: "PROCESSING", tiers: []time.Duration{s, time.Minute},
			change: func(p *accept.PollSubmission) { p.Policy.RepeatLast, p.Policy.Deadline = true, 3*time.Minute },
			reason: store.Unresolved, outcome: store.PollUnresolved, asked: []time.Duration{0, s, 61 * s, 121 * s}},
		{name: "stop_on", states: "410 SUCCESS", tiers: []time.Duration{s},
			change: func(p *accept.PollSubmission) { p.Policy.StopOn = []int{410} },
			reason: store.PollSucceeded, outcome: store.PollSuccess, asked: []time.Duration{0, s}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newFixture(t, bank(strings.Fields(c.states)...))
				p := paidPoll("o-1", c.tiers...)
				if c.change != nil {
					c.change(&p)
				}
				id := b.poll(p).ID
				end := b.await(id, time.Hour)
				if want := c.reason == store.Unresolved; end.Reason != c.reason || (end.State == store.Dead) != want || end.AttemptCount != len(c.asked) {
					t.Errorf("ended %s, %s after %d polls, want %s after %d", end.State, end.Reason, end.AttemptCount, c.reason, len(c.asked))
				}
				if got := b.asked(id); !slices.Equal(got, c.asked) {
					t.Errorf("asked at %v, want %v", got, c.asked)
				}
				if r := b.result(id); r.Outcome != c.outcome || r.Polls != len(c.asked) || r.Last == nil {
					t.Errorf("result %+v, want %s", r, c.outcome)
				}
			})
		})
	}
}

func TestAPollThatRunsOutOfTiersIsUnresolved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, bank("PROCESSING"))
		p := b.poll(paidPoll("o-1", time.Second, 2*time.Second))
		if c := b.await(p.ID, time.Minute); c.State != store.Dead || c.Reason != store.Unresolved || c.AttemptCount != 3 {
			t.Errorf("ended %s, %s after %d polls", c.State, c.Reason, c.AttemptCount)
		}
		if r := b.result(p.ID); r.Outcome != store.PollUnresolved || r.Polls != 3 {
			t.Errorf("result %+v", r)
		}
		// By hand it is asked once more, and falls back: nobody hears of that. When it has become final, they do.
		b.must(b.engine.Retry(t.Context(), store.DefaultProject, p.ID, control.RetryRequest{}, store.Actor{}))
		if c := b.await(p.ID, time.Minute); c.State != store.Dead || c.Reason != store.Unresolved || c.AttemptCount != 4 {
			t.Errorf("after a retry: %s, %s", c.State, c.Reason)
		}
		b.result(p.ID)
		b.receiver.turn(bank("SUCCESS"))
		b.must(b.engine.Retry(t.Context(), store.DefaultProject, p.ID, control.RetryRequest{}, store.Actor{}))
		b.await(p.ID, time.Minute)
		time.Sleep(5 * time.Second)
		if list := b.results(p.ID); len(list) != 2 || list[1].Outcome != store.PollSuccess {
			t.Errorf("results %+v", list)
		}
	})
}

// hold_if keeps the whole lane from being asked, and costs nobody a poll.
func TestAnUpstreamThatAsksForAPauseGetsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, bank("WAIT", "SUCCESS"))
		s := paidPoll("o-1", time.Second)
		s.HoldIf = []byte(`[{"pointer": "/code", "eq": "FREQUENCY_LIMITED"}]`)
		p := b.poll(s)
		time.Sleep(time.Second)
		other := b.accept(accept.Submission{URL: "https://bank.example/other"})
		if c := b.await(p.ID, 5*time.Minute); c.State != store.Succeeded || c.AttemptCount != 1 || c.AttemptSeq != 2 {
			t.Errorf("ended %s after %d charged of %d", c.State, c.AttemptCount, c.AttemptSeq)
		}
		if got := b.asked(p.ID); len(got) != 2 || got[1] < time.Minute || got[1] > 70*time.Second {
			t.Errorf("asked at %v; the pause is a minute", got)
		}
		b.await(other.ID, time.Minute)
		if first := b.attempts(other.ID)[0]; first.StartedAt-other.CreatedAt < 58_000 {
			t.Errorf("another callback to the same lane was sent after %d ms", first.StartedAt-other.CreatedAt)
		}
		if a := b.attempts(p.ID)[0]; a.Charged || a.Class != store.ClassReceiverBusy {
			t.Errorf("the attempt that was told to wait: %+v", a)
		}
	})
}

// What a poll that was resolved in flight brings has no effect, its lane's place is free at once, and there is one result.
func TestAPollIsResolvedInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, func(ctx context.Context, h hit, before int) (*http.Response, error) {
			if strings.HasPrefix(h.url, "https://bank.example/orders") {
				time.Sleep(5 * time.Second)
			}
			return bank("SUCCESS")(ctx, h, before)
		}, func(o *dispatch.Options) { o.LaneConcurrency = 1 })
		p := b.poll(paidPoll("o-1", time.Second))
		time.Sleep(time.Second)
		synctest.Wait()
		if c := b.get(p.ID); c.StateAt(b.engine.Now()) != store.Attempting {
			t.Fatalf("it is %s", c.StateAt(b.engine.Now()))
		}
		got, err := b.engine.ResolvePoll(t.Context(), store.DefaultProject, p.ID, control.ResolveRequest{Data: []byte(`{"notice": 1}`)}, store.Actor{Name: "test"})
		if err != nil || got.Result != store.ResolveDone || got.Callback.State != store.Succeeded || got.Callback.Reason != store.ResolvedOutside {
			t.Fatalf("resolve: %+v, %v", got, err)
		}
		again, err := b.engine.ResolvePoll(t.Context(), store.DefaultProject, p.ID, control.ResolveRequest{}, store.Actor{})
		if err != nil || again.Result != store.ResolveAlreadyTerminal {
			t.Errorf("again: %+v, %v", again, err)
		}
		other := b.accept(accept.Submission{URL: "https://bank.example/other"})
		if c := b.await(other.ID, time.Minute); b.attempts(c.ID)[0].StartedAt-other.CreatedAt > 4200 {
			t.Errorf("the lane's only place was free after %d ms", b.attempts(c.ID)[0].StartedAt-other.CreatedAt)
		}
		r := b.result(p.ID)
		if r.Outcome != store.PollResolved || string(r.Data) != `{"notice":1}` {
			t.Errorf("result %+v, data %s", r, r.Data)
		}
		if a := b.attempts(p.ID); len(a) != 1 || !a[0].Stale || a[0].Charged {
			t.Errorf("the attempt in flight: %+v", a)
		}
	})
}

// Whatever is wrong with a poll is named as it stands in the request.
func TestWrongPolls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, bank("SUCCESS"))
		for _, c := range []struct {
			field  string
			change func(*accept.PollSubmission)
		}{
			{"ref", func(p *accept.PollSubmission) { p.Ref = "" }},
			{"request.url", func(p *accept.PollSubmission) { p.URL = "ftp://bank" }},
			{"request.url", func(p *accept.PollSubmission) { p.URL = "" }},
			{"request.endpoint", func(p *accept.PollSubmission) { p.URL, p.Endpoint = "", "nobody" }},
			{"request.headers.Host", func(p *accept.PollSubmission) { p.Headers = []store.Header{{Name: "Host", Value: "x"}} }},
			{"request.payload", func(p *accept.PollSubmission) { p.Method = "POST" }},
			{"request.signer", func(p *accept.PollSubmission) { p.Signer = "wax" }},
			{"policy", func(p *accept.PollSubmission) { p.PolicyGiven, p.PolicyName = false, "nosuch" }},
			{"until", func(p *accept.PollSubmission) { p.Until = nil }},
			{"until.success[0].pointer", func(p *accept.PollSubmission) {
				p.Until = []byte(`{"success": [{"pointer": "trade_state", "eq": 1}]}`)
			}},
			{"evaluate", func(p *accept.PollSubmission) { p.Evaluate = []byte(`{}`) }},
			{"error_budget", func(p *accept.PollSubmission) { p.ErrorBudget = new(-1) }},
			{"context", func(p *accept.PollSubmission) { p.Context = []byte(`"` + strings.Repeat("x", 4096) + `"`) }},
			{"on_result.url", func(p *accept.PollSubmission) { p.OnResult.URL = "shop" }},
			{"on_result.delay", func(p *accept.PollSubmission) { p.OnResult.Delay = new(-time.Second) }},
		} {
			p := paidPoll("o-1", time.Second)
			p.OnResult = &accept.Submission{URL: "https://shop.example/result"}
			c.change(&p)
			_, err := b.engine.AcceptPoll(t.Context(), store.DefaultProject, p)
			wrong, ok := errors.AsType[*store.InvalidError](err)
			if !ok || !slices.ContainsFunc(wrong.Fields, func(f store.FieldError) bool { return f.Field == c.field || strings.HasPrefix(f.Field, c.field+"[") }) {
				t.Errorf("want %s, got %v", c.field, err)
			}
		}
		if counts, err := b.db.Counts(t.Context(), store.DefaultProject); err != nil || counts.States[store.Scheduled] != 0 {
			t.Errorf("something was accepted: %+v, %v", counts, err)
		}
	})
}

// "Not final yet" is an answer: the endpoint that gives it is not failing.
func TestAnEndpointThatIsPolledIsNotFailing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, bank("PROCESSING"))
		ep, err := b.engine.CreateEndpoint(t.Context(), store.DefaultProject, control.EndpointChange{URL: new("https://bank.example/orders")}, store.Actor{Name: "test"})
		if err != nil {
			t.Fatal(err)
		}
		s := paidPoll("o-1", time.Minute)
		s.URL, s.Endpoint = "", store.EndpointPrefix+ep.Endpoint.ID
		p := b.poll(s)
		b.await(p.ID, time.Hour)
		b.result(p.ID)
		time.Sleep(time.Minute)
		synctest.Wait()
		got, err := b.db.Endpoint(t.Context(), store.DefaultProject, ep.Endpoint.ID)
		if err != nil || got.FailingSince != 0 || got.LastSuccessAt == 0 {
			t.Errorf("endpoint failing since %d, succeeded at %d, %v", got.FailingSince, got.LastSuccessAt, err)
		}
	})
}
