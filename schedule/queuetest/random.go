package queuetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Few ids and lanes make the random operations meet often.
const (
	randomIDs   = 40
	randomLanes = 3
)

// longestLock has the greatest length of a lock's name, and every kind of character.
const longestLock = "order_0001-AZaz_zzzzzz"

// Random executes random operations on an index, with crashes, lost replies and jumps of the clock, and
// checks the invariants of its state after each. With an oracle, which is another index, it executes each
// operation on both and compares every reply and the whole state. The clocks of both must be equal and stand
// still between calls of Advance.
func Random(t *testing.T, h Harness, oracle *Harness) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, h, oracle, rapid.SampledFrom([]int{1, 2, 4, 12, 30}).Draw(rt, "lane limit"))
		actions := make(map[string]func(*rapid.T))
		for name, action := range map[string]func(){
			"ensure": w.randomEnsure, "cancel": w.randomCancel, "move": w.randomMove,
			"claim": w.randomClaim, "claim 2": w.randomClaim, "again": w.randomRepeat,
			"settle": w.randomSettle, "finish": w.randomFinish, "extend": w.randomExtend,
			"acquire": w.randomAcquire, "release": w.randomRelease,
			"setting": w.randomSetting, "outage": w.randomOutage,
			"horizon": w.randomHorizon, "loaded": w.randomLoaded,
			"advance": w.randomAdvance, "jump": w.randomJump,
			"adopt": w.randomAdopt, "rebuild": w.randomRebuild, "audit": w.randomAudit,
		} {
			actions[name] = func(rt *rapid.T) {
				w.tb, w.rt = rt, rt
				for _, side := range w.sides {
					side.tb = rt
				}
				action()
			}
		}
		rt.Repeat(actions)
	})
}

// A world is an index under random operations, with its oracle, and what the replies have said.
type world struct {
	*fixture // of the index
	rt       *rapid.T
	// sides are the index and the oracle, if there is one.
	sides       []*fixture
	limit       int // LaneLimit of every claim
	refs        []schedule.Ref
	last        map[string]schedule.ClaimRequest
	oldTokens   []string
	leases      map[string]knownLease
	lockRecords map[string]*lockRecord // by lock
	versions    map[int64]int64        // of lanes
	limits      map[int64]int
	state       state // after the last operation
}

// newWorld returns a world with an empty index, and an empty oracle with the same clock.
func newWorld(rt *rapid.T, h Harness, oracle *Harness, limit int) *world {
	w := &world{limit: limit}
	w.sides = append(w.sides, newFixture(rt, h))
	if oracle != nil {
		w.sides = append(w.sides, newFixture(rt, *oracle))
	}
	w.fixture = w.sides[0]
	w.locks = true
	for _, side := range w.sides {
		if side.Now() != w.Now() {
			w.Fatalf("the clocks say %d and %d", w.Now(), side.Now())
		}
		w.generation = max(w.generation, side.generation)
	}
	for n := range randomIDs {
		w.refs = append(w.refs, schedule.Ref{ID: idOf(1_000_001 + n), Lane: w.lanes[n%randomLanes]})
	}
	w.rebuild()
	return w
}

// both executes an operation on all sides and compares the replies.
func both[R any](w *world, what string, do func(Index) (R, error)) R {
	w.Helper()
	got, err := do(w.Index)
	for _, oracle := range w.sides[1:] {
		want, failed := do(oracle.Index)
		diff := cmp.Diff(want, got, sameTicks, cmpopts.EquateEmpty())
		if diff != "" || (err == nil) != (failed == nil) {
			w.Fatalf("%s: %v, want %v; the replies differ (-oracle +index):\n%s", what, err, failed, diff)
		}
	}
	w.noErr(err)
	return got
}

// sameTicks ignores Seq, which only an index that can be rolled back counts.
var sameTicks = cmp.Comparer(func(a, b schedule.Tick) bool { return a.Now == b.Now && a.Next == b.Next })

