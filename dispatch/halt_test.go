package dispatch_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// codes are what keeps a callback, in order.
func (b *fixture) codes(id string) string {
	b.t.Helper()
	var codes []string
	for _, block := range b.explain(id).Blocking {
		codes = append(codes, block.Code)
	}
	return strings.Join(codes, " ")
}

// Sending is held only where all processes that could send hold it: as long as one does not, nothing keeps a
// callback.
func TestOneOfTwoThatHoldsKeepsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := api(t)
		held := b.beside("held", holds)
		began := time.Now()
		other := b.beside("other", sends)
		later()
		far := b.accept(in(time.Hour)).ID
		for _, asked := range []*fixture{b, held, other} {
			if got := asked.codes(far); got != control.BlockNotDue {
				t.Errorf("with a process that sends: kept by %q", got)
			}
		}
		if c := b.await(b.accept(accept.Submission{}).ID, time.Minute); c.State != store.Succeeded {
			t.Errorf("it is %s", c.State)
		}
		other.engine.BeginDrain() // what drains claims nothing more
		for _, asked := range []*fixture{b, held, other} {
			if got := asked.codes(far); got != control.BlockSendingHeld+" "+control.BlockNotDue {
				t.Errorf("with none but one that holds: kept by %q", got)
			}
		}
		x := b.explain(far)
		said := strings.HasPrefix(x.Summary, "Sending is held")
		if x.NextAt != 0 || x.Blocking[0].Since != began.UnixMilli() || !said {
			t.Errorf("held: %+v", x)
		}
		held.stopRun()
		if got := b.codes(far); got != control.BlockNoWorker+" "+control.BlockNotDue {
			t.Errorf("with no worker: kept by %q", got)
		}
	})
}

// A worker that died is missed since it was last seen; where there never was one, since the callback was
// accepted.
func TestWithoutAWorkerThatRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := api(t)
		accepted := later()
		id := b.accept(accept.Submission{}).ID
		later()
		first := b.explain(id).Blocking[0]
		if first.Code != control.BlockNoWorker || first.Since != accepted.UnixMilli() ||
			!strings.Contains(first.Detail, "ever") {
			t.Errorf("of none that ever ran: %+v", first)
		}
		b.wantHold(id, first)
		seen := time.Now().UnixMilli()
		killed := store.Dispatcher{Name: "killed", Workers: 8, StartedAt: seen, SeenAt: seen}
		b.ok(b.db.ReportDispatcher(t.Context(), killed))
		if got := b.codes(id); got != "" {
			t.Errorf("with a worker that was just seen: kept by %q", got)
		}
		time.Sleep(control.DispatcherSilence + time.Millisecond)
		if first := b.explain(id).Blocking[0]; first.Code != control.BlockNoWorker || first.Since != seen {
			t.Errorf("of one that died at %d: %+v", seen, first)
		}
		// The purge removes rows of processes that are gone for a day.
		b.must(b.db.PurgeDispatchers(t.Context(), time.Now().Add(3*24*time.Hour).UnixMilli(), 100))
		if first := b.explain(id).Blocking[0]; first.Code != control.BlockNoWorker || first.Since != seen {
			t.Errorf("of one that died long ago, at %d: %+v", seen, first)
		}
		b.must(b.engine.PauseProject(t.Context(), store.DefaultProject, store.Forever, operator))
		if got := b.codes(id); got != control.BlockNoWorker+" "+control.BlockProjectPaused {
			t.Errorf("paused, and without a worker: kept by %q", got)
		}
	})
}

// A process that commits nothing of its own finds out that SQL only reads; it does not take workers for gone
// that cannot report.
func TestSQLThatOnlyReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		b := newFixture(t, always(200, ""), faultySQL(sql), onlyAPI)
		b.beside("worker", sends)
		later() // until the index was filled for the first time
		far := b.accept(in(time.Hour)).ID
		if got := b.codes(far); got != control.BlockNotDue {
			t.Fatalf("while all is well: kept by %q", got)
		}
		time.Sleep(time.Minute)
		sql.set(fail(errDown), "Ping", "ReportDispatcher", "Commit")
		began := time.Now()
		first := b.explain(far).Blocking[0]
		if first.Code != control.BlockSQLDown || first.Since != began.UnixMilli() {
			t.Fatalf("of SQL that does not commit: %+v", first)
		}
		time.Sleep(time.Minute)
		if again := b.explain(far); again.Blocking[0] != first || again.NextAt != 0 {
			t.Errorf("a minute later: %+v, want %+v first", again, first)
		}
		sql.set(nil, "Ping", "ReportDispatcher", "Commit")
		time.Sleep(10 * time.Second)
		if got := b.codes(far); got != control.BlockNotDue {
			t.Errorf("when SQL commits again: kept by %q", got)
		}
	})
}

// An index that was lost keeps everything since that was found, also before a rebuild could begin.
func TestAnIndexThatWasLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		b := newFixture(t, always(200, ""), faultySQL(sql))
		far := b.accept(in(time.Hour)).ID
		later()
		sql.set(fail(errDown), "NextGeneration")
		b.ok(b.index.Reset(t.Context(), 0, 99))
		found := time.Now()
		time.Sleep(time.Minute)
		first := b.explain(far).Blocking[0]
		if first.Code != control.BlockIndexRebuilding || first.Since < found.UnixMilli() ||
			first.Since > found.Add(5*time.Second).UnixMilli() {
			t.Errorf("of an index that was lost at %d: %+v", found.UnixMilli(), first)
		}
		sql.set(nil, "NextGeneration")
		time.Sleep(10 * time.Second)
		if got := b.codes(far); got != control.BlockNotDue {
			t.Errorf("when it is filled again: kept by %q", got)
		}
	})
}

// Each hold of a lane is told with its own reason, and not with that of the one that lasts longest.
func TestHoldsHaveTheirOwnReasons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""))
		ep := b.endpoint(control.EndpointChange{})
		by := func(reason string) store.Actor { return store.Actor{Name: "operator", Reason: reason} }
		project, soon := store.DefaultProject, time.Now().Add(time.Hour).UnixMilli()
		b.must(b.engine.PauseLane(t.Context(), project, ep.LaneKey(), soon, by("lane")))
		b.must(b.engine.PauseEndpoint(t.Context(), project, ep.ID, store.Forever, by("endpoint")))
		x := b.explain(b.acceptTo(ep).ID)
		if len(x.Blocking) != 2 || !strings.Contains(x.Blocking[0].Detail, ": endpoint") ||
			x.Blocking[1].Detail != "The lane is paused." {
			t.Errorf("explained as %+v", x.Blocking)
		}
	})
}
