package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// ofLanes are the codes that the list of lanes has as well.
var ofLanes = []string{
	control.BlockSQLDown, control.BlockNoWorker, control.BlockSendingHeld, control.BlockIndexUnanswered,
	control.BlockIndexRebuilding, control.BlockProjectPaused, control.BlockEndpointPaused,
	control.BlockEndpointOff, control.BlockLanePaused, control.BlockBreakerOpen, control.BlockRetryAfter,
	control.BlockRate, control.BlockConcurrency,
}

// Whatever keeps a callback is named first, with what it is, what can be done about it, and since when it
// stands; the lane that it waits in says the same.
func TestEveryHoldSaysSinceWhen(t *testing.T) {
	for _, code := range control.BlockCodes {
		t.Run(code, func(t *testing.T) {
			s, ok := situations[code]
			if !ok {
				t.Fatalf("no situation is %s", code)
			}
			with(s.answer, s.tweaks...).run(t, func(b *fixture) {
				h := s.comes(b)
				x := b.explain(h.id)
				if len(x.Blocking) == 0 || x.Blocking[0].Code != code {
					t.Fatalf("explained as %+v, want %s first", x, code)
				}
				first := x.Blocking[0]
				b.check(first.Since != 0, "since is not said")
				between(b, "since", first.Since, h.lo.UnixMilli(), h.hi.UnixMilli())
				said := x.Summary != "" && !strings.HasPrefix(x.Summary, " ")
				b.check(said && first.Detail != "" && first.Cure != "", "told as %q, %+v", x.Summary, first)
				if slices.Contains(ofLanes, code) {
					b.wantHold(h.id, first)
				}
			})
		})
	}
}

func (b *fixture) explain(id string) control.Explanation {
	b.Helper()
	synctest.Wait()
	return must(b.engine.Explain(b.Context(), project, id))
}

// first is what keeps a callback before all else.
func (b *fixture) first(id string) control.Block {
	b.Helper()
	if x := b.explain(id); len(x.Blocking) > 0 {
		return x.Blocking[0]
	}
	return control.Block{}
}

// codes are what keeps a callback, in order.
func (b *fixture) codes(id string) string {
	b.Helper()
	var codes []string
	for _, block := range b.explain(id).Blocking {
		codes = append(codes, block.Code)
	}
	return strings.Join(codes, " ")
}

// wantHold demands of the lane of a callback that it is held by what keeps that one.
func (b *fixture) wantHold(id string, want control.Block) {
	b.Helper()
	f := store.LaneFilter{Keys: []string{b.get(id).Lane}, Limit: 10}
	lanes := must(b.engine.Lanes(b.Context(), project, f))
	b.is("lanes", len(lanes), 1)
	holds := lanes[0].Holds(b.engine.Now())
	if len(holds) == 0 || lanes[0].Why(b.engine.Now()) != want.Code {
		b.Fatalf("the lane is held by %+v, want %s first", holds, want.Code)
	}
	if want.Code == control.BlockRate || want.Code == control.BlockConcurrency {
		want.Since = lanes[0].OldestDue // which may be that of one in flight
	}
	got := holds[0]
	b.check(got.Since == want.Since && got.Until == want.Until && got.Detail != "" && got.Cure != "",
		"the lane is held by %+v, want what explain says: %+v", got, want)
}

// Sending is held only where all processes that could send hold it: as long as one does not, nothing keeps a
// callback.
func TestOneOfTwoThatHoldsKeepsNothing(t *testing.T) {
	with(nil, onlyAPI).run(t, func(b *fixture) {
		held := b.beside("held", onHold)
		began := soon(0)
		other := b.beside("other")
		later()
		far := b.accept(in(time.Hour)).ID
		keptBy := func(when, want string) {
			t.Helper()
			for _, asked := range []*fixture{b, held, other} {
				b.is(when, asked.codes(far), want)
			}
		}
		keptBy("with a process that sends", control.BlockNotDue)
		b.ends("succeeded", time.Minute, b.accept(accept.Submission{}).ID)
		other.engine.BeginDrain() // what drains claims nothing more
		keptBy("with none but one that holds", control.BlockSendingHeld+" "+control.BlockNotDue)
		x := b.explain(far)
		b.check(x.NextAt == 0 && x.Blocking[0].Since == began &&
			strings.HasPrefix(x.Summary, "Sending is held"), "held: %+v", x)
		held.stopRun()
		b.is("with no worker", b.codes(far), control.BlockNoWorker+" "+control.BlockNotDue)
	})
}

