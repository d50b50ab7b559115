package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func testCancel(f *fixture) {
	c := f.accept()
	f.now++
	got := f.cancel(c.ID)
	f.check(got.Result == store.CancelDone && got.Callback.FinishedAt == f.now && got.Callback.DueAt == 0,
		"%+v", got)
	f.wantState(c.ID, store.Canceled, store.Requested)
	f.now++
	got = f.cancel(c.ID)
	f.check(got.Result == store.CancelAlreadyTerminal && got.Callback.FinishedAt == f.now-1, "again: %+v", got)
	f.check(f.refused(c.ID).Terminal, "a stamp does not say that it was canceled")
	f.unknown(c.ID, func(project, id string) error {
		return errOf(f.Cancel(f.ctx(), project, id, f.now, actor))
	})
}

// testCancelWaited cancels with a time that was read before an attempt was made: the callback did not end
// before it.
func testCancelWaited(f *fixture) {
	c, asked := f.accept(), f.now
	s := f.claim(c.ID)
	f.now += 20
	f.win(f.failed(s))
	got := must(f.Cancel(f.ctx(), project, c.ID, asked, actor))
	f.check(got.Result == store.CancelDone && got.Callback.FinishedAt == f.now &&
		f.get(c.ID).FinishedAt == f.now,
		"%+v, want the end at %d", got, f.now)
}

func (f *fixture) cancelRef(ref, topic string) []store.CanceledCallback {
	return must(f.CancelRef(f.ctx(), project, ref, topic, 1000, f.now, actor))
}

func testCancelRef(f *fixture) {
	ref := func(ref, topic string) string { return f.accept(withRef(ref), withTopic(topic)).ID }
	a, b, other, busy := ref("r", "x"), ref("r", "y"), ref("s", "x"), ref("r", "x")
	f.claim(busy)
	f.cancel(ref("r", "x"))
	got := f.cancelRef("r", "x")
	f.require(len(got) == 2 && got[0].Callback.ID == a && got[1].Result == store.CancelTooLate,
		"canceled: %+v", got)
	f.wantState(b, store.Scheduled, "")
	f.wantState(other, store.Scheduled, "")
	none(f, "cancel in another project", must(f.CancelRef(f.ctx(), "other", "r", "", 1000, f.now, actor)))
	same(f, "cancel of one", 1, len(must(f.CancelRef(f.ctx(), project, "r", "", 1, f.now, actor))))
	none(f, "cancel without a reference", f.cancelRef("", ""))
}

func testRetryScheduled(f *fixture) {
	const lane, url = "https://new.example:443", "https://new.example/x"
	plain := store.Header{Name: "X-Shop", Value: "7"}
	c := f.accept(inLane("https://shop.example:443"),
		withHeaders(store.SealedHeader("X-Api-Key", "k1:a"), plain))
	same(f, "headers", 2, len(f.get(c.ID).Headers))
	f.fail(c.ID)
	f.now += 10
	got := must(f.retryAt(c.ID, url))
	f.check(got.DueAt == f.now && got.Trigger == store.Manual && got.URL == url && got.Lane == lane &&
		got.LaneID != c.LaneID, "retry: %+v", got)
	f.check(got.AttemptCount == 1 && got.LadderBase == 0 && got.FirstDueAt == c.FirstDueAt &&
		got.ResumeState == "",
		"retry changed the ladder: %+v", got)
	s := f.claim(c.ID)
	same(f, "headers at another host", []store.Header{plain}, s.Headers)
	f.check(s.Lane == lane && s.Trigger == store.Manual, "claim after a retry: %+v", s)
	// What was asked for by hand stays so until it is tried.
	f.win(handedBack(s, f.now))
	s = f.claim(c.ID)
	same(f, "trigger after a divert", store.Manual, s.Trigger)
	f.win(f.failed(s))
	got = f.wantState(c.ID, store.Scheduled, "")
	f.check(got.AttemptCount == 2 && got.Trigger == store.BySchedule, "after the manual attempt: %+v", got)
}

// testRetryOnce retries one that has expired long ago: it gets as much time as it had. What comes of it, the
// model checks.
func testRetryOnce(f *fixture) {
	c := f.dead(expiresAt(f.now + 5000))
	f.now += 60_000
	got := f.retry(c.ID, store.Once)
	f.check(got.Reason == "" && got.Trigger == store.Manual && got.FirstDueAt == f.now &&
		got.ExpiresAt == f.now+5000, "retry: %+v", got)
	same(f, "number of the attempt", 2, f.fail(c.ID).Number)
}

