// Package queuetest is the conformance suite of an index. [Transcripts] compares an index's replies with
// files. [Run] checks the promises of package schedule that need more than a list of operations. [Random]
// executes random operations on few items and lanes, and checks the invariants of the state after each. With
// an oracle, which is another index, it compares every reply and the whole state of both.
//
// The suite needs only the methods that the engine uses, and a clock that the test can move.
//
// It checks behaviour as a caller sees it. It does not measure speed, and it does not stop an index's server:
// the tests of the implementations do.
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

// Index has the methods of an index that the engine uses.
type Index interface {
	Shards() int
	ShardOf(lane int64) int
	Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error)
	Claim(ctx context.Context, shard int, req schedule.ClaimRequest) (schedule.Claimed, error)
	Settle(ctx context.Context, settlements []schedule.Settlement) ([]schedule.Settled, error)
	Extend(ctx context.Context, extensions []schedule.Lease) ([]bool, error)
	Cancel(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error)
	Move(ctx context.Context, movements []schedule.Movement) ([]schedule.Moved, error)
	Lookup(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error)

	Acquire(ctx context.Context, requests []schedule.Lease) ([]schedule.LockReply, error)
	Release(ctx context.Context, unlocks []schedule.Unlock) ([]schedule.Waiter, error)

	SetLanes(ctx context.Context, settings []schedule.LaneSetting) error
	LaneStates(ctx context.Context, lanes []int64) ([]schedule.LaneState, error)
	OpenBreakers(ctx context.Context, shard, limit int) ([]int64, error)

	Reset(ctx context.Context, shard int, generation int64) error
	Adopt(ctx context.Context, adoptions []schedule.Lease) error
	Open(ctx context.Context, shard int) error
	Audit(ctx context.Context, shard int, cursor string) (schedule.AuditPage, error)
	Scan(ctx context.Context, shard int, cursor string, limit int) (schedule.ScanPage, error)
	Stats(ctx context.Context, shard int) (schedule.Stats, error)
	Watermark(ctx context.Context, shard int) (schedule.Watermark, error)
	MoveWatermark(ctx context.Context, shard int, a schedule.Advance) (schedule.Watermark, error)
	Loaded(ctx context.Context, shard int, token string, until int64) (schedule.Watermark, error)

	SetGeneration(generation int64)
	Generation(ctx context.Context, shard int) (int64, error)
	Hints() <-chan int
	Run(ctx context.Context) error
}

// A batched is an operation on elements, as a method of Index.
type batched[E, R any] = func(ix Index, ctx context.Context, elements []E) ([]R, error)

// on binds an operation to its elements.
func on[E, R any](ctx context.Context, do batched[E, R], elements []E) func(Index) ([]R, error) {
	return func(ix Index) ([]R, error) { return do(ix, ctx, elements) }
}

// withoutReply adapts an operation that returns only an error.
func withoutReply[E any](do func(ix Index, ctx context.Context, elements []E) error) batched[E, struct{}] {
	return func(ix Index, ctx context.Context, elements []E) ([]struct{}, error) {
		return nil, do(ix, ctx, elements)
	}
}

// A Harness is an index under test with its clock. Index, Now and Advance are required. The suite resets the
// index, so it may have been used before.
type Harness struct {
	Index Index
	// Now returns the index's clock, in Unix milliseconds.
	Now func() int64
	// Advance moves the index's clock by d at once, back if d is negative. For a server's clock it changes an
	// offset that only tests use. The clock may also run: each test tolerates one second of that.
	Advance func(d time.Duration)
	// Full enlarges backlogs and the number of concurrent calls.
	Full bool
}

// RandomRuns sets how many random runs [Random] makes, of a hundred operations on average. Flags of the
// command line override it. TestMain calls it: the number holds for a whole test binary.
func RandomRuns(n int) {
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(n), "rapid.steps": "100"} {
		if err := flag.Set(name, value); err != nil {
			panic(err) // rapid has no such flag any more
		}
	}
}

// Run runs the checks in parallel, each on its own harness from open.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for name, check := range map[string]func(f *fixture){
		"LanesHaveShards":               lanesHaveShards,
		"ScanFindsWhatStays":            scanFinds,
		"Refusals":                      refusals,
		"HintForAnEarlierHead":          hintEarlier,
		"HintWhenALaneHasRoomAgain":     hintRoom,
		"HintForRoomThatIsLeft":         hintLeftRoom,
		"HintsUseOneChannel":            hintChannel,
		"BacklogDoesNotDelayLightLanes": backlog,
		"OwnersGetEveryItemOnce":        concurrent,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(newFixture(t, open(t)))
		})
	}
}

