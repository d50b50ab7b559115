package queuetest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Compare runs the same random operations on an index and on an oracle, and compares what both answer and
// hold. The oracle's clock must move by Advance alone: it is made to follow the index's.
//
// What the contract leaves to an index is kept out of the comparison: all times lie whole steps apart with
// the present in the middle of a step, reaped items are moved to a known time before anything else happens,
// and a claim that cannot take all is made only where there is one lane to choose from.
func Compare(t *testing.T, open, oracle func(t *testing.T) Harness) {
	index, other := open(t), oracle(t)
	rapid.Check(t, func(rt *rapid.T) {
		p := newPair(rt, index, other)
		actions := make(map[string]func(*rapid.T))
		for name, action := range map[string]func(*rapid.T){
			"ensure": p.ensure, "claim": p.claim, "claim 2": p.claim, "again": p.again, "settle": p.settle,
			"finish": p.finish, "extend": p.extend, "cancel": p.cancel, "move": p.move, "adopt": p.adopt,
			"outage": p.outage, "watermark": p.moveWatermark, "loaded": p.loaded,
			"setting": p.setting, "acquire": p.acquire, "release": p.release, "advance": p.advance, "jump": p.jump, "": p.compare,
		} {
			actions[name] = func(rt *rapid.T) {
				p.a.tb, p.b.tb = rt, rt
				if p.follow(); !p.stalled {
					action(rt)
				}
			}
		}
		rt.Repeat(actions)
	})
}

const (
	// step is the distance of all times in a comparison. The present is kept in the first part of a step, and
	// all events are in the middle of one, or at least beyond that part, as where a breaker lets a probe
	// pass.
	step  = 20_000
	slack = step * 3 / 20
)

// A pair is an index and its oracle, in the same state.
type pair struct {
	a, b  *fixture
	base  int64 // where the present's step began, on the index's clock
	lanes int
	req   schedule.ClaimRequest // the last claim
	known map[string]schedule.Lease
	kept  int64 // when a lock was last kept for a waiter
	// The machine stood still for so long that the clock left the first part of the step: the comparison ends
	// here.
	stalled bool
}

func newPair(rt *rapid.T, index, oracle Harness) *pair {
	oracle.Advance(time.Duration(index.Now()-oracle.Now()) * time.Millisecond)
	p := &pair{a: newFixture(rt, index), b: newFixture(rt, oracle), known: make(map[string]schedule.Lease)}
	p.b.lanes = p.a.lanes
	p.base = p.a.Now()
	p.lanes = rapid.SampledFrom([]int{1, 3}).Draw(rt, "lanes")
	p.follow()
	first := p.a.wide() // an index learns the limit of lanes without one from claims
	first.Owner, first.LaneLimit = "first", 8
	p.compareClaim(first)
	return p
}

// follow puts the oracle's clock forward to the index's.
func (p *pair) follow() {
	now := p.a.Now()
	if d := now - p.b.Now(); d > 0 {
		p.b.pass(time.Duration(d) * time.Millisecond)
	}
	early := schedule.KeepForWaiter.Milliseconds() / 2
	p.stalled = p.stalled || now > p.base+slack || p.kept != 0 && now > p.kept+early
}

// at returns the middle of the n-th step from now; 0 is the next event, -1 the last one.
func (p *pair) at(n int) int64 { return p.base + int64(n)*step + step/2 }

func (p *pair) due(rt *rapid.T) int64 { return p.at(rapid.IntRange(-3, 3).Draw(rt, "due")) }

func (p *pair) ref(rt *rapid.T) schedule.Ref {
	n := rapid.IntRange(1, modelIDs).Draw(rt, "id")
	return schedule.Ref{ID: idOf(2_000_000 + n), Lane: p.a.lanes[n%p.lanes]}
}

func (p *pair) item(rt *rapid.T) schedule.Item {
	ref := p.ref(rt)
	item := schedule.Item{ID: ref.ID, Lane: ref.Lane, Due: p.when(rt), Retry: rapid.Bool().Draw(rt, "retry")}
	if rapid.Bool().Draw(rt, "locked") {
		item.Lock = lockOf(ref.ID)
	}
	item.Forced = rapid.IntRange(0, 4).Draw(rt, "forced") == 0
	return item
}

func (p *pair) token(rt *rapid.T, id string) string {
	tokens := []string{"foreign", "adopted"}
	if l, ok := p.known[id]; ok {
		tokens = append(tokens, l.Token, l.Token)
	}
	return rapid.SampledFrom(tokens).Draw(rt, "token")
}

