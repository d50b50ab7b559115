package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// bornNow takes the callbacks that came into being by themselves.
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

// The ends of polls, but for when they were observed. Those that do not come from an answer name the one
// before.
func endSuccess(polls int) endOfPoll {
	return endOfPoll{
		outcome: store.PollSuccess, reason: store.PollSucceeded, status: 200, body: `{"paid":true}`, polls: polls,
	}
}

func endBusy(outcome store.PollOutcome, reason store.Reason) endOfPoll {
	return endOfPoll{outcome: outcome, reason: reason, status: 500, body: "busy", polls: 1}
}

// told checks that a poll has ended so, and that it was told so by the last of n callbacks, which it returns.
// That one is the only one that was born since the last time.
func (f *fixture) told(id string, n int, want endOfPoll) store.Callback {
	d := f.pollDetail(id)
	p := f.get(id)
	f.require(p.PollOutcome() == want.outcome && p.Reason == want.reason &&
		d.Outcome == want.outcome && d.ResultID != "",
		"poll is %s, %s; outcome %s, told %s by %q; want %+v", p.State, p.Reason, p.PollOutcome(), d.Outcome,
		d.ResultID, want)
	all := f.results(p.Ref)
	f.check(len(all) == n && all[0] == d.ResultID, "results of %s: %v, the last is said to be %s; want %d",
		p.Ref, all, d.ResultID, n)
	same(f, "born", f.rows(d.ResultID), f.bornNow())
	body := string(f.payload(d.ResultID).Body)
	f.check(strings.Contains(body, `"<1>"`) && strings.Contains(body, `12345678901234567890`),
		"the context is not as it was given: %s", body)
	members := map[string]any{
		"poll_id": store.CallbackPrefix + id, "ref": p.Ref,
		"context": map[string]any{"order": "<1>", "n": 12345678901234567890.0},
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
	f.ok(json.Unmarshal([]byte(body), &got))
	same(f, "the result's body", members, got)
	return f.get(d.ResultID)
}

// toldNothing checks that nothing more was told of a poll than n results.
func (f *fixture) toldNothing(ref string, n int) {
	all := f.results(ref)
	f.check(len(all) == n, "results of %s: %v, want %d", ref, all, n)
	none(f, "born", f.bornNow())
}

// toldStill checks that a poll is in the state, and that nothing was told of it since its last result.
func (f *fixture) toldStill(id string, state store.State, before store.PollDetail) {
	p, d := f.get(id), f.pollDetail(id)
	f.check(p.State == state && d.Outcome == before.Outcome && d.ResultID == before.ResultID,
		"%s is %s, %s was told by %q; want %s, %+v", p.Ref, p.State, d.Outcome, d.ResultID, state, before)
	none(f, "born", f.bornNow())
}

// testPollEnds ends polls in every way that there is: each is told once, by what is committed with the end.
func testPollEnds(f *fixture) {
	canceled := endBusy(store.PollCanceled, store.Requested)
	unresolved := func(reason store.Reason) endOfPoll { return endBusy(store.PollUnresolved, reason) }
	resolved := endBusy(store.PollResolved, store.ResolvedOutside)
	resolved.data = map[string]any{"by": "phone"}
	late := endOfPoll{outcome: store.PollCanceled, reason: store.Requested, status: 503, body: "later", polls: 2}
	failed := endOfPoll{
		outcome: store.PollFailure, reason: store.PollFailed, status: 404, body: "gone", polls: 2,
	}
	unanswered := unresolved(store.Unresolved)
	unanswered.polls = 2
	e := f.endpoint()
	for _, c := range []struct {
		name string
		end  func(id string)
		want endOfPoll
	}{
		{"success", f.solve, endSuccess(2)},
		{"failure", f.disappoint, failed},
		{"unresolved", func(id string) {
			r := f.answered(f.claim(id), store.Dead, store.Unresolved, 0, "")
			r.Attempt.Class = store.ClassConnReset
			f.win(r)
		}, unanswered},
		{"cancel", func(id string) { f.cancel(id) }, canceled},
		{"cancel by reference", func(id string) { f.cancelRef(f.get(id).Ref, "") }, canceled},
		{"cancel in flight", func(id string) {
			s := f.claim(id)
			f.cancel(id)
			f.win(f.pending(s, 503, "later"))
		}, late},
		{"cancel too late", func(id string) {
			s := f.claim(id)
			f.cancel(id)
			f.win(f.answered(s, store.Succeeded, store.PollSucceeded, 200, `{"paid":true}`))
		}, endSuccess(2)},
		{"expiry", func(string) { f.now += 1000; f.expire() }, unresolved(store.Expired)},
		{"crash after a cancel", func(id string) {
			f.claim(id)
			f.cancel(id)
			f.now += claimLasts
			f.stamp(id)
		}, canceled},
		{"poison", func(id string) {
			f.win(store.Result{ID: id, Fence: f.claim(id).Fence, State: store.Dead, Reason: store.Poison})
		}, unresolved(store.Poison)},
		{"corrupt", func(id string) { f.ok(f.Damage(f.ctx(), id)); f.stamp(id) }, unresolved(store.Invalid)},
		{"redrive", func(id string) {
			f.step(f.redrive(store.Redrive{Action: store.RedriveCancel, Filter: store.Filter{Ref: f.get(id).Ref}}), 10)
		}, canceled},
		{"resolve", func(id string) { f.resolve(id, `{"by": "phone"}`) }, resolved},
		{"endpoint deleted", func(string) { f.deleteEndpoint(e.ID); f.cancelDeleted(10) },
			endBusy(store.PollCanceled, store.EndpointDeleted)},
	} {
		options := []option{polling(c.name)}
		switch c.name {
		case "expiry":
			options = append(options, expiresAt(f.now+1500))
		case "endpoint deleted":
			options = append(options, to(e))
		}
		p := f.accept(options...)
		f.answer(p.ID, store.Scheduled, "", 500, "busy")
		f.now += 1000
		f.Log(c.name)
		c.end(p.ID)
		at := f.now
		c.want.observed = at
		f.now += 7
		result := f.told(p.ID, 1, c.want)
		want := f.draft(polling(c.name)).Poll.OnResult.Callback
		want.ID, want.PayloadID, want.LaneID = result.ID, result.ID, result.LaneID
		want.Project, want.State, want.Trigger = project, store.Scheduled, store.BySchedule
		want.DueAt, want.FirstDueAt, want.CreatedAt, want.UpdatedAt = at, at, at, at
		same(f, c.name+": the result callback", want, result)
		f.succeed(result.ID)
	}
}

// testPollTells: what is told once is not told again, and a poll whose end concerns no other tells nothing.
func testPollTells(f *fixture) {
	silent := f.accept(polling("silent"), func(d *store.Draft) { d.Poll.OnResult = nil })
	f.solve(silent.ID)
	f.toldNothing("silent", 0)
	d := f.pollDetail(silent.ID)
	f.check(d.Outcome == "" && d.ResultID == "" && d.OnResult == nil, "one without a result callback: %+v", d)
	bare := f.accept(polling("bare"), func(d *store.Draft) { d.Poll.Context = "" })
	f.cancel(bare.ID)
	body := string(f.payload(f.pollDetail(bare.ID).ResultID).Body)
	f.check(strings.Contains(body, `"context":null`) && strings.Contains(body, `"last":null`),
		"no context: %s", body)
	f.bornNow()

	// The reply was lost: the same result is committed again.
	p := f.accept(polling("r"))
	ended := f.answered(f.claim(p.ID), store.Dead, store.Unresolved, 500, "no")
	f.win(ended)
	f.told(p.ID, 1, endOfPoll{
		outcome: store.PollUnresolved, reason: store.Unresolved, status: 500, body: "no", polls: 1, observed: f.now,
	})
	same(f, "state when it is committed again", store.Dead, f.win(ended).State)
	f.toldNothing("r", 1)

	// Retried, it is told with all polls that there were.
	f.now += 1000
	f.retry(p.ID, store.Restart)
	same(f, "outcome while it is open again", store.PollUnresolved, f.pollDetail(p.ID).Outcome)
	f.fail(p.ID)
	f.now += 1000
	f.solve(p.ID)
	want := endSuccess(3)
	want.observed = f.now
	f.told(p.ID, 2, want)
}

// endings are ways in which a poll may end; each makes a claim of it if it needs one.
func (f *fixture) endings() map[store.PollOutcome]func(id string) {
	return map[store.PollOutcome]func(string){
		store.PollSuccess:    f.solve,
		store.PollFailure:    f.disappoint,
		store.PollUnresolved: func(id string) { f.answer(id, store.Dead, store.Exhausted, 500, "no") },
		store.PollCanceled:   func(id string) { f.cancel(id) },
		store.PollResolved:   func(id string) { f.resolve(id, "") },
	}
}

// testPollTellsNews: what was told is followed only by what is new and final.
func testPollTellsNews(f *fixture) {
	ends := f.endings()
	const fallsBack = store.PollOutcome("")
	type outcomes = []store.PollOutcome
	const success, failure, unresolved = store.PollSuccess, store.PollFailure, store.PollUnresolved
	const canceled, resolved = store.PollCanceled, store.PollResolved
	for first, seconds := range map[store.PollOutcome]struct{ news, known outcomes }{
		success:    {outcomes{failure, resolved}, outcomes{success, unresolved, canceled, fallsBack}},
		failure:    {outcomes{success, resolved}, outcomes{failure, canceled, fallsBack}},
		unresolved: {outcomes{success, failure, resolved}, outcomes{canceled, fallsBack}},
		canceled:   {outcomes{success, failure, resolved}, outcomes{unresolved, fallsBack}},
		resolved:   {outcomes{success, failure, resolved}, outcomes{canceled, fallsBack}},
	} {
		for i, second := range append(seconds.news, seconds.known...) {
			ref := fmt.Sprintf("%s, then %s", first, second)
			f.Log(ref)
			p := f.accept(polling(ref))
			ends[first](p.ID)
			told, ended := f.pollDetail(p.ID), f.get(p.ID)
			f.bornNow()
			f.require(told.Outcome == first && told.ResultID != "", "told: %+v", told)
			f.now += 1000
			ladder := store.Once
			if second == unresolved {
				ladder = store.Restart
			}
			f.retry(p.ID, ladder)
			switch {
			case second == fallsBack:
				f.fail(p.ID)
				f.toldStill(p.ID, ended.State, told)
				f.toldNothing(ref, 1)
			case i >= len(seconds.news):
				ends[second](p.ID)
				f.toldStill(p.ID, f.get(p.ID).State, told)
				f.toldNothing(ref, 1)
			default:
				ends[second](p.ID)
				d := f.pollDetail(p.ID)
				f.check(d.Outcome == second && d.ResultID != told.ResultID && len(f.results(ref)) == 2 &&
					len(f.bornNow()) == 1, "told: %+v, before that %+v", d, told)
			}
		}
	}

	// What was not told does not hide that it is known already.
	p := f.accept(polling("r"))
	f.solve(p.ID)
	told := f.pollDetail(p.ID)
	f.bornNow()
	for _, end := range []store.PollOutcome{canceled, success, unresolved, success} {
		f.now += 1000
		f.retry(p.ID, store.Restart)
		ends[end](p.ID)
		f.toldStill(p.ID, f.get(p.ID).State, told)
	}
	// An open poll of its reference and address is not in the way of the next.
	f.replayOf(f.accept(polling("r")), f.offer(polling("r")))

	p = f.accept(polling("data"))
	for n := 1; n <= 2; n++ {
		f.resolve(p.ID, store.JSONText(fmt.Sprintf(`{"n":%d}`, n)))
		f.told(p.ID, n, endOfPoll{
			outcome: resolved, reason: store.ResolvedOutside, observed: f.now, data: map[string]any{"n": float64(n)},
		})
		f.now += 1000
		f.retry(p.ID, store.Once)
	}
}

// testPollResultStays: who cancels everything of a reference when its poll ends is told that end all the
// same.
func testPollResultStays(f *fixture) {
	for what, end := range map[string]func(id string){
		"success":             f.solve,
		"cancel by reference": func(id string) { f.cancelRef(f.get(id).Ref, "payment.pending") },
	} {
		p := f.accept(polling(what), onResult(func(r *store.ResultDraft) { r.Callback.Ref = what }))
		other := f.accept(withRef(what), withTopic("payment.polled"))
		end(p.ID)
		result := f.pollDetail(p.ID).ResultID
		canceled := f.cancelRef(what, "payment.polled")
		f.check(len(canceled) == 1 && canceled[0].Callback.ID == other.ID, "%s: canceled with a topic: %+v", what,
			canceled)
		none(f, what+": canceled", f.cancelRef(what, ""))
		f.wantState(result, store.Scheduled, "")
		f.cancel(result)
		f.wantState(result, store.Canceled, store.Requested)
	}
}

// testPollStaleAnswer: an answer that came after its claim had been lost had no effect, and is not told as
// the last one.
func testPollStaleAnswer(f *fixture) {
	for name, answeredBefore := range map[string]bool{"no other answer": false, "another answer before": true} {
		want := endOfPoll{outcome: store.PollCanceled, reason: store.Requested, polls: 1}
		p := f.accept(polling(name))
		if answeredBefore {
			f.answer(p.ID, store.Scheduled, "", 202, "pending")
			want.status, want.body, want.polls = 202, "pending", 2
			f.now += 1000
		}
		slow := f.claim(p.ID)
		f.now += claimLasts
		quick := f.claim(p.ID)
		late := f.commit(f.answered(slow, store.Succeeded, store.PollFailed, 404, "gone"))
		f.require(!late.Won, "the late result: %+v", late)
		f.cancel(p.ID)
		r := f.pending(quick, 0, "")
		r.Attempt.Class = store.ClassConnReset
		f.win(r)
		want.observed = f.now
		f.told(p.ID, 1, want)
	}
}

// testPollResult: a result callback goes where and when its poll said, and supersedes what it may.
func testPollResult(f *fixture) {
	toEndpoint := func(e store.Endpoint) option {
		return onResult(func(r *store.ResultDraft) {
			c := &r.Callback
			c.EndpointID, c.Follows, c.URL, c.Lane = e.ID, true, e.URL, e.LaneKey()
		})
	}
	result := func(p store.Callback) string { return f.pollDetail(p.ID).ResultID }
	e := f.endpoint()
	p := f.accept(polling("later"), toEndpoint(e), onResult(func(r *store.ResultDraft) {
		r.Callback.LockKey, r.Callback.Strict, r.Delay, r.ExpiresIn = "k", true, 5000, 60_000
	}))
	e = f.moveEndpoint(e.ID, "https://new.example")
	f.solve(p.ID)
	want := endSuccess(1)
	want.observed = f.now
	c := f.told(p.ID, 1, want)
	due := f.now + 5000
	f.check(c.DueAt == due && c.FirstDueAt == due && c.ExpiresAt == due+60_000 && c.LaneID == e.LaneID &&
		c.Strict &&
		c.URL == e.URL, "the result: %+v", c)
	f.now = due
	s := f.claim(c.ID)
	f.check(s.URL == e.URL && len(s.Body) > 0, "claimed: %+v", s)

	// The endpoint that was to be told has gone meanwhile.
	gone := f.endpoint()
	orphan := f.accept(polling("orphan"), toEndpoint(gone))
	f.deleteEndpoint(gone.ID)
	f.solve(orphan.ID)
	c = f.wantState(result(orphan), store.Canceled, store.EndpointDeleted)
	same(f, "end of the result for a deleted endpoint", f.now, c.FinishedAt)
	none(f, "it was born", f.bornNow())

	superseding := func(ref string, version int64) option {
		return together(polling(ref), onResult(func(r *store.ResultDraft) {
			r.Supersede, r.Callback.Version, r.Callback.Ref, r.Callback.Topic = true, &version, "s", "state"
		}))
	}
	state := together(withVersion("s", 1), withTopic("state"))
	// A poll that is superseded so has ended, too, and is told.
	older, poll := f.accept(state), f.accept(polling("told in turn"), state)
	newer := f.accept(superseding("newer", 2))
	f.now++
	f.solve(newer.ID)
	f.wantState(older.ID, store.Canceled, store.Superseded)
	f.wantState(poll.ID, store.Canceled, store.Superseded)
	same(f, "born", 2, len(f.bornNow()))
	same(f, "results of the poll that was superseded", 1, len(f.results("told in turn")))
	late := f.accept(superseding("late", 1))
	f.cancel(late.ID)
	f.wantState(result(late), store.Canceled, store.Superseded)
	none(f, "what has ended at once was born", f.bornNow())
	same(f, "in the feed", 8, len(f.feed()))
}