// tb is the common part of testing.T and rapid.T.
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
	// latest is the latest reading of shard 0's clock plus a claim's lookahead. Items that are due by then
	// may be ready.
	latest int64
	locks  bool // the test uses locks, which may be in any shard
}

// wide returns a claim that only the lanes themselves limit.
func (f *fixture) wide() schedule.ClaimRequest {
	f.tokens++
	return schedule.ClaimRequest{
		Owner: "owner", Token: fmt.Sprintf("token-%d", f.tokens), Max: 256, MaxUncertain: 256,
		MaxTimingOut: 256,
		Lease:        30 * time.Second, LaneLimit: 256,
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
		f.noErr(err)
		f.generation = max(f.generation, have)
	}
	f.generation++
	f.Index.SetGeneration(f.generation)
	for shard := range f.Index.Shards() {
		f.noErr(f.Index.Reset(f.ctx, shard, f.generation))
		f.noErr(f.Index.Open(f.ctx, shard))
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

// idOf returns the n-th id. The ids sort by n.
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

// items returns n new items of the i-th lane that are due now. Their ids are in order.
func (f *fixture) items(i, n int) []schedule.Item {
	items := make([]schedule.Item, n)
	for j := range items {
		items[j] = f.item(i, 0)
	}
	return items
}

func (f *fixture) noErr(err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("unexpected error: %v", err)
	}
}

// each executes an operation on elements, in full batches, and expects a reply to each of them.
func each[E, R any](f *fixture, do batched[E, R], elements []E) (replies []R) {
	f.Helper()
	for page := range slices.Chunk(elements, schedule.MaxBatch) {
		some, err := do(f.Index, f.ctx, page)
		f.noErr(err)
		if len(some) != len(page) {
			f.Fatalf("%d of %d elements were answered: %+v", len(some), len(page), some)
		}
		replies = append(replies, some...)
	}
	return replies
}

func (f *fixture) ensure(items ...schedule.Item) {
	f.Helper()
	each(f, Index.Ensure, items)
}

// claim claims from shard 0, and checks what must hold for every claim.
func (f *fixture) claim(req schedule.ClaimRequest) schedule.Claimed {
	f.Helper()
	claimed, err := f.Index.Claim(f.ctx, 0, req)
	f.noErr(err)
	if len(claimed.Leases) > req.Max {
		f.Fatalf("a claim of %d returned %d leases", req.Max, len(claimed.Leases))
	}
	f.latest = max(f.latest, claimed.Now+req.Lookahead.Milliseconds())
	for _, l := range claimed.Leases {
		if l.Due > f.latest {
			f.Fatalf("%s is due at %d and was claimed early, at %d with a lookahead of %s", l.ID, l.Due,
				claimed.Now, req.Lookahead)
		}
		if l.Token != req.Token {
			f.Fatalf("%s is leased under %q, not under the claim's %q", l.ID, l.Token, req.Token)
		}
	}
	return claimed
}

// take claims everything that can be claimed, and returns the leases.
func (f *fixture) take() []schedule.Lease {
	f.Helper()
	return f.claim(f.wide()).Leases
}

// takeOne claims, and expects exactly this item.
func (f *fixture) takeOne(id string) schedule.Lease {
	f.Helper()
	leases := f.take()
	if len(leases) != 1 || leases[0].ID != id {
		f.Fatalf("claimed %d, %v, want %s alone", len(leases), idsOf(leases[:min(len(leases), 5)]), id)
	}
	return leases[0]
}

func idsOf(leases []schedule.Lease) []string {
	ids := make([]string, len(leases))
	for i, l := range leases {
		ids[i] = l.ID
	}
	return ids
}

// settled returns a settlement of the lease.
func settled(l schedule.Lease, o schedule.Outcome) schedule.Settlement {
	return schedule.Settlement{Item: l.Item, Token: l.Token, Outcome: o}
}

// apply settles leases and expects that all settlements apply.
func (f *fixture) apply(settlements ...schedule.Settlement) {
	f.Helper()
	for i, reply := range each(f, Index.Settle, settlements) {
		if reply != schedule.Applied {
			f.Fatalf("settling %+v: %d, want applied", settlements[i], reply)
		}
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
	f.apply(settlements...)
}

// answer makes a number of attempts of the i-th lane that end with the signal.
func (f *fixture) answer(i, times int, signal schedule.Signal) {
	f.Helper()
	for range times {
		item := f.item(i, 0)
		f.ensure(item)
		f.ack([]schedule.Lease{f.takeOne(item.ID)}, signal)
	}
}

// scan returns all items of a shard, each id once.
func (f *fixture) scan(shard int) []schedule.Found {
	f.Helper()
	var all []schedule.Found
	seen := make(map[string]int)
	for cursor := ""; ; {
		page, err := f.Index.Scan(f.ctx, shard, cursor, 100)
		f.noErr(err)
		for _, found := range page.Found {
			if i, ok := seen[found.ID]; ok {
				all[i] = found
				continue
			}
			seen[found.ID] = len(all)
			all = append(all, found)
		}
		cursor = page.Next
		if cursor == "" {
			return all
		}
	}
}

// watermark returns the watermark of shard 0.
func (f *fixture) watermark() schedule.Watermark {
	f.Helper()
	w, err := f.Index.Watermark(f.ctx, 0)
	f.noErr(err)
	return w
}

// set applies a setting with a version above that of every earlier one.
func (f *fixture) set(s schedule.LaneSetting) {
	f.Helper()
	f.tokens++
	s.Version = int64(f.tokens)
	f.noErr(f.Index.SetLanes(f.ctx, []schedule.LaneSetting{s}))
}

func (f *fixture) stats() schedule.Stats {
	f.Helper()
	stats, err := f.Index.Stats(f.ctx, 0)
	f.noErr(err)
	return stats
}

// sizes returns the stats of shard 0, with the locks of all shards.
func (f *fixture) sizes() (schedule.Stats, error) {
	stats, err := f.Index.Stats(f.ctx, 0)
	for shard := 1; err == nil && shard < f.Index.Shards(); shard++ {
		var other schedule.Stats
		other, err = f.Index.Stats(f.ctx, shard)
		stats.Locks += other.Locks
		stats.Waiters += other.Waiters
	}
	return stats, err
}

// Audit runs a whole audit of every shard and returns the number of repairs.
func Audit(ctx context.Context, ix Index) (repaired int, err error) {
	for shard := range ix.Shards() {
		for cursor := ""; ; {
			page, err := ix.Audit(ctx, shard, cursor)
			if err != nil {
				return repaired, err
			}
			repaired += page.Repaired
			cursor = page.Next
			if cursor == "" {
				break
			}
		}
	}
	return repaired, nil
}

// expectNoRepair expects that an audit repairs nothing.
func (f *fixture) expectNoRepair() {
	f.Helper()
	repaired, err := Audit(f.ctx, f.Index)
	f.noErr(err)
	if repaired != 0 {
		f.Fatalf("the audit of a sound index repaired %d", repaired)
	}
}

// maxStep is the longest time between two calls to a shard. Claimers call more often. If a shard is not
// called for longer, an index may assume that its clock was set forward.
const maxStep = 8 * time.Second

// pass lets d pass, with calls in between as for an index in use. It calls only the shards that the test
// uses: calls to every shard would take most of the test's time.
func (f *fixture) pass(d time.Duration) {
	f.Helper()
	used := 1
	if f.locks {
		used = f.Index.Shards()
	}
	for ; d > 0; d -= maxStep {
		f.Advance(min(d, maxStep))
		f.clocks(used)
	}
}

// clocks returns the clocks of the first n shards.
func (f *fixture) clocks(n int) []int64 {
	f.Helper()
	clocks := make([]int64, n)
	for shard := range clocks {
		s, err := f.Index.Stats(f.ctx, shard)
		f.noErr(err)
		clocks[shard] = s.Now
	}
	f.latest = max(f.latest, clocks[0])
	return clocks
}

// jump moves the clock at once, lets every shard read it, and returns by how much shard 0's clock has moved.
func (f *fixture) jump(d time.Duration) int64 {
	f.Helper()
	before := f.clocks(f.Index.Shards())
	f.Advance(d)
	after := f.clocks(f.Index.Shards())
	for shard := range after {
		if moved := after[shard] - before[shard] - d.Milliseconds(); moved < 0 || moved > 5000 {
			f.Fatalf("a jump of %s took the clock of shard %d from %d to %d", d, shard, before[shard],
				after[shard])
		}
	}
	return after[0] - before[0]
}