// both calls the operation on both sides and compares the replies.
func both[T any](p *pair, name string, call func(f *fixture) (T, error)) T {
	p.a.Helper()
	a, err := call(p.a)
	p.a.no(err)
	b, err := call(p.b)
	p.b.no(err)
	if diff := cmp.Diff(b, a); diff != "" {
		p.a.Fatalf("%s differs (-oracle +index):\n%s", name, diff)
	}
	return a
}

// waits makes no difference between the places of an item that is not leased: when items are promoted is the
// index's.
func waits(positions []schedule.Position) []schedule.Position {
	for i := range positions {
		if positions[i].Place == schedule.Ready {
			positions[i].Place = schedule.Delayed
		}
	}
	return positions
}

func (p *pair) ensure(rt *rapid.T) {
	var items []schedule.Item
	for range rapid.IntRange(1, 10).Draw(rt, "items") {
		item := p.item(rt)
		if !slices.ContainsFunc(items, func(i schedule.Item) bool { return i.ID == item.ID }) {
			items = append(items, item)
		}
	}
	both(p, "ensure", func(f *fixture) ([]schedule.Position, error) { return waits(f.ensure(items...)), nil })
}

func (p *pair) claim(rt *rapid.T) {
	req := p.a.wide()
	req.Owner = rapid.SampledFrom([]string{"one", "two"}).Draw(rt, "owner")
	req.Max = rapid.SampledFrom([]int{0, 256}).Draw(rt, "max")
	req.Lease, req.LaneLimit = rapid.SampledFrom([]time.Duration{1, 3}).Draw(rt, "lease")*step*time.Millisecond+step/2*time.Millisecond, 8
	// So much of a step that what happens in the middle of this one is within the lead, and of the next one
	// not.
	req.Lead = rapid.SampledFrom([]time.Duration{0, step / 2 * time.Millisecond}).Draw(rt, "lead")
	if p.lanes == 1 {
		req.Max = rapid.IntRange(0, 10).Draw(rt, "max of one lane")
		req.MaxUncertain = rapid.SampledFrom([]int{0, 2, 256}).Draw(rt, "max uncertain")
		req.MaxTimingOut = rapid.SampledFrom([]int{0, 1, 256}).Draw(rt, "max timing out")
	}
	for _, lane := range p.a.lanes[:p.lanes] {
		if rapid.IntRange(0, 2).Draw(rt, "allow") == 0 {
			req.Allowances = append(req.Allowances, schedule.Allowance{
				Lane: lane, Credit: rapid.IntRange(0, 5).Draw(rt, "credit"), Ahead: rapid.IntRange(0, 5).Draw(rt, "ahead"),
			})
		}
	}
	p.req = req
	p.compareClaim(req)
}

// compareClaim claims on both sides and compares the leases as a set, and times by the step they are in.
func (p *pair) compareClaim(req schedule.ClaimRequest) {
	p.a.Helper()
	var untils [2]map[string]int64
	got := both(p, "claim", func(f *fixture) (schedule.Claimed, error) {
		c := f.claim(req)
		c.Seq, c.Now = 0, 0
		if c.Next != 0 {
			c.Next = max(p.round(c.Next), p.round(p.base)) // what has passed is now, whichever of such events is named
		}
		c.Leases = sorted(c.Leases)
		side, ends := &untils[0], make(map[string]int64)
		if f == p.b {
			side = &untils[1]
		}
		for i := range c.Leases {
			ends[c.Leases[i].ID] = c.Leases[i].Until
			c.Leases[i].Until = p.round(c.Leases[i].Until)
		}
		*side = ends
		if len(c.Leases) == 0 {
			c.Leases = nil
		}
		return c, nil
	})
	for _, l := range got.Leases {
		l.Until = untils[0][l.ID]
		p.known[l.ID] = l
	}
}

// round returns the step that a time is in.
func (p *pair) round(at int64) int64 {
	if at == 0 {
		return 0
	}
	return (at - p.base + 1000*step) / step
}

func (p *pair) again(rt *rapid.T) {
	if p.req.Token == "" {
		rt.Skip("nothing was claimed yet")
	}
	p.compareClaim(p.req)
}

