package storetest

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func testCommitReschedule(f *fixture) {
	c := f.accept(nil)
	s := f.claim(c.ID)
	f.now += 20
	r := f.failed(s)
	r.Diverts = 2
	r.Attempt = &store.Attempt{
		Trigger: store.BySchedule, Outcome: store.AttemptFailed, Charged: true, Class: store.ClassRuleMismatch, Status: 200,
		Error: "expected success", StartedAt: f.now - 10, EndedAt: f.now, DueAt: s.DueAt, Lateness: 10.5,
		Timings:        store.Timings{DNS: 0.5, Connect: 1, TLS: 2, FirstByte: 3.25, Total: 9.75},
		RequestHeaders: []store.Header{{Name: "webhook-id", Value: "cb_1"}}, ResponseHeaders: []store.Header{{Name: "Server", Value: "x"}},
		ResponseBody: "fail\n<b>", ResponseTruncated: true, KeyID: "k1",
		Rule: &store.Rule{Name: "body-success", Expected: "success", Saw: "fail"},
	}
	want := f.get(c.ID)
	won := f.win(r)
	if won.State != store.Scheduled || won.DueAt != f.now+1000 || won.Number != 1 {
		f.Errorf("committed %+v", won)
	}
	got := f.get(c.ID)
	want.DueAt, want.UpdatedAt = f.now+1000, f.now
	want.AttemptCount, want.AttemptSeq, want.DivertCount, want.CrashCount = 1, 1, 2, 0
	want.ClaimToken, want.ClaimUntil = "", 0
	want.LastStatus, want.LastClass = 200, store.ClassRuleMismatch
	same(f, "callback after a failure", want, got)
	attempt := *r.Attempt
	attempt.CallbackID, attempt.Project, attempt.Number, attempt.Fence, attempt.NextDueAt = c.ID, project, 1, 1, f.now+1000
	same(f, "attempt", []store.Attempt{attempt}, f.attempts(c.ID))
	f.now += 999
	if _, refused := f.stamp(f.token(), c.ID); len(refused) != 1 || refused[0].Due != got.DueAt || !refused[0].Retry {
		f.Errorf("a stamp before the due time: %+v", refused)
	}
	f.now++
	f.claim(c.ID)
}

// testCommitStale lets a claim run out; its result comes after another claim, before and after that one's result.
func testCommitStale(f *fixture) {
	c := f.accept(nil)
	slow := f.claim(c.ID)
	started := f.now
	f.now += claimLasts
	quick := f.claim(c.ID)
	late := f.succeeded(slow)
	late.Attempt.StartedAt, late.Attempt.ResponseBody = started, "success"
	before := f.get(c.ID)
	if lost := f.commit(late); lost.Won || lost.Number != 1 {
		f.Errorf("a late result: %+v", lost)
	}
	same(f, "a late result changed the callback", before, f.get(c.ID))
	attempts := f.attempts(c.ID)
	if len(attempts) != 1 || !attempts[0].Stale || attempts[0].Class != store.ClassOK || attempts[0].ResponseBody != "success" ||
		attempts[0].Number != 1 || attempts[0].StartedAt != started || attempts[0].NextDueAt != 0 || attempts[0].Charged {
		f.Errorf("late attempt: %+v", attempts)
	}
	if lost := f.commit(late); lost.Won {
		f.Error("a late result won when it was repeated")
	}
	if won := f.win(f.failed(quick)); won.Number != 2 {
		f.Errorf("the holder's result: %+v", won)
	}
	if lost := f.commit(late); lost.Won {
		f.Error("a late result won after the holder's")
	}
	if attempts := f.attempts(c.ID); len(attempts) != 2 || attempts[1].Stale || attempts[1].Class != store.ClassHTTP5xx {
		f.Errorf("attempts: %+v", attempts)
	}
	// A claim that has run out, but was not taken over, still counts.
	f.now += 1000
	last := f.claim(c.ID)
	f.now += claimLasts * 2
	f.win(f.succeeded(last))
}

