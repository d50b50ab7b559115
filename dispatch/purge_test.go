package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// leftovers are rows that are not kept any more.
type leftovers struct {
	dispatch.Store
	mu                 sync.Mutex
	activity, sessions int
	// largest is the most that was asked for at once.
	largest int
	broken  bool
	// overstay is for how long a callback has been kept too long.
	overstay time.Duration
}

// part takes at most limit of what is left.
func (l *leftovers) part(left *int, limit int) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken && left == &l.sessions {
		return 0, errors.New("no room on the disk")
	}
	l.largest = max(l.largest, limit)
	n := min(*left, limit)
	*left -= n
	return n, nil
}

func (l *leftovers) PurgeActivity(_ context.Context, now int64, limit int) (int, error) {
	if now != time.Now().UnixMilli() {
		return 0, errors.New("by another clock")
	}
	return l.part(&l.activity, limit)
}

func (l *leftovers) PurgeSessions(_ context.Context, now int64, limit int) (int, error) {
	if now != time.Now().UnixMilli() {
		return 0, errors.New("by another clock")
	}
	return l.part(&l.sessions, limit)
}

func (l *leftovers) Overstays(_ context.Context, r store.Retention) (map[string]int64, error) {
	return map[string]int64{"callback": r.Callbacks - l.overstay.Milliseconds()}, nil
}

// The metrics say for how long the oldest row of each kind has been kept too long.
func TestOverstaysAreMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		left := &leftovers{overstay: 90 * time.Minute}
		newFixture(t, always(200, ""), func(o *dispatch.Options) {
			o.Registerer, left.Store, o.Store = registry, o.Store, left
		})
		time.Sleep(61 * time.Second)
		const name = "dispatcher_retention_overdue_seconds"
		err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP `+name+` For how long the oldest row that retention should have removed has outstayed it. 0: none has.
# TYPE `+name+` gauge
`+name+`{what="callback"} 5400
`+name+`{what="key"} 0
`+name+`{what="outcome"} 0
`+name+`{what="payload"} 0
`+name+`{what="version"} 0
`), name)
		if err != nil {
			t.Error(err)
		}
	})
}

// What is no longer kept goes within one run, in small batches, and the next run is seconds later:
// however much falls due, it is removed at the rate at which it comes. Trouble with one kind keeps no other.
func TestPurgeKeepsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left := &leftovers{activity: 500_000, sessions: 1001, broken: true}
		newFixture(t, always(200, ""), func(o *dispatch.Options) { left.Store, o.Store = o.Store, left })
		time.Sleep(6 * time.Second)
		left.mu.Lock()
		if left.activity != 0 || left.sessions != 1001 || left.largest > 5000 {
			t.Errorf("after the first run %d and %d are left, up to %d were removed at once",
				left.activity, left.sessions, left.largest)
		}
		left.broken, left.activity = false, 100_000
		left.mu.Unlock()
		time.Sleep(5 * time.Second)
		left.mu.Lock()
		defer left.mu.Unlock()
		if left.activity != 0 || left.sessions != 0 {
			t.Errorf("after the second run %d and %d are left", left.activity, left.sessions)
		}
	})
}