func (p *pair) settlement(rt *rapid.T, item schedule.Item, token string) schedule.Settlement {
	s := schedule.Settlement{
		Item: item, Token: token,
		Outcome: schedule.Outcome(rapid.IntRange(int(schedule.Ack), int(schedule.Bury)).Draw(rt, "outcome")),
		Signal:  schedule.Signal(rapid.IntRange(int(schedule.NoSignal), int(schedule.Unanswered)).Draw(rt, "signal")),
		Won:     rapid.Bool().Draw(rt, "won"),
	}
	s.Due, s.Retry = p.when(rt), rapid.Bool().Draw(rt, "retry")
	s.Forced = rapid.IntRange(0, 4).Draw(rt, "forced") == 0
	if rapid.IntRange(0, 4).Draw(rt, "hold") == 0 {
		s.HoldUntil = p.due(rt)
	}
	return s
}

func (p *pair) settle(rt *rapid.T) {
	item := p.item(rt)
	s := p.settlement(rt, item, p.token(rt, item.ID))
	both(p, "settle", func(f *fixture) ([]schedule.Settled, error) { return f.settle(s), nil })
}

// finish settles a part of what was claimed, in one call.
func (p *pair) finish(rt *rapid.T) {
	var settlements []schedule.Settlement
	for n := 1; n <= modelIDs; n++ {
		if l, ok := p.known[idOf(2_000_000+n)]; ok && rapid.Bool().Draw(rt, "finish") {
			settlements = append(settlements, p.settlement(rt, l.Item, l.Token))
			delete(p.known, l.ID)
		}
	}
	both(p, "settle", func(f *fixture) ([]schedule.Settled, error) { return f.settle(settlements...), nil })
}

func (p *pair) extend(rt *rapid.T) {
	ref := p.ref(rt)
	e := schedule.Extension{Ref: ref, Token: p.token(rt, ref.ID), Until: p.due(rt)}
	both(p, "extend", func(f *fixture) ([]bool, error) { return f.Index.Extend(f.ctx, []schedule.Extension{e}) })
}

func (p *pair) cancel(rt *rapid.T) {
	ref := p.ref(rt)
	both(p, "cancel", func(f *fixture) ([]schedule.Position, error) {
		positions, err := f.Index.Cancel(f.ctx, []schedule.Ref{ref})
		return waits(positions), err
	})
}

func (p *pair) move(rt *rapid.T) {
	m := schedule.Movement{Ref: p.ref(rt), Due: p.when(rt), Forced: rapid.IntRange(0, 3).Draw(rt, "forced") == 0}
	both(p, "move", func(f *fixture) ([]schedule.Moved, error) { return f.Index.Move(f.ctx, []schedule.Movement{m}) })
}

func (p *pair) moveTo(ref schedule.Ref, due int64) {
	p.a.Helper()
	m := []schedule.Movement{{Ref: ref, Due: due}}
	both(p, "move", func(f *fixture) ([]schedule.Moved, error) { return f.Index.Move(f.ctx, m) })
}

func (p *pair) adopt(rt *rapid.T) {
	a := schedule.Adoption{Item: p.item(rt), Token: "adopted", Until: p.at(rapid.IntRange(0, 3).Draw(rt, "until"))}
	both(p, "adopt", func(f *fixture) (any, error) { return nil, f.Index.Adopt(f.ctx, []schedule.Adoption{a}) })
}

func (p *pair) setting(rt *rapid.T) {
	s := schedule.LaneSetting{
		Lane:    p.a.lanes[rapid.IntRange(0, p.lanes-1).Draw(rt, "lane")],
		Limit:   rapid.IntRange(0, 6).Draw(rt, "limit"),
		Version: int64(rapid.IntRange(1, 5).Draw(rt, "version")),
	}
	if rapid.IntRange(0, 2).Draw(rt, "pause") == 0 {
		s.PausedUntil = p.due(rt)
	}
	s.Every = p.every(rt)
	both(p, "set lanes", func(f *fixture) (any, error) { return nil, f.Index.SetLanes(f.ctx, []schedule.LaneSetting{s}) })
}

// every draws a time between two attempts by which the next token is there in the middle of a step.
func (p *pair) every(rt *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{0, 0, step / 2, step * 3 / 2}).Draw(rt, "every") * time.Millisecond
}

// outage lets as many attempts of a lane end without an answer as open a breaker, if some did so in an
// earlier step.
func (p *pair) outage(rt *rapid.T) {
	lane := p.a.lanes[rapid.IntRange(0, p.lanes-1).Draw(rt, "lane")]
	signal := rapid.SampledFrom([]schedule.Signal{schedule.TimedOut, schedule.Unanswered}).Draw(rt, "signal")
	var adoptions []schedule.Adoption
	var settlements []schedule.Settlement
	for n := range schedule.BreakerAttempts {
		item := schedule.Item{ID: idOf(3_000_000 + n), Lane: lane, Due: p.at(-1)}
		adoptions = append(adoptions, schedule.Adoption{Item: item, Token: "outage", Until: p.at(0)})
		settlements = append(settlements, schedule.Settlement{Item: item, Token: "outage", Outcome: schedule.Ack, Signal: signal})
	}
	both(p, "adopt", func(f *fixture) (any, error) { return nil, f.Index.Adopt(f.ctx, adoptions) })
	both(p, "settle", func(f *fixture) ([]schedule.Settled, error) { return f.settle(settlements...), nil })
}

