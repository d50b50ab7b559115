// Package memq implements the index in this process: heaps and maps under one mutex.
//
// It is the index of an embedded dispatcher, and the model with which the index on Redis is compared. It
// keeps every promise of package schedule. It has one shard, and its clock is this machine's.
//
// Nothing survives the end of the process: the dispatcher fills the index from SQL at each start. Processes
// cannot share it, and it cannot be rolled back, so Seq is always zero. A lane keeps a small record (its
// health and its concurrency) until the next Reset, or until an audit finds that it was unused for a day.
//
// A claim of n items takes O(n log m) with m items in the index, plus the items that it promotes and reaps,
// whose number is bounded. An index of a million items takes about a quarter of a gigabyte.
package memq

import (
	"context"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Options configure an index. The zero value is ready for use.
type Options struct {
	// Now is the clock that decides what is due; nil means time.Now. If it goes back by at most 5 s, the
	// index's clock stands still. It follows a larger step.
	Now func() time.Time
}

// An Index is one shard in memory. All methods may be called from any goroutine. If the context has ended,
// they do nothing and return its error. They wait for nothing but the mutex.
//
// Every operation on the shard runs through do or locked, which hold the mutex. An operation calls the other
// unexported methods, under the mutex.
type Index struct {
	readNow func() time.Time
	hints   chan int

	mu         sync.Mutex
	clock      int64 // Unix milliseconds at the start of the present or the last operation
	skew       int64 // the steady clock minus the wall clock: see tick
	call       int64 // number of the present or the last operation
	generation int64 // the generation that the last Reset gave
	wanted     int64 // the generation in SQL, as SetGeneration said
	closed     bool  // between Reset and Open

	slots  slotTable
	items  map[key]*item
	delay  heap[timed]
	leases heap[timed] // by their end on the steady clock
	ready  int         // the items in the ready lists of all lanes

	lanes    map[int64]*lane
	runnable [classes]heap[ranked] // by health, so that lanes that time out never hide those that answer
	blocked  heap[ranked]          // lanes with ready items, by the end of their pause
	stopped  heap[ranked]          // lanes with ready items that a hold, breaker or rate stops, by its end
	virtual  int64                 // the virtual time of the lane that was served last
	breakers int                   // lanes whose breaker is open
	limit    int                   // LaneLimit of the last claim; zero: no claim yet

	mark    mark              // the watermark: see horizon.go
	claims  map[string]*batch // the last claim of each owner
	locks   map[string]*lock
	endings heap[ending]

	// announced is the next event that the last claim's reply, or a later hint, announced; zero: none.
	announced int64
	woken     bool             // a lane became runnable after the last claim, so a hint is due
	count     map[string]int64 // the counters of Stats
}

// New returns an empty index that is open for claims. Its generation and the wanted one are 0.
func New(o Options) *Index {
	if o.Now == nil {
		o.Now = time.Now
	}
	ix := &Index{readNow: o.Now, hints: make(chan int, 1)}
	ix.clear()
	return ix
}

// clear empties the index. It keeps the clock and the generations.
func (ix *Index) clear() {
	ix.slots = slotTable{}
	ix.items = make(map[key]*item)
	ix.delay, ix.leases, ix.ready = nil, nil, 0
	ix.lanes = make(map[int64]*lane)
	ix.runnable, ix.blocked, ix.stopped, ix.virtual, ix.breakers, ix.limit = [classes]heap[ranked]{}, nil,
		nil, 0, 0, 0
	ix.mark = mark{at: schedule.Forever, loaded: schedule.Forever}
	ix.claims = make(map[string]*batch)
	ix.locks = make(map[string]*lock)
	ix.endings = nil
	ix.announced, ix.woken, ix.skew = 0, false, 0
	ix.count = map[string]int64{"claimed": 0, "acked": 0, "rescheduled": 0, "diverted": 0, "buried": 0,
		"reaped": 0, "stale": 0}
}

// Shards returns 1.
func (*Index) Shards() int { return 1 }

// SetGeneration sets the generation that the index must have. While it has another, every operation but Reset
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

// Hints carries 0 when an item may be claimed earlier than the last claim's reply announced. A hint only
// saves waiting time: a claimer that misses it polls within schedule.MaxIdle.
func (ix *Index) Hints() <-chan int { return ix.hints }

// Run waits until the context ends and returns nil: an embedded index needs no subscription.
func (*Index) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// do executes one operation on the shard under the mutex, and then sends a hint if the operation brought an
// event nearer. If the generation is not the wanted one, it returns schedule.ErrLost.
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

// locked executes f under the mutex, whatever generation the shard has.
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

// each executes one operation on every element and returns the results of f. If one element fails the check,
// nothing is done.
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

// moment returns a due time as the index keeps it: zero and less become now, and times after
// schedule.MaxTime, which no callback has, become schedule.MaxTime.
func (ix *Index) moment(due int64) int64 {
	if due <= 0 {
		return ix.clock
	}
	return min(due, schedule.MaxTime)
}

// next returns the time of the shard's next event, or zero. The head of the delay set counts as much earlier
// as early says, so that a claim with a Lookahead finds several items.
func (ix *Index) next(early int64) int64 {
	next := int64(0)
	earlier := func(at int64) {
		if next == 0 || at < next {
			next = at
		}
	}
	if len(ix.delay) > 0 {
		earlier(max(ix.delay[0].at-early, 1))
	}
	if len(ix.blocked) > 0 {
		earlier(ix.blocked[0].at)
	}
	if len(ix.stopped) > 0 {
		earlier(ix.wall(ix.stopped[0].at))
	}
	if len(ix.leases) > 0 {
		earlier(ix.wall(ix.leases[0].at))
	}
	return next
}

// hint wakes the claimer if the shard's next event is earlier than the announced one, or if a lane became
// runnable, unless the shard is closed. do calls it after every operation that succeeded.
func (ix *Index) hint() {
	if ix.closed {
		return
	}
	next := ix.next(0)
	earlier := next != 0 && (ix.announced == 0 || next < ix.announced)
	if earlier {
		ix.announced = next
	}
	if !earlier && !ix.woken {
		return
	}
	ix.woken = false
	select {
	case ix.hints <- 0:
	default: // a hint is in the channel already; one is enough
	}
}

// put adds a record for the item. The caller then puts the item into a place.
func (ix *Index) put(k key, id string, lane int64) *item {
	it := ix.slots.add()
	it.key, it.id, it.lane = k, id, ix.lane(lane)
	it.lane.items++
	ix.items[k] = it
	return it
}

// drop removes the record of an item that is in no place.
func (ix *Index) drop(it *item) {
	delete(ix.items, it.key)
	it.lane.items--
	it.lane.rested = ix.steady()
	ix.slots.drop(it)
}

// postpone puts an item that is in no place into the delay set, or drops it if due is beyond the watermark.
func (ix *Index) postpone(it *item, due int64) {
	if ix.beyond(due) {
		ix.drop(it)
		return
	}
	it.due, it.place = due, uint8(schedule.Delayed)
	ix.delay.push(timed{due, it.key.hi, it})
}

// lease puts an item that is in no place among the leases, until a time of the steady clock. The lease counts
// towards the lane's concurrency.
func (ix *Index) lease(it *item, token string, until int64) {
	it.token, it.until, it.place = token, until, uint8(schedule.Leased)
	ix.leases.push(timed{until, it.key.hi, it})
	it.lane.inflight++
}

// leasedUnder returns the item if it is leased under the token, or nil.
func (ix *Index) leasedUnder(id, token string) *item {
	if it := ix.find(id); it != nil && it.is(schedule.Leased) && it.token == token {
		return it
	}
	return nil
}

// setCounted makes a lease count towards its lane's concurrency, or not, if it exists under its token. While
// the lane's breaker is open, a lease goes on counting until it is settled: otherwise a claim could lease a
// second probe.
func (ix *Index) setCounted(l *schedule.LeaseRef, counts bool) {
	it := ix.leasedUnder(l.ID, l.Token)
	if it == nil || it.kind.has(isUncounted) != counts {
		return
	}
	if counts {
		it.kind &^= isUncounted
		it.lane.inflight++
	} else if !it.lane.breakerOpen() {
		it.kind |= isUncounted
		it.lane.inflight--
	}
	ix.refresh(it.lane)
}

// detach takes an item out of its place and updates its lane.
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
		it.token, it.until, it.movedTo, it.kind = "", 0, 0, it.kind.afterLease()&^isUncounted
		ix.refresh(it.lane)
	case schedule.Absent:
	}
	it.place = uint8(schedule.Absent)
}