func testRetryRefused(f *fixture) {
	c := f.accept()
	s := f.claim(c.ID)
	refused := func(want error) {
		f.fails(want, "retry", f.tryRetry(project, c.ID))
		f.fails(want, "reschedule", f.tryReschedule(project, c.ID))
	}
	refused(store.ErrAttempting)
	f.win(f.died(s))
	f.now++
	f.purge(f.now, 0)
	refused(store.ErrPayloadPurged)
	f.unknown(c.ID, f.tryRetry, f.tryReschedule)
}

func testReschedule(f *fixture) {
	c := f.accept(expiresAt(f.now + 1000))
	got := f.reschedule(c.ID, f.now+9000)
	f.check(got.DueAt == f.now+9000 && got.FirstDueAt == f.now+9000 && got.ExpiresAt == f.now+10_000 &&
		got.Trigger == store.BySchedule, "a fresh one: %+v", got)
	f.now += 9000
	f.fail(c.ID)
	got = f.reschedule(c.ID, f.now+500)
	f.check(got.DueAt == f.now+500 && got.FirstDueAt == f.now && got.ExpiresAt == f.now+1000,
		"between attempts: %+v", got)
	got = f.reschedule(f.dead().ID, f.now+7000)
	f.check(got.State == store.Scheduled && got.DueAt == f.now+7000 && got.ResumeState == store.Dead &&
		got.Trigger == store.Manual, "a dead one: %+v", got)
	ok, canceled := f.accept(), f.accept()
	f.succeed(ok.ID)
	f.cancel(canceled.ID)
	for _, id := range ids(ok, canceled) {
		f.fails(store.ErrTerminal, "a terminal one", f.tryReschedule(project, id))
	}
}

// testMendCrashed reschedules and retries after attempts that never came back: what they were is recorded as
// it was, not as what comes next.
func testMendCrashed(f *fixture) {
	moved, retried := f.accept(), f.accept()
	f.lose(moved.ID, retried.ID)
	f.reschedule(moved.ID, f.now+5000)
	f.retry(retried.ID, store.Once)
	for _, c := range []store.Callback{moved, retried} {
		a := f.wantAttempts(c.ID, store.ClassCrashed)[0]
		f.check(a.DueAt == c.DueAt && a.Trigger == store.BySchedule, "record of the crash: %+v", a)
	}
}

