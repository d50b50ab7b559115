package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A loading is a loader with its shards and its SQL, in a bubble.
type loading struct {
	*testing.T
	*loader
	s   *shelf
	sql *ledger
	now int64
}

// loads tests a loader of shards that are loaded so far ahead, of n rows that begin at a time and are so far
// apart, in ms.
func loads(t *testing.T, ahead []int64, n int, from, apart int64, test func(l loading)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UnixMilli()
		s, sql := &shelf{away: map[int]error{}, notes: make([][]int64, len(ahead))}, new(ledger)
		for _, loaded := range ahead {
			s.marks = append(s.marks, schedule.Watermark{At: now + loaded, Loaded: now + loaded})
			s.given = append(s.given, map[string]bool{})
		}
		sql.fill(n, now+from, apart)
		e := idle(sql, s, func(o *Options) { o.Horizon = 10 * time.Minute })
		e.generation.apply("match")
		test(loading{t, e.loader, s, sql, now})
	})
}

// looks has the loader look once, and checks the error.
func (l loading) looks(want error) {
	l.Helper()
	if err := l.step(l.Context()); !errors.Is(err, want) || want == nil && err != nil {
		l.Errorf("a look: %v, want %v", err, want)
	}
}

// Each shard is given what it lacks, from where it stands; what it has is not given to it again.
func TestEachShardIsLoadedFromWhereItStands(t *testing.T) {
	loads(t, []int64{200_000, 100_000, 0}, 2100, 1, 1000, func(l loading) {
		l.s.marks[1].Loaded = l.now + 50_000
		l.s.marks[2] = schedule.Watermark{At: schedule.Forever, Loaded: schedule.Forever}
		l.looks(nil)
		// 600 are due within the horizon, a third of them in each shard. The third shard held everything.
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

// A shard that is away keeps no other from its part, and is loaded from where it stood when it is back.
func TestAShardThatIsAwayIsLoadedLater(t *testing.T) {
	for when, page := range map[string]int{"from the beginning": 1, "in the middle": 2} {
		t.Run(when, func(t *testing.T) {
			loads(t, []int64{1000, 1000, 1000}, 3000, 1001, 100, func(l loading) {
				broken := errors.New("refused")
				l.sql.before = func(read int) {
					if read == page {
						l.s.set(func() { l.s.away[1] = broken })
					}
				}
				if page == 1 {
					l.s.away[1] = broken
				}
				l.looks(broken)
				if got := l.s.counts(); got[0] != 1000 || got[2] != 1000 || got[1] == 1000 {
					t.Errorf("given: %v", got)
				}
				if m := l.s.marks; m[0].Loaded != m[0].At || m[2].Loaded != m[2].At ||
					m[1].Loaded != l.now+1000 {
					t.Errorf("marks: %+v", m)
				}
				l.sql.before = nil
				delete(l.s.away, 1)
				l.ix.reach.apply("all")
				time.Sleep(time.Second)
				l.looks(nil)
				if got := l.s.counts(); !slices.Equal(got, []int{1000, 1000, 1000}) ||
					l.s.marks[1].Loaded != l.s.marks[1].At {
					t.Errorf("given in the end: %v; %+v", got, l.s.marks[1])
				}
			})
		})
	}
}

// What is noted on the way leaves out the time of the last row: more of it may be on the next page.
func TestProgressIsNoted(t *testing.T) {
	loads(t, []int64{0}, 5500, 300_000, 0, func(l loading) {
		l.sql.before = func(int) { time.Sleep(1500 * time.Millisecond) }
		l.looks(nil)
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
			t.Errorf("given: %d; the lease was asked for %d times in 9 s", got, leases)
		}
	})
}

// A loader that has lost the lease, or whose watermark was moved by another, stops, and notes nothing that it
// has not loaded.
func TestALoaderThatIsReplacedStops(t *testing.T) {
	for what, replace := range map[string]func(l loading){
		"the lease is another's":  func(l loading) { l.sql.refuse.Store(true) },
		"the watermark was moved": func(l loading) { l.s.set(func() { l.s.marks[0].Loader = "another" }) },
	} {
		t.Run(what, func(t *testing.T) {
			loads(t, []int64{0}, 6000, 1000, 10, func(l loading) {
				l.sql.before = func(page int) {
					time.Sleep(3 * time.Second)
					if page == 3 {
						replace(l)
					}
				}
				l.looks(nil)
				if m := l.s.marks[0]; m.Loaded >= l.now+60_000 || l.s.counts()[0] >= 6000 {
					t.Errorf("given %d, and noted %+v", l.s.counts()[0], m)
				}
			})
		})
	}
}

// While something is being looked after that loading needs, there is none.
func TestLoadingWaits(t *testing.T) {
	for what, spoil := range map[string]func(*Index){
		"SQL is down":          func(e *Index) { e.sqlDown.Store(true) },
		"the index is down":    func(e *Index) { e.reach.apply("failed") },
		"the index is lost":    func(e *Index) { e.generation.checkSoon() },
		"the index is rebuilt": func(e *Index) { e.generation.apply("begun") },
		"the index is foreign": func(e *Index) { e.generation.apply("left alone") },
	} {
		loads(t, []int64{0}, 0, 0, 0, func(l loading) {
			spoil(l.ix)
			l.looks(nil)
			if l.s.marks[0].At != l.now || l.sql.leases.Load() != 0 {
				t.Errorf("%s: %+v, %d leases", what, l.s.marks[0], l.sql.leases.Load())
			}
		})
	}
}

// fullPages is a store whose open rows do not end.
type fullPages struct{ Store }

func (fullPages) Open(_ context.Context, after store.Cursor, limit int) ([]store.OpenRow, error) {
	rows := make([]store.OpenRow, limit)
	for i := range rows {
		rows[i] = store.OpenRow{ID: "id", DueAt: after.DueAt + 1}
	}
	return rows, nil
}

// takesNothing is an index of one shard that answers, and takes nothing in.
type takesNothing struct{ *memq.Index }

func (takesNothing) Ensure(context.Context, []schedule.Item) ([]schedule.Position, error) {
	return nil, context.DeadlineExceeded
}

// A walk that a part of the index does not take is not said to have been taken: the next part of it waits.
func TestAWalkThatSomeShardsDoNotTake(t *testing.T) {
	e := idle(fullPages{}, takesNothing{memq.New(memq.Options{})})
	e.health.walk = &openWalk{span: span{until: schedule.Forever}}
	e.reach.apply("failed")
	e.reach.apply("some")
	if took, more := e.health.catchUp(t.Context(), e.health.indexOutage.failingSince); took || more {
		t.Errorf("took %t, and wants more: %t", took, more)
	}
}

// A sequence that falls within one generation is an index that went back in time. A rebuild begins it anew,
// and an index that cannot go back has none.
func TestShardVersionFallsOnlyWithinAGeneration(t *testing.T) {
	var seen ShardVersion
	for i, step := range []struct {
		generation, seq int64
		want            bool
	}{
		{1, 500, false}, // the first look
		{1, 500, false}, // nothing was written
		{1, 900, false},
		{1, 700, true},
		{1, 701, false}, // it is noticed once
		{2, 3, false},   // rebuilt
		{2, 2, true},
		{3, 0, false},
		{3, 0, false},
	} {
		if got := seen.Fell(step.generation, step.seq); got != step.want {
			t.Errorf("step %d, generation %d, sequence %d: got %t", i, step.generation, step.seq, got)
		}
	}
}

// someShards is an index of which only the answers of its shards to a probe are of interest.
type someShards struct {
	Schedule
	answers []error
}

func (s someShards) Shards() int { return len(s.answers) }

func (s someShards) Stats(_ context.Context, shard int) (schedule.Stats, error) {
	return schedule.Stats{}, s.answers[shard]
}

// An index is silent for the others only where no shard answers: one master of a Cluster that is away must
// not stop what is due in the shards of the others.
func TestOneShardAwayDoesNotSilenceTheIndex(t *testing.T) {
	away, lost := errors.New("refused"), fmt.Errorf("stats: %w", schedule.ErrLost)
	for _, c := range []struct {
		name     string
		answers  []error
		answered int
		lost     bool
		failed   bool
	}{
		{"all answer", []error{nil, nil}, 2, false, false},
		{"one is away", []error{nil, away, nil}, 2, false, true},
		{"all are away", []error{away, away}, 0, false, true},
		{"a lost one answers", []error{lost, nil}, 2, true, false},
		{"one is lost, one away", []error{lost, away}, 1, true, true},
	} {
		h := newHealth(&Index{o: Options{Schedule: someShards{answers: c.answers}}})
		answered, isLost, err := h.probeShards(t.Context())
		if answered != c.answered || isLost != c.lost || (err != nil) != c.failed {
			t.Errorf("%s: %d answered, lost %t, %v", c.name, answered, isLost, err)
		}
		h.reach.apply("failed")
		if err != nil {
			h.noteAnswers(answered)
		} else {
			h.reach.apply("all")
		}
		if want := c.failed && c.answered == 0; h.indexSilent() != want {
			t.Errorf("%s: silent is %t", c.name, !want)
		}
	}
}
