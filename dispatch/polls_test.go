package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/report"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What a poll and its result are like from its first answer to its last.
func TestAPollAsksAtItsTiersAndTellsOnce(t *testing.T) {
	with(bank("PROCESSING", "PROCESSING", "PROCESSING", "PROCESSING", "SUCCESS")).run(t, func(b *fixture) {
		p := b.poll(paidPoll("o-1", 5*time.Second, 30*time.Second, time.Minute, 3*time.Minute, 5*time.Minute))
		b.check(p.Kind == store.Poll && p.Method == "GET", "accepted %+v", p)
		b.ends("succeeded success 5", time.Hour, p.ID)
		b.is("asked at", b.asked(p.ID), []time.Duration{0, 5 * time.Second, 35 * time.Second,
			95 * time.Second, 275 * time.Second})
		r := b.result(p.ID)
		b.check(r.Outcome == store.PollSuccess && r.Ref == "o-1" && r.Polls == 5 &&
			string(r.Context) == `{"shop":7,"n":1.50}` && r.Last != nil &&
			r.Last.StatusCode == 200 && strings.Contains(r.Last.Body, "SUCCESS") && r.ObservedAt != "",
			"result %+v, context %s", r, r.Context)
		for i, a := range b.attempts(p.ID) {
			class, outcome := store.ClassRuleMismatch, store.AttemptFailed
			if i == 4 {
				class, outcome = store.ClassOK, store.AttemptSucceeded
			}
			b.check(a.Class == class && a.Outcome == outcome && a.Rule != nil &&
				strings.Contains(a.Rule.Saw, "/trade_state"),
				"attempt %d: %s, %s, rule %+v", a.Number, a.Class, a.Outcome, a.Rule)
		}
		v := must(b.engine.Poll(b.Context(), project, p.ID))
		b.check(v.Detail.Outcome == store.PollSuccess && strings.Contains(string(v.Rule), "trade_state"),
			"view %+v", v.Detail)
		told := b.get(v.Detail.ResultID)
		b.stands(told, "succeeded")
		b.is("the result callback", []string{string(told.Kind), told.Topic, told.Ref},
			[]string{string(store.Notify), "order.sync", "o-1"})
	})
}

// What answers make of a poll: an error waits for the tier that came before once more and does not use up the
// next one, so many errors in a row end it as its budget has, and stop_on is not for polls.
func TestAnswersOfPolls(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name    string
		states  string
		tiers   []time.Duration
		change  func(*accept.PollSubmission)
		ends    string
		outcome store.PollOutcome
		asked   []time.Duration
	}{
		{"final, and a failure", "PROCESSING CLOSED", []time.Duration{s, s}, nil,
			"succeeded failure 2", store.PollFailure, []time.Duration{0, s}},
		{"errors", "500 500 PROCESSING 404 500 PROCESSING 500 SUCCESS", []time.Duration{s, 10 * s}, nil,
			"succeeded success 8", store.PollSuccess,
			[]time.Duration{0, s, 2 * s, 3 * s, 4 * s, 5 * s, 15 * s, 25 * s}},
		{"two errors in a row are allowed", "500 500 PROCESSING 500 500 500", []time.Duration{s, s, s, s},
			func(p *accept.PollSubmission) { p.ErrorBudget = new(2) },
			"dead unresolved 6", store.PollUnresolved, []time.Duration{0, s, 2 * s, 3 * s, 4 * s, 5 * s}},
		{"until its deadline", "PROCESSING", []time.Duration{s, time.Minute},
			func(p *accept.PollSubmission) { p.Policy.RepeatLast, p.Policy.Deadline = true, 3*time.Minute },
			"dead unresolved 4", store.PollUnresolved, []time.Duration{0, s, 61 * s, 121 * s}},
		{"stop_on", "410 SUCCESS", []time.Duration{s},
			func(p *accept.PollSubmission) { p.Policy.StopOn = []int{410} },
			"succeeded success 2", store.PollSuccess, []time.Duration{0, s}},
	} {
		t.Run(c.name, func(t *testing.T) {
			with(bank(strings.Fields(c.states)...)).run(t, func(b *fixture) {
				p := paidPoll("o-1", c.tiers...)
				if c.change != nil {
					c.change(&p)
				}
				id := b.poll(p).ID
				b.ends(c.ends, time.Hour, id)
				b.is("asked at", b.asked(id), c.asked)
				r := b.result(id)
				b.check(r.Outcome == c.outcome && r.Polls == len(c.asked) && r.Last != nil,
					"result %+v, want %s", r, c.outcome)
			})
		})
	}
}

