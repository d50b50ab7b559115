// Package queuetest is the suite that every index passes. [Run] checks the promises of package schedule case by case.
// [Random] does random operations on few items and lanes, and checks the invariants of the state after each; with an
// oracle, which is another index, it compares every reply and the whole state of both.
//
// It needs only the methods that the engine uses, and a clock that the test can put forward.
//
// The suite checks behaviour as a caller sees it. It does not measure speed, and it does not take an index's
// server away: the tests of the implementation do.
package queuetest

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Queue is the hot path: items in, leases out.
type Queue interface {
	Shards() int
	Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error)
	Claim(ctx context.Context, shard int, req schedule.ClaimRequest) (schedule.Claimed, error)
	Settle(ctx context.Context, settlements []schedule.Settlement) ([]schedule.Settled, error)
	Extend(ctx context.Context, extensions []schedule.Extension) ([]bool, error)
	Cancel(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error)
	Move(ctx context.Context, movements []schedule.Movement) ([]schedule.Moved, error)
}

// Lookup says where items are.
type Lookup interface {
	Lookup(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error)
}

// Locks are on business keys.
type Locks interface {
	Acquire(ctx context.Context, requests []schedule.LockRequest) ([]schedule.LockReply, error)
	Release(ctx context.Context, unlocks []schedule.Unlock) ([]schedule.Waiter, error)
}

// Lanes is what is set of lanes, and how they stand.
type Lanes interface {
	SetLanes(ctx context.Context, settings []schedule.LaneSetting) error
	LaneStates(ctx context.Context, lanes []int64) ([]schedule.LaneState, error)
}

// Upkeep is what rebuild, sweep and verify use.
type Upkeep interface {
	Reset(ctx context.Context, shard int, generation int64) error
	Adopt(ctx context.Context, adoptions []schedule.Adoption) error
	Open(ctx context.Context, shard int) error
	Audit(ctx context.Context, shard int, cursor string) (schedule.AuditPage, error)
	Scan(ctx context.Context, shard int, cursor string, limit int) (schedule.ScanPage, error)
	Stats(ctx context.Context, shard int) (schedule.Stats, error)
}

// Signals are the generation and the hints.
type Signals interface {
	SetGeneration(generation int64)
	Generation(ctx context.Context, shard int) (int64, error)
	Hints() <-chan int
	Run(ctx context.Context) error
}

// Horizon is how far ahead an index holds items.
type Horizon interface {
	ShardOf(lane int64) int
	Watermark(ctx context.Context, shard int) (schedule.Watermark, error)
	MoveWatermark(ctx context.Context, shard int, a schedule.Advance) (schedule.Watermark, error)
	Loaded(ctx context.Context, shard int, token string, until int64) (schedule.Watermark, error)
}

// Index is all of an index.
type Index interface {
	Queue
	Horizon
	Lookup
	Locks
	Lanes
	Upkeep
	Signals
}

// A Harness is one index under test, with its clock. Index, Now and Advance are required. The suite resets
// the index itself; it may have been used before.
type Harness struct {
	Index Index
	// Now reads the index's clock, in Unix milliseconds.
	Now func() int64
	// Advance puts the index's clock forward by d, at once, or back where d is negative. Where the clock is a
	// server's, it adds to an offset that exists for tests alone. The clock may also go on by itself
	// meanwhile: the suite bears a second of that in each test.
	Advance func(d time.Duration)
	// Full gives backlogs and crowds their full size.
	Full bool
}

// RandomRuns sets how many random runs [Random] does, of a hundred operations on average. Flags of
// the command line override it. TestMain calls it: the number holds for a whole test binary.
func RandomRuns(n int) {
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(n), "rapid.steps": "100"} {
		if err := flag.Set(name, value); err != nil {
			panic(err) // the flag is gone
		}
	}
}

// Run checks every promise on harnesses that open makes, or those of the named groups alone. Tests run in
// parallel, each on a harness of its own.
func Run(t *testing.T, open func(t *testing.T) Harness, groups ...string) {
	for _, group := range []struct {
		name  string
		tests []check
	}{
		{"Claim", claimChecks},
		{"Counting", countingChecks},
		{"Forced", forcedChecks},
		{"Rate", rateChecks},
		{"State", stateChecks},
		{"Fairness", fairnessChecks},
		{"Lock", lockChecks},
		{"Horizon", horizonChecks},
		{"Upkeep", upkeepChecks},
		{"Hint", hintChecks},
		{"Clock", clockChecks},
		{"Invalid", invalidChecks},
		{"Concurrent", []check{{"EveryItemOnce", concurrent}}},
	} {
		if len(groups) > 0 && !slices.Contains(groups, group.name) {
			continue
		}
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range group.tests {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(newFixture(t, open(t)))
				})
			}
		})
	}
}

// A check is one test of the suite.
type check struct {
	name string
	run  func(f *fixture)
}

