package storetest

import (
	"cmp"
	"slices"

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
