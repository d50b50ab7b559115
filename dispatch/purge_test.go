package dispatch_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
)

// leftovers are rows that are not kept any more.
type leftovers struct {
	dispatch.Store
	mu                 sync.Mutex
	activity, sessions int
	// largest is the most that was asked for at once.
	largest int
	broken  bool
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