// tb is what testing.T and rapid.T share.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// A fixture is an index, reset and open, with lanes that all belong to shard 0.
type fixture struct {
	tb
	Harness
	ctx        context.Context
	lanes      []int64
	ids        int
	tokens     int
	generation int64
	latest     int64 // the latest reading of shard 0's clock with a claim's lead: what was due by it may have been promoted
	locks      bool  // the test uses locks, which may be in any shard
}

// wide is a claim that nothing but the lanes themselves bounds.
func (f *fixture) wide() schedule.ClaimRequest {
	f.tokens++
	return schedule.ClaimRequest{
		Owner: "owner", Token: fmt.Sprintf("token-%d", f.tokens), Max: 256, MaxUncertain: 256, MaxTimingOut: 256,
		Lease: 30 * time.Second, LaneLimit: 256,
	}
}

func newFixture(t tb, h Harness) *fixture {
	t.Helper()
	f := &fixture{tb: t, Harness: h, ctx: context.Background()}
	f.reset()
	f.findLanes(8)
	return f
}

// reset empties every shard under a new generation and opens it.
func (f *fixture) reset() {
	f.Helper()
	for shard := range f.Index.Shards() {
		have, err := f.Index.Generation(f.ctx, shard)
		f.no(err)
		f.generation = max(f.generation, have)
	}
	f.generation++
	f.Index.SetGeneration(f.generation)
	for shard := range f.Index.Shards() {
		f.no(f.Index.Reset(f.ctx, shard, f.generation))
		f.no(f.Index.Open(f.ctx, shard))
	}
}

// findLanes gives the fixture n lanes of shard 0.
func (f *fixture) findLanes(n int) {
	f.lanes = f.lanes[:0]
	for lane := int64(1); len(f.lanes) < n; lane++ {
		if f.Index.ShardOf(lane) == 0 {
			f.lanes = append(f.lanes, lane)
		}
	}
}

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// idOf returns the n-th id. Later numbers have later ids.
func idOf(n int) string {
	id := []byte("01K00000000000000000000000")
	for i := len(id) - 1; n > 0; i-- {
		id[i] = crockford[n%32]
		n /= 32
	}
	return string(id)
}

func (f *fixture) id() string {
	f.ids++
	return idOf(f.ids)
}

// item returns a new item of the i-th lane that is due after d.
func (f *fixture) item(i int, d time.Duration) schedule.Item {
	return schedule.Item{ID: f.id(), Lane: f.lanes[i], Due: f.Now() + d.Milliseconds()}
}

// items returns n new items of the i-th lane that are due now, in order.
func (f *fixture) items(i, n int) []schedule.Item {
	items := make([]schedule.Item, n)
	for j := range items {
		items[j] = f.item(i, 0)
	}
	return items
}

func (f *fixture) no(err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("unexpected error: %v", err)
	}
}

func (f *fixture) ensure(items ...schedule.Item) []schedule.Position {
	f.Helper()
	var all []schedule.Position
	for len(items) > 0 {
		page := items[:min(len(items), schedule.MaxBatch)]
		positions, err := f.Index.Ensure(f.ctx, page)
		f.no(err)
		if len(positions) != len(page) {
			f.Fatalf("ensure answered %d of %d items", len(positions), len(page))
		}
		all = append(all, positions...)
		items = items[len(page):]
	}
	return all
}

// claim claims of shard 0 and checks what holds for every claim.
func (f *fixture) claim(req schedule.ClaimRequest) schedule.Claimed {
	f.Helper()
	claimed, err := f.Index.Claim(f.ctx, 0, req)
	f.no(err)
	if len(claimed.Leases) > req.Max {
		f.Fatalf("a claim of %d returned %d leases", req.Max, len(claimed.Leases))
	}
	f.latest = max(f.latest, claimed.Now+req.Lead.Milliseconds())
	for _, l := range claimed.Leases {
		if l.Due > f.latest {
			f.Fatalf("%s is due at %d and was claimed early, at %d with a lead of %s", l.ID, l.Due, claimed.Now, req.Lead)
		}
		if l.Token != req.Token {
			f.Fatalf("%s is leased under %q, not under the claim's %q", l.ID, l.Token, req.Token)
		}
	}
	return claimed
}

// take claims all that can be claimed and returns the leases.
func (f *fixture) take() []schedule.Lease {
	f.Helper()
	return f.claim(f.wide()).Leases
}

// takeOne claims and expects exactly that item.
func (f *fixture) takeOne(id string) schedule.Lease {
	f.Helper()
	leases := f.take()
	if len(leases) != 1 || leases[0].ID != id {
		f.Fatalf("claimed %d, %v, want %s alone", len(leases), idsOf(leases[:min(len(leases), 5)]), id)
	}
	return leases[0]
}

// one puts a new item of the first lane in, due now, and claims it.
func (f *fixture) one() schedule.Lease {
	f.Helper()
	item := f.item(0, 0)
	f.ensure(item)
	return f.takeOne(item.ID)
}