// A worker that died is missed since it was last seen; where there never was one, since the callback was
// accepted.
func TestWithoutAWorkerThatRuns(t *testing.T) {
	with(nil, onlyAPI).run(t, func(b *fixture) {
		accepted := later().UnixMilli()
		id := b.accept(accept.Submission{}).ID
		missing := func(when string, since int64) control.Block {
			t.Helper()
			first := b.first(id)
			b.check(first.Code == control.BlockNoWorker && first.Since == since, "%s: %+v, want since %d",
				when, first, since)
			return first
		}
		later()
		first := missing("of none that ever ran", accepted)
		b.check(strings.Contains(first.Detail, "ever"), "of none that ever ran: %+v", first)
		b.wantHold(id, first)
		seen := soon(0)
		b.ok(b.db.ReportDispatcher(b.Context(),
			store.Dispatcher{Name: "killed", Workers: 8, StartedAt: seen, SeenAt: seen}))
		b.is("with a worker that was just seen", b.codes(id), "")
		time.Sleep(control.DispatcherSilence + time.Millisecond)
		missing("of one that died", seen)
		// The purge removes rows of processes that are gone for a day.
		must(b.db.PurgeDispatchers(b.Context(), soon(3*24*time.Hour), 100))
		missing("of one that died long ago", seen)
		b.pause(store.Forever)
		b.is("paused, and without a worker", b.codes(id),
			control.BlockNoWorker+" "+control.BlockProjectPaused)
	})
}

// A process that commits nothing of its own finds out that SQL only reads; it does not take workers for gone
// that cannot report.
func TestSQLThatOnlyReads(t *testing.T) {
	with(nil, onlyAPI).run(t, func(b *fixture) {
		b.beside("worker")
		later() // until the index was filled for the first time
		far := b.accept(in(time.Hour)).ID
		b.is("while all is well", b.codes(far), control.BlockNotDue)
		time.Sleep(time.Minute)
		b.set(fail(errDown), "Ping", "ReportDispatcher", "Commit")
		began := soon(0)
		first := b.first(far)
		b.check(first.Code == control.BlockSQLDown && first.Since == began,
			"of SQL that does not commit: %+v", first)
		time.Sleep(time.Minute)
		b.is("a minute later", b.first(far), first)
		b.is("next", b.explain(far).NextAt, 0)
		b.set(nil, "Ping", "ReportDispatcher", "Commit")
		time.Sleep(10 * time.Second)
		b.is("when SQL commits again", b.codes(far), control.BlockNotDue)
	})
}

// An index that was lost keeps everything since that was found, also before a rebuild could begin.
func TestAnIndexThatWasLost(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		far := b.accept(in(time.Hour)).ID
		later()
		b.set(fail(errDown), "NextGeneration")
		b.ok(b.index.Reset(b.Context(), 0, 99))
		found := soon(0)
		time.Sleep(time.Minute)
		b.is("kept by", b.first(far).Code, control.BlockIndexRebuilding)
		between(b, "since", b.first(far).Since, found, found+5000)
		b.set(nil, "NextGeneration")
		time.Sleep(10 * time.Second)
		b.is("when it is filled again", b.codes(far), control.BlockNotDue)
	})
}

// Each hold of a lane is told with its own reason, and not with that of the one that lasts longest.
func TestHoldsHaveTheirOwnReasons(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		ep := b.endpoint(control.EndpointChange{})
		by := func(reason string) store.Actor { return store.Actor{Name: "operator", Reason: reason} }
		must(b.engine.PauseLane(b.Context(), project, ep.LaneKey(), soon(time.Hour), by("lane")))
		must(b.engine.PauseEndpoint(b.Context(), project, ep.ID, store.Forever, by("endpoint")))
		x := b.explain(b.acceptTo(ep, accept.Submission{}).ID).Blocking
		b.check(len(x) == 2 && strings.Contains(x[0].Detail, ": endpoint") &&
			x[1].Detail == "The lane is paused.", "explained as %+v", x)
	})
}
