package storetest

import (
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// margin is the Margin of stamps, in milliseconds. timeout is the attempt timeout of drafts.
	margin  = int64(15_000)
	timeout = 2 * time.Second
	// claimLasts is the length of a claim in milliseconds: timeout and margin.
	claimLasts = int64(2_000) + margin
	// paid is the payload of drafts.
	paid = `{"paid":10000}`
)

// An option changes a draft before it is accepted.
type option func(*store.Draft)

// draft returns a draft that is due now.
func (f *fixture) draft(options ...option) store.Draft {
	d := store.Draft{
		Callback: store.Callback{
			ID: f.id(), Project: project, Kind: store.Notify, URL: "https://shop.example/notify",
			Method: "POST", ContentType: "application/json",
			Topic: "payment.succeeded", Ref: "order-1", Lane: "default+https+shop.example+443",
			Policy: policy(time.Second, 2*time.Second), Success: store.Success{Name: "http-2xx"},
			Signer: "standard-v1", State: store.Scheduled, Trigger: store.BySchedule,
			DueAt: f.now, FirstDueAt: f.now, CreatedAt: f.now, UpdatedAt: f.now,
		},
		Body: []byte(paid),
	}
	for _, o := range options {
		o(&d)
	}
	return d
}

// drafts returns n drafts with the same options.
func (f *fixture) drafts(n int, options ...option) []store.Draft {
	all := make([]store.Draft, n)
	for i := range all {
		all[i] = f.draft(options...)
	}
	return all
}

// policy returns the policy of drafts with other tiers.
func policy(tiers ...time.Duration) store.Policy {
	return store.Policy{Tiers: tiers, Timeout: timeout, RetryAfterCap: time.Hour}
}

// with returns an option that changes the callback of a draft.
func with(change func(c *store.Callback)) option {
	return func(d *store.Draft) { change(&d.Callback) }
}

func inProject(id string) option { return with(func(c *store.Callback) { c.Project = id }) }
func inLane(key string) option   { return with(func(c *store.Callback) { c.Lane = key }) }
func dueIn(ms int64) option      { return with(func(c *store.Callback) { c.DueAt += ms }) }

// keyed gives a draft an idempotency key.
func keyed(key, fingerprint string) option {
	return func(d *store.Draft) {
		d.Idempotency = &store.Idempotency{Route: "POST /v1/callbacks", Key: key,
			Fingerprint: []byte(fingerprint)}
	}
}

// strictly makes a draft strict with a lock key.
func strictly(key string) option {
	return with(func(c *store.Callback) { c.LockKey, c.Strict = key, true })
}

// versioned gives a draft a reference and a version, and makes it supersede lower versions.
func versioned(ref string, version int64) option {
	return func(d *store.Draft) { d.Callback.Ref, d.Callback.Version, d.Supersede = ref, &version, true }
}

// to makes a draft go to an endpoint and follow its URL.
func to(e store.Endpoint) option {
	return with(func(c *store.Callback) {
		c.EndpointID, c.Lane, c.URL, c.Signer, c.Follows = e.ID, e.LaneKey(), e.URL, "", true
	})
}

// acceptAll accepts drafts in one call and returns the result of each.
func (f *fixture) acceptAll(drafts ...store.Draft) []store.Accepted {
	accepted := must(f.Accept(f.ctx(), drafts))
	f.require(len(accepted) == len(drafts), "accepted %d of %d drafts", len(accepted), len(drafts))
	return accepted
}

// offer accepts one draft, which may be refused, and returns its result.
func (f *fixture) offer(options ...option) store.Accepted {
	return f.acceptAll(f.draft(options...))[0]
}

// accept accepts one draft, which must not be refused.
func (f *fixture) accept(options ...option) store.Callback {
	a := f.offer(options...)
	f.ok(a.Err)
	return a.Callback
}

// acceptEach accepts n drafts with the same options, none of which may be refused.
func (f *fixture) acceptEach(n int, options ...option) []store.Callback {
	return each(f.acceptAll(f.drafts(n, options...)...), func(a store.Accepted) store.Callback {
		f.ok(a.Err)
		return a.Callback
	})
}

// stamp stamps rows at the test's time with default options.
func (f *fixture) stamp(ids ...string) ([]*store.Stamped, []store.Refusal) {
	return f.stampAs(store.Stamp{}, ids...)
}