// testCommitReplay repeats results whose replies were lost.
func testCommitReplay(f *fixture) {
	c := f.accept(nil)
	r := f.failed(f.claim(c.ID))
	first := f.win(r)
	if again := f.commit(r); again != first {
		f.Errorf("repeated result: %+v, first %+v", again, first)
	}
	f.now += 1000
	back := f.claim(c.ID)
	hand := store.Result{ID: c.ID, Fence: back.Fence, State: store.Scheduled, DueAt: f.now, Diverts: 1}
	f.win(hand)
	if again := f.commit(hand); !again.Won || again.DueAt != f.now {
		f.Errorf("repeated hand-back: %+v", again)
	}
	got := f.get(c.ID)
	if got.AttemptCount != 1 || got.AttemptSeq != 1 || got.DivertCount != 1 || len(f.attempts(c.ID)) != 1 {
		f.Errorf("a repeated result counted twice: %+v", got)
	}
	// Another result under the same fence is no repetition.
	other := r
	a := *r.Attempt
	a.StartedAt++
	other.Attempt = &a
	if f.commit(other).Won {
		f.Error("two different results won under one fence")
	}
	if f.commit(store.Result{ID: f.id(), Fence: 1, State: store.Succeeded}).Won {
		f.Error("a result of an unknown callback won")
	}
}

func testCommitHandBack(f *fixture) {
	c := f.accept(nil)
	s := f.claim(c.ID)
	won := f.win(store.Result{ID: c.ID, Fence: s.Fence, State: store.Scheduled, DueAt: f.now + 3, Diverts: 1, FreeRetry: true})
	if won.Number != 0 || won.DueAt != f.now+3 {
		f.Errorf("committed %+v", won)
	}
	got := f.get(c.ID)
	if got.AttemptCount != 0 || got.DivertCount != 1 || !got.FreeRetry || got.LastClass != "" || got.StateAt(f.now) != store.Scheduled {
		f.Errorf("after a hand-back: %+v", got)
	}
	if len(f.attempts(c.ID)) != 0 {
		f.Error("a hand-back left an attempt")
	}
	f.now += 3
	f.win(f.failed(f.claim(c.ID)))
	if f.get(c.ID).FreeRetry {
		f.Error("the free retry outlived its attempt")
	}
}

func testCommitKeepsCrashCount(f *fixture) {
	c := f.accept(nil)
	for n := 1; n <= 3; n++ {
		s := f.claim(c.ID)
		if s.CrashCount != n {
			f.Fatalf("claim %d has crash count %d", n, s.CrashCount)
		}
		r := f.failed(s)
		r.KeepCrashCount, r.Charge = true, false
		r.Attempt.Charged, r.Attempt.Class = false, store.ClassPanic
		f.win(r)
		f.now += 1000
	}
	if attempts := f.attempts(c.ID); len(attempts) != 3 || attempts[2].Class != store.ClassPanic {
		f.Errorf("a panic's result was followed by a record of a crash: %+v", attempts)
	}
	f.win(f.failed(f.claim(c.ID)))
	if got := f.get(c.ID); got.CrashCount != 0 || got.AttemptCount != 1 {
		f.Errorf("after an ordinary result: %+v", got)
	}
}

// testCommitUncleanText gives an answer that is not text: it must not keep the result from being committed.
func testCommitUncleanText(f *fixture) {
	c := f.accept(nil)
	r := f.failed(f.claim(c.ID))
	r.Attempt.ResponseBody = "a\x00b\xff"
	r.Attempt.Error = "bad \xc3( byte"
	r.Attempt.ResponseHeaders = []store.Header{{Name: "X", Value: "\x00\xff"}}
	r.Attempt.Timings.Total = float64(time.Second) / 3
	f.win(r)
	a := f.attempts(c.ID)[0]
	for _, text := range []string{a.ResponseBody, a.Error, a.ResponseHeaders[0].Value} {
		if !utf8.ValidString(text) {
			f.Errorf("text came back as %q", text)
		}
	}
	if !strings.HasPrefix(a.ResponseBody, "a") || a.Timings.Total != r.Attempt.Timings.Total {
		f.Errorf("attempt: %+v", a)
	}
}
