package index

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Each shard is given what it lacks, from where it stands; what it has is not given to it again.
func TestEachShardIsLoadedFromWhereItStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UnixMilli()
		s := newShelf(schedule.Watermark{At: now + 200_000, Loaded: now + 200_000}, schedule.Watermark{At: now + 100_000, Loaded: now + 50_000}, schedule.Watermark{At: schedule.Forever, Loaded: schedule.Forever})
		sql := new(ledger)
		sql.fill(2100, now+1, 1000)
		l := newLoading(t, s, sql)
		if err := l.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		// 600 are due within the horizon, a third of them in each shard. The third shard held everything.
		if got := s.counts(); !slices.Equal(got, []int{134, 183, 0}) {
			t.Errorf("given: %v", got)
		}
		for shard, m := range s.marks {
			if m.At-m.Now > 600_000 || m.At-m.Now < 599_000 || m.Loaded != m.At {
				t.Errorf("shard %d: %+v", shard, m)
			}
		}
		if lag := l.lag(); lag > 1 {
			t.Errorf("the lag is %g s", lag)
		}
	})
}

// A shard that is away keeps no other from its part, and is loaded from where it stood when it is back.
func TestAShardThatIsAwayIsLoadedLater(t *testing.T) {
	for _, when := range []string{"from the beginning", "in the middle"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := time.Now().UnixMilli()
				stands := schedule.Watermark{At: now + 1000, Loaded: now + 1000}
				s, sql := newShelf(stands, stands, stands), new(ledger)
				sql.fill(3000, now+1001, 100)
				l := newLoading(t, s, sql)
				broken := errors.New("refused")
				s.away[1] = broken
				if when == "in the middle" {
					s.away[1] = nil
					sql.before = func(page int) {
						s.mu.Lock()
						defer s.mu.Unlock()
						if page == 2 {
							s.away[1] = broken
						}
					}
				}
				if err := l.look(t.Context()); !errors.Is(err, broken) {
					t.Errorf("a run with a shard that is away: %v", err)
				}
				if got := s.counts(); got[0] != 1000 || got[2] != 1000 || got[1] == 1000 {
					t.Errorf("given: %v", got)
				}
				if s.marks[0].Loaded != s.marks[0].At || s.marks[2].Loaded != s.marks[2].At || s.marks[1].Loaded != stands.Loaded {
					t.Errorf("marks: %+v", s.marks)
				}
				sql.before = nil
				delete(s.away, 1)
				l.e.health.indexDown.Store(false)
				time.Sleep(time.Second)
				if err := l.look(t.Context()); err != nil {
					t.Error(err)
				}
				if got := s.counts(); !slices.Equal(got, []int{1000, 1000, 1000}) || s.marks[1].Loaded != s.marks[1].At {
					t.Errorf("given in the end: %v; %+v", got, s.marks[1])
				}
			})
		})
	}
}

// What is noted on the way leaves out the time of the last row: more of it may be on the next page.
func TestProgressIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UnixMilli()
		s, sql := newShelf(schedule.Watermark{At: now, Loaded: now}), new(ledger)
		sql.fill(5500, now+300_000, 0)
		sql.before = func(int) { time.Sleep(1500 * time.Millisecond) }
		l := newLoading(t, s, sql)
		if err := l.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		notes := s.notes[0]
		if len(notes) < 3 || notes[len(notes)-1] != s.marks[0].At {
			t.Errorf("notes: %v, the watermark is %d", notes, s.marks[0].At)
		}
		for _, n := range notes[:len(notes)-1] {
			if n != now+300_000-1 {
				t.Errorf("noted that all is loaded until %d; rows of %d were on the way", n, now+300_000)
			}
		}
		if got := s.counts()[0]; got != 5500 {
			t.Errorf("given: %d", got)
		}
		if n := sql.leases.Load(); n < 3 {
			t.Errorf("the lease was asked for %d times in 9 s", n)
		}
	})
}

// Whoever has lost the lease, or whose watermark was moved by another, stops, and notes nothing that it has not loaded.
func TestALoaderThatIsReplacedStops(t *testing.T) {
	for _, what := range []string{"the lease is another's", "the watermark was moved"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := time.Now().UnixMilli()
				s, sql := newShelf(schedule.Watermark{At: now, Loaded: now}), new(ledger)
				sql.fill(6000, now+1000, 10)
				l := newLoading(t, s, sql)
				sql.before = func(page int) {
					time.Sleep(3 * time.Second)
					if page != 3 {
						return
					}
					if what == "the lease is another's" {
						sql.refuse.Store(true)
						return
					}
					s.mu.Lock()
					s.marks[0].Loader = "another"
					s.mu.Unlock()
				}
				if err := l.look(t.Context()); err != nil {
					t.Error(err)
				}
				if m := s.marks[0]; m.Loaded >= now+60_000 || s.counts()[0] >= 6000 {
					t.Errorf("given %d, and noted %+v", s.counts()[0], m)
				}
			})
		})
	}
}

// While something is being looked after that loading needs, there is none.
func TestLoadingWaits(t *testing.T) {
	for what, spoil := range map[string]func(*Index){
		"SQL is down":          func(e *Index) { e.health.sqlDown.Store(true) },
		"the index is down":    func(e *Index) { e.health.indexDown.Store(true) },
		"the index is rebuilt": func(e *Index) { e.generation.rebuilding.Store(true) },
		"the index is foreign": func(e *Index) { e.generation.foreign.Store(7) },
	} {
		s, sql := newShelf(schedule.Watermark{At: 1, Loaded: 1}), new(ledger)
		l := newLoading(t, s, sql)
		spoil(l.e)
		if err := l.look(t.Context()); err != nil || s.marks[0].At != 1 || sql.leases.Load() != 0 {
			t.Errorf("%s: %v, %+v, %d leases", what, err, s.marks[0], sql.leases.Load())
		}
	}
}