func TestAPollThatRunsOutOfTiersIsUnresolved(t *testing.T) {
	with(bank("PROCESSING")).run(t, func(b *fixture) {
		id := b.poll(paidPoll("o-1", time.Second, 2*time.Second)).ID
		b.ends("dead unresolved 3", time.Minute, id)
		r := b.result(id)
		b.check(r.Outcome == store.PollUnresolved && r.Polls == 3, "result %+v", r)
		// By hand it is asked once more, and falls back: the merchant does not hear of that. When it has
		// become final, it does.
		b.retryAt(id, "")
		b.ends("dead unresolved 4", time.Minute, id)
		b.result(id)
		b.turn(bank("SUCCESS"))
		b.retryAt(id, "")
		b.await(id, time.Minute)
		time.Sleep(5 * time.Second)
		list := b.results(id)
		b.check(len(list) == 2 && list[1].Outcome == store.PollSuccess, "results %+v", list)
	})
}

// hold_if keeps the whole lane from being asked, and costs no poll.
func TestAnUpstreamThatAsksForAPauseGetsIt(t *testing.T) {
	with(bank("WAIT", "SUCCESS")).run(t, func(b *fixture) {
		s := paidPoll("o-1", time.Second)
		s.HoldIf = []byte(`[{"pointer": "/code", "eq": "FREQUENCY_LIMITED"}]`)
		id := b.poll(s).ID
		time.Sleep(time.Second)
		other := b.accept(to("https://bank.example/other"))
		b.ends("succeeded success 1", 5*time.Minute, id)
		b.is("attempts, charged or not", b.get(id).AttemptSeq, 2)
		asked := b.asked(id)
		b.is("asked", len(asked), 2)
		between(b, "pause", asked[1], time.Minute, 70*time.Second)
		b.await(other.ID, time.Minute)
		between(b, "ms until another callback to the same lane was sent",
			b.attempts(other.ID)[0].StartedAt-other.CreatedAt, 58_000, 120_000)
		a := b.attempts(id)[0]
		b.check(!a.Charged && a.Class == store.ClassReceiverBusy, "the attempt that was told to wait: %+v", a)
	})
}

// What a poll that was resolved in flight brings has no effect, its lane's place is free at once, and there
// is one result.
func TestAPollIsResolvedInFlight(t *testing.T) {
	slowly := answering("/orders", after(5*time.Second, bank("SUCCESS")))
	with(slowly, laneConcurrency(1)).run(t, func(b *fixture) {
		id := b.poll(paidPoll("o-1", time.Second)).ID
		time.Sleep(time.Second)
		synctest.Wait()
		c := b.get(id)
		b.is("state", c.StateAt(b.engine.Now()), store.Attempting)
		got := must(b.engine.ResolvePoll(b.Context(), project, id,
			control.ResolveRequest{Data: []byte(`{"notice": 1}`)}, operator))
		b.is("resolve", got.Result, store.ResolveDone)
		b.stands(got.Callback, "succeeded resolved")
		b.is("again", must(b.engine.ResolvePoll(b.Context(), project, id, control.ResolveRequest{},
			operator)).Result, store.ResolveAlreadyTerminal)
		other := b.accept(to("https://bank.example/other"))
		b.await(other.ID, time.Minute)
		between(b, "ms until the lane's only place was free",
			b.attempts(other.ID)[0].StartedAt-other.CreatedAt, 0, 4200)
		r := b.result(id)
		b.is("result", []string{string(r.Outcome), string(r.Data)},
			[]string{string(store.PollResolved), `{"notice":1}`})
		a := b.attempts(id)
		b.check(len(a) == 1 && a[0].Stale && !a[0].Charged, "the attempt in flight: %+v", a)
	})
}

