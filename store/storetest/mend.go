package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

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
