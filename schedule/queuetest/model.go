package queuetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// The random operations act on few ids and lanes, so that they meet each other often.
const (
	modelIDs   = 40
	modelLanes = 3
)

// longestLock is as long as a lock may be, with every kind of character.
const longestLock = "order_0001-AZaz_zzzzzz"

// A record is what the model knows of an id that is in the index.
type record struct {
	schedule.Item
	// The item is due at lo at the earliest and at hi at the latest: they differ where the index chose.
	lo, hi int64
	leased bool
	// uncounted: its lease does not count towards the concurrency of its lane.
	uncounted bool
	token     string
	until     int64
	moved     int64
	pushed    bool // a movement of the lease forces it
	diverts   int
	// ripe says that a claim found it due. It stays so, wherever the clock goes.
	ripe bool
}

// due says whether the item is surely due, and whether it may be.
func (r *record) due(now int64) (surely, maybe bool) {
	return r.ripe || r.hi <= now, r.ripe || r.lo <= now
}

// A path is what the model knows of a lane.
type path struct {
	limit   int
	version int64
	paused  int64
	resumed bool // the pause is over, and the lane has begun low
	held    int64
	pace    int
	health  schedule.Health
	course
}

// A world is an index with the model of it. The model is exact but for what an index may choose, and for its
// clock, which is somewhere between the readings before and after a call.
type world struct {
	*fixture
	refs      []schedule.Ref
	records   map[string]*record
	paths     map[int64]*path
	limit     int // LaneLimit of every claim
	last      map[string]schedule.ClaimRequest
	batches   map[string][]schedule.Lease // by owner, as last claimed
	oldTokens []string
	locks     map[string]*lockModel
	mark      schedule.Watermark
	counters  map[string]int64
	skew      int64 // the steady clock less the index's, in ms
}

// model does random operations and compares every answer with a model of the index.
func model(f *fixture) {
	rapid.Check(f.tb.(rapid.TB), func(rt *rapid.T) {
		w := newWorld(newFixture(rt, f.Harness), rapid.SampledFrom([]int{1, 2, 4, 12, 30}).Draw(rt, "lane limit"))
		first := w.wide() // the index learns the limit of lanes without one from claims
		first.LaneLimit = w.limit
		w.claim(first)
		act := func(f func(*rapid.T)) func(*rapid.T) {
			return func(rt *rapid.T) { w.tb = rt; f(rt) }
		}
		rt.Repeat(map[string]func(*rapid.T){
			"ensure":  act(w.randomEnsure),
			"claim":   act(w.randomClaim),
			"claim 2": act(w.randomClaim),
			"again":   act(w.randomRepeat),
			"settle":  act(w.randomSettle),
			"finish":  act(w.randomFinish),
			"extend":  act(w.randomExtend),
			"cancel":  act(w.randomCancel),
			"move":    act(w.randomMove),
			"adopt":   act(w.randomAdopt),
			"setting": act(w.randomSetting),
			"outage":  act(w.randomOutage),
			"horizon": act(w.randomHorizon),
			"loaded":  act(w.randomLoaded),
			"acquire": act(w.randomAcquire),
			"release": act(w.randomRelease),
			"advance": act(w.randomAdvance),
			"jump":    act(w.randomJump),
			"audit":   act(func(*rapid.T) { w.quiet() }),
			"":        act(func(*rapid.T) { w.compareScan(); w.compareStates() }),
		})
	})
}

func newWorld(f *fixture, limit int) *world {
	w := &world{
		fixture: f, limit: limit, records: make(map[string]*record), paths: make(map[int64]*path),
		last: make(map[string]schedule.ClaimRequest), batches: make(map[string][]schedule.Lease), locks: make(map[string]*lockModel),
		mark: schedule.Watermark{At: schedule.Forever, Loaded: schedule.Forever}, counters: make(map[string]int64),
	}
	f.locks = true
	for _, lane := range f.lanes[:modelLanes] {
		w.paths[lane] = &path{pace: schedule.StartConcurrency}
	}
	for n := range modelIDs {
		w.refs = append(w.refs, schedule.Ref{ID: idOf(1_000_001 + n), Lane: w.lanes[n%modelLanes]})
	}
	return w
}

// ref draws an id. An id is always of the same lane.
func (w *world) ref(rt *rapid.T) schedule.Ref {
	return w.refs[rapid.IntRange(0, modelIDs-1).Draw(rt, "id")]
}

// due draws a time around now.
func (w *world) due(rt *rapid.T) int64 {
	times := []int64{-3600_000, -5000, -1000, 0, 150, 3000, 20_000, 45_000, 600_000}
	return w.Now() + rapid.SampledFrom(times).Draw(rt, "due in")
}

