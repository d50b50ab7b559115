// Package memq is the index in this process: heaps and maps under one mutex.
//
// It is the default of a dispatcher that runs alone, and the model that the index on Redis is compared with.
// It keeps every promise of package schedule, with one shard and a clock that is this machine's.
//
// Nothing is kept when the process ends: its owner fills it from SQL at each start. It cannot be shared
// between processes, and it cannot be rolled back, so that Seq is always zero. A lane that was ever seen
// keeps a small record (its health and its concurrency) until the next Reset or until an audit finds that it
// has rested for a day.
//
// A claim of n items is O(n log m) in the m items pending, apart from what it promotes and reaps, which is
// bounded; an index of a million items takes about a quarter of a gigabyte.
package memq

import (
	"context"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Options of an index. The zero value is ready for use.
type Options struct {
	// Now is the clock that decides what is due; nil means time.Now. Where it goes back by at most 5 s the
	// index's clock stands still; a larger step is followed.
	Now func() time.Time
}

// An Index is one shard in memory. All methods may be called from any goroutine. A context that has ended
// makes them return its error and do nothing; otherwise they never wait for anything but each other.
type Index struct {
	readNow func() time.Time
	hints   chan int

	mu         sync.Mutex
	clock      int64 // when the present operation began, or the last one, in Unix milliseconds
	skew       int64 // the steady clock less the wall clock: see tick
	call       int64 // the number of the present operation, or of the last one
	generation int64 // what the index has
	wanted     int64 // what SQL says it should have
	closed     bool  // between Reset and Open

	shelf  shelf
	items  map[key]*item
	delay  heap[timed]
	leases heap[timed] // by their end on the steady clock
	ready  int

	lanes    map[int64]*lane
	runnable [classes]heap[ranked] // by health, so that lanes that hang never hide those that answer
	blocked  heap[ranked]          // lanes with ready items, by the end of their pause
	holding  heap[ranked]          // lanes with ready items, by the end of their hold on the steady clock
	virtual  int64                 // the virtual time of the lane that was served last
	breakers int                   // lanes whose breaker is open
	limit    int                   // LaneLimit of the last claim; zero: there was none yet

	mark    mark              // how far ahead items are held: see horizon.go
	claims  map[string]*batch // the last claim of each owner
	locks   map[string]*lock
	endings heap[ending]

	// what the last claim's reply, or a later hint, announced as the next event; zero: nothing
	armed int64
	woken bool             // a lane became runnable after the last claim
	count map[string]int64 // what was done since the index was built, by name
}

// New returns an empty index of generation 0, which is also the one it expects, and open for claims.
func New(o Options) *Index {
	if o.Now == nil {
		o.Now = time.Now
	}
	ix := &Index{readNow: o.Now, hints: make(chan int, 1)}
	ix.clear()
	return ix
}

// clear empties everything but the clock and the generations.
func (ix *Index) clear() {
	ix.shelf = shelf{}
	ix.items = make(map[key]*item)
	ix.delay, ix.leases, ix.ready = nil, nil, 0
	ix.lanes = make(map[int64]*lane)
	ix.runnable, ix.blocked, ix.holding, ix.virtual, ix.breakers, ix.limit = [classes]heap[ranked]{}, nil,
		nil, 0, 0, 0
	ix.mark = mark{at: schedule.Forever, loaded: schedule.Forever}
	ix.claims = make(map[string]*batch)
	ix.locks = make(map[string]*lock)
	ix.endings = nil
	ix.armed, ix.woken, ix.skew = 0, false, 0
	ix.count = map[string]int64{"claimed": 0, "acked": 0, "rescheduled": 0, "diverted": 0, "buried": 0,
		"reaped": 0, "stale": 0}
}

// Shards returns 1.
func (*Index) Shards() int { return 1 }

// SetGeneration says which generation is the right one. While the index has another every operation but Reset
// and Generation returns schedule.ErrLost.
func (ix *Index) SetGeneration(generation int64) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.wanted = generation
}

// Generation returns the generation that the last Reset gave, or zero.
func (ix *Index) Generation(ctx context.Context, shard int) (generation int64, err error) {
	err = ix.locked(ctx, "generation", shard, func() error {
		generation = ix.generation
		return nil
	})
	return generation, err
}

// Hints carries 0 whenever something may be claimed earlier than the last claim's reply said.
func (ix *Index) Hints() <-chan int { return ix.hints }

// Run waits until the context ends, and returns nil: hints need no subscription here.
func (*Index) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// do does one operation on the shard, unless its generation is foreign, and hints where it brought an event
// nearer.
func (ix *Index) do(ctx context.Context, operation string, shard int, f func() error) error {
	return ix.locked(ctx, operation, shard, func() error {
		if ix.generation != ix.wanted {
			return schedule.ErrLost
		}
		ix.tick()
		ix.call++
		if err := f(); err != nil {
			return err
		}
		ix.hint()
		return nil
	})
}

