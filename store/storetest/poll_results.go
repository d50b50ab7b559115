package storetest

import (
	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// toldStill checks that a poll is in the state, and that nothing was told of it since its last result.
func (f *fixture) toldStill(id string, state store.State, before store.PollDetail) {
	f.Helper()
	p, d := f.get(id), f.pollDetail(id)
	if p.State != state || d.Outcome != before.Outcome || d.ResultID != before.ResultID {
		f.Errorf("%s is %s, %s was told by %q; want %s, %s by %q", p.Ref, p.State, d.Outcome, d.ResultID, state, before.Outcome, before.ResultID)
	}
	none(f, "born", f.bornNow())
}

func (f *fixture) resolve(id string, data store.JSONText) store.ResolvedPoll {
	return must(f.ResolvePoll(f.ctx(), project, id, data, f.now, actor))
}

// endings are ways in which a poll may end; each makes a claim of it if it needs one.
func (f *fixture) endings() map[store.PollOutcome]func(id string) {
	return map[store.PollOutcome]func(string){
		store.PollSuccess:    func(id string) { f.win(f.solved(f.claim(id))) },
		store.PollFailure:    func(id string) { f.win(f.answered(f.claim(id), store.Succeeded, store.PollFailed, 404, "gone")) },
		store.PollUnresolved: func(id string) { f.win(f.answered(f.claim(id), store.Dead, store.Exhausted, 500, "no")) },
		store.PollCanceled:   func(id string) { f.cancel(id) },
		store.PollResolved:   func(id string) { f.resolve(id, "") },
	}
}

// testPollTellsNews: what was told is followed only by what is new and final.
func testPollTellsNews(f *fixture) {
	ends := f.endings()
	const none = store.PollOutcome("")
	for first, seconds := range map[store.PollOutcome]map[store.PollOutcome]bool{
		store.PollSuccess: {
			store.PollFailure: true, store.PollResolved: true, store.PollSuccess: false, store.PollUnresolved: false, store.PollCanceled: false,
			none: false,
		},
		store.PollFailure:    {store.PollSuccess: true, store.PollResolved: true, store.PollFailure: false, store.PollCanceled: false, none: false},
		store.PollUnresolved: {store.PollSuccess: true, store.PollFailure: true, store.PollResolved: true, store.PollCanceled: false, none: false},
		store.PollCanceled:   {store.PollSuccess: true, store.PollFailure: true, store.PollResolved: true, store.PollUnresolved: false, none: false},
		store.PollResolved:   {store.PollSuccess: true, store.PollFailure: true, store.PollResolved: true, store.PollCanceled: false, none: false},
	} {
		for second, want := range seconds {
			f.Logf("%s, then %s", first, second)
			ref := string(first + ", then " + second)
			p := f.accept(polling(ref))
			ends[first](p.ID)
			told, ended := f.pollDetail(p.ID), f.get(p.ID)
			if f.bornNow(); told.Outcome != first || told.ResultID == "" {
				f.Fatalf("told: %+v", told)
			}
			f.now += 1000
			switch {
			case second == none: // it falls back
				f.retry(p.ID, store.Once)
				f.win(f.failed(f.claim(p.ID)))
				f.toldStill(p.ID, ended.State, told)
				f.toldNothing(ref, 1)
				continue
			case second == store.PollUnresolved:
				f.retry(p.ID, store.Restart)
			default:
				f.retry(p.ID, store.Once)
			}
			ends[second](p.ID)
			if !want {
				f.toldStill(p.ID, f.get(p.ID).State, told)
				f.toldNothing(ref, 1)
				continue
			}
			if d := f.pollDetail(p.ID); d.Outcome != second || d.ResultID == told.ResultID || len(f.results(ref)) != 2 || len(f.bornNow()) != 1 {
				f.Errorf("told: %+v, before that %+v", d, told)
			}
		}
	}

	// What was not told does not hide that it is known already.
	p := f.accept(polling("r"))
	ends[store.PollSuccess](p.ID)
	told := f.pollDetail(p.ID)
	f.bornNow()
	for _, end := range []store.PollOutcome{store.PollCanceled, store.PollSuccess, store.PollUnresolved, store.PollSuccess} {
		f.now += 1000
		f.retry(p.ID, store.Restart)
		ends[end](p.ID)
		f.toldStill(p.ID, f.get(p.ID).State, told)
	}
	// An open poll of its reference and address is not in the way of the next.
	f.replayOf(f.accept(polling("r")), f.acceptAll(f.draft(polling("r")))[0])

	p = f.accept(polling("data"))
	f.resolve(p.ID, `{"n":1}`)
	want := endOfPoll{outcome: store.PollResolved, reason: store.ResolvedOutside, observed: f.now, data: map[string]any{"n": 1.0}}
	f.told(p.ID, 1, want)
	f.now += 1000
	f.retry(p.ID, store.Once)
	f.resolve(p.ID, `{"n":2}`)
	want.observed, want.data = f.now, map[string]any{"n": 2.0}
	f.told(p.ID, 2, want)
}

// testResolveDead: of what nobody knew somebody has learned the answer in another way.
func testResolveDead(f *fixture) {
	p := f.accept(polling("dead"))
	f.endings()[store.PollUnresolved](p.ID)
	want := endOfPoll{outcome: store.PollUnresolved, reason: store.Exhausted, status: 500, body: "no", polls: 1, observed: f.now}
	f.told(p.ID, 1, want)
	next := f.accept(polling("dead"))
	f.now += 1000
	r := f.resolve(p.ID, `{"by":"phone"}`)
	if r.Result != store.ResolveDone || r.Was != nil || !cmp.Equal(r.Callback, f.get(p.ID)) || r.Callback.FinishedAt != f.now || r.Callback.DueAt != 0 {
		f.Errorf("resolved: %+v", r)
	}
	f.wantState(r.Callback, store.Succeeded, store.ResolvedOutside)
	want.outcome, want.reason, want.observed, want.data = store.PollResolved, store.ResolvedOutside, f.now, map[string]any{"by": "phone"}
	f.told(p.ID, 2, want)
	f.wantAudit("poll.resolve " + p.ID)
	f.replayOf(next, f.acceptAll(f.draft(polling("dead")))[0]) // that one goes on

	canceled, failed := f.accept(polling("canceled")), f.accept(polling("failed"))
	f.cancel(canceled.ID)
	f.endings()[store.PollFailure](failed.ID)
	f.bornNow()
	for _, id := range []string{p.ID, canceled.ID, failed.ID} {
		before := f.get(id)
		if r := f.resolve(id, "1"); r.Result != store.ResolveAlreadyTerminal || r.Was != nil || !cmp.Equal(f.get(id), before) {
			f.Errorf("%s, %s: resolved: %+v", before.State, before.Reason, r)
		}
	}
	f.toldNothing("dead", 2)
	f.fold()
	events, _ := f.outcomes(store.OutcomeCursor{}, 100)
	ends := 0
	for i := range events {
		if e := &events[i]; e.ID == p.ID {
			ends++
			if want := []store.State{store.Dead, store.Succeeded}; ends > 2 || e.State != want[ends-1] || e.At != f.now-int64(2-ends)*1000 {
				f.Errorf("in the feed: %+v", e)
			}
		}
	}
	if ends != 2 {
		f.Errorf("%d ends are in the feed", ends)
	}
}

// testPollResultStays: who cancels everything of a reference when its poll ends is told that end all the same.
func testPollResultStays(f *fixture) {
	byRef := func(ref, topic string) []store.CanceledCallback {
		return must(f.CancelRef(f.ctx(), project, ref, topic, 10, f.now, actor))
	}
	ends := f.endings()
	for what, end := range map[string]func(id string){
		"success":             ends[store.PollSuccess],
		"cancel by reference": func(id string) { byRef(f.get(id).Ref, "payment.pending") },
	} {
		p := f.accept(func(d *store.Draft) { polling(what)(d); d.Poll.OnResult.Callback.Ref = what })
		other := f.accept(func(d *store.Draft) { d.Callback.Ref, d.Callback.Topic = what, "payment.polled" })
		end(p.ID)
		result := f.pollDetail(p.ID).ResultID
		if canceled := byRef(what, "payment.polled"); len(canceled) != 1 || canceled[0].Callback.ID != other.ID {
			f.Errorf("%s: canceled with a topic: %+v", what, canceled)
		}
		none(f, what+": canceled", byRef(what, ""))
		f.wantState(f.get(result), store.Scheduled, "")
		f.cancel(result)
		f.wantState(f.get(result), store.Canceled, store.Requested)
	}
}

// testPollStaleAnswer: an answer that came after its claim had been lost had no effect, and is not told as the last one.
func testPollStaleAnswer(f *fixture) {
	for _, before := range []bool{false, true} {
		name := map[bool]string{false: "no other answer", true: "another answer before"}[before]
		want := endOfPoll{outcome: store.PollCanceled, reason: store.Requested}
		p := f.accept(polling(name))
		if before {
			f.win(f.answered(f.claim(p.ID), store.Scheduled, "", 202, "pending"))
			want.status, want.body, want.polls = 202, "pending", 1
			f.now += 1000
		}
		slow := f.claim(p.ID)
		f.now += claimLasts
		quick := f.claim(p.ID)
		if late := f.commit(f.answered(slow, store.Succeeded, store.PollFailed, 404, "gone")); late.Won {
			f.Fatalf("the late result: %+v", late)
		}
		f.cancel(p.ID)
		r := f.answered(quick, store.Scheduled, "", 0, "")
		r.Attempt.Class = store.ClassConnReset
		f.win(r)
		want.polls++
		want.observed = f.now
		f.told(p.ID, 1, want)
	}
}