func (w *world) drawItem(rt *rapid.T) schedule.Item {
	ref := w.ref(rt)
	item := schedule.Item{ID: ref.ID, Lane: ref.Lane, Due: w.due(rt), Retry: rapid.Bool().Draw(rt, "retry")}
	if rapid.Bool().Draw(rt, "locked") {
		item.Lock = longestLock
	}
	item.Forced = rapid.IntRange(0, 5).Draw(rt, "forced") == 0
	return item
}

func (w *world) path(lane int64) *path { return w.paths[lane] }

func (w *world) inflight(lane int64) int {
	n := 0
	for _, r := range w.records {
		if r.leased && !r.uncounted && r.Lane == lane {
			n++
		}
	}
	return n
}

func (w *world) limitOf(p *path) int {
	if p.limit > 0 {
		return p.limit
	}
	return w.limit
}

func (w *world) concurrency(p *path) int { return min(p.pace, w.limitOf(p)) }

func (w *world) randomEnsure(rt *rapid.T) {
	var items []schedule.Item
	for range rapid.IntRange(1, 12).Draw(rt, "items") {
		items = append(items, w.drawItem(rt))
	}
	before := w.Now()
	for i, got := range w.ensure(items...) {
		w.expectWhere(items[i].Ref(), got)
		if w.records[items[i].ID] == nil && !w.leftOut(items[i].Ref(), items[i].Due, before) {
			w.records[items[i].ID] = &record{Item: items[i], lo: items[i].Due, hi: items[i].Due}
		}
	}
}

// expectWhere compares an index's answer with what the model knows of an id, which may be absent.
func (w *world) expectWhere(ref schedule.Ref, got schedule.Position) {
	if r := w.records[ref.ID]; r != nil {
		w.expectPosition(r, got)
	} else if got != (schedule.Position{}) {
		w.Fatalf("%s is absent, but the index answered %v", ref.ID, got)
	}
}

// expectPosition compares an index's answer with the model's record.
func (w *world) expectPosition(r *record, got schedule.Position) {
	waits := got.Place == schedule.Delayed || got.Place == schedule.Ready
	if r.leased != (got.Place == schedule.Leased) || r.leased == waits || got.Due < r.lo || got.Due > r.hi {
		w.Fatalf("%s is %+v, but the index answered %v", r.ID, *r, got)
	}
}

func (w *world) randomCancel(rt *rapid.T) {
	ref := w.ref(rt)
	got, err := w.Index.Cancel(w.ctx, []schedule.Ref{ref})
	w.no(err)
	w.expectWhere(ref, got[0])
	if r := w.records[ref.ID]; r != nil && !r.leased {
		delete(w.records, ref.ID)
	}
}

func (w *world) randomMove(rt *rapid.T) {
	ref, due := w.ref(rt), w.due(rt)
	forced := rapid.IntRange(0, 3).Draw(rt, "forced") == 0
	before := w.Now()
	got, err := w.Index.Move(w.ctx, []schedule.Movement{{Ref: ref, Due: due, Forced: forced}})
	w.no(err)
	after := w.Now()
	r := w.records[ref.ID]
	if r == nil {
		if got[0] != schedule.MovedGone {
			w.Fatalf("%s is absent, but move answered %d", ref.ID, got[0])
		}
		return
	}
	if r.leased {
		if got[0] != schedule.MovedHeld {
			w.Fatalf("%s is leased, but move answered %d", ref.ID, got[0])
		}
		if r.moved == 0 || due < r.moved {
			r.moved = due
		}
		r.pushed = r.pushed || forced
		return
	}
	r.Forced = r.Forced || forced
	r.Due, r.lo, r.hi, r.ripe = due, due, due, false
	if w.leftOut(ref, due, before) {
		delete(w.records, ref.ID)
	}
	surely, maybe := w.keeps(w.path(r.Lane), r.Forced, before, after)
	if surely && got[0] != schedule.MovedHeld || !maybe && got[0] != schedule.MovedIt {
		w.Fatalf("move of %s answered %d; its lane is %+v, now is %d", ref.ID, got[0], *w.path(r.Lane), after)
	}
}

func (w *world) randomExtend(rt *rapid.T) {
	ref := w.ref(rt)
	r := w.records[ref.ID]
	token := w.drawToken(rt, r)
	until := w.Now() + int64(rapid.SampledFrom([]int{-1000, 10_000, 90_000}).Draw(rt, "until"))
	got, err := w.Index.Extend(w.ctx, []schedule.Extension{{Ref: ref, Token: token, Until: until}})
	w.no(err)
	held := r != nil && r.leased && r.token == token
	if got[0] != held {
		w.Fatalf("extension of %s under %q answered %t, want %t", ref.ID, token, got[0], held)
	}
	if held {
		r.until = max(r.until, until)
	}
}

