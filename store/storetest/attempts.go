package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func testStamp(f *fixture) {
	a, b := f.accept(nil), f.accept(nil)
	stamped, refused, err := f.Stamp(f.ctx(), store.Stamp{
		Token: "t1", Now: f.now + 5, Margin: margin,
		Claims: []store.StampClaim{{ID: b.ID, Diverts: 3}, {ID: a.ID}},
	})
	if err != nil || len(refused) != 0 || len(stamped) != 2 {
		f.Fatalf("stamped %d, refused %+v, error %v", len(stamped), refused, err)
	}
	slices.SortFunc(stamped, func(x, y *store.Stamped) int { return cmp.Compare(x.ID, y.ID) })
	for i, s := range stamped {
		if s.Fence != 1 || s.ClaimToken != "t1" || s.ClaimUntil != f.now+5+claimLasts || s.CrashCount != 1 || s.AttemptSeq != 0 {
			f.Errorf("claim %d: %+v", i, s.Callback)
		}
		if s.StateAt(f.now+5) != store.Attempting || s.StateAt(s.ClaimUntil) != store.Scheduled {
			f.Errorf("claim %d does not end at its end", i)
		}
		if string(s.Body) != `{"paid":10000}` || s.Lane == "" {
			f.Errorf("claim %d lacks what an attempt needs: body %q, lane %q", i, s.Body, s.Lane)
		}
	}
	if stamped[0].DivertCount != 0 || stamped[1].DivertCount != 3 {
		f.Errorf("diverts are %d and %d", stamped[0].DivertCount, stamped[1].DivertCount)
	}
	for _, s := range stamped {
		// What is left out is empty; the rest is the row's.
		want := f.get(s.ID)
		want.Topic, want.Ref, want.LockKey, want.Labels, want.Version = "", "", "", nil, nil
		want.Reason, want.LastStatus, want.CreatedAt, want.UpdatedAt, want.FinishedAt = "", 0, 0, 0, 0
		want.ResumeState, want.ResumeReason, want.PayloadID = "", "", ""
		same(f, "stamped", want, s.Callback)
	}
	if c := f.get(a.ID); c.StateAt(f.now+10) != store.Attempting || c.DueAt != a.DueAt {
		f.Errorf("after the stamp: %+v", c)
	}
}

func testStampRefuses(f *fixture) {
	ended := f.dead(nil)
	held := f.accept(nil)
	first := f.claim(held.ID)
	later := f.accept(func(d *store.Draft) { d.Callback.DueAt += 60_000 })
	unknown := f.id()
	_, refused := f.stamp(f.token(), ended.ID, held.ID, later.ID, unknown)
	want := map[string]store.Refusal{
		ended.ID: {ID: ended.ID, Terminal: true, Retry: true},
		held.ID:  {ID: held.ID, Due: first.ClaimUntil},
		later.ID: {ID: later.ID, Due: later.DueAt},
		unknown:  {ID: unknown, Terminal: true},
	}
	if len(refused) != len(want) {
		f.Fatalf("refused %+v", refused)
	}
	for _, r := range refused {
		if r != want[r.ID] {
			f.Errorf("refused %+v, want %+v", r, want[r.ID])
		}
	}
	if c := f.get(held.ID); c.Fence != first.Fence || c.ClaimToken != first.ClaimToken || c.CrashCount != 1 {
		f.Errorf("a refused stamp changed the claim: %+v", c)
	}
}