func (p *pair) acquire(rt *rapid.T) {
	ref := p.ref(rt)
	r := schedule.LockRequest{
		Lock: lockOf(ref.ID), ID: ref.ID, Lane: ref.Lane, Token: p.token(rt, ref.ID),
		Until: p.at(rapid.IntRange(0, 2).Draw(rt, "until")),
	}
	both(p, "acquire", func(f *fixture) ([]schedule.LockReply, error) {
		replies, err := f.Index.Acquire(f.ctx, []schedule.LockRequest{r})
		for i := range replies {
			replies[i].HeldUntil = p.round(replies[i].HeldUntil)
		}
		return replies, err
	})
}

func (p *pair) release(rt *rapid.T) {
	ref := p.ref(rt)
	u := schedule.Unlock{Lock: lockOf(ref.ID), ID: ref.ID, Token: p.token(rt, ref.ID)}
	for range rapid.IntRange(0, 4).Draw(rt, "others") {
		id := p.ref(rt).ID
		if rapid.Bool().Draw(rt, "gone") {
			u.Gone = append(u.Gone, id)
		} else {
			u.Skip = append(u.Skip, id)
		}
	}
	before := p.a.Now()
	named := both(p, "release", func(f *fixture) ([]schedule.Waiter, error) { return f.Index.Release(f.ctx, []schedule.Unlock{u}) })
	if named[0].ID != "" {
		p.kept = before
	}
}

// advance lets whole steps pass, and moves what was reaped to a time that both sides know.
func (p *pair) advance(rt *rapid.T) {
	var refs []schedule.Ref
	for n := 1; n <= modelIDs; n++ {
		refs = append(refs, schedule.Ref{ID: idOf(2_000_000 + n), Lane: p.a.lanes[n%p.lanes]})
	}
	before := p.a.lookup(refs...)
	steps := int64(rapid.IntRange(1, 3).Draw(rt, "steps"))
	p.a.pass(time.Duration(steps) * step * time.Millisecond)
	p.base += steps * step
	p.kept = 0
	if p.follow(); p.stalled {
		return
	}
	reap := p.a.wide()
	reap.Owner, reap.Max, reap.LaneLimit = "reaper", 0, 8
	reaped := [2]int{p.a.claim(reap).Reaped, p.b.claim(reap).Reaped}
	if reaped[0] != reaped[1] {
		rt.Fatalf("the index reaped %d, the oracle %d", reaped[0], reaped[1])
	}
	for i, position := range p.a.lookup(refs...) {
		if before[i].Place == schedule.Leased && position.Place != schedule.Leased {
			p.moveTo(refs[i], p.at(i%3-2))
		}
	}
}

// compare compares what both sides hold.
func (p *pair) compare(*rapid.T) {
	both(p, "scan", func(f *fixture) ([]schedule.Found, error) {
		all := f.scan(0)
		for i := range all {
			if all[i].Place == schedule.Ready {
				all[i].Place = schedule.Delayed
			}
		}
		slices.SortFunc(all, func(a, b schedule.Found) int {
			if a.ID < b.ID {
				return -1
			}
			return 1
		})
		return all, nil
	})
	both(p, "lane states", func(f *fixture) ([]schedule.LaneState, error) {
		states := f.states(p.a.lanes[:p.lanes]...)
		for i := range states {
			s := &states[i]
			for _, at := range []*int64{&s.PausedUntil, &s.HeldUntil, &s.NextToken, &s.UnansweredSince, &s.ProbeAt} {
				*at = p.round(*at)
			}
			s.Fresh, s.Retries = 0, 0 // when items are promoted is the index's
		}
		return states, nil
	})
	both(p, "stats", func(f *fixture) ([]int64, error) {
		s := f.stats()
		c := s.Counters
		return []int64{
			s.Leased, s.Delayed + s.Ready, s.OpenBreakers, c["claimed"], c["acked"], c["rescheduled"], c["diverted"], c["buried"], c["reaped"], c["stale"],
		}, nil
	})
}
