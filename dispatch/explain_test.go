package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A hold is what a test expects of a situation: what keeps the callback, and since when, at the earliest and
// at the latest.
type hold struct {
	b      *fixture
	id     string
	lo, hi time.Time
}

// since expects a time, or little later: what happens then takes a while to be noticed.
func (b *fixture) since(id string, at time.Time) hold {
	return hold{b, id, at, at.Add(500 * time.Millisecond)}
}

// situations make, for each code, what it is said of. What they return is looked at when all has come to
// rest.
var situations = map[string]func(t *testing.T) hold{
	control.BlockAttempting:      whileAttempted,
	control.BlockSQLDown:         whileSQLFails,
	control.BlockNoWorker:        withoutWorker,
	control.BlockSendingHeld:     whileAllHold,
	control.BlockIndexUnanswered: whileIndexFails,
	control.BlockIndexRebuilding: whileRebuilding,
	control.BlockProjectPaused:   whileProjectPaused,
	control.BlockEndpointPaused:  whileEndpointPaused,
	control.BlockEndpointOff:     whileDisabled,
	control.BlockEndpointDeleted: whileDeleted,
	control.BlockLanePaused:      whileLanePaused,
	control.BlockNotDue:          afterAFailure,
	control.BlockOrder:           behindAnother,
	control.BlockBreakerOpen:     whileBreakerOpen,
	control.BlockRetryAfter:      whileAskedToWait,
	control.BlockRate:            atTheRate,
	control.BlockConcurrency:     inAFullLane,
	control.BlockLock:            withoutItsLock,
	control.BlockIndexMissing:    whileMissing,
}

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
	t.Parallel()
	for _, code := range control.BlockCodes {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			make, ok := situations[code]
			if !ok {
				t.Fatalf("no situation is %s", code)
			}
			synctest.Test(t, func(t *testing.T) {
				h := make(t)
				x := h.b.explain(h.id)
				if len(x.Blocking) == 0 || x.Blocking[0].Code != code {
					t.Fatalf("explained as %+v, want %s first", x, code)
				}
				first := x.Blocking[0]
				if at := time.UnixMilli(first.Since); first.Since == 0 || at.Before(h.lo) || at.After(h.hi) {
					t.Errorf("%s since %s, want %s to %s; now is %s",
						code, at.UTC(), h.lo.UTC(), h.hi.UTC(), time.Now().UTC())
				}
				said := x.Summary != "" && !strings.HasPrefix(x.Summary, " ")
				if first.Detail == "" || first.Cure == "" || !said {
					t.Errorf("%s is told as %q, %+v", code, x.Summary, first)
				}
				if slices.Contains(ofLanes, code) {
					h.b.wantHold(h.id, first)
				}
			})
		})
	}
}

func (b *fixture) explain(id string) control.Explanation {
	b.t.Helper()
	synctest.Wait()
	x, err := b.engine.Explain(b.t.Context(), store.DefaultProject, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return x
}

// wantHold demands of the lane of a callback that it is held by what keeps that one.
func (b *fixture) wantHold(id string, want control.Block) {
	b.t.Helper()
	key := b.get(id).Lane
	f := store.LaneFilter{Keys: []string{key}, Limit: 10}
	lanes, err := b.engine.Lanes(b.t.Context(), store.DefaultProject, f)
	if err != nil || len(lanes) != 1 {
		b.t.Fatalf("lane %s: %v, %+v", key, err, lanes)
	}
	holds := lanes[0].Holds(b.engine.Now())
	if len(holds) == 0 || lanes[0].Why(b.engine.Now()) != want.Code {
		b.t.Fatalf("the lane is held by %+v, want %s first", holds, want.Code)
	}
	if want.Code == control.BlockRate || want.Code == control.BlockConcurrency {
		want.Since = lanes[0].OldestDue // which may be that of one in flight
	}
	got := holds[0]
	if got.Since != want.Since || got.Until != want.Until || got.Detail == "" || got.Cure == "" {
		b.t.Errorf("the lane is held by %+v, want what explain says: %+v", got, want)
	}
}
