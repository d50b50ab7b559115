package index

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A fakeShards is an index of several shards with the operations of the loader. Lanes belong to the shards in
// turn.
type fakeShards struct {
	Schedule
	mu    sync.Mutex
	marks []schedule.Watermark
	down  map[int]error
	given []map[string]bool // by shard
	notes [][]int64         // by shard, the loaded times that were written
}

func (s *fakeShards) Shards() int { return len(s.marks) }

func (s *fakeShards) ShardOf(lane int64) int { return int(lane) % len(s.marks) }

func (s *fakeShards) SetGeneration(int64) {}

// set changes the state under the lock.
func (s *fakeShards) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *fakeShards) mark(shard int, change func(*schedule.Watermark)) (schedule.Watermark, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.down[shard]; err != nil {
		return schedule.Watermark{}, err
	}
	m := &s.marks[shard]
	m.Now = time.Now().UnixMilli()
	change(m)
	return *m, nil
}

func (s *fakeShards) Watermark(_ context.Context, shard int) (schedule.Watermark, error) {
	return s.mark(shard, func(*schedule.Watermark) {})
}

func (s *fakeShards) MoveWatermark(
	_ context.Context, shard int, a schedule.Advance,
) (schedule.Watermark, error) {
	return s.mark(shard, func(m *schedule.Watermark) {
		if m.Loader == a.After {
			m.At, m.Loader = m.Now+a.Horizon.Milliseconds(), a.Token
			m.Loaded = min(m.Loaded, m.At)
		}
	})
}

func (s *fakeShards) Loaded(
	_ context.Context, shard int, token string, until int64,
) (schedule.Watermark, error) {
	return s.mark(shard, func(m *schedule.Watermark) {
		s.notes[shard] = append(s.notes[shard], until)
		if m.Loader == token {
			m.Loaded = max(m.Loaded, min(m.At, until))
		}
	})
}

func (s *fakeShards) Ensure(_ context.Context, items []schedule.Item) ([]schedule.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed error
	for i := range items {
		shard := s.ShardOf(items[i].Lane)
		if err := s.down[shard]; err != nil {
			failed = err
			continue
		}
		s.given[shard][items[i].ID] = true
	}
	return make([]schedule.Position, len(items)), failed
}

// A fakeSQL is SQL with open rows in the order of their due times.
type fakeSQL struct {
	Store
	rows   []store.OpenRow
	pages  int
	before func(page int)
	leases atomic.Int64
	refuse atomic.Bool // refuses the lease
}

func (l *fakeSQL) TryLease(context.Context, string, string, int64, time.Duration) (bool, error) {
	l.leases.Add(1)
	return !l.refuse.Load(), nil
}

func (l *fakeSQL) OpenUntil(
	_ context.Context, after store.Cursor, until int64, limit int,
) ([]store.OpenRow, error) {
	l.pages++
	if l.before != nil {
		l.before(l.pages)
	}
	var page []store.OpenRow
	for _, r := range l.rows {
		if (r.DueAt > after.DueAt || r.DueAt == after.DueAt && r.ID > after.ID) && r.DueAt <= until &&
			len(page) < limit {
			page = append(page, r)
		}
	}
	return page, nil
}

// fill adds n rows, each due that much after the one before, in lanes of all shards in turn.
func (l *fakeSQL) fill(n int, from int64, apart int64) {
	for i := range n {
		l.rows = append(l.rows, store.OpenRow{ID: fmt.Sprintf("01K%023d", len(l.rows)), LaneID: int64(i + 1),
			DueAt: from + int64(i)*apart})
	}
}

// counts returns how many items each shard was given.
func (s *fakeShards) counts() []int {
	var n []int
	for _, given := range s.given {
		n = append(n, len(given))
	}
	return n
}
