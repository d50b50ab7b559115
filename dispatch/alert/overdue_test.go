package alert

import (
	"context"
	"slices"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// overdueStore has overdue lanes and a stop.
type overdueStore struct {
	Store
	lanes []store.OverdueLane
	stop  store.Stop
	more  bool
}

func (s *overdueStore) OverdueLanes(
	context.Context, store.Cursor, int64, int64,
) (store.OverduePage, error) {
	return store.OverduePage{Lanes: slices.Clone(s.lanes), More: s.more}, nil
}

func (s *overdueStore) Stop(context.Context) (store.Stop, error) { return s.stop, nil }

// An overdueTest evaluates an alert of oldest_due above 30 s, every 10 s.
type overdueTest struct {
	*testing.T
	overdueStore
	as  *Alerts
	now int64
}

func newOverdueTest(t *testing.T, due ...int64) *overdueTest {
	o := &overdueTest{T: t, now: 1_000_000}
	for i, before := range due {
		o.lanes = append(o.lanes, store.OverdueLane{OldestDue: o.now - before,
			Lane: store.Lane{ID: int64(i + 1), Project: "p", Key: string(rune('a' + i))}})
	}
	o.as = &Alerts{o: Options{Store: &o.overdueStore}}
	return o
}

// finds makes n evaluations, and checks what the last one finds: the time that the oldest one waits; 0:
// nothing.
func (o *overdueTest) finds(n int, lane string, want float64) {
	o.Helper()
	var found []finding
	for range n {
		v := &projectView{round: &round{as: o.as, now: o.now}, project: "p"}
		var err error
		found, err = v.oldestDue(o.Context(), &store.AlertWhen{Above: 30_000, Lane: lane})
		if err != nil {
			o.Fatal(err)
		}
		o.now += 10_000
	}
	got := 0.
	for _, f := range found {
		if !f.near {
			got = f.value
		}
	}
	if got != want {
		o.Errorf("after %d evaluations the oldest waits %v ms, want %v", n, got, want)
	}
}

// A stop does not make the alert fire, and the wait counts from its end. A firing lasts during a stop.
func TestAStopIsNoDelay(t *testing.T) {
	t.Parallel()
	o := newOverdueTest(t, 5_000)
	o.finds(4, "", 35_000)
	o.stop = store.Stop{At: o.now, Until: store.Forever}
	o.finds(100, "", 0)
	v := &projectView{round: &round{as: o.as, now: o.now}, project: "p"}
	found, err := v.oldestDue(t.Context(), &store.AlertWhen{Above: 30_000})
	if err != nil || len(found) != 1 || !found[0].near {
		t.Errorf("during a stop: %+v, %v", found, err)
	}
	o.now += 10_000
	o.stop = store.Stop{}
	o.finds(3, "", 0)
	o.finds(1, "", 40_000)
	o.lanes = nil
	o.finds(1, "", 0)
}

// After a time in which another process evaluated, a walk of several rounds begins again, and what it had
// found does not count. What it knows of pauses does.
func TestAnOldWalkIsForgotten(t *testing.T) {
	t.Parallel()
	o := newOverdueTest(t, 100_000, 100_000)
	o.lanes[1].PausedUntil = store.Forever
	o.finds(1, "", 100_000)
	o.lanes[1].PausedUntil = 0
	o.more = true
	o.finds(1, "", 110_000)
	other, paused := o.lanes[:1], o.lanes[1:]
	o.lanes, o.now = nil, o.now+forgetAfter.Milliseconds()
	o.finds(1, "", 0)
	o.lanes, o.more = paused, false
	o.finds(1, "", float64(o.now-1_000_000))
	o.lanes = other
	o.finds(1, "", 200_000)
}

// A pause of one lane is no delay of it either. The other lane counts as before.
func TestAPauseIsNoDelay(t *testing.T) {
	t.Parallel()
	o := newOverdueTest(t, 100_000, 5_000)
	o.lanes[0].PausedUntil = store.Forever
	o.finds(2, "", 0)
	o.finds(2, "", 35_000)
	o.lanes[0].PausedUntil = 0
	o.finds(1, "b", 45_000)
	o.finds(1, "a", 0)
	o.more = true // a walk of several rounds
	o.finds(1, "a", 0)
	o.finds(1, "a", 40_000)
	o.more = false
	o.finds(2, "a", 60_000)
}
