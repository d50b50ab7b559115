package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (f *fixture) cancel(id string) store.CanceledCallback {
	return must(f.Cancel(f.ctx(), project, id, f.now, actor))
}

func (f *fixture) retry(id string, ladder store.Ladder) store.Callback {
	return must(f.Retry(f.ctx(), project, id, store.Retry{Ladder: ladder, Now: f.now}, actor))
}

func testCancel(f *fixture) {
	c := f.accept(nil)
	f.now++
	got := f.cancel(c.ID)
	if got.Result != store.CancelDone || got.Callback.FinishedAt != f.now || got.Callback.DueAt != 0 {
		f.Errorf("cancel: %+v", got)
	}
	f.wantState(f.get(c.ID), store.Canceled, store.Requested)
	f.now++
	if again := f.cancel(c.ID); again.Result != store.CancelAlreadyTerminal || again.Callback.FinishedAt != f.now-1 {
		f.Errorf("cancel again: %+v", again)
	}
	if _, refused := f.stamp(f.token(), c.ID); len(refused) != 1 || !refused[0].Terminal {
		f.Error("a canceled callback was stamped")
	}
	for _, where := range []struct{ project, id string }{{project, f.id()}, {"other", c.ID}} {
		f.fails(store.ErrNotFound, "cancel of an unknown id", errOf(f.Cancel(f.ctx(), where.project, where.id, f.now, actor)))
	}
}

// testCancelWaited cancels with a time that was read before an attempt was made: the callback did not end before it.
func testCancelWaited(f *fixture) {
	c := f.accept(nil)
	asked := f.now
	s := f.claim(c.ID)
	f.now += 20
	f.win(f.failed(s))
	got, err := f.Cancel(f.ctx(), project, c.ID, asked, actor)
	if err != nil || got.Result != store.CancelDone || got.Callback.FinishedAt != f.now {
		f.Errorf("cancel: %+v %v, want the end at %d", got, err, f.now)
	}
	if c := f.get(c.ID); c.FinishedAt != f.now {
		f.Errorf("it ended at %d, before its attempt at %d", c.FinishedAt, f.now)
	}
}

func testCancelRef(f *fixture) {
	ref := func(ref, topic string) store.Callback {
		return f.accept(func(d *store.Draft) { d.Callback.Ref, d.Callback.Topic = ref, topic })
	}
	a, b, other := ref("r", "x"), ref("r", "y"), ref("s", "x")
	busy := ref("r", "x")
	f.claim(busy.ID)
	ended := ref("r", "x")
	f.cancel(ended.ID)
	got, err := f.CancelRef(f.ctx(), project, "r", "x", 1000, f.now, actor)
	if err != nil || len(got) != 2 || got[0].Callback.ID != a.ID || got[1].Result != store.CancelTooLate {
		f.Fatalf("cancel by reference and topic: %v, %+v", err, got)
	}
	if f.get(b.ID).State != store.Scheduled || f.get(other.ID).State != store.Scheduled {
		f.Error("others were canceled too")
	}
	none(f, "cancel in another project", must(f.CancelRef(f.ctx(), "other", "r", "", 1000, f.now, actor)))
	same(f, "cancel of one", 1, len(must(f.CancelRef(f.ctx(), project, "r", "", 1, f.now, actor))))
	none(f, "cancel without a reference", must(f.CancelRef(f.ctx(), project, "", "", 10, f.now, actor)))
}

