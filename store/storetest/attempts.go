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
	a, b := f.accept(), f.accept()
	stamped, refused := must2(f.Stamp(f.ctx(), store.Stamp{
		Token: "t1", Now: f.now + 5, Margin: margin,
		Claims: []store.StampClaim{{ID: b.ID, Diverts: 3}, {ID: a.ID}},
	}))
	f.require(len(refused) == 0 && len(stamped) == 2, "stamped %d, refused %+v", len(stamped), refused)
	slices.SortFunc(stamped, func(x, y *store.Stamped) int { return cmp.Compare(x.ID, y.ID) })
	for i, s := range stamped {
		f.check(s.Fence == 1 && s.ClaimToken == "t1" && s.ClaimUntil == f.now+5+claimLasts && s.CrashCount == 1 &&
			s.AttemptSeq == 0 && s.DivertCount == 3*i, "claim %d: %+v", i, s.Callback)
		f.check(s.StateAt(f.now+5) == store.Attempting && s.StateAt(s.ClaimUntil) == store.Scheduled,
			"claim %d does not end at its end", i)
		f.check(string(s.Body) == paid && s.Lane != "", "claim %d: body %q, lane %q", i, s.Body, s.Lane)
		same(f, "stamped", f.get(s.ID), s.Callback)
	}
	c := f.get(a.ID)
	f.check(c.StateAt(f.now+10) == store.Attempting && c.DueAt == a.DueAt, "after the stamp: %+v", c)
}

func testStampRefuses(f *fixture) {
	ended, held := f.dead(), f.accept()
	first := f.claim(held.ID)
	later, unknown := f.accept(dueIn(60_000)), f.id()
	stamped, refused := f.stamp(ended.ID, held.ID, later.ID, unknown)
	none(f, "stamped", stamped)
	want := map[string]store.Refusal{
		ended.ID: {ID: ended.ID, Terminal: true, Retry: true},
		held.ID:  {ID: held.ID, Due: first.ClaimUntil},
		later.ID: {ID: later.ID, Due: later.DueAt},
		unknown:  {ID: unknown, Terminal: true},
	}
	for _, r := range refused {
		same(f, "refused", want[r.ID], r)
	}
	c := f.get(held.ID)
	f.check(c.Fence == first.Fence && c.ClaimToken == first.ClaimToken && c.CrashCount == 1,
		"a refused stamp changed the claim: %+v", c)
}

// testStampLead claims rows a little before they are due: those that were accepted just now, and those that
// come back.
func testStampLead(f *fixture) {
	const lead = 30
	stamp := func(ids ...string) ([]*store.Stamped, []store.Refusal) {
		return f.stampAs(store.Stamp{Lead: lead}, ids...)
	}
	near, far := f.accept(dueIn(lead)), f.accept(dueIn(lead+1))
	for _, what := range []string{"accepted", "rescheduled"} {
		stamped, refused := stamp(near.ID, far.ID)
		f.require(len(stamped) == 1 && stamped[0].ID == near.ID && stamped[0].DueAt == near.DueAt &&
			stamped[0].ClaimUntil == f.now+claimLasts, "%s: %+v, want what is due within the lead", what, stamped)
		same(f, what+": refused", store.Refusal{ID: far.ID, Due: far.DueAt}, refused[0])
		if what == "accepted" {
			f.win(f.failed(stamped[0]))
			near = f.get(near.ID)
			f.now = near.DueAt - lead
			far = f.accept(dueAt(near.DueAt + 1))
		}
	}
	// An index that claims as early, while another's claim is alive, is not to ask again before that has ended.
	alive := f.get(near.ID)
	_, refused := stamp(near.ID)
	f.check(len(refused) == 1 && refused[0].Due == alive.ClaimUntil+lead,
		"refused %+v during a claim until %d, want the lead after it", refused, alive.ClaimUntil)
	// What was not due at the claim was not sent before it was.
	f.now = alive.ClaimUntil
	stamped, _ := stamp(near.ID)
	f.require(len(stamped) == 1 && stamped[0].Lost, "stamped %+v in place of a lost claim", stamped)
	lost := f.wantAttempts(near.ID, store.ClassHTTP5xx, store.ClassCrashed)[1]
	f.check(lost.StartedAt == alive.DueAt && lost.Lateness == 0, "the lost attempt: %+v", lost)
}