// drawToken draws the record's token, an old one or one that was never used.
func (w *world) drawToken(rt *rapid.T, r *record) string {
	tokens := []string{"foreign"}
	if r != nil && r.leased {
		tokens = append(tokens, r.token, r.token)
	}
	if n := len(w.oldTokens); n > 0 {
		tokens = append(tokens, w.oldTokens[n-1], w.oldTokens[max(0, n-5)])
	}
	return rapid.SampledFrom(tokens).Draw(rt, "token")
}

func (w *world) randomAdopt(rt *rapid.T) {
	item := w.drawItem(rt)
	item.Lock = ""
	r := w.records[item.ID]
	a := schedule.Adoption{Item: item, Token: "adopted", Until: w.Now() + 40_000}
	if r != nil && r.leased && rapid.Bool().Draw(rt, "again") {
		a.Token = r.token
	}
	w.no(w.Index.Adopt(w.ctx, []schedule.Adoption{a}))
	switch {
	case r != nil && r.leased && r.token != a.Token:
	case r != nil && r.leased:
		r.until = max(r.until, a.Until)
	default:
		n := &record{Item: item, lo: item.Due, hi: item.Due, leased: true, token: a.Token, until: a.Until}
		if r != nil {
			n.diverts = r.diverts
		}
		w.records[item.ID] = n
	}
}

func (w *world) randomSetting(rt *rapid.T) {
	lane := w.lanes[rapid.IntRange(0, modelLanes-1).Draw(rt, "lane")]
	p := w.path(lane)
	s := schedule.LaneSetting{
		Lane:    lane,
		Limit:   rapid.SampledFrom([]int{0, 0, 1, 3, 5, 20}).Draw(rt, "limit"),
		Version: p.version + int64(rapid.IntRange(-1, 2).Draw(rt, "version")),
		Every: rapid.SampledFrom([]time.Duration{
			0, 0, time.Microsecond, 33 * time.Millisecond, time.Second / 3, 10 * time.Second, time.Minute / 7,
		}).Draw(rt, "every"),
	}
	w.clearOfPauses()
	if rapid.IntRange(0, 2).Draw(rt, "pause") == 0 {
		s.PausedUntil = w.due(rt)
	}
	before := w.Now()
	w.no(w.Index.SetLanes(w.ctx, []schedule.LaneSetting{s}))
	after := w.Now()
	if s.Version < p.version {
		return
	}
	if p.paused > after && s.PausedUntil <= before {
		p.pace = min(p.pace, schedule.StartConcurrency)
	}
	w.setRate(p, s.Every, before, after)
	p.limit, p.paused, p.version, p.resumed = s.Limit, s.PausedUntil, s.Version, s.PausedUntil <= before
}

func (w *world) randomAdvance(rt *rapid.T) {
	w.pass(rapid.SampledFrom([]time.Duration{
		time.Millisecond, 150 * time.Millisecond, 2 * time.Second, 20 * time.Second, 31 * time.Second, 2 * time.Minute,
	}).Draw(rt, "by"))
}

// compareScan compares all that the index holds, and its sizes, with the model.
func (w *world) compareScan() {
	w.Helper()
	found := w.scan(0)
	var leased int64
	for _, got := range found {
		r := w.records[got.ID]
		if r == nil {
			w.Fatalf("the index has %s, %s, which should be absent", got.ID, got.Place)
		}
		w.expectPosition(r, schedule.Position{Place: got.Place, Due: got.Due})
		if got.Item != r.item(got.Due) {
			w.Fatalf("the index has %+v, want %+v", got, *r)
		}
		if r.leased {
			leased++
		}
	}
	if len(found) != len(w.records) {
		w.Fatalf("the index has %d items, want %d", len(found), len(w.records))
	}
	for i, got := range w.lookup(w.refs...) {
		w.expectWhere(w.refs[i], got)
	}
	s := w.stats()
	if s.Leased != leased || s.Delayed+s.Ready != int64(len(found))-leased {
		w.Fatalf("sizes %+v, want %d leased of %d", s, leased, len(found))
	}
	for name, want := range w.counters {
		if s.Counters[name] != want {
			w.Fatalf("%q counts %d, want %d: %v", name, s.Counters[name], want, s.Counters)
		}
	}
}

// sortedRecords returns the records by id, so that failures read the same each time.
func (w *world) sortedRecords() []*record {
	return slices.SortedFunc(maps.Values(w.records), func(a, b *record) int { return strings.Compare(a.ID, b.ID) })
}

// item is the record's, with a due time that the index told.
func (r *record) item(due int64) schedule.Item {
	item := r.Item
	item.Due = due
	return item
}

func (r *record) String() string {
	return fmt.Sprintf("%s of lane %d, due %d to %d, leased %t", r.ID, r.Lane, r.lo, r.hi, r.leased)
}
