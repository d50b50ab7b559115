package index

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A loaderTest is a loader with its shards and its SQL, in a synctest bubble.
type loaderTest struct {
	*testing.T
	*loader
	s   *fakeShards
	sql *fakeSQL
	now int64
}

// runLoaderTest tests a loader whose shards are loaded that far ahead. SQL has n rows; the first is due at
// from, and each next one apart later. All times are in ms from now.
func runLoaderTest(t *testing.T, ahead []int64, n int, from, apart int64, test func(l loaderTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UnixMilli()
		s, sql := &fakeShards{down: map[int]error{}, notes: make([][]int64, len(ahead))}, new(fakeSQL)
		for _, loaded := range ahead {
			s.marks = append(s.marks, schedule.Watermark{At: now + loaded, Loaded: now + loaded})
			s.given = append(s.given, map[string]bool{})
		}
		sql.fill(n, now+from, apart)
		e := idleIndex(sql, s, func(o *Options) { o.Horizon = 10 * time.Minute })
		e.generation.apply("match")
		test(loaderTest{t, e.loader, s, sql, now})
	})
}

// wantStep makes a step of the loader and checks its error.
func (l loaderTest) wantStep(want error) {
	l.Helper()
	if err := l.step(l.Context()); !errors.Is(err, want) || want == nil && err != nil {
		l.Errorf("a step: %v, want %v", err, want)
	}
}

// Each shard is given the rows that it lacks, from its loaded time on, and no others.
func TestEachShardIsLoadedFromWhereItStands(t *testing.T) {
	runLoaderTest(t, []int64{200_000, 100_000, 0}, 2100, 1, 1000, func(l loaderTest) {
		l.s.marks[1].Loaded = l.now + 50_000
		l.s.marks[2] = schedule.Watermark{At: schedule.Forever, Loaded: schedule.Forever}
		l.wantStep(nil)
		// 600 rows are due within the horizon, a third of them in each shard. The third shard has everything.
		if got := l.s.counts(); !slices.Equal(got, []int{134, 183, 0}) {
			t.Errorf("given: %v", got)
		}
		for shard, m := range l.s.marks {
			if m.At-m.Now > 600_000 || m.At-m.Now < 599_000 || m.Loaded != m.At {
				t.Errorf("shard %d: %+v", shard, m)
			}
		}
		if lag := l.lag(); lag > 1 {
			t.Errorf("the lag is %g s", lag)
		}
	})
}

// A shard that does not answer keeps no other shard from its rows, and is loaded later from its loaded time.
func TestAShardThatIsDownIsLoadedLater(t *testing.T) {
	for when, page := range map[string]int{"from the beginning": 1, "in the middle": 2} {
		t.Run(when, func(t *testing.T) {
			runLoaderTest(t, []int64{1000, 1000, 1000}, 3000, 1001, 100, func(l loaderTest) {
				broken := errors.New("refused")
				l.sql.before = func(read int) {
					if read == page {
						l.s.set(func() { l.s.down[1] = broken })
					}
				}
				if page == 1 {
					l.s.down[1] = broken
				}
				l.wantStep(broken)
				if got := l.s.counts(); got[0] != 1000 || got[2] != 1000 || got[1] == 1000 {
					t.Errorf("given: %v", got)
				}
				if m := l.s.marks; m[0].Loaded != m[0].At || m[2].Loaded != m[2].At ||
					m[1].Loaded != l.now+1000 {
					t.Errorf("marks: %+v", m)
				}
				l.sql.before = nil
				delete(l.s.down, 1)
				l.ix.reach.apply("all")
				time.Sleep(time.Second)
				l.wantStep(nil)
				if got := l.s.counts(); !slices.Equal(got, []int{1000, 1000, 1000}) ||
					l.s.marks[1].Loaded != l.s.marks[1].At {
					t.Errorf("given in the end: %v; %+v", got, l.s.marks[1])
				}
			})
		})
	}
}

// The progress that is written leaves out the time of the last row: the next page may have more rows of that
// time.
func TestProgressIsNoted(t *testing.T) {
	runLoaderTest(t, []int64{0}, 5500, 300_000, 0, func(l loaderTest) {
		l.sql.before = func(int) { time.Sleep(1500 * time.Millisecond) }
		l.wantStep(nil)
		notes := l.s.notes[0]
		if len(notes) < 3 || notes[len(notes)-1] != l.s.marks[0].At {
			t.Errorf("notes: %v, the watermark is %d", notes, l.s.marks[0].At)
		}
		for _, n := range notes[:len(notes)-1] {
			if n != l.now+300_000-1 {
				t.Errorf("noted that all is loaded until %d; rows of %d were on the way", n, l.now+300_000)
			}
		}
		if got, leases := l.s.counts()[0], l.sql.leases.Load(); got != 5500 || leases < 3 {
			t.Errorf("given: %d; the lease was renewed %d times in 9 s", got, leases)
		}
	})
}

// A loader that has lost the lease, or whose watermark was moved by another one, stops. It marks nothing as
// loaded that it has not loaded.
func TestALoaderThatIsReplacedStops(t *testing.T) {
	for what, replace := range map[string]func(l loaderTest){
		"the lease is another's":  func(l loaderTest) { l.sql.refuse.Store(true) },
		"the watermark was moved": func(l loaderTest) { l.s.set(func() { l.s.marks[0].Loader = "another" }) },
	} {
		t.Run(what, func(t *testing.T) {
			runLoaderTest(t, []int64{0}, 6000, 1000, 10, func(l loaderTest) {
				l.sql.before = func(page int) {
					time.Sleep(3 * time.Second)
					if page == 3 {
						replace(l)
					}
				}
				l.wantStep(nil)
				if m := l.s.marks[0]; m.Loaded >= l.now+60_000 || l.s.counts()[0] >= 6000 {
					t.Errorf("given %d, and noted %+v", l.s.counts()[0], m)
				}
			})
		})
	}
}

// Nothing is loaded while SQL or the index recovers.
func TestLoadingWaits(t *testing.T) {
	for what, spoil := range map[string]func(*Index){
		"SQL is down":          func(e *Index) { e.sqlDown.Store(true) },
		"the index is down":    func(e *Index) { e.reach.apply("failed") },
		"the index is lost":    func(e *Index) { e.generation.checkSoon() },
		"the index is rebuilt": func(e *Index) { e.generation.apply("begun") },
		"the index is foreign": func(e *Index) { e.generation.apply("left alone") },
	} {
		runLoaderTest(t, []int64{0}, 0, 0, 0, func(l loaderTest) {
			spoil(l.ix)
			l.wantStep(nil)
			if l.s.marks[0].At != l.now || l.sql.leases.Load() != 0 {
				t.Errorf("%s: %+v, %d leases", what, l.s.marks[0], l.sql.leases.Load())
			}
		})
	}
}