// testStampAfterCrash lets a claim end without a result: it leaves an attempt of unknown outcome. The model
// counts them.
func testStampAfterCrash(f *fixture) {
	c, began := f.accept(), f.now
	f.lose(c.ID)
	s := f.claim(c.ID)
	f.check(s.CrashCount == 2 && s.AttemptSeq == 1 && s.Fence == 2 && s.AttemptCount == 0 && s.Lost, "%+v", s)
	same(f, "record of the crash", []store.Attempt{{
		CallbackID: c.ID, Project: project, Number: 1, Fence: 1, Outcome: store.AttemptUnknown,
		Class: store.ClassCrashed, Trigger: store.BySchedule, StartedAt: began, EndedAt: f.now, DueAt: c.DueAt,
		NextDueAt: c.DueAt, Error: "the claim ended without a result",
	}}, f.attempts(c.ID))
}

// testStampSuspect has rows whose claims ended without a result: a batch leaves them out from so many on, a
// claim of their own does not.
func testStampSuspect(f *fixture) {
	fresh, once, twice, later := f.accept(), f.accept(), f.accept(), f.accept()
	f.lose(twice.ID, later.ID)
	f.claim(twice.ID)
	f.claim(once.ID)
	last := f.claim(later.ID)
	f.now += claimLasts
	f.win(f.failed(last)) // a result clears it
	batch := func(stamped int, ids ...string) []store.Refusal {
		got, refused := f.stampAs(store.Stamp{Suspect: 2}, ids...)
		f.check(len(got) == stamped, "%d stamped, want %d; refused %+v", len(got), stamped, refused)
		return refused
	}
	same(f, "refused", []store.Refusal{{ID: twice.ID, Due: twice.DueAt, Suspect: true}},
		batch(2, fresh.ID, once.ID, twice.ID))
	c := f.get(twice.ID)
	f.check(c.CrashCount == 2 && c.StateAt(f.now) == store.Scheduled, "a refused suspect was changed: %+v", c)
	s := f.claim(twice.ID)
	f.check(s.CrashCount == 3 && s.AttemptSeq == 2, "a suspect claimed alone: %+v", s.Callback)
	r := batch(0, twice.ID)[0]
	f.check(!r.Suspect && r.Due > f.now, "a suspect that is claimed: %+v", r)
	f.now += 1000
	batch(1, later.ID)
}

func testStampCorrupt(f *fixture) {
	good, bad := f.accept(), f.accept()
	f.ok(f.Damage(f.ctx(), bad.ID))
	c := f.get(bad.ID)
	f.check(c.Ref == bad.Ref && c.URL == bad.URL, "what is left of a damaged row is not shown: %+v", c)
	stamped, refused := f.stamp(good.ID, bad.ID)
	f.require(len(stamped) == 1 && stamped[0].ID == good.ID, "stamped %+v", stamped)
	r := refused[0]
	f.check(r.ID == bad.ID && r.Corrupt && r.Terminal, "refused %+v", r)
	c = f.wantState(bad.ID, store.Dead, store.Invalid)
	f.check(c.FinishedAt == f.now && c.DueAt == 0 && c.LastClass == store.ClassCorrupt && c.ClaimUntil == 0,
		"set aside: %+v", c)
	same(f, "list with a damaged row", []string{bad.ID}, f.list(store.Filter{States: []store.State{store.Dead}}))
	f.wantCounts(states{store.Dead: 1, store.Scheduled: 1})
	same(f, "counted in the first tier", 1, f.counts().Tiers[0])
	same(f, "payload of a row set aside", paid, string(f.payload(bad.ID).Body))
}