// retried is both, but sometimes repeats the operation as if its reply had been lost. The repetition must
// change nothing.
func retried[R any](w *world, what string, do func(Index) (R, error)) R {
	w.Helper()
	first := both(w, what, do)
	if w.oneIn(8, "lost") {
		before := w.dump(w.fixture)
		both(w, what+", repeated", do)
		after := w.dump(w.fixture)
		before.Stats, after.Stats = schedule.Stats{Waiters: before.Stats.Waiters},
			schedule.Stats{Waiters: after.Stats.Waiters}
		if diff := difference(before, after); diff != "" {
			w.Fatalf("%s, repeated, changed the state (-before +after):\n%s", what, diff)
		}
	}
	return first
}

// some draws up to most different ids. An id always has the same lane.
func (w *world) some(most int) []schedule.Ref {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(w.refs), 1, most, rapid.ID[schedule.Ref]).Draw(w.rt,
		"ids")
}

// drawn draws up to most elements with different ids, and executes an operation on them.
func drawn[E, R any](
	w *world, most int, what string, do batched[E, R], draw func(schedule.Ref) E,
) (elements []E, replies []R) {
	w.Helper()
	for _, ref := range w.some(most) {
		elements = append(elements, draw(ref))
	}
	return elements, retried(w, what, on(w.ctx, do, elements))
}

func (w *world) anyLane() int64 {
	return pick(w, "lane", w.lanes[:randomLanes]...)
}

// due draws a time around now.
func (w *world) due() int64 {
	times := []int64{-3600_000, -5000, -1000, 0, 150, 3000, 20_000, 45_000, 600_000}
	return w.Now() + pick(w, "due in", times...)
}

// oneIn is true once in n times.
func (w *world) oneIn(n int, what string) bool { return rapid.IntRange(1, n).Draw(w.rt, what) == n }

// pick draws one of the values.
func pick[T any](w *world, label string, of ...T) T { return rapid.SampledFrom(of).Draw(w.rt, label) }

func (w *world) drawItem(ref schedule.Ref) schedule.Item {
	item := schedule.Item{ID: ref.ID, Lane: ref.Lane, Due: w.due(), Retry: w.oneIn(2, "retry")}
	if w.oneIn(2, "locked") {
		item.Lock = longestLock
	}
	item.Forced = w.oneIn(6, "forced")
	return item
}

// drawToken draws the token of an id's lease, an old token, or an unused one.
func (w *world) drawToken(id string) string {
	tokens := []string{"foreign"}
	if h, leased := w.leases[id]; leased {
		tokens = append(tokens, h.token, h.token)
	}
	if n := len(w.oldTokens); n > 0 {
		tokens = append(tokens, w.oldTokens[n-1], w.oldTokens[max(0, n-5)])
	}
	return pick(w, "token", tokens...)
}

func (w *world) drawLease(ref schedule.Ref) schedule.LeaseRef {
	return schedule.LeaseRef{Ref: ref, Token: w.drawToken(ref.ID)}
}

// drawNext draws a lease of the lane that counts from now on, or none.
func (w *world) drawNext(lane int64) schedule.LeaseRef {
	ref := pick(w, "next", w.refs...)
	if ref.Lane != lane {
		return schedule.LeaseRef{}
	}
	return w.drawLease(ref)
}

// randomEnsure ensures items. Each must have the position that the reply says, and an absent one must be
// added.
func (w *world) randomEnsure() {
	items, got := drawn(w, 12, "ensure", Index.Ensure, w.drawItem)
	before := w.observe()
	for i, item := range items {
		w.expectPosition(before, item.ID, got[i])
		if got[i].Place == schedule.Absent {
			w.expectWaits(item.ID, item.Due)
		}
	}
}

