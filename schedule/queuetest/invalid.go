package queuetest

import (
	"errors"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var invalidChecks = []check{
	{"Elements", invalidElements},
	{"Claims", invalidClaims},
	{"Locks", invalidLocks},
	{"TooMany", tooMany},
}

// refuse expects ErrInvalid.
func (f *fixture) refuse(what string, err error) {
	f.Helper()
	if !errors.Is(err, schedule.ErrInvalid) {
		f.Fatalf("%s: %v, want ErrInvalid", what, err)
	}
}

// invalidElements: one bad element, and nothing of the call is done.
func invalidElements(f *fixture) {
	good := f.item(0, 0)
	for what, spoil := range map[string]func(*schedule.Item){
		"an empty id":              func(i *schedule.Item) { i.ID = "" },
		"a short id":               func(i *schedule.Item) { i.ID = i.ID[1:] },
		"a long id":                func(i *schedule.Item) { i.ID += "0" },
		"an id with a prefix":      func(i *schedule.Item) { i.ID = "cb_" + i.ID },
		"an id that is not a ULID": func(i *schedule.Item) { i.ID = i.ID[:25] + "U" },
		"an id with a separator":   func(i *schedule.Item) { i.ID = i.ID[:25] + ":" },
		"an id with a tab":         func(i *schedule.Item) { i.ID = "\t" + i.ID[1:] },
		"no lane":                  func(i *schedule.Item) { i.Lane = 0 },
		"a negative lane":          func(i *schedule.Item) { i.Lane = -1 },
	} {
		bad := f.item(0, 0)
		spoil(&bad)
		_, err := f.Index.Ensure(f.ctx, []schedule.Item{good, bad})
		f.refuse("ensure with "+what, err)
		_, err = f.Index.Settle(f.ctx, []schedule.Settlement{
			{Item: good, Token: "t", Outcome: schedule.Reschedule, Won: true},
			{Item: bad, Token: "t", Outcome: schedule.Reschedule, Won: true},
		})
		f.refuse("settle with "+what, err)
		_, err = f.Index.Cancel(f.ctx, []schedule.Ref{bad.Ref()})
		f.refuse("cancel with "+what, err)
		_, err = f.Index.Lookup(f.ctx, []schedule.Ref{bad.Ref()})
		f.refuse("lookup with "+what, err)
		_, err = f.Index.Move(f.ctx, []schedule.Movement{{Ref: bad.Ref()}})
		f.refuse("move with "+what, err)
		_, err = f.Index.Extend(f.ctx, []schedule.Extension{{Ref: bad.Ref(), Token: "t", Until: 1}})
		f.refuse("extend with "+what, err)
		err = f.Index.Adopt(f.ctx, []schedule.Adoption{{Item: good, Token: "t", Until: f.Now() + 60_000}, {Item: bad, Token: "t"}})
		f.refuse("adopt with "+what, err)
	}
	for what, lock := range map[string]string{
		"a long lock": strings.Repeat("k", 23), "a lock with a separator": "a:b", "a lock with a brace": "{a}", "a lock with a tab": "\t",
	} {
		bad := f.item(0, 0)
		bad.Lock = lock
		_, err := f.Index.Ensure(f.ctx, []schedule.Item{good, bad})
		f.refuse("ensure with "+what, err)
	}
	_, err := f.Index.Settle(f.ctx, []schedule.Settlement{{Item: good, Token: "t", Won: true}})
	f.refuse("settle without an outcome", err)
	_, err = f.Index.Settle(f.ctx, []schedule.Settlement{{Item: good, Token: "t", Outcome: schedule.Ack, Won: true,
		Next: &schedule.LeaseRef{Ref: f.item(1, 0).Ref(), Token: "t"}}})
	f.refuse("settle with a next of another lane", err)
	_, err = f.Index.Settle(f.ctx, []schedule.Settlement{{Item: good, Token: "\t", Outcome: schedule.Ack, Won: true}})
	f.refuse("settle with a malformed token", err)
	f.refuse("a setting without a lane", f.Index.SetLanes(f.ctx, []schedule.LaneSetting{{Limit: 1, Version: 1}}))
	for _, every := range []time.Duration{-time.Second, 1, 999} {
		f.refuse("a rate of one in "+every.String(), f.Index.SetLanes(f.ctx, []schedule.LaneSetting{{Lane: 1, Every: every, Version: 1}}))
	}
	for _, lane := range []int64{0, -1} {
		_, err = f.Index.LaneStates(f.ctx, []int64{good.Lane, lane})
		f.refuse("the state of no lane", err)
	}
	if s := f.stats(); s.Delayed+s.Ready+s.Leased != 0 {
		f.Fatalf("refused calls did something: %+v", s)
	}
}

func invalidClaims(f *fixture) {
	f.ensure(f.item(0, 0))
	for what, spoil := range map[string]func(*schedule.ClaimRequest){
		"no owner":          func(r *schedule.ClaimRequest) { r.Owner = "" },
		"no token":          func(r *schedule.ClaimRequest) { r.Token = "" },
		"a long token":      func(r *schedule.ClaimRequest) { r.Token = strings.Repeat("t", 33) },
		"a malformed token": func(r *schedule.ClaimRequest) { r.Token = "a b" },
		"a negative max":    func(r *schedule.ClaimRequest) { r.Max = -1 },
		"a max of 257":      func(r *schedule.ClaimRequest) { r.Max = 257 },
		"no lease":          func(r *schedule.ClaimRequest) { r.Lease = 0 },
		"a negative lead":   func(r *schedule.ClaimRequest) { r.Lead = -time.Millisecond },
		"a lead too long":   func(r *schedule.ClaimRequest) { r.Lead = schedule.MaxLead + time.Millisecond },
		"no lane limit":     func(r *schedule.ClaimRequest) { r.LaneLimit = 0 },
		"many ended leases": func(r *schedule.ClaimRequest) { r.Ended = make([]schedule.EndedLease, schedule.MaxEnded+1) },
		"an ended lease without an id": func(r *schedule.ClaimRequest) {
			r.Ended = []schedule.EndedLease{{LeaseRef: schedule.LeaseRef{Ref: schedule.Ref{Lane: f.lanes[0]}, Token: "t"}}}
		},
		"an ended lease with a malformed token": func(r *schedule.ClaimRequest) {
			r.Ended = []schedule.EndedLease{{LeaseRef: schedule.LeaseRef{Ref: f.item(0, 0).Ref(), Token: "a b"}}}
		},
		"a next of another lane": func(r *schedule.ClaimRequest) {
			r.Ended = []schedule.EndedLease{{
				LeaseRef: schedule.LeaseRef{Ref: f.item(0, 0).Ref(), Token: "t"},
				Next:     schedule.LeaseRef{Ref: f.item(1, 0).Ref(), Token: "t"},
			}}
		},
		"a prefetch of many lanes": func(r *schedule.ClaimRequest) {
			for lane := range int64(schedule.MaxPrefetch + 1) {
				r.Prefetch = append(r.Prefetch, schedule.LanePrefetch{Lane: 1 + lane, Max: 1})
			}
		},
		"a prefetch of a lane twice": func(r *schedule.ClaimRequest) {
			r.Prefetch = []schedule.LanePrefetch{{Lane: f.lanes[0], Max: 1}, {Lane: f.lanes[0], Max: 1}}
		},
		"a prefetch of less than nothing": func(r *schedule.ClaimRequest) {
			r.Prefetch = []schedule.LanePrefetch{{Lane: f.lanes[0], Max: -1}}
		},
		"a prefetch of too many": func(r *schedule.ClaimRequest) {
			r.Prefetch = []schedule.LanePrefetch{{Lane: f.lanes[0], Max: 257}}
		},
	} {
		req := f.wide()
		spoil(&req)
		_, err := f.Index.Claim(f.ctx, 0, req)
		f.refuse("a claim with "+what, err)
	}
	for _, shard := range []int{-1, f.Index.Shards()} {
		_, err := f.Index.Claim(f.ctx, shard, f.wide())
		f.refuse("a claim of a shard that is not there", err)
		_, err = f.Index.Stats(f.ctx, shard)
		f.refuse("stats of a shard that is not there", err)
		f.refuse("a reset of a shard that is not there", f.Index.Reset(f.ctx, shard, f.generation))
	}
	if got := f.take(); len(got) != 1 {
		f.Fatalf("refused claims did something: %d of 1 were left", len(got))
	}
}

func invalidLocks(f *fixture) {
	for what, spoil := range map[string]func(*schedule.LockRequest){
		"no lock":       func(r *schedule.LockRequest) { r.Lock = "" },
		"a long lock":   func(r *schedule.LockRequest) { r.Lock = strings.Repeat("k", 23) },
		"a bad lock":    func(r *schedule.LockRequest) { r.Lock = "k:1" },
		"a bad id":      func(r *schedule.LockRequest) { r.ID = "1" },
		"no token":      func(r *schedule.LockRequest) { r.Token = "" },
		"a bad token":   func(r *schedule.LockRequest) { r.Token = "," },
		"no lane":       func(r *schedule.LockRequest) { r.Lane = 0 },
		"a lock of NUL": func(r *schedule.LockRequest) { r.Lock = "\x00" },
	} {
		good, bad := f.want("good", f.id(), "t"), f.want("bad", f.id(), "t")
		spoil(&bad)
		_, err := f.Index.Acquire(f.ctx, []schedule.LockRequest{good, bad})
		f.refuse("acquire with "+what, err)
	}
	_, err := f.Index.Release(f.ctx, []schedule.Unlock{{Lock: "", ID: f.id(), Token: "t"}})
	f.refuse("release of no lock", err)
	_, err = f.Index.Release(f.ctx, []schedule.Unlock{{Lock: "k", ID: f.id(), Token: "t", Gone: []string{"x"}}})
	f.refuse("release with a malformed waiter", err)
	f.acquire(f.want("good", f.id(), "t"), true)
}

func tooMany(f *fixture) {
	const n = schedule.MaxBatch + 1
	f.everyBatch(f.ctx, n, func(name string, err error) {
		if !errors.Is(err, schedule.ErrTooMany) {
			f.Fatalf("%s of %d elements: %v, want ErrTooMany", name, n, err)
		}
	})
	if s := f.stats(); s.Delayed+s.Ready+s.Leased+s.Locks != 0 {
		f.Fatalf("refused calls did something: %+v", s)
	}
	f.ensure(f.items(0, n)...) // in batches that are full
	if s := f.stats(); s.Delayed != n {
		f.Fatalf("%d of %d items were ensured in full batches", s.Delayed, n)
	}
}