// stampAs runs the stamp at the test's time, with the rows added to its claims. If the stamp has no token, it
// gets a new one.
func (f *fixture) stampAs(s store.Stamp, ids ...string) ([]*store.Stamped, []store.Refusal) {
	s.Now, s.Margin = f.now, margin
	if s.Token == "" {
		s.Token = f.token()
	}
	s.Claims = append(s.Claims, each(ids, func(id string) store.StampClaim {
		return store.StampClaim{ID: id}
	})...)
	stamped, refused := must2(f.Stamp(f.ctx(), s))
	f.require(len(stamped)+len(refused) == len(s.Claims),
		"stamp of %d rows returned %d stamped and %d refused", len(s.Claims), len(stamped), len(refused))
	return stamped, refused
}

// claim stamps one row, which must not be refused.
func (f *fixture) claim(id string) *store.Stamped {
	stamped, refused := f.stamp(id)
	f.require(len(stamped) == 1, "stamp of %s was refused: %+v", id, refused)
	return stamped[0]
}

// failed returns the result of a failed and charged attempt. The next attempt is due in a second. Every
// second result has the Stamped row, so that both ways of a commit are tested.
func (f *fixture) failed(s *store.Stamped) store.Result {
	r := store.Result{
		ID: s.ID, Fence: s.Fence, State: store.Scheduled, DueAt: f.now + 1000, Charge: true,
		Attempt: &store.Attempt{
			Trigger: s.Trigger, Outcome: store.AttemptFailed, Charged: true,
			Class: store.ClassHTTP5xx, Status: 500, StartedAt: f.now, EndedAt: f.now, DueAt: s.DueAt,
		},
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.withStamped = !f.withStamped
	if f.withStamped {
		r.Stamped = s
	}
	return r
}

// succeeded returns the result of a successful attempt.
func (f *fixture) succeeded(s *store.Stamped) store.Result {
	r := f.failed(s)
	r.State, r.DueAt = store.Succeeded, 0
	r.Attempt.Outcome, r.Attempt.Class, r.Attempt.Status = store.AttemptSucceeded, store.ClassOK, 200
	return r
}

// died returns the result of a failed attempt that ends the callback as dead.
func (f *fixture) died(s *store.Stamped) store.Result {
	r := f.failed(s)
	r.State, r.Reason, r.DueAt = store.Dead, store.Exhausted, 0
	return r
}

// putBack returns a result without an attempt that makes the row due at a time.
func putBack(s *store.Stamped, due int64) store.Result {
	return store.Result{ID: s.ID, Fence: s.Fence, State: store.Scheduled, DueAt: due, Diverts: 1}
}

func (f *fixture) commit(r store.Result) store.Committed {
	committed := must(f.Commit(f.ctx(), []store.Result{r}, f.now))
	f.require(len(committed) == 1 && committed[0].Err == nil, "commit returned %+v", committed)
	return committed[0]
}

// win commits a result that must win.
func (f *fixture) win(r store.Result) store.Committed {
	c := f.commit(r)
	f.require(c.Won, "result of %s under fence %d lost", r.ID, r.Fence)
	return c
}

// succeed claims a callback and commits a successful attempt.
func (f *fixture) succeed(id string) store.Committed { return f.win(f.succeeded(f.claim(id))) }

func (f *fixture) cancel(id string) store.CanceledCallback {
	return must(f.Cancel(f.ctx(), project, id, f.now, actor))
}

// infallible returns a change that returns no error.
func infallible[T any](change func(*T)) func(*T) error {
	return func(row *T) error {
		change(row)
		return nil
	}
}

func (f *fixture) fold() { f.ok(f.Fold(f.ctx(), f.now)) }

func (f *fixture) get(id string) store.Callback { return must(f.Get(f.ctx(), project, id)) }

// attempts returns the attempts of a callback, sorted by number.
func (f *fixture) attempts(id string) []store.Attempt {
	all := must(f.Attempts(f.ctx(), project, id, 0, 500))
	slices.Reverse(all)
	return all
}

func (f *fixture) counts() store.Counts { return must(f.Counts(f.ctx(), project)) }

// wantOpen checks the counter of open callbacks.
func (f *fixture) wantOpen(want int64) {
	same(f, "open callbacks in the counters", want, f.counts().States[store.Scheduled])
}

// list returns the ids of the callbacks that a filter picks.
func (f *fixture) list(filter store.Filter) []string {
	filter.Now, filter.Limit = f.now, 500
	return ids(must(f.List(f.ctx(), project, filter)).Callbacks...)
}
