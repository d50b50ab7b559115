package storetest

import (
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// margin is what a stamp adds to an attempt's timeout, and timeout is the drafts'.
	margin  = int64(15_000)
	timeout = 2 * time.Second
	// claimLasts is how long a claim of a draft is alive.
	claimLasts = int64(2_000) + margin
	// paid is the body of the drafts.
	paid = `{"paid":10000}`
)

// An option changes a draft before it is accepted.
type option func(*store.Draft)

// draft makes a draft that is due now.
func (f *fixture) draft(options ...option) store.Draft {
	d := store.Draft{
		Callback: store.Callback{
			ID: f.id(), Project: project, Kind: store.Notify, URL: "https://shop.example/notify",
			Method: "POST",
			Topic:  "payment.succeeded", Ref: "order-1", Lane: "default+https+shop.example+443",
			Policy:  policy(time.Second, 2*time.Second),
			Success: store.Success{Name: "http-2xx"}, Signer: "standard-v1",
			State: store.Scheduled, Trigger: store.BySchedule,
			DueAt: f.now, FirstDueAt: f.now, CreatedAt: f.now, UpdatedAt: f.now,
			ContentType: "application/json",
		},
		Body: []byte(paid),
	}
	for _, o := range options {
		o(&d)
	}
	return d
}

// drafts makes n of them.
func (f *fixture) drafts(n int, options ...option) []store.Draft {
	all := make([]store.Draft, n)
	for i := range all {
		all[i] = f.draft(options...)
	}
	return all
}

// policy is that of the drafts, with other tiers.
func policy(tiers ...time.Duration) store.Policy {
	return store.Policy{Tiers: tiers, Timeout: timeout, RetryAfterCap: time.Hour}
}

// with changes the callback of a draft.
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

// strictly makes drafts strict with a lock key.
func strictly(key string) option {
	return with(func(c *store.Callback) { c.LockKey, c.Strict = key, true })
}

// versioned makes drafts of a reference supersede each other.
func versioned(ref string, version int64) option {
	return func(d *store.Draft) { d.Callback.Ref, d.Callback.Version, d.Supersede = ref, &version, true }
}

// to makes drafts go to an endpoint, and follow it.
func to(e store.Endpoint) option {
	return with(func(c *store.Callback) {
		c.EndpointID, c.Lane, c.URL, c.Signer, c.Follows = e.ID, e.LaneKey(), e.URL, "", true
	})
}

// acceptAll offers drafts and returns what became of each.
func (f *fixture) acceptAll(drafts ...store.Draft) []store.Accepted {
	accepted := must(f.Accept(f.ctx(), drafts))
	f.require(len(accepted) == len(drafts), "accepted %d of %d drafts", len(accepted), len(drafts))
	return accepted
}

// offer offers one draft and returns what became of it.
func (f *fixture) offer(options ...option) store.Accepted {
	return f.acceptAll(f.draft(options...))[0]
}

// accept accepts one draft, which may not be refused.
func (f *fixture) accept(options ...option) store.Callback {
	a := f.offer(options...)
	f.ok(a.Err)
	return a.Callback
}

// acceptEach accepts n callbacks alike.
func (f *fixture) acceptEach(n int, options ...option) []store.Callback {
	return each(f.acceptAll(f.drafts(n, options...)...), func(a store.Accepted) store.Callback {
		f.ok(a.Err)
		return a.Callback
	})
}

// stamp stamps rows at the test's time.
func (f *fixture) stamp(ids ...string) ([]*store.Stamped, []store.Refusal) {
	return f.stampAs(store.Stamp{}, ids...)
}

// stampAs stamps rows, those of the stamp's claims too, at the test's time, else as the stamp says. It makes
// the token, if there is none.
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
		"stamp of %d rows answered %d stamped and %d refused", len(s.Claims), len(stamped), len(refused))
	return stamped, refused
}

// claim stamps one row that must be free and due.
func (f *fixture) claim(id string) *store.Stamped {
	stamped, refused := f.stamp(id)
	f.require(len(stamped) == 1, "stamp of %s was refused: %+v", id, refused)
	return stamped[0]
}

// failed is a result of a charged attempt that failed, with the next one due after a second.
func (f *fixture) failed(s *store.Stamped) store.Result {
	r := store.Result{
		ID: s.ID, Fence: s.Fence, State: store.Scheduled, DueAt: f.now + 1000, Charge: true,
		Attempt: &store.Attempt{
			Trigger: s.Trigger, Outcome: store.AttemptFailed, Charged: true, Class: store.ClassHTTP5xx,
			Status:    500,
			StartedAt: f.now, EndedAt: f.now, DueAt: s.DueAt,
		},
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = !f.known
	if f.known {
		r.Stamped = s
	}
	return r
}

// succeeded is a result of an attempt that succeeded.
func (f *fixture) succeeded(s *store.Stamped) store.Result {
	r := f.failed(s)
	r.State, r.DueAt = store.Succeeded, 0
	r.Attempt.Outcome, r.Attempt.Class, r.Attempt.Status = store.AttemptSucceeded, store.ClassOK, 200
	return r
}

// died is a result of a charged attempt that ended the callback.
func (f *fixture) died(s *store.Stamped) store.Result {
	r := f.failed(s)
	r.State, r.Reason, r.DueAt = store.Dead, store.Exhausted, 0
	return r
}

// handedBack is a result without an attempt: the row is due again then.
func handedBack(s *store.Stamped, due int64) store.Result {
	return store.Result{ID: s.ID, Fence: s.Fence, State: store.Scheduled, DueAt: due, Diverts: 1}
}

func (f *fixture) commit(r store.Result) store.Committed {
	committed := must(f.Commit(f.ctx(), []store.Result{r}, f.now))
	f.require(len(committed) == 1 && committed[0].Err == nil, "commit answered %+v", committed)
	return committed[0]
}

// win commits a result that must win.
func (f *fixture) win(r store.Result) store.Committed {
	c := f.commit(r)
	f.require(c.Won, "result of %s under fence %d lost", r.ID, r.Fence)
	return c
}

// succeed claims a callback and commits that the attempt has succeeded.
func (f *fixture) succeed(id string) store.Committed { return f.win(f.succeeded(f.claim(id))) }

func (f *fixture) cancel(id string) store.CanceledCallback {
	return must(f.Cancel(f.ctx(), project, id, f.now, actor))
}

// infallible is a change that is never refused.
func infallible[T any](change func(*T)) func(*T) error {
	return func(row *T) error {
		change(row)
		return nil
	}
}

func (f *fixture) fold() { f.ok(f.Fold(f.ctx(), f.now)) }

func (f *fixture) get(id string) store.Callback { return must(f.Get(f.ctx(), project, id)) }

// attempts are those of a callback by number.
func (f *fixture) attempts(id string) []store.Attempt {
	all := must(f.Attempts(f.ctx(), project, id, 0, 500))
	slices.Reverse(all)
	return all
}

func (f *fixture) counts() store.Counts { return must(f.Counts(f.ctx(), project)) }

// wantOpen compares how many callbacks are counted as open.
func (f *fixture) wantOpen(want int64) {
	same(f, "counted as open", want, f.counts().States[store.Scheduled])
}

// list is the ids of what a filter picks.
func (f *fixture) list(filter store.Filter) []string {
	filter.Now, filter.Limit = f.now, 500
	return ids(must(f.List(f.ctx(), project, filter)).Callbacks...)
}