// locked does something with the shard, whatever generation it has.
func (ix *Index) locked(ctx context.Context, operation string, shard int, f func() error) error {
	if err := schedule.ValidateShard(operation, shard, 1); err != nil {
		return err
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	return f()
}

// each does one operation on every element, if all of them pass the check, and returns what f answered.
func each[E, R any](ctx context.Context, ix *Index, operation string, elements []E, check func(E) error,
	f func(*E) R) ([]R, error) {
	if err := schedule.Validate(operation, elements, check); err != nil {
		return nil, err
	}
	replies := make([]R, len(elements))
	err := ix.do(ctx, operation, 0, func() error {
		for i := range elements {
			replies[i] = f(&elements[i])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return replies, nil
}

// moment returns a time as the index keeps it: zero and less mean now, and nothing is later than
// schedule.MaxTime.
func (ix *Index) moment(due int64) int64 {
	if due <= 0 {
		return ix.clock
	}
	return min(due, schedule.MaxTime)
}

// next returns the time of the shard's next event, or zero. That an item becomes due counts so much earlier.
func (ix *Index) next(lead int64) int64 {
	next := int64(0)
	earlier := func(at int64) {
		if next == 0 || at < next {
			next = at
		}
	}
	if len(ix.delay) > 0 {
		earlier(max(ix.delay[0].at-lead, 1))
	}
	if len(ix.blocked) > 0 {
		earlier(ix.blocked[0].at)
	}
	if len(ix.holding) > 0 {
		earlier(ix.wall(ix.holding[0].at))
	}
	if len(ix.leases) > 0 {
		earlier(ix.wall(ix.leases[0].at))
	}
	return next
}

// hint tells the claimer, if it cannot know yet, that there is something earlier than what it was last told.
// Every operation that may bring an event nearer ends with it.
func (ix *Index) hint() {
	if ix.closed {
		return
	}
	next := ix.next(0)
	earlier := next != 0 && (ix.armed == 0 || next < ix.armed)
	if earlier {
		ix.armed = next
	}
	if !earlier && !ix.woken {
		return
	}
	ix.woken = false
	select {
	case ix.hints <- 0:
	default: // one is waiting already, and says the same
	}
}

// put adds a record for the item; it is in no place yet.
func (ix *Index) put(k key, id string, lane int64) *item {
	it := ix.shelf.add()
	it.key, it.id, it.lane = k, id, ix.lane(lane)
	it.lane.items++
	ix.items[k] = it
	return it
}

// drop removes the record of an item that is in no place any more.
func (ix *Index) drop(it *item) {
	delete(ix.items, it.key)
	it.lane.items--
	it.lane.rested = ix.steady()
	ix.shelf.drop(it)
}

// postpone puts an item that is in no place into the delay set, or drops it if that is beyond the watermark.
func (ix *Index) postpone(it *item, due int64) {
	if ix.beyond(due) {
		ix.drop(it)
		return
	}
	it.due, it.place = due, uint8(schedule.Delayed)
	ix.delay.push(timed{due, it.key.hi, it})
}

// lease puts an item that is in no place among the leases, until that time of the steady clock. It counts.
func (ix *Index) lease(it *item, token string, until int64) {
	it.token, it.until, it.place = token, until, uint8(schedule.Leased)
	ix.leases.push(timed{until, it.key.hi, it})
	it.lane.inflight++
}

// leasedUnder returns the item if it is leased under that token, or nil.
func (ix *Index) leasedUnder(id, token string) *item {
	if it := ix.find(id); it != nil && it.is(schedule.Leased) && it.token == token {
		return it
	}
	return nil
}

// setCounted has a lease count towards its lane's concurrency, or not, if it is leased under its token. In a
// lane whose breaker is open a lease that counts goes on counting.
func (ix *Index) setCounted(l *schedule.LeaseRef, counts bool) {
	it := ix.leasedUnder(l.ID, l.Token)
	if it == nil || it.kind.has(isUncounted) != counts {
		return
	}
	if counts {
		it.kind &^= isUncounted
		it.lane.inflight++
	} else if !it.lane.open() {
		it.kind |= isUncounted
		it.lane.inflight--
	}
	ix.refresh(it.lane)
}

// detach takes an item out of its place, and lets its lane follow.
func (ix *Index) detach(it *item) {
	switch schedule.Place(it.place) {
	case schedule.Delayed:
		ix.delay.remove(int(it.pos))
	case schedule.Ready:
		it.lane.list(it).remove(int(it.pos))
		ix.ready--
		ix.refresh(it.lane)
	case schedule.Leased:
		ix.leases.remove(int(it.pos))
		if !it.kind.has(isUncounted) {
			it.lane.inflight--
		}
		it.token, it.until, it.moved, it.kind = "", 0, 0, it.kind.push()&^isUncounted
		ix.refresh(it.lane)
	case schedule.Absent:
	}
	it.place = uint8(schedule.Absent)
}

// Clock returns the clock that decides what is due, in Unix milliseconds, whatever state the index is in.
func (ix *Index) Clock(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return ix.readNow().UnixMilli(), nil
}

// tick reads the clock.
//
// There are two clocks. What is due, and until when a lane is paused, is told in wall time. How much is left
// of a lease, a lock or a hold is counted on the steady clock, which stands still where the wall clock jumps:
// what is left stays left. Callers hear and say wall time. docs/adr/0006 says why; the index on Redis does
// the same.
func (ix *Index) tick() {
	last := ix.clock
	now := ix.readNow().UnixMilli()
	if now-last > schedule.ClockGap.Milliseconds() || now < last-schedule.StepBack.Milliseconds() {
		if last > 0 {
			ix.skew += last - now
		}
		ix.armed = 0 // what was announced was never meant for this clock
	} else {
		now = max(now, last)
	}
	ix.clock = now
}

// steady returns the steady clock.
func (ix *Index) steady() int64 { return ix.clock + ix.skew }

// steadily and wall turn a time of one clock into one of the other.
func (ix *Index) steadily(at int64) int64 {
	return min(max(min(max(at, 0), schedule.MaxTime)+ix.skew, 0), schedule.MaxTime)
}

func (ix *Index) wall(at int64) int64 { return min(max(at-ix.skew, 0), schedule.MaxTime) }