// Everything that is wrong with a poll is named as it stands in the request.
func TestWrongPolls(t *testing.T) {
	with(bank("SUCCESS")).run(t, func(b *fixture) {
		for _, c := range []struct {
			field  string
			change func(*accept.PollSubmission)
		}{
			{"ref", func(p *accept.PollSubmission) { p.Ref = "" }},
			{"request.url", func(p *accept.PollSubmission) { p.URL = "ftp://bank" }},
			{"request.url", func(p *accept.PollSubmission) { p.URL = "" }},
			{"request.endpoint", func(p *accept.PollSubmission) { p.URL, p.Endpoint = "", "unknown" }},
			{"request.headers.Host",
				func(p *accept.PollSubmission) { p.Headers = []store.Header{{Name: "Host", Value: "x"}} }},
			{"request.payload", func(p *accept.PollSubmission) { p.Method = "POST" }},
			{"request.signer", func(p *accept.PollSubmission) { p.Signer = "wax" }},
			{"policy", func(p *accept.PollSubmission) { p.PolicyGiven, p.PolicyName = false, "nosuch" }},
			{"until", func(p *accept.PollSubmission) { p.Until = nil }},
			{"until.success[0].pointer", func(p *accept.PollSubmission) {
				p.Until = []byte(`{"success": [{"pointer": "trade_state", "eq": 1}]}`)
			}},
			{"evaluate", func(p *accept.PollSubmission) { p.Evaluate = []byte(`{}`) }},
			{"error_budget", func(p *accept.PollSubmission) { p.ErrorBudget = new(-1) }},
			{"context", func(p *accept.PollSubmission) {
				p.Context = []byte(`"` + strings.Repeat("x", 4096) + `"`)
			}},
			{"on_result.url", func(p *accept.PollSubmission) { p.OnResult.URL = "shop" }},
			{"on_result.delay", func(p *accept.PollSubmission) { p.OnResult.Delay = new(-time.Second) }},
		} {
			p := paidPoll("o-1", time.Second)
			c.change(&p)
			_, err := b.engine.AcceptPoll(b.Context(), project, p)
			b.check(slices.ContainsFunc(b.wrongFields(err),
				func(f string) bool { return f == c.field || strings.HasPrefix(f, c.field+"[") }),
				"want %s, got %v", c.field, err)
		}
		b.is("accepted", b.counts()[store.Scheduled], 0)
	})
}

// "Not final yet" is an answer: the endpoint that gives it is not failing.
func TestAnEndpointThatIsPolledIsNotFailing(t *testing.T) {
	with(bank("PROCESSING")).run(t, func(b *fixture) {
		ep := b.subscriber("https://bank.example/orders")
		s := paidPoll("o-1", time.Minute)
		s.URL, s.Endpoint = "", store.EndpointPrefix+ep.ID
		id := b.poll(s).ID
		b.await(id, time.Hour)
		b.result(id)
		time.Sleep(time.Minute)
		synctest.Wait()
		got := b.endpointNow(ep.ID)
		b.check(got.FailingSince == 0 && got.LastSuccessAt != 0, "endpoint failing since %d, succeeded at %d",
			got.FailingSince, got.LastSuccessAt)
	})
}

// A poll that is resolved while it waits is taken out of the index, and the result of one in a project that
// is paused waits with it.
func TestAResolvedPollLeavesTheIndex(t *testing.T) {
	with(bank("PROCESSING")).run(t, func(b *fixture) {
		// What is accepted before the index is built is told to it twice, the second time a second later,
		// also if it has ended by then: that is found out when it is claimed.
		time.Sleep(10 * time.Second)
		id := b.poll(paidPoll("o-1", time.Hour)).ID
		time.Sleep(time.Second)
		b.pause(soon(time.Hour))
		must(b.engine.ResolvePoll(b.Context(), project, id, control.ResolveRequest{}, operator))
		synctest.Wait()
		stats := must(b.index.Stats(b.Context(), 0))
		b.is("items of the index: the result alone", stats.Delayed+stats.Ready+stats.Leased, 1)
		time.Sleep(30 * time.Minute)
		b.is("results while the project was paused", len(b.results(id)), 0)
		time.Sleep(time.Hour)
		b.result(id)
	})
}

// An endpoint that asks to be told of polls of which nobody knows the end hears of all of them.
func TestEveryDeadPollIsUnresolved(t *testing.T) {
	with(bank("PROCESSING")).run(t, func(b *fixture) {
		b.subscriber("https://ops.example/", report.TopicUnresolved)
		time.Sleep(10 * time.Second)
		s := paidPoll("o-1", time.Hour)
		s.ExpiresIn = new(time.Minute)
		id := b.poll(s).ID
		b.ends("dead expired", 2*time.Hour, id)
		time.Sleep(time.Minute)
		told := b.hits("https://ops.example/")
		b.check(len(told) == 1 && strings.Contains(told[0].body, id), "told %+v", told)
	})
}
