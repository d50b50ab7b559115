package relay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// A scan begins behind a row that was visible tailReach before the last completed scan began; a window
	// scan behind one that was visible windowReach before the last window or full scan; a full scan at the
	// first row.
	tailReach   = 2 * time.Second
	windowReach = time.Minute
	// Window and full scans are due after these times, or after costFactor times what the way to the tail
	// took. So they take a tenth of the time at most.
	windowEvery = 5 * time.Second
	fullEvery   = time.Minute
	costFactor  = 20
	// A scan ends after longestScan and twice its slowest read, so that the next one finds late rows also
	// while rows keep coming. A slow read passes dead rows: the scan then has time for the rows behind them.
	longestScan = 5 * time.Second
	// slowRead is the time of a read that passes many dead rows. Its page alone takes less.
	slowRead = 5 * time.Second
	// stayedPause is the least pause after a scan in which rows stayed.
	stayedPause = time.Second
	// maxStayed is how many rows may stay in a scan before it ends.
	maxStayed = 100
	// youngest is the least age of a row that MinAge waits for. A younger one has a wrong time.
	youngest = -time.Minute
)

// A session is the use of one connection. Positions end with it: another server may number rows differently.
type session struct {
	*reader
	conn Conn
	// page is the context of work that a shutdown does not interrupt.
	page   context.Context
	marks  marks
	parked parked
	// problem is why a row was parked or stayed last.
	problem string
	// prev is the start of the last completed scan, prevWide that of the last window or full scan. Zero:
	// there was none.
	prev, prevWide time.Time
	// scanAt, windowAt and fullAt are when the next scans are due.
	scanAt, windowAt, fullAt time.Time
	// rest is the last count of rows behind a scan, and countAt when the next one may follow.
	rest    int
	countAt time.Time
	// dead: a read was so slow that there must be many dead rows.
	dead bool
}

func newSession(r *reader, conn Conn, page context.Context) *session {
	r.upkeep.checkAt = time.Now().Add(upkeepEvery) // Connect has checked it
	return &session{reader: r, conn: conn, page: page, parked: make(parked)}
}

// turn scans, keeps up and carries out a slice of an act, if due. It returns the pause before the next turn.
// Its error is that of the source, which ends the session.
func (s *session) turn(ctx context.Context) (pause time.Duration, err error) {
	if !time.Now().Before(s.scanAt) {
		wait, err := s.scanOrWait(ctx)
		if err != nil {
			return 0, err
		}
		s.scanAt = time.Now().Add(wait)
	}
	if err := s.keepUp(); err != nil {
		return 0, err
	}
	next := s.scanAt
	if run := s.acts.open(); run != nil {
		if err := s.act(run); err != nil {
			return 0, err
		}
		next = earlier(next, run.next)
	}
	return time.Until(next), nil
}

// scanOrWait scans, unless too many rows are parked, and returns the pause after it.
func (s *session) scanOrWait(ctx context.Context) (time.Duration, error) {
	if n := s.parked.expire(time.Now()); n >= maxParked {
		s.failed(sideDispatcher, fmt.Errorf("%d rows cannot be submitted, so no further row is read: %s", n,
			s.problem))
		return stayedPause, nil
	}
	sc := s.newScan()
	err := sc.run(ctx)
	refused, bySink := errors.AsType[*sinkError](err)
	switch {
	case bySink:
		s.failed(sideDispatcher, refused)
		return s.backoff(refused.retryAfter), nil
	case err != nil:
		return 0, err
	case !sc.completed || sc.short && sc.stayed < maxStayed:
		return 0, nil
	case sc.stayed > 0:
		return max(s.c.Poll, stayedPause), nil
	}
	return s.c.Poll, nil
}

// A scan reads rows from a position to the end, or for a limited time.
type scan struct {
	*session
	start time.Time
	// low is where a tail scan begins. A row that is not behind it, and was not parked, came late.
	low, pos     int64
	window, full bool
	// onWay is the time that reads took from pos to low, and slowest that of the slowest read.
	onWay, slowest time.Duration
	// stayed counts rows that stay, and oldest is since when the oldest of them waits.
	stayed int
	oldest time.Time
	// seen is since when the oldest row of the last page waits.
	seen time.Time
	// completed: the scan read what it had to, that is all rows before edge.
	completed bool
	edge      int64
	// short: the scan left rows behind edge.
	short bool
}

func (s *session) newScan() *scan {
	sc := &scan{session: s, start: time.Now(), low: beginning, edge: math.MaxInt64}
	if !s.prev.IsZero() {
		sc.low = s.marks.before(s.prev.Add(-tailReach))
	}
	switch {
	case sc.low == beginning || !s.c.Tail || !sc.start.Before(s.fullAt):
		sc.pos = beginning
	case !sc.start.Before(s.windowAt):
		sc.window, sc.pos = true, s.marks.before(s.prevWide.Add(-windowReach))
	default:
		sc.pos = sc.low
	}
	sc.full = sc.pos == beginning
	return sc
}