func testRetryScheduled(f *fixture) {
	credential := store.SealedHeader("X-Api-Key", "k1:a")
	c := f.accept(func(d *store.Draft) {
		d.Callback.Lane, d.Callback.Headers = "https://shop.example:443", []store.Header{credential, {Name: "X-Shop", Value: "7"}}
	})
	same(f, "headers", 2, len(f.get(c.ID).Headers))
	f.win(f.failed(f.claim(c.ID)))
	f.now += 10
	got := must(f.Retry(f.ctx(), project, c.ID, store.Retry{
		Ladder: store.Once, URL: "https://new.example/x", Now: f.now,
	}, actor))
	if got.DueAt != f.now || got.Trigger != store.Manual || got.URL != "https://new.example/x" ||
		got.Lane != "https://new.example:443" || got.LaneID == c.LaneID {
		f.Errorf("retry: %+v", got)
	}
	if got.AttemptCount != 1 || got.LadderBase != 0 || got.FirstDueAt != c.FirstDueAt || got.ResumeState != "" {
		f.Errorf("retry changed the ladder: %+v", got)
	}
	s := f.claim(c.ID)
	same(f, "headers at another host", []store.Header{{Name: "X-Shop", Value: "7"}}, s.Headers)
	if s.Lane != "https://new.example:443" || s.Trigger != store.Manual {
		f.Errorf("claim after a retry: %+v", s)
	}
	// What was asked for by hand stays so until it is tried.
	f.win(store.Result{ID: c.ID, Fence: s.Fence, State: store.Scheduled, DueAt: f.now, Diverts: 1})
	if s = f.claim(c.ID); s.Trigger != store.Manual {
		f.Errorf("trigger after a divert is %q", s.Trigger)
	}
	f.win(f.failed(s))
	if got := f.get(c.ID); got.State != store.Scheduled || got.AttemptCount != 2 || got.Trigger != store.BySchedule {
		f.Errorf("after the manual attempt: %+v", got)
	}
}

// testRetryOnce retries one that has expired long ago: it gets as much time as it had.
// What comes of it, the model checks.
func testRetryOnce(f *fixture) {
	c := f.dead(func(d *store.Draft) { d.Callback.ExpiresAt = f.now + 5000 })
	f.now += 60_000
	got := f.retry(c.ID, store.Once)
	if got.Reason != "" || got.Trigger != store.Manual || got.FirstDueAt != f.now ||
		got.ExpiresAt != f.now+5000 {
		f.Errorf("retry: %+v", got)
	}
	if won := f.win(f.failed(f.claim(c.ID))); won.Number != 2 {
		f.Errorf("committed %+v", won)
	}
}

func testRetryRefused(f *fixture) {
	c := f.accept(nil)
	s := f.claim(c.ID)
	refused := func(id string, want error) {
		f.Helper()
		once := store.Retry{Ladder: store.Once, Now: f.now}
		f.fails(want, "retry", errOf(f.Retry(f.ctx(), project, id, once, actor)))
		f.fails(want, "reschedule", errOf(f.Reschedule(f.ctx(), project, id, f.now, f.now, actor)))
	}
	refused(c.ID, store.ErrAttempting)
	refused(f.id(), store.ErrNotFound)
	f.win(f.died(s))
	f.now++
	f.purge(f.now, 0)
	refused(c.ID, store.ErrPayloadPurged)
	f.fails(store.ErrNotFound, "retry in another project", errOf(f.Retry(f.ctx(), "other", c.ID, store.Retry{Now: f.now}, actor)))
}

func testReschedule(f *fixture) {
	c := f.accept(func(d *store.Draft) { d.Callback.ExpiresAt = f.now + 1000 })
	got, err := f.Reschedule(f.ctx(), project, c.ID, f.now+9000, f.now, actor)
	if err != nil || got.DueAt != f.now+9000 || got.FirstDueAt != f.now+9000 || got.ExpiresAt != f.now+10_000 || got.Trigger != store.BySchedule {
		f.Errorf("reschedule of a fresh one: %v, %+v", err, got)
	}
	f.now += 9000
	f.win(f.failed(f.claim(c.ID)))
	got, err = f.Reschedule(f.ctx(), project, c.ID, f.now+500, f.now, actor)
	if err != nil || got.DueAt != f.now+500 || got.FirstDueAt != f.now || got.ExpiresAt != f.now+1000 {
		f.Errorf("reschedule between attempts: %v, %+v", err, got)
	}
	dead := f.dead(nil)
	due := f.now + 7000
	got, err = f.Reschedule(f.ctx(), project, dead.ID, due, f.now, actor)
	if err != nil || got.State != store.Scheduled || got.DueAt != due || got.ResumeState != store.Dead || got.Trigger != store.Manual {
		f.Errorf("reschedule of a dead one: %v, %+v", err, got)
	}
	ok, canceled := f.accept(nil), f.accept(nil)
	f.win(f.succeeded(f.claim(ok.ID)))
	f.cancel(canceled.ID)
	for _, id := range []string{ok.ID, canceled.ID} {
		f.fails(store.ErrTerminal, "reschedule of a terminal one", errOf(f.Reschedule(f.ctx(), project, id, f.now, f.now, actor)))
	}
}