// Clock returns the clock that decides what is due, in Unix milliseconds. It works in every state of the
// index.
func (ix *Index) Clock(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return ix.readNow().UnixMilli(), nil
}

// tick reads the clock at the start of an operation.
//
// There are two clocks. Due times and the ends of pauses are wall times. The ends of leases, locks and holds
// are kept on the steady clock. When the wall clock jumps, the steady clock does not, so these keep their
// remaining time. A step back of more than StepBack is a jump, and so is a step forward of more than ClockGap
// since the last operation. After a smaller step back the clock stands still. All arguments and replies are
// wall times. docs/adr/0006 has the reasons; the index on Redis does the same (redisq/lua/include/begin.lua).
func (ix *Index) tick() {
	last := ix.clock
	now := ix.readNow().UnixMilli()
	if now-last > schedule.ClockGap.Milliseconds() || now < last-schedule.StepBack.Milliseconds() {
		if last > 0 {
			ix.skew += last - now
		}
		ix.announced = 0 // the announced time belongs to the clock before the jump
	} else {
		now = max(now, last)
	}
	ix.clock = now
}

// steady returns the steady clock.
func (ix *Index) steady() int64 { return ix.clock + ix.skew }

// steadily converts a wall time to the steady clock; wall converts back.
func (ix *Index) steadily(at int64) int64 {
	return min(max(min(max(at, 0), schedule.MaxTime)+ix.skew, 0), schedule.MaxTime)
}

func (ix *Index) wall(at int64) int64 { return min(max(at-ix.skew, 0), schedule.MaxTime) }