func idsOf(leases []schedule.Lease) []string {
	ids := make([]string, len(leases))
	for i, l := range leases {
		ids[i] = l.ID
	}
	return ids
}

// settled returns the settlement of a lease.
func settled(l schedule.Lease, o schedule.Outcome) schedule.Settlement {
	return schedule.Settlement{Item: l.Item, Token: l.Token, Outcome: o}
}

func (f *fixture) settle(settlements ...schedule.Settlement) []schedule.Settled {
	f.Helper()
	replies, err := f.Index.Settle(f.ctx, settlements)
	f.no(err)
	if len(replies) != len(settlements) {
		f.Fatalf("settle answered %d of %d settlements", len(replies), len(settlements))
	}
	return replies
}

// expectSettled settles one and expects that reply.
func (f *fixture) expectSettled(s schedule.Settlement, want schedule.Settled) {
	f.Helper()
	if got := f.settle(s)[0]; got != want {
		f.Fatalf("settling %s with outcome %d, token %q, won %t: %d, want %d", s.ID, s.Outcome, s.Token, s.Won, got, want)
	}
}

// ack settles all leases as acknowledged, with the signal.
func (f *fixture) ack(leases []schedule.Lease, signal schedule.Signal) {
	f.Helper()
	settlements := make([]schedule.Settlement, len(leases))
	for i, l := range leases {
		settlements[i] = settled(l, schedule.Ack)
		settlements[i].Signal = signal
	}
	for i, reply := range f.settle(settlements...) {
		if reply != schedule.Applied {
			f.Fatalf("ack of %s: %d, want applied", leases[i].ID, reply)
		}
	}
}

// answer lets one attempt of the i-th lane end with the signal, times over.
func (f *fixture) answer(i, times int, signal schedule.Signal) {
	f.Helper()
	for range times {
		item := f.item(i, 0)
		f.ensure(item)
		f.ack([]schedule.Lease{f.takeOne(item.ID)}, signal)
	}
}

func (f *fixture) move(l schedule.Ref, due int64, want schedule.Moved) {
	f.Helper()
	got, err := f.Index.Move(f.ctx, []schedule.Movement{{Ref: l, Due: due}})
	f.no(err)
	if len(got) != 1 || got[0] != want {
		f.Fatalf("move of %s: %v, want %d", l.ID, got, want)
	}
}

// find returns the item's place by scanning, and its record.
func (f *fixture) find(ref schedule.Ref) schedule.Found {
	f.Helper()
	for _, found := range f.scan(f.Index.ShardOf(ref.Lane)) {
		if found.ID == ref.ID {
			return found
		}
	}
	return schedule.Found{}
}

// expectAt expects the item to wait for that due time, in the delay set or ready.
func (f *fixture) expectAt(ref schedule.Ref, due int64) {
	f.Helper()
	found := f.find(ref)
	if found.Place != schedule.Delayed && found.Place != schedule.Ready || found.Due != due {
		f.Fatalf("%s is %s, due %d; want it to wait for %d", ref.ID, found.Place, found.Due, due)
	}
}

// lookup returns where the items are.
func (f *fixture) lookup(refs ...schedule.Ref) []schedule.Position {
	f.Helper()
	positions, err := f.Index.Lookup(f.ctx, refs)
	f.no(err)
	if len(positions) != len(refs) {
		f.Fatalf("lookup answered %d of %d refs", len(positions), len(refs))
	}
	return positions
}

func (f *fixture) expectPlace(ref schedule.Ref, want schedule.Place) {
	f.Helper()
	if found := f.find(ref); found.Place != want {
		f.Fatalf("%s is %s, want %s", ref.ID, found.Place, want)
	}
}

// scan returns all that a shard holds, each id once.
func (f *fixture) scan(shard int) []schedule.Found {
	f.Helper()
	var all []schedule.Found
	seen := make(map[string]int)
	for cursor := ""; ; {
		page, err := f.Index.Scan(f.ctx, shard, cursor, 100)
		f.no(err)
		for _, found := range page.Found {
			if i, ok := seen[found.ID]; ok {
				all[i] = found
				continue
			}
			seen[found.ID] = len(all)
			all = append(all, found)
		}
		if cursor = page.Next; cursor == "" {
			return all
		}
	}
}

func (f *fixture) stats() schedule.Stats {
	f.Helper()
	stats, err := f.Index.Stats(f.ctx, 0)
	f.no(err)
	return stats
}

// quiet runs a whole audit of every shard and expects that it repairs nothing.
func (f *fixture) quiet() {
	f.Helper()
	for shard := range f.Index.Shards() {
		for cursor := ""; ; {
			page, err := f.Index.Audit(f.ctx, shard, cursor)
			f.no(err)
			if page.Repaired != 0 {
				f.Fatalf("the audit of a sound shard repaired %d of %d", page.Repaired, page.Checked)
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
	}
}