// randomCancel cancels items. Afterwards each must be absent or still leased.
func (w *world) randomCancel() {
	refs, got := drawn(w, 3, "cancel", Index.Cancel, func(ref schedule.Ref) schedule.Ref { return ref })
	before := w.observe()
	for i, ref := range refs {
		w.expectPosition(before, ref.ID, got[i])
		if left := w.state.Items[ref.ID].Place; left != schedule.Absent && left != schedule.Leased {
			w.Fatalf("%s was canceled, and is %s", ref.ID, left)
		}
	}
}

// randomMove moves items. A leased one must remember the earliest due time.
func (w *world) randomMove() {
	movements, got := drawn(w, 12, "move", Index.Move, func(ref schedule.Ref) schedule.Movement {
		return schedule.Movement{Ref: ref, Due: w.due(), Forced: w.oneIn(4, "forced")}
	})
	before := w.observe()
	for i, m := range movements {
		switch before.Items[m.ID].Place {
		case schedule.Absent:
			if got[i] != schedule.MovedGone {
				w.Fatalf("%s was absent, but move answered %d", m.ID, got[i])
			}
		case schedule.Leased:
			h := w.leases[m.ID]
			if h.movedTo == 0 || m.Due < h.movedTo {
				h.movedTo = m.Due
			}
			w.leases[m.ID] = h
			if got[i] != schedule.MovedBlocked {
				w.Fatalf("%s was leased, but move answered %d", m.ID, got[i])
			}
		case schedule.Delayed, schedule.Ready:
			w.expectWaits(m.ID, m.Due)
			w.expectMoved(before.Lanes[m.Lane], m.Forced || before.Items[m.ID].Forced, got[i])
		}
	}
}

// randomExtend extends leases, with right and wrong tokens. Only the right token must succeed.
func (w *world) randomExtend() {
	extensions, got := drawn(w, 3, "extend", Index.Extend, func(ref schedule.Ref) schedule.Lease {
		return schedule.Lease{
			Item: schedule.Item{ID: ref.ID, Lane: ref.Lane}, Token: w.drawToken(ref.ID),
			Until: w.Now() + pick[int64](w, "until", -1000, 10_000, 90_000),
		}
	})
	for i, e := range extensions {
		h, leased := w.leases[e.ID]
		mine := leased && h.token == e.Token
		if got[i] != mine {
			w.Fatalf("extension of %s under %q answered %t, want %t", e.ID, e.Token, got[i], mine)
		}
		if mine {
			h.until = max(h.until, e.Until)
			w.leases[e.ID] = h
		}
	}
	w.observe()
}

// randomAdopt adopts attempts, some of them under the token that already leases their item.
func (w *world) randomAdopt() {
	adoptions, _ := drawn(w, 3, "adopt", withoutReply(Index.Adopt), func(ref schedule.Ref) schedule.Lease {
		a := schedule.Lease{Item: w.drawItem(ref), Token: "adopted", Until: w.Now() + 40_000}
		a.Lock = ""
		if w.oneIn(2, "locked") {
			a.Lock = lockOf(a.ID)
		}
		if h, leased := w.leases[a.ID]; leased && w.oneIn(2, "again") {
			a.Token = h.token
		}
		return a
	})
	w.noteAdopted(adoptions)
	w.observe()
}

// noteAdopted records the leases and locks of an adoption.
func (w *world) noteAdopted(adoptions []schedule.Lease) {
	for _, a := range adoptions {
		if h, leased := w.leases[a.ID]; !leased {
			w.leases[a.ID] = knownLease{token: a.Token, until: a.Until}
		} else if h.token == a.Token {
			h.until = max(h.until, a.Until)
			w.leases[a.ID] = h
		}
		if a.Lock != "" && a.Until > w.Now() {
			w.lockRecord(a.Lock).join(lockHolder{a.ID, a.Token}, a.Until)
		}
	}
}