// testMendCrashed reschedules and retries after attempts that never came back: what they were is recorded as it was, not as
// what comes next.
func testMendCrashed(f *fixture) {
	moved, retried := f.accept(nil), f.accept(nil)
	f.claim(moved.ID)
	f.claim(retried.ID)
	f.now += claimLasts
	must(f.Reschedule(f.ctx(), project, moved.ID, f.now+5000, f.now, actor))
	f.retry(retried.ID, store.Once)
	for _, c := range []store.Callback{moved, retried} {
		attempts := f.attempts(c.ID)
		if len(attempts) != 1 || attempts[0].Class != store.ClassCrashed || attempts[0].DueAt != c.DueAt || attempts[0].Trigger != store.BySchedule {
			f.Errorf("record of the crash: %+v", attempts)
		}
	}
}

// testAudit: what changed something is in the audit once, the newest first, and in its own project.
func testAudit(f *fixture) {
	c := f.accept(nil)
	f.now++
	must(f.Reschedule(f.ctx(), project, c.ID, f.now+1, f.now, actor))
	f.retry(c.ID, store.Once)
	f.cancel(c.ID)
	f.cancel(c.ID)
	f.fails(store.ErrNotFound, "retry of an unknown id", errOf(f.Retry(f.ctx(), project, f.id(), store.Retry{Now: f.now}, actor)))
	f.ok(f.AppendAudit(f.ctx(), store.AuditEntry{Project: project, At: f.now, Actor: actor.Name, Action: "x", Object: c.ID, Reason: actor.Reason}))
	f.ok(f.AppendAudit(f.ctx(), store.AuditEntry{Project: "other", At: f.now, Action: "x"}))
	at := func(plus int64) string {
		return time.UnixMilli(f.now + plus).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	differences := map[string][2]string{
		"callback.reschedule": {`{"due_at":"` + at(-1) + `"}`, `{"due_at":"` + at(1) + `"}`},
		"callback.retry": {
			`{"due_at":"` + at(1) + `","trigger":"schedule"}`,
			`{"due_at":"` + at(0) + `","trigger":"manual"}`,
		},
		"callback.cancel": {
			`{"due_at":"` + at(0) + `","reason":"","state":"scheduled"}`,
			`{"due_at":null,"reason":"requested","state":"canceled"}`,
		},
	}
	var actions []string
	for after := ""; ; {
		page := must(f.AuditEntries(f.ctx(), project, after, 2))
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			actions = append(actions, e.Action)
			want := store.AuditEntry{
				ID: e.ID, Project: project, At: f.now, Actor: actor.Name, Action: e.Action, Object: c.ID, Reason: actor.Reason, Detail: e.Detail,
				Before: differences[e.Action][0], After: differences[e.Action][1],
			}
			if e.Action != "x" {
				want.Address = actor.Address
			}
			same(f, "entry", want, e)
			after = e.ID
		}
	}
	same(f, "audit", []string{"x", "callback.cancel", "callback.retry", "callback.reschedule"}, actions)
}

func (f *fixture) mend(id string, change func(*store.Callback)) store.Callback {
	return must(f.Mend(f.ctx(), project, id, func(c *store.Callback) error {
		change(c)
		return nil
	}, f.now, actor))
}

