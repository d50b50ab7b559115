package storetest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// polling makes a draft a poll of a reference. Its result callback has the reference resultOf(ref).
func polling(ref string) option {
	return func(d *store.Draft) {
		c := &d.Callback
		c.Kind, c.Ref, c.Topic, d.Body = store.Poll, ref, "payment.pending", nil
		c.Method, c.URL = "GET", "https://shop.example/query"
		d.Poll = &store.PollDetail{
			Context: `{"order": "<1>", "n": 12345678901234567890}`,
			OnResult: &store.ResultDraft{Callback: store.Callback{
				Kind: store.Notify, URL: "https://shop.example/polled", Method: "POST",
				Headers: []store.Header{{Name: "X-A", Value: "1"}}, ContentType: "application/json",
				Topic: "payment.polled", Ref: resultOf(ref), LockKey: "lock " + ref, Lane: "results",
				Labels: map[string]string{"a": "b"}, Policy: policy(time.Second),
				Success: store.Success{Name: "http-2xx"}, Signer: "standard-v1",
			}},
		}
	}
}

// resultOf returns the reference of the result callbacks for polls of a reference.
func resultOf(ref string) string { return "result of " + ref }

// answered returns the result of a poll's attempt with a response.
func (f *fixture) answered(
	s *store.Stamped, state store.State, reason store.Reason, status int, body string,
) store.Result {
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

// results returns the ids of the result callbacks for polls of a reference, newest first.
func (f *fixture) results(ref string) []string { return f.list(store.Filter{Ref: resultOf(ref)}) }

// testPollLiveCrowd creates the same poll concurrently, and cancels it. At most one poll of a reference and
// URL may be open at a time.
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
				continue // other callers ended the poll during each try of this accept
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
	f.check(len(first) == 1 && once.Load() == 1, "%d polls, %d of them new", len(first), once.Load())
	n := int64(len(f.results("often")))
	f.check(n == often.Load() && n > 0, "%d results of %d polls", n, often.Load())
}

// testPollReopenCrowd retries many dead polls of one reference and URL concurrently. Exactly one of them may
// become open.
func testPollReopenCrowd(f *fixture) {
	const many = 8
	var twins []string
	for range many {
		p := f.accept(polling("twin"), func(d *store.Draft) { d.Poll.OnResult = nil })
		f.win(f.died(f.claim(p.ID)))
		twins = append(twins, p.ID)
	}
	for range 8 {
		opened := f.winners(many, store.ErrPollLive, func(i int) error {
			retry := store.Retry{Ladder: store.Once, Now: f.now}
			return errOf(f.Retry(f.ctx(), project, twins[i], retry, actor))
		})
		f.require(len(opened) == 1, "%d polls were opened", len(opened))
		f.cancel(twins[opened[0]])
	}
}

// spawnedNow returns the callbacks that the store created since the last call, such as results of polls.
func (f *fixture) spawnedNow() (rows []store.OpenRow) {
	for {
		select {
		case r := <-f.Spawned():
			rows = append(rows, r)
		default:
			return rows
		}
	}
}