// randomSetting applies a setting of a lane, sometimes an older one.
func (w *world) randomSetting() {
	lane := w.anyLane()
	s := schedule.LaneSetting{
		Lane:    lane,
		Limit:   pick(w, "limit", 0, 0, 1, 3, 5, 20),
		Version: w.versions[lane] + rapid.Int64Range(-1, 2).Draw(w.rt, "version"),
		Every: pick[time.Duration](w, "every", 0, 0, time.Microsecond, 33*time.Millisecond, time.Second/3,
			10*time.Second, time.Minute/7),
	}
	if w.oneIn(3, "pause") {
		s.PausedUntil = w.due()
	}
	retried(w, "set lanes", on(w.ctx, withoutReply(Index.SetLanes), []schedule.LaneSetting{s}))
	applies := s.Version >= w.versions[lane]
	if applies {
		w.versions[lane], w.limits[lane] = s.Version, s.Limit
	}
	before := w.observe()
	w.expectSetting(before.Lanes[lane], s, applies)
}

// randomOutage lets attempts of one lane end without an answer, enough to open a breaker.
func (w *world) randomOutage() {
	lane := w.anyLane()
	apart := pick[time.Duration](w, "apart", 0, 3*time.Second, schedule.BreakerSpan)
	signal := pick[schedule.Signal](w, "signal", schedule.TimedOut, schedule.Unanswered)
	for range rapid.IntRange(1, 3).Draw(w.rt, "rounds") {
		var adoptions []schedule.Lease
		var settlements []schedule.Settlement
		for range 10 {
			item := schedule.Item{ID: w.id(), Lane: lane, Due: w.Now()}
			adoptions = append(adoptions, schedule.Lease{Item: item, Token: "outage",
				Until: w.Now() + 60_000})
			settlements = append(settlements, schedule.Settlement{
				Item: item, Token: "outage", Outcome: schedule.Ack, Signal: signal,
			})
		}
		retried(w, "adopt", on(w.ctx, withoutReply(Index.Adopt), adoptions))
		w.noteAdopted(adoptions)
		w.settle(settlements)
		w.pass(apart)
	}
}

// randomHorizon moves the watermark, sometimes as a caller whose read is outdated.
func (w *world) randomHorizon() {
	w.tokens++
	a := schedule.Advance{
		Horizon: pick[time.Duration](w, "horizon", 0, time.Millisecond, 5*time.Minute, 20*time.Minute),
		After:   pick(w, "after", w.state.Watermark.Loader, w.state.Watermark.Loader, "another"),
		Token:   idOf(w.tokens),
	}
	move := func(ix Index) (schedule.Watermark, error) { return ix.MoveWatermark(w.ctx, 0, a) }
	w.expectWatermark(a, retried(w, "move watermark", move))
}

// randomLoaded reports that items were loaded, sometimes under an outdated token.
func (w *world) randomLoaded() {
	until := pick[int64](w, "until", 0, w.Now()+60_000, w.Now()+900_000, schedule.Forever)
	token := pick(w, "token", w.state.Watermark.Loader, "foreign")
	got := retried(w, "loaded", func(ix Index) (schedule.Watermark, error) {
		return ix.Loaded(w.ctx, 0, token, until)
	})
	want := w.state.Watermark
	if token == want.Loader {
		want.Loaded = max(want.Loaded, min(until, want.At))
	}
	got.Now = want.Now
	if got != want {
		w.Fatalf("%s loaded all until %d: %+v, want %+v", token, until, got, want)
	}
	w.observe()
}

func (w *world) randomAdvance() {
	w.pass(pick[time.Duration](w, "by", time.Millisecond, 150*time.Millisecond, 2*time.Second, 20*time.Second,
		31*time.Second, 2*time.Minute))
}

// pass lets d pass on all sides.
func (w *world) pass(d time.Duration) {
	for _, side := range w.sides {
		side.locks = true
		side.pass(d)
	}
	w.observe()
}