func testMend(f *fixture) {
	c := f.accept(func(d *store.Draft) { d.Callback.Headers = []store.Header{{Name: "A", Value: "1"}} })
	policy := store.Policy{Name: "mine", Tiers: []time.Duration{time.Minute}, Timeout: 9 * time.Second, StopOn: []int{410}}
	got := f.mend(c.ID, func(c *store.Callback) {
		c.URL, c.Lane, c.Headers = "https://new.example", "new", []store.Header{{Name: "B", Value: "2"}}
		c.Policy, c.Success, c.ExpiresAt = policy, store.Success{Name: "mine", Rule: `{"status":["200"]}`}, f.now+9000
		// None of these is to be mended.
		c.ID, c.State, c.DueAt, c.Ref, c.Labels, c.AttemptCount, c.LaneID = "x", store.Dead, 7, "x", map[string]string{"a": "b"}, 9, 9
	})
	want := c
	want.URL, want.Lane, want.LaneID, want.Headers = "https://new.example", "new", got.LaneID, []store.Header{{Name: "B", Value: "2"}}
	want.Policy, want.Success, want.ExpiresAt, want.UpdatedAt = policy, store.Success{Name: "mine", Rule: `{"status":["200"]}`}, f.now+9000, f.now+1
	same(f, "mended and read", []store.Callback{want, want}, []store.Callback{got, f.get(c.ID)})
	if got.LaneID == c.LaneID {
		f.Error("the new lane has the number of the old one")
	}
	// Though it was accepted just now, and here, it is sent as it is mended.
	s := f.claim(c.ID)
	if s.URL != want.URL || !slices.Equal(s.Headers, want.Headers) || s.Policy.Name != "mine" || s.LaneID != got.LaneID ||
		s.ClaimUntil != f.now+policy.Timeout.Milliseconds()+margin {
		f.Errorf("stamped: %+v", s.Callback)
	}
	f.wantAudit("callback.mend " + c.ID)

	f.win(f.died(s))
	got = f.mend(c.ID, func(c *store.Callback) { c.URL = "https://third.example" })
	f.wantState(got, store.Dead, store.Exhausted)
	if got.DueAt != 0 || got.FinishedAt == 0 || got.URL != "https://third.example" {
		f.Errorf("a dead one: %+v", got)
	}
	f.retry(c.ID, store.Restart)
	if s := f.claim(c.ID); s.URL != "https://third.example" {
		f.Errorf("retried: %+v", s.Callback)
	}
	if n := f.counts().Lanes; len(n) != 1 || n[0].Lane != "new" {
		f.Errorf("counted: %+v", n)
	}
}

// testMendPart changes one part at a time, and the others are kept.
func testMendPart(f *fixture) {
	c := f.accept(func(d *store.Draft) { d.Callback.Headers = []store.Header{{Name: "A", Value: "1"}} })
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
		same(f, "mended and read", []store.Callback{c, c}, []store.Callback{got, f.get(c.ID)})
	}
}

// testMendFollowing: a callback that gets an address of its own follows its endpoint no more.
func testMendFollowing(f *fixture) {
	e := f.endpoint(nil)
	c := f.accept(to(e))
	if got := f.mend(c.ID, func(c *store.Callback) { c.URL, c.Follows = "https://own.example", false }); got.Follows || got.URL != "https://own.example" {
		f.Errorf("mended: %+v", got)
	}
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.URL = "https://moved.example" })
	if s := f.claim(c.ID); s.URL != "https://own.example" || s.Follows {
		f.Errorf("stamped: %+v", s.Callback)
	}
	back := f.accept(func(d *store.Draft) { to(e)(d); d.Callback.Follows = false })
	f.mend(back.ID, func(c *store.Callback) { c.Follows = true })
	if s := f.claim(back.ID); s.URL != "https://moved.example" || !s.Follows {
		f.Errorf("stamped: %+v", s.Callback)
	}
}

func testMendRefused(f *fixture) {
	refused := func(what, project, id string, want error) {
		f.Helper()
		f.fails(want, what, errOf(f.Mend(f.ctx(), project, id, func(c *store.Callback) error {
			c.URL = "x"
			return nil
		}, f.now, actor)))
	}
	c := f.accept(nil)
	s := f.claim(c.ID)
	refused("attempting", project, c.ID, store.ErrAttempting)
	refused("another project's", "other", c.ID, store.ErrNotFound)
	refused("unknown", project, f.id(), store.ErrNotFound)
	f.win(f.succeeded(s))
	refused("succeeded", project, c.ID, store.ErrTerminal)
	canceled := f.accept(nil)
	f.cancel(canceled.ID)
	refused("canceled", project, canceled.ID, store.ErrTerminal)
	no := errors.New("no")
	open := f.accept(nil)
	f.fails(no, "refused by its caller", errOf(f.Mend(f.ctx(), project, open.ID, func(c *store.Callback) error { c.URL = "x"; return no }, f.now, actor)))
	same(f, "what was refused was changed", open, f.get(open.ID))
	dead := f.dead(nil)
	f.now++
	f.purge(f.now, 0)
	refused("purged", project, dead.ID, store.ErrPayloadPurged)
}