// testAudit: what changed something is in the audit once, the newest first, and in its own project.
func testAudit(f *fixture) {
	c := f.accept()
	f.now++
	f.reschedule(c.ID, f.now+1)
	f.retry(c.ID, store.Once)
	f.cancel(c.ID)
	f.cancel(c.ID)
	f.missing("retry", f.tryRetry(project, f.id()))
	f.appendAudit(store.AuditEntry{
		Project: project, At: f.now, Actor: actor.Name, Address: actor.Address, Action: "x", Object: c.ID,
		Reason: actor.Reason,
	})
	f.appendAudit(store.AuditEntry{Project: "other", At: f.now, Action: "x"})
	at := func(plus int64) string {
		return time.UnixMilli(f.now + plus).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	var want []store.AuditEntry
	for _, e := range []store.AuditEntry{
		{Action: "x"},
		{
			Action: "callback.cancel",
			Before: fmt.Sprintf(`{"due_at":%q,"reason":"","state":"scheduled"}`, at(0)),
			After:  `{"due_at":null,"reason":"requested","state":"canceled"}`,
		},
		{
			Action: "callback.retry",
			Before: fmt.Sprintf(`{"due_at":%q,"trigger":"schedule"}`, at(1)),
			After:  fmt.Sprintf(`{"due_at":%q,"trigger":"manual"}`, at(0)),
		},
		{
			Action: "callback.reschedule",
			Before: fmt.Sprintf(`{"due_at":%q}`, at(-1)), After: fmt.Sprintf(`{"due_at":%q}`, at(1)),
		},
	} {
		e.Project, e.At, e.Object = project, f.now, c.ID
		e.Actor, e.Address, e.Reason = actor.Name, actor.Address, actor.Reason
		want = append(want, e)
	}
	got := pages(f, 2, func(last *store.AuditEntry) ([]store.AuditEntry, error) {
		after := ""
		if last != nil {
			after = last.ID
		}
		return f.AuditEntries(f.ctx(), project, after, 2)
	})
	for i := range got {
		got[i].ID, got[i].Detail = "", ""
	}
	same(f, "audit", want, got)
}

func testMend(f *fixture) {
	const url = "https://new.example"
	c := f.accept(withHeaders(store.Header{Name: "A", Value: "1"}))
	mend := func(c *store.Callback) {
		c.URL, c.Lane, c.Headers = url, "new", []store.Header{{Name: "B", Value: "2"}}
		c.Policy = store.Policy{
			Name: "mine", Tiers: []time.Duration{time.Minute}, Timeout: 9 * time.Second, StopOn: []int{410},
		}
		c.Success, c.ExpiresAt = store.Success{Name: "mine", Rule: `{"status":["200"]}`}, f.now+9000
	}
	got := f.mend(c.ID, func(c *store.Callback) {
		mend(c)
		// None of these is to be mended.
		c.ID, c.State, c.DueAt, c.Ref, c.AttemptCount, c.LaneID = "x", store.Dead, 7, "x", 9, 9
		c.Labels = map[string]string{"a": "b"}
	})
	want := c
	mend(&want)
	want.LaneID, want.UpdatedAt = got.LaneID, f.now+1
	both(f, "mended", want, got, f.get(c.ID))
	f.check(got.LaneID != c.LaneID, "the new lane has the number of the old one")
	// Though it was accepted just now, and here, it is sent as it is mended.
	s := f.claim(c.ID)
	f.check(s.URL == url && slices.Equal(s.Headers, want.Headers) && s.Policy.Name == "mine" &&
		s.LaneID == got.LaneID && s.ClaimUntil == f.now+9000+margin, "stamped: %+v", s.Callback)
	f.wantAudit("callback.mend " + c.ID)

	const third = "https://third.example"
	f.win(f.died(s))
	f.mend(c.ID, func(c *store.Callback) { c.URL = third })
	got = f.wantState(c.ID, store.Dead, store.Exhausted)
	f.check(got.DueAt == 0 && got.FinishedAt != 0 && got.URL == third, "a dead one: %+v", got)
	f.retry(c.ID, store.Restart)
	same(f, "address of one that is retried", third, f.claim(c.ID).URL)
	lanes := f.counts().Lanes
	f.check(len(lanes) == 1 && lanes[0].Lane == "new", "counted: %+v", lanes)
}

// testMendPart changes one part at a time, and the others are kept.
func testMendPart(f *fixture) {
	c := f.accept(withHeaders(store.Header{Name: "A", Value: "1"}))
	for _, change := range []func(*store.Callback){
		func(c *store.Callback) { c.Headers = []store.Header{{Name: "B", Value: "2"}} },
		func(c *store.Callback) { c.Policy.Timeout = 9 * time.Second },
		func(c *store.Callback) { c.Success = store.Success{Name: "mine", Rule: `{"status":["200"]}`} },
		func(c *store.Callback) { c.Lane = "new" },
		func(c *store.Callback) { c.ExpiresAt = f.now + 9000 },
	} {
		f.now++
		got := f.mend(c.ID, change)
		change(&c)
		c.LaneID, c.UpdatedAt = got.LaneID, got.UpdatedAt
		both(f, "mended", c, got, f.get(c.ID))
	}
}

// testMendFollowing: a callback that gets an address of its own follows its endpoint no more.
func testMendFollowing(f *fixture) {
	const own, moved = "https://own.example", "https://moved.example"
	e := f.endpoint()
	c := f.accept(to(e))
	got := f.mend(c.ID, func(c *store.Callback) { c.URL, c.Follows = own, false })
	f.check(!got.Follows && got.URL == own, "mended: %+v", got)
	f.moveEndpoint(e.ID, moved)
	s := f.claim(c.ID)
	f.check(s.URL == own && !s.Follows, "stamped: %+v", s.Callback)
	back := f.accept(to(e), with(func(c *store.Callback) { c.Follows = false }))
	f.mend(back.ID, func(c *store.Callback) { c.Follows = true })
	s = f.claim(back.ID)
	f.check(s.URL == moved && s.Follows, "stamped: %+v", s.Callback)
}

func testMendRefused(f *fixture) {
	move := func(c *store.Callback) { c.URL = "x" }
	mend := func(project, id string) error { return errOf(f.tryMend(project, id, infallible(move))) }
	c, canceled, open, dead := f.accept(), f.accept(), f.accept(), f.dead()
	s := f.claim(c.ID)
	f.fails(store.ErrAttempting, "attempting", mend(project, c.ID))
	f.unknown(c.ID, mend)
	f.win(f.succeeded(s))
	f.fails(store.ErrTerminal, "succeeded", mend(project, c.ID))
	f.cancel(canceled.ID)
	f.fails(store.ErrTerminal, "canceled", mend(project, canceled.ID))
	f.fails(errRefused, "refused by its caller", errOf(f.tryMend(project, open.ID, refuse(move))))
	same(f, "what was refused", open, f.get(open.ID))
	f.now++
	f.purge(f.now, 0)
	f.fails(store.ErrPayloadPurged, "purged", mend(project, dead.ID))
}