// randomJump moves the clock at once. Due times stay; leases, holds and locks keep their remaining time.
func (w *world) randomJump() {
	d := pick[time.Duration](w, "jump", -time.Hour, -7*time.Second, time.Minute, time.Hour)
	w.endPauses()
	for _, side := range w.sides {
		side.jump(d)
	}
	for id, h := range w.leases {
		h.until += d.Milliseconds()
		w.leases[id] = h
	}
	for _, k := range w.lockRecords {
		k.keptUntil += d.Milliseconds()
		for c := range k.holders {
			k.holders[c] += d.Milliseconds()
		}
	}
	before := w.observe()
	w.expectJumped(before, d)
}

// endPauses ends expired pauses by a setting. If the clock goes back before the end of an expired pause, an
// index may start the pause again or not.
func (w *world) endPauses() {
	for _, lane := range w.lanes[:randomLanes] {
		if s := w.state.Lanes[lane]; s.PausedUntil == 0 {
			w.versions[lane]++
			setting := schedule.LaneSetting{Lane: lane, Limit: w.limits[lane], Every: s.Every,
				Version: w.versions[lane]}
			retried(w, "set lanes", on(w.ctx, withoutReply(Index.SetLanes), []schedule.LaneSetting{setting}))
		}
	}
}

// randomAudit audits. The audit of a sound index must change nothing.
func (w *world) randomAudit() {
	for _, side := range w.sides {
		side.expectNoRepair()
	}
	before := w.observe()
	if diff := difference(before.Items, w.state.Items) + difference(before.Lanes, w.state.Lanes); diff != "" {
		w.Fatalf("the audit of a sound shard changed it (-before +after):\n%s", diff)
	}
}

// randomRebuild sometimes does what follows the loss of an index.
func (w *world) randomRebuild() {
	if w.oneIn(4, "rebuild") {
		w.rebuild()
	}
}

// rebuild empties every shard under a new generation, adopts the leases, opens the shards, and adds the other
// items.
func (w *world) rebuild() {
	w.Helper()
	items, leases := w.state.Items, w.leases
	w.generation++
	w.leases, w.lockRecords = make(map[string]knownLease), make(map[string]*lockRecord)
	w.versions, w.limits = make(map[int64]int64), make(map[int64]int)
	w.last = make(map[string]schedule.ClaimRequest)
	for _, side := range w.sides {
		side.Index.SetGeneration(w.generation)
		if _, err := side.Index.Stats(w.ctx, 0); !errors.Is(err, schedule.ErrLost) {
			w.Fatalf("stats of a lost index: %v", err)
		}
		for shard := range side.Index.Shards() {
			w.noErr(side.Index.Reset(w.ctx, shard, w.generation))
		}
	}
	req := w.wide()
	for _, side := range w.sides {
		if _, err := side.Index.Claim(w.ctx, 0, req); !errors.Is(err, schedule.ErrRebuilding) {
			w.Fatalf("a claim of a closed shard: %v", err)
		}
	}
	var adoptions []schedule.Lease
	var rest []schedule.Item
	for _, ref := range w.refs {
		if h, leased := leases[ref.ID]; leased && h.until > w.Now() {
			adoptions = append(adoptions, schedule.Lease{Item: items[ref.ID].Item, Token: h.token,
				Until: h.until})
		} else if found, ok := items[ref.ID]; ok {
			rest = append(rest, found.Item)
		}
	}
	both(w, "adopt", on(w.ctx, withoutReply(Index.Adopt), adoptions))
	w.noteAdopted(adoptions)
	for _, side := range w.sides {
		for shard := range side.Index.Shards() {
			w.noErr(side.Index.Open(w.ctx, shard))
		}
	}
	// The index learns the limit of lanes without their own from claims.
	req.Owner, req.Max, req.LaneLimit = "first", 0, w.limit
	both(w, "claim", func(ix Index) (schedule.Claimed, error) { return ix.Claim(w.ctx, 0, req) })
	both(w, "ensure", on(w.ctx, Index.Ensure, rest))
	w.observe()
}
