package memq

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/queuetest"
)

// TestMain sets a high number of random runs, because a call of this index takes microseconds.
func TestMain(m *testing.M) {
	queuetest.RandomRuns(1000)
	if testserver.Full() {
		queuetest.RandomRuns(20_000)
	}
	os.Exit(m.Run())
}

// harness returns an index whose clock moves only through Advance.
func harness(*testing.T) queuetest.Harness {
	var clock atomic.Int64
	clock.Store(time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC).UnixMilli())
	return queuetest.Harness{
		Index:   New(Options{Now: func() time.Time { return time.UnixMilli(clock.Load()) }}),
		Now:     clock.Load,
		Advance: func(d time.Duration) { clock.Add(d.Milliseconds()) },
		Full:    testserver.Full(),
	}
}

func TestIndex(t *testing.T) {
	t.Parallel()
	queuetest.Run(t, harness)
	queuetest.Transcripts(t, "../queuetest/testdata/*.txt", harness, nil)
	queuetest.Transcripts(t, "testdata/*.txt", harness, map[string]queuetest.Operation{
		"hinted": hinted, "kept": kept, "damage": damage, "owners": owners,
	})
}

func TestRandomOperations(t *testing.T) {
	t.Parallel()
	queuetest.Random(t, harness(t), nil)
}

func TestManyEndpointsFailAndComeBack(t *testing.T) {
	t.Parallel()
	endpoints := 300
	if testserver.Full() {
		endpoints = 10_000
	}
	queuetest.Recovery(t, harness(t), endpoints)
}

// hinted takes a hint and reports whether there was one.
func hinted(s *queuetest.Transcript, _ []string) (any, error) {
	select {
	case <-s.Index.Hints():
		return "yes", nil
	default:
		return "no", nil
	}
}

// kept reports how many elements the index has in memory.
func kept(s *queuetest.Transcript, _ []string) (any, error) {
	ix := s.Index.(*Index)
	counted := 0
	for _, l := range ix.lanes {
		counted += l.inflight
	}
	return fmt.Sprintf("%d items in %d slots, %d delayed, %d ready, %d leased of which %d count, %d lanes, "+
		"%d locks with %d endings, %d owners",
		len(ix.items), len(ix.slots.items)-len(ix.slots.free), len(ix.delay), ix.ready, len(ix.leases),
		counted, len(ix.lanes),
		len(ix.locks), len(ix.endings), len(ix.claims)), nil
}

// owners claims for more owners than the index remembers. It reports whether the first and the last are
// remembered.
func owners(s *queuetest.Transcript, _ []string) (any, error) {
	ix := s.Index.(*Index)
	for n := range schedule.MaxOwners + 50 {
		s.Advance(time.Millisecond)
		_, err := ix.Claim(s.Context(), 0, schedule.ClaimRequest{Owner: fmt.Sprint(n), Token: "t",
			Lease: time.Minute, LaneLimit: 1})
		if err != nil {
			return nil, err
		}
	}
	return fmt.Sprintf("%d are known; the first: %t, the last: %t",
		len(ix.claims), ix.claims["0"] != nil, ix.claims[fmt.Sprint(schedule.MaxOwners+49)] != nil), nil
}

// damages are ways to damage an item that an audit must repair.
var damages = map[string]func(ix *Index, it *item){
	"says-it-is-elsewhere":    func(_ *Index, it *item) { it.place = it.place%3 + 1 },
	"says-it-is-absent":       func(_ *Index, it *item) { it.place = uint8(schedule.Absent) },
	"sits-at-another-place":   func(_ *Index, it *item) { it.pos = 77_777 },
	"lost-its-place":          func(ix *Index, it *item) { h, _ := ix.heapOf(it); h.remove(int(it.pos)) },
	"is-not-found-by-its-id":  func(ix *Index, it *item) { delete(ix.items, it.key) },
	"is-of-a-lane-with-more":  func(_ *Index, it *item) { it.lane.inflight += 3 },
	"is-of-a-lane-below-none": func(_ *Index, it *item) { it.lane.inflight = -9 },
	"does-not-count-as-leased": func(ix *Index, it *item) {
		ix.setCounted(&schedule.LeaseRef{Ref: schedule.Ref{ID: it.id}, Token: it.token}, false)
	},
}

// damage applies the listed damages to the item of the first name.
func damage(s *queuetest.Transcript, words []string) (any, error) {
	ix := s.Index.(*Index)
	it := ix.find(s.ID(words[0]))
	for _, how := range words[1:] {
		if damages[how] == nil {
			return nil, errors.New("there is no damage " + how)
		}
		damages[how](ix, it)
	}
	return nil, nil
}

func TestZeroOptionsUseTheWallClock(t *testing.T) {
	t.Parallel()
	before := time.Now().UnixMilli()
	s, err := New(Options{}).Stats(t.Context(), 0)
	if after := time.Now().UnixMilli(); err != nil || s.Now < before || s.Now > after {
		t.Errorf("now is %d, %v, not between %d and %d", s.Now, err, before, after)
	}
}

// number is an entry for tests of the heap. It stores its position.
type number struct {
	at  int
	pos *int
}

var _ entry[number] = number{}

func (a number) before(b number) bool { return a.at < b.at }
func (a number) setIndex(i int)       { *a.pos = i }

func TestHeapKeepsItsOrderAndItsPlaces(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var h heap[number]
	for range 200_000 {
		switch n := rng.IntN(100); {
		case len(h) == 0 || n < 45:
			h.push(number{rng.IntN(1000), new(int)})
		case n < 65:
			i := rng.IntN(len(h))
			h.set(i, number{rng.IntN(1000), h[i].pos})
		case n < 80:
			i := rng.IntN(len(h))
			if want := h[i]; h.remove(i) != want {
				t.Fatalf("removing %d removed another", i)
			}
		default:
			least := slices.MinFunc(h, func(a, b number) int { return a.at - b.at })
			if got := h.remove(0); got.at != least.at {
				t.Fatalf("the head is %d, the least is %d", got.at, least.at)
			}
		}
		if len(h) > 60 {
			h = h[:0]
		}
		for i, e := range h {
			if *e.pos != i {
				t.Fatalf("the entry at %d says that it sits at %d", i, *e.pos)
			}
		}
	}
}

// FuzzKey compares keys with the ULID library: both accept the same texts, and keys have the order of their
// texts.
func FuzzKey(f *testing.F) {
	for _, line := range transcript.Inputs(f, "testdata/seeds/ids.txt") {
		a, b, _ := strings.Cut(line, " | ")
		f.Add(a, b)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, okX := parseKey(a)
		y, okY := parseKey(b)
		if want, err := ulid.ParseStrict(a); okX != (err == nil && want.String() == a) {
			t.Errorf("%q is an id: %t, the library reads %s, %v", a, okX, want, err)
		}
		if okX && okY && cmp.Or(cmp.Compare(x.hi, y.hi), cmp.Compare(x.lo, y.lo)) != cmp.Compare(a, b) {
			t.Errorf("%s and %s are ordered as %v and %v", a, b, x, y)
		}
	})
}