// run reads and hands over pages. A scan that ends early, because of ctx or the lease, is not completed.
func (sc *scan) run(ctx context.Context) error {
	for more := true; more; {
		if ctx.Err() != nil || !sc.lease.held() {
			return nil
		}
		var rows []source.Row
		var err error
		rows, more, err = sc.read(ctx)
		if err != nil {
			return err
		}
		if ctx.Err() != nil { // its end may have closed the connection, and then no row can be removed
			return nil
		}
		if err := sc.handOver(rows); err != nil {
			return err
		}
		if more && (time.Since(sc.start) > longestScan+2*sc.slowest || sc.stayed >= maxStayed) {
			sc.short, sc.edge, more = true, sc.pos+1, false
		}
	}
	return sc.complete()
}

// read reads the next page and notes what it shows of time.
func (sc *scan) read(ctx context.Context) (rows []source.Row, more bool, err error) {
	began := time.Now()
	// Dead rows of a held snapshot lie before low, which may be unknown. If they are many, low lies before
	// them at times: no row in between gives a mark.
	patient := sc.pos < sc.low || sc.low == beginning || sc.dead
	rows, more, err = sc.conn.Read(ctx, sc.pos, sc.c.Batch, patient)
	if err != nil {
		return nil, false, err
	}
	now := time.Now()
	sc.slowest = max(sc.slowest, now.Sub(began))
	sc.dead = sc.dead || sc.slowest > slowRead
	if sc.pos < sc.low {
		sc.onWay += now.Sub(began)
	}
	process.Failpoint("relay_after_read")
	for i := range rows {
		if age := rows[i].Age; sc.c.MinAge > 0 && age < sc.c.MinAge && age > youngest {
			sc.edge, rows, more = rows[i].Seq, rows[:i], false
			break
		}
	}
	if len(rows) == 0 {
		return nil, false, nil
	}
	sc.late(rows)
	sc.seen = sc.oldest
	for i := range rows {
		sc.seen = earlier(sc.seen, sc.since(&rows[i]))
	}
	sc.state.waits(earlier(sc.seen, sc.parked.oldest()))
	sc.pos = rows[len(rows)-1].Seq
	sc.marks.add(now, sc.pos)
	return rows, more, nil
}

// late counts rows that are not behind low. They were committed late, or the numbers went back; then no mark
// from the first of them on holds.
func (sc *scan) late(rows []source.Row) {
	n := 0
	for i := range rows {
		if _, parked := sc.parked[rows[i].Key]; !parked && rows[i].Seq <= sc.low {
			if n == 0 {
				sc.marks.cut(rows[i].Seq)
			}
			n++
		}
	}
	sc.metrics.late.WithLabelValues(sc.c.Label()).Add(float64(n))
}

// stay notes a row that the next scan has to read again.
func (sc *scan) stay(row *source.Row, problem string) {
	sc.stayed++
	sc.oldest = earlier(sc.oldest, sc.since(row))
	sc.problem = problem
	sc.marks.cut(row.Seq)
}

// complete notes that the scan read what it had to.
func (sc *scan) complete() error {
	now := time.Now()
	sc.completed, sc.prev = true, sc.start
	sc.marks.cut(sc.edge)
	wait := costFactor * sc.onWay
	if sc.full {
		sc.fullAt = now.Add(max(fullEvery, wait))
	}
	if sc.full || sc.window {
		sc.prevWide = sc.start
		sc.windowAt = now.Add(max(windowEvery, wait))
	}
	left := sc.stayed + sc.parked.count(now)
	problem := sc.upkeep.problem
	if left > 0 {
		problem = fmt.Sprintf("%d rows wait: %s", left, sc.problem)
	}
	waiting, oldest := left, earlier(sc.oldest, sc.parked.oldest())
	if sc.edge != math.MaxInt64 {
		if err := sc.countRest(now); err != nil {
			return err
		}
		waiting = min(waiting+sc.rest, store.RelayCountLimit)
	}
	switch {
	case sc.short:
		oldest = earlier(oldest, sc.seen)
	case oldest.IsZero():
		oldest = now.Add(sc.c.Poll)
	}
	sc.scanned(oldest, waiting, problem)
	return nil
}

// countRest counts the rows from edge on, at most every renewEvery. Before edge there may be dead rows of a
// held snapshot, which only a read has the time to pass.
func (sc *scan) countRest(now time.Time) (err error) {
	if now.Before(sc.countAt) {
		return nil
	}
	sc.countAt = now.Add(renewEvery)
	sc.rest, err = sc.conn.Waiting(sc.page, sc.edge-1, store.RelayCountLimit)
	return err
}