func testCommitReschedule(f *fixture) {
	c := f.accept()
	s := f.claim(c.ID)
	f.now += 20
	r := f.failed(s)
	r.Diverts = 2
	r.Attempt = &store.Attempt{
		Trigger: store.BySchedule, Outcome: store.AttemptFailed, Charged: true, Class: store.ClassRuleMismatch,
		Status: 200, Error: "expected success", StartedAt: f.now - 10, EndedAt: f.now, DueAt: s.DueAt,
		Lateness:        10.5,
		Timings:         store.Timings{DNS: 0.5, Connect: 1, TLS: 2, FirstByte: 3.25, Total: 9.75},
		RequestHeaders:  []store.Header{{Name: "webhook-id", Value: "cb_1"}},
		ResponseHeaders: []store.Header{{Name: "Server", Value: "x"}},
		ResponseBody:    "fail\n<b>", ResponseTruncated: true, KeyID: "k1",
		Rule: &store.Rule{Name: "body-success", Expected: "success", Saw: "fail"},
	}
	want := f.get(c.ID)
	same(f, "committed", store.Committed{Won: true, State: store.Scheduled, DueAt: f.now + 1000, Number: 1},
		f.win(r))
	want.DueAt, want.UpdatedAt = f.now+1000, f.now
	want.AttemptCount, want.AttemptSeq, want.DivertCount, want.CrashCount = 1, 1, 2, 0
	want.ClaimToken, want.ClaimUntil = "", 0
	want.LastStatus, want.LastClass = 200, store.ClassRuleMismatch
	same(f, "callback after a failure", want, f.get(c.ID))
	a := *r.Attempt
	a.CallbackID, a.Project, a.Number, a.Fence, a.NextDueAt = c.ID, project, 1, 1, f.now+1000
	same(f, "attempt", []store.Attempt{a}, f.attempts(c.ID))
	f.now += 999
	refused := f.refused(c.ID)
	f.check(refused.Due == want.DueAt && refused.Retry, "a stamp before the due time: %+v", refused)
	f.now++
	f.claim(c.ID)
}

// testCommitStale lets a claim run out; its result comes after another claim, before and after that one's
// result.
func testCommitStale(f *fixture) {
	c, started := f.accept(), f.now
	slow := f.claim(c.ID)
	f.now += claimLasts
	quick := f.claim(c.ID)
	late := f.succeeded(slow)
	late.Attempt.StartedAt, late.Attempt.ResponseBody = started, "success"
	before := f.get(c.ID)
	lost := f.commit(late)
	f.check(!lost.Won && lost.Number == 1, "a late result: %+v", lost)
	same(f, "the callback after a late result", before, f.get(c.ID))
	a := f.wantAttempts(c.ID, store.ClassOK)[0]
	f.check(a.Stale && a.ResponseBody == "success" && a.Number == 1 && a.StartedAt == started &&
		a.NextDueAt == 0 &&
		!a.Charged, "late attempt: %+v", a)
	f.check(!f.commit(late).Won, "a late result won when it was repeated")
	same(f, "number of the holder's result", 2, f.win(f.failed(quick)).Number)
	f.check(!f.commit(late).Won, "a late result won after the holder's")
	f.check(!f.wantAttempts(c.ID, store.ClassOK, store.ClassHTTP5xx)[1].Stale, "the holder's is stale")
	// A claim that has run out, but was not taken over, still counts.
	f.now += 1000
	last := f.claim(c.ID)
	f.now += claimLasts * 2
	f.win(f.succeeded(last))
}

// testCommitReplay repeats results whose replies were lost.
func testCommitReplay(f *fixture) {
	c := f.accept()
	r := f.failed(f.claim(c.ID))
	same(f, "a repeated result", f.win(r), f.commit(r))
	f.now += 1000
	back := handedBack(f.claim(c.ID), f.now)
	f.win(back)
	same(f, "due after a repeated hand-back", f.now, f.win(back).DueAt)
	got := f.get(c.ID)
	f.check(got.AttemptCount == 1 && got.AttemptSeq == 1 && got.DivertCount == 1, "counted twice: %+v", got)
	f.wantAttempts(c.ID, store.ClassHTTP5xx)
	// Another result under the same fence is no repetition.
	other, a := r, *r.Attempt
	a.StartedAt++
	other.Attempt = &a
	f.check(!f.commit(other).Won, "two different results won under one fence")
	f.check(!f.commit(store.Result{ID: f.id(), Fence: 1, State: store.Succeeded}).Won,
		"an unknown callback's won")
}

