package storetest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// polling makes drafts polls of a reference; their results have a reference of their own.
func polling(ref string) option {
	return func(d *store.Draft) {
		c := &d.Callback
		c.Kind, c.Ref, c.Topic, d.Body = store.Poll, ref, "payment.pending", nil
		c.Method, c.URL = "GET", "https://shop.example/query"
		d.Poll = &store.PollDetail{
			Context: `{"order": "<1>", "n": 12345678901234567890}`,
			OnResult: &store.ResultDraft{Callback: store.Callback{
				Kind: store.Notify, URL: "https://shop.example/polled", Method: "POST", Topic: "payment.polled",
				Ref: resultOf(ref), Lane: "results", Headers: []store.Header{{Name: "X-A", Value: "1"}},
				Labels: map[string]string{"a": "b"}, LockKey: "lock " + ref, Policy: policy(time.Second),
				Success: store.Success{Name: "http-2xx"}, Signer: "standard-v1", ContentType: "application/json",
			}},
		}
	}
}

// onResult changes the result callback of a poll.
func onResult(change func(r *store.ResultDraft)) option {
	return func(d *store.Draft) { change(d.Poll.OnResult) }
}

// resultOf is the reference of the results of polls of a reference.
func resultOf(ref string) string { return "result of " + ref }

// answered is a result of an attempt at a poll, whose answer ended it or not.
func (f *fixture) answered(s *store.Stamped, state store.State, reason store.Reason, status int,
	body string) store.Result {
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

// pending is an answer that does not end a poll.
func (f *fixture) pending(s *store.Stamped, status int, body string) store.Result {
	return f.answered(s, store.Scheduled, "", status, body)
}

// answer claims a poll and commits an answer. solve and disappoint end it as a success and as a failure.
func (f *fixture) answer(id string, state store.State, reason store.Reason, status int, body string) {
	f.win(f.answered(f.claim(id), state, reason, status, body))
}

func (f *fixture) solve(id string) {
	f.answer(id, store.Succeeded, store.PollSucceeded, 200, `{"paid":true}`)
}

func (f *fixture) disappoint(id string) { f.answer(id, store.Succeeded, store.PollFailed, 404, "gone") }

func (f *fixture) resolve(id string, data store.JSONText) store.ResolvedPoll {
	return must(f.ResolvePoll(f.ctx(), project, id, data, f.now, actor))
}

func (f *fixture) pollDetail(id string) store.PollDetail {
	return must(f.PollDetail(f.ctx(), project, id))
}

// results are the callbacks that tell of polls of a reference, the newest first.
func (f *fixture) results(ref string) []string { return f.list(store.Filter{Ref: resultOf(ref)}) }

// testPollLiveCrowd: many that ask for the same poll at once, and end it, get one at a time.
func testPollLiveCrowd(f *fixture) {
	const each = 8
	var once, often atomic.Int64
	first := make(map[string]bool)
	for _, accepted := range crowd(f, 24, func(i int) []store.Accepted {
		if i%2 == 0 {
			accepted := f.acceptAll(f.draft(polling("once")), f.draft(polling("once")))
			for _, a := range accepted {
				f.ok(a.Err)
				if !a.Replayed {
					once.Add(1)
				}
			}
			f.check(accepted[0].Callback.ID == accepted[1].Callback.ID, "two polls: %+v", accepted)
			return accepted
		}
		for range each {
			accepted, err := f.Accept(f.ctx(), []store.Draft{f.draft(polling("often"))})
			if err == nil {
				err = accepted[0].Err
			}
			if errors.Is(err, store.ErrUnavailable) {
				continue // it ended again and again while this one looked
			}
			f.ok(err)
			if !accepted[0].Replayed {
				f.cancel(accepted[0].Callback.ID)
				often.Add(1)
			}
		}
		return nil
	}) {
		for _, a := range accepted {
			first[a.Callback.ID] = true
		}
	}
	f.check(len(first) == 1 && once.Load() == 1, "%d polls, %d fresh", len(first), once.Load())
	n := int64(len(f.results("often")))
	f.check(n == often.Load() && n > 0, "%d results of %d polls", n, often.Load())
}

// testPollReopened: what would open a second poll of the same reference and address is refused, and changes
// nothing.
func testPollReopened(f *fixture) {
	elsewhere := func(path string) option { return with(func(c *store.Callback) { c.URL += path }) }
	old := f.accept(polling("r"))
	f.die(old.ID)
	f.now += 1000
	open, other := f.accept(polling("r")), f.accept(polling("r"), elsewhere("/v2"))
	f.lose(other.ID)
	all := func() []store.Callback { return []store.Callback{f.get(old.ID), f.get(open.ID), f.get(other.ID)} }
	before := all()
	refused := func(what string, err error) {
		f.fails(store.ErrPollLive, what, err)
		same(f, "after "+what, before, all())
		f.wantAttempts(other.ID)
	}
	restart := store.Retry{Ladder: store.Restart, Now: f.now}
	refused("retry", f.tryRetry(project, old.ID))
	refused("restart", errOf(f.Retry(f.ctx(), project, old.ID, restart, actor)))
	refused("reschedule", f.tryReschedule(project, old.ID))
	refused("mend", errOf(f.tryMend(project, other.ID, infallible(func(c *store.Callback) {
		c.URL, c.Headers = open.URL, []store.Header{{Name: "A", Value: "1"}}
	}))))
	refused("retry to its address", errOf(f.retryAt(other.ID, open.URL)))
	f.checkCounters()

	// Elsewhere it may be; what is mended elsewhere makes room.
	f.mend(open.ID, func(c *store.Callback) { c.URL += "/v3" })
	f.retry(old.ID, store.Restart)
	f.replayOf(old, f.offer(polling("r")))
	f.replayOf(open, f.offer(polling("r"), elsewhere("/v3")))
	f.cancel(old.ID)

	// Of many that are to be opened again one is, and the others are left as they were.
	twins := f.twins(3)
	revive := restartDead
	revive.Filter = store.Filter{Ref: "twin"}
	r := f.redrive(revive)
	for r.Open() {
		r = f.step(r, 10).Redrive
	}
	f.check(r.Done == 1 && r.Failed == 2, "redriven: %+v", r)
	f.wantState(twins[0], store.Scheduled, "")
	f.wantState(twins[1], store.Dead, store.Exhausted)
	f.checkCounters()
	f.cancel(twins[0])

	// And where many do so at once.
	twins = f.twins(8)
	for range 8 {
		opened := f.winners(len(twins), store.ErrPollLive,
			func(i int) error { return f.tryRetry(project, twins[i]) })
		f.require(len(opened) == 1, "%d were opened", len(opened))
		f.cancel(twins[opened[0]])
	}
}

// twins are dead polls of one reference and address, the oldest first.
func (f *fixture) twins(n int) (ids []string) {
	for range n {
		ids = append(ids, f.dead(polling("twin"), func(d *store.Draft) { d.Poll.OnResult = nil }).ID)
	}
	return ids
}