// testStampLead claims rows a little before they are due: those that were accepted just now, and those that come back.
func testStampLead(f *fixture) {
	const lead = 30
	stamp := func(ids ...string) ([]*store.Stamped, []store.Refusal) {
		return f.stampAs(store.Stamp{Token: f.token(), Lead: lead}, ids...)
	}
	near := f.accept(func(d *store.Draft) { d.Callback.DueAt += lead })
	far := f.accept(func(d *store.Draft) { d.Callback.DueAt += lead + 1 })
	for _, what := range []string{"accepted", "rescheduled"} {
		stamped, refused := stamp(near.ID, far.ID)
		if len(stamped) != 1 || stamped[0].ID != near.ID || stamped[0].DueAt != near.DueAt || stamped[0].ClaimUntil != f.now+claimLasts {
			f.Fatalf("%s: stamped %+v, want the one that is due within the lead", what, stamped)
		}
		if r := refused[0]; r.ID != far.ID || r.Terminal || r.Suspect || r.Due != far.DueAt {
			f.Fatalf("%s: refused %+v, want the one that is due later", what, refused)
		}
		if what == "accepted" {
			f.win(f.failed(stamped[0]))
			near = f.get(near.ID)
			f.now = near.DueAt - lead
			far = f.accept(func(d *store.Draft) { d.Callback.DueAt = near.DueAt + 1 })
		}
	}

	// An index that claims as early, while another's claim is alive, is not to ask again before that has ended.
	alive := f.get(near.ID)
	if _, refused := stamp(near.ID); len(refused) != 1 || refused[0].Due != alive.ClaimUntil+lead {
		f.Errorf("refused %+v during a claim until %d, want the lead after it", refused, alive.ClaimUntil)
	}

	// What was not due at the claim was not sent before it was.
	f.now = alive.ClaimUntil
	if stamped, refused := stamp(near.ID); len(stamped) != 1 || !stamped[0].Lost {
		f.Fatalf("stamped %+v, refused %+v, want a claim in place of the lost one", stamped, refused)
	}
	attempts := f.attempts(near.ID)
	if a := attempts[len(attempts)-1]; a.Class != store.ClassCrashed || a.StartedAt != alive.DueAt || a.Lateness != 0 {
		f.Errorf("the lost attempt is %+v, want it to start at its due time %d", a, alive.DueAt)
	}
}

// testStampAfterCrash lets a claim end without a result: it leaves an attempt of unknown outcome. The model counts them.
func testStampAfterCrash(f *fixture) {
	c := f.accept(nil)
	first := f.claim(c.ID)
	began := f.now
	f.now += claimLasts
	if s := f.claim(c.ID); s.CrashCount != 2 || s.AttemptSeq != 1 || s.Fence != 2 || s.AttemptCount != 0 || !s.Lost {
		f.Errorf("the next claim: %+v", s)
	}
	same(f, "record of the crash", []store.Attempt{{
		CallbackID: c.ID, Project: project, Number: 1, Fence: first.Fence, Outcome: store.AttemptUnknown, Class: store.ClassCrashed,
		Trigger: store.BySchedule, StartedAt: began, EndedAt: f.now, DueAt: c.DueAt, NextDueAt: c.DueAt,
		Error: "the claim ended without a result",
	}}, f.attempts(c.ID))
}

// testStampSuspect has rows whose claims ended without a result: a batch leaves them out from so many on, a claim of their own
// does not.
func testStampSuspect(f *fixture) {
	fresh, once, twice, later := f.accept(nil), f.accept(nil), f.accept(nil), f.accept(nil)
	f.claim(twice.ID)
	f.claim(later.ID)
	f.now += claimLasts
	f.claim(twice.ID)
	f.claim(once.ID)
	last := f.claim(later.ID)
	f.now += claimLasts
	f.win(f.failed(last)) // a result clears it
	batch := func(ids ...string) ([]*store.Stamped, []store.Refusal) {
		return f.stampAs(store.Stamp{Token: f.token(), Suspect: 2}, ids...)
	}
	stamped, refused := batch(fresh.ID, once.ID, twice.ID)
	if want := (store.Refusal{ID: twice.ID, Due: twice.DueAt, Suspect: true}); len(stamped) != 2 || len(refused) != 1 || refused[0] != want {
		f.Fatalf("%d stamped, refused %+v; want 2, %+v", len(stamped), refused, want)
	}
	if c := f.get(twice.ID); c.CrashCount != 2 || c.StateAt(f.now) != store.Scheduled {
		f.Errorf("a refused suspect was changed: %+v", c)
	}
	if s := f.claim(twice.ID); s.CrashCount != 3 || s.AttemptSeq != 2 {
		f.Errorf("a suspect claimed alone: %+v", s.Callback)
	}
	if _, refused := batch(twice.ID); len(refused) != 1 || refused[0].Suspect || refused[0].Due <= f.now {
		f.Errorf("a suspect that somebody has: %+v", refused)
	}
	f.now += 1000
	if stamped, _ := batch(later.ID); len(stamped) != 1 {
		f.Errorf("one that had a result is a suspect still")
	}
}

