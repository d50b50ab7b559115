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
	asked              int
	broken             bool
}

// part takes at most limit of what is left.
func (l *leftovers) part(left *int, limit int) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken && left == &l.sessions {
		return 0, errors.New("no room on the disk")
	}
	l.asked++
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

// What is no longer kept goes a bounded batch at a time, a bounded number of times a minute; trouble with one kind keeps no other.
func TestPurgeIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left := &leftovers{activity: 50_000, sessions: 1001, broken: true}
		newFixture(t, always(200, ""), func(o *dispatch.Options) { left.Store, o.Store = o.Store, left })
		time.Sleep(61 * time.Second)
		left.mu.Lock()
		if left.activity != 30_000 || left.sessions != 1001 || left.asked != 100 {
			t.Errorf("after a minute %d and %d are left, %d times asked", left.activity, left.sessions, left.asked)
		}
		left.broken = false
		left.mu.Unlock()
		time.Sleep(2 * time.Minute)
		left.mu.Lock()
		defer left.mu.Unlock()
		if left.activity != 0 || left.sessions != 0 || left.asked > 100+100+51+7 {
			t.Errorf("after three minutes %d and %d are left, %d times asked", left.activity, left.sessions, left.asked)
		}
	})
}