func testCommitHandBack(f *fixture) {
	c := f.accept()
	back := handedBack(f.claim(c.ID), f.now+3)
	back.FreeRetry = true
	won := f.win(back)
	f.check(won.Number == 0 && won.DueAt == f.now+3, "committed %+v", won)
	got := f.get(c.ID)
	f.check(got.AttemptCount == 0 && got.DivertCount == 1 && got.FreeRetry && got.LastClass == "" &&
		got.StateAt(f.now) == store.Scheduled, "after a hand-back: %+v", got)
	f.wantAttempts(c.ID)
	f.now += 3
	f.fail(c.ID)
	f.check(!f.get(c.ID).FreeRetry, "the free retry outlived its attempt")
}

func testCommitKeepsCrashCount(f *fixture) {
	c := f.accept()
	for n := 1; n <= 3; n++ {
		s := f.claim(c.ID)
		f.require(s.CrashCount == n, "claim %d has crash count %d", n, s.CrashCount)
		r := f.failed(s)
		r.KeepCrashCount, r.Charge = true, false
		r.Attempt.Charged, r.Attempt.Class = false, store.ClassPanic
		f.win(r)
		f.now += 1000
	}
	f.wantAttempts(c.ID, store.ClassPanic, store.ClassPanic, store.ClassPanic) // and no record of a crash
	f.fail(c.ID)
	got := f.get(c.ID)
	f.check(got.CrashCount == 0 && got.AttemptCount == 1, "after an ordinary result: %+v", got)
}

// testCommitUncleanText gives an answer that is not text: it must not keep the result from being committed.
func testCommitUncleanText(f *fixture) {
	c := f.accept()
	r := f.failed(f.claim(c.ID))
	r.Attempt.ResponseBody = "a\x00b\xff"
	r.Attempt.Error = "bad \xc3( byte"
	r.Attempt.ResponseHeaders = []store.Header{{Name: "X", Value: "\x00\xff"}}
	r.Attempt.Timings.Total = float64(time.Second) / 3
	f.win(r)
	a := f.attempts(c.ID)[0]
	for _, text := range []string{a.ResponseBody, a.Error, a.ResponseHeaders[0].Value} {
		f.check(utf8.ValidString(text), "text came back as %q", text)
	}
	f.check(strings.HasPrefix(a.ResponseBody, "a") && a.Timings.Total == r.Attempt.Timings.Total,
		"attempt: %+v", a)
}

// testLockHolder: of the callbacks of a lock key the one whose claim is alive has the lock.
func testLockHolder(f *fixture) {
	want := func(what, key, id string, since int64) {
		gotID, gotSince := must2(f.LockHolder(f.ctx(), project, key, f.now))
		f.check(gotID == id && gotSince == since, "%s: %q since %d; want %q since %d", what, gotID, gotSince, id,
			since)
	}
	first, second := f.accept(withLock("k")), f.accept(withLock("k"))
	f.claim(f.accept().ID)
	f.claim(f.accept(withLock("k"), inProject("other")).ID)
	want("no attempt is made", "k", "", 0)
	f.now += 5
	claimed, at := f.claim(second.ID), f.now
	f.now += 5
	want("the second is attempted", "k", second.ID, at)
	f.win(f.succeeded(claimed))
	want("it has ended", "k", "", 0)
	f.claim(first.ID)
	want("the first is attempted", "k", first.ID, f.now)
	f.now += claimLasts
	want("its claim has run out", "k", "", 0)
	want("no lock", "", "", 0)
}

// testAttempted: when a callback was claimed, and when its last attempt ended.
func testAttempted(f *fixture) {
	c := f.accept()
	want := func(what, project string, claimed, ended int64) {
		gotClaimed, gotEnded := must2(f.Attempted(f.ctx(), project, c.ID))
		f.check(gotClaimed == claimed && gotEnded == ended,
			"%s: claimed at %d, ended at %d; want %d and %d", what, gotClaimed, gotEnded, claimed, ended)
	}
	want("at first", project, 0, 0)
	ended := int64(0)
	for i := range 3 {
		claimed := f.claim(c.ID)
		want(fmt.Sprint("claimed, with ", i, " attempts"), project, f.now, ended)
		if i == 2 {
			break
		}
		f.win(f.failed(claimed))
		attempts := f.attempts(c.ID)
		f.require(len(attempts) == i+1 && attempts[i].EndedAt > ended, "attempts: %+v", attempts)
		ended = attempts[i].EndedAt
		f.now = f.get(c.ID).DueAt
	}
	want("of another project", "other", 0, 0)
}