func testStampCorrupt(f *fixture) {
	good, bad := f.accept(nil), f.accept(nil)
	f.ok(f.Damage(f.ctx(), bad.ID))
	if c := f.get(bad.ID); c.Ref != bad.Ref || c.URL != bad.URL {
		f.Errorf("what is left of a damaged row is not shown: %+v", c)
	}
	stamped, refused := f.stamp(f.token(), good.ID, bad.ID)
	if len(stamped) != 1 || stamped[0].ID != good.ID {
		f.Fatalf("stamped %+v", stamped)
	}
	if refused[0].ID != bad.ID || !refused[0].Corrupt || !refused[0].Terminal {
		f.Errorf("refused %+v", refused[0])
	}
	c := f.get(bad.ID)
	f.wantState(c, store.Dead, store.Invalid)
	if c.FinishedAt != f.now || c.DueAt != 0 || c.LastClass != store.ClassCorrupt || c.ClaimUntil != 0 {
		f.Errorf("set aside: %+v", c)
	}
	page, err := f.List(f.ctx(), project, store.Filter{Limit: 10, Now: f.now, States: []store.State{store.Dead}})
	if err != nil || len(page.Callbacks) != 1 || page.Callbacks[0].ID != bad.ID {
		f.Errorf("list with a damaged row: %v, %+v", err, page)
	}
	if counts := f.counts(); counts.States[store.Dead] != 1 || counts.States[store.Scheduled] != 1 || counts.Tiers[0] != 1 {
		f.Errorf("counts %+v", counts)
	}
	if p, err := f.Payload(f.ctx(), project, bad.ID); err != nil || string(p.Body) != `{"paid":10000}` {
		f.Errorf("payload of a row set aside: %v, %q", err, p.Body)
	}
}

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

// testLockHolder: of the callbacks of a lock key the one whose claim is alive has the lock.
func testLockHolder(f *fixture) {
	locked := func(d *store.Draft) { d.Callback.LockKey = "k" }
	want := func(what, id string, since int64) {
		f.Helper()
		gotID, gotSince, err := f.LockHolder(f.ctx(), project, "k", f.now)
		if err != nil || gotID != id || gotSince != since {
			f.Errorf("%s: %q since %d, %v; want %q since %d", what, gotID, gotSince, err, id, since)
		}
	}
	first, second := f.accept(locked), f.accept(locked)
	f.claim(f.accept(nil).ID)
	f.claim(f.accept(func(d *store.Draft) { locked(d); d.Callback.Project = "other" }).ID)
	want("no attempt is made", "", 0)
	f.now += 5
	claimed, at := f.claim(second.ID), f.now
	f.now += 5
	want("the second is attempted", second.ID, at)
	f.win(f.succeeded(claimed))
	want("it has ended", "", 0)
	f.claim(first.ID)
	want("the first is attempted", first.ID, f.now)
	f.now += claimLasts
	want("its claim has run out", "", 0)
	if id, since, err := f.LockHolder(f.ctx(), project, "", f.now); id != "" || since != 0 || err != nil {
		f.Errorf("the holder of no lock: %q since %d, %v", id, since, err)
	}
}

// testAttempted: when a callback was claimed, and when its last attempt ended.
func testAttempted(f *fixture) {
	c := f.accept(nil)
	want := func(what, project string, claimed, ended int64) {
		f.Helper()
		gotClaimed, gotEnded, err := f.Attempted(f.ctx(), project, c.ID)
		if err != nil || gotClaimed != claimed || gotEnded != ended {
			f.Errorf("%s: claimed at %d, ended at %d, %v; want %d and %d",
				what, gotClaimed, gotEnded, err, claimed, ended)
		}
	}
	want("at first", project, 0, 0)
	ended := int64(0)
	for i := range 2 {
		claimed, at := f.claim(c.ID), f.now
		want(fmt.Sprint("claimed, with ", i, " attempts"), project, at, ended)
		f.win(f.failed(claimed))
		attempts := f.attempts(c.ID)
		if last := attempts[len(attempts)-1].EndedAt; len(attempts) != i+1 || last <= ended {
			f.Fatalf("attempts: %+v", attempts)
		}
		ended = attempts[i].EndedAt
		f.now = f.get(c.ID).DueAt
	}
	f.claim(c.ID)
	want("claimed, with two attempts", project, f.now, ended)
	want("of another project", "other", 0, 0)
}
