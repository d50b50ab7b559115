package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// A load is a caller as payment systems are: it hands over callbacks at a rate, each with an idempotency key,
// and asks again, at another dispatcher, until it has a 2xx. What it cannot hand over within its patience
// fails the test.
type Load struct {
	l     *Trial
	shape func(int) Submission
	stop  func()
	ended atomic.Bool
	group errgroup.Group

	mu     sync.Mutex
	took   []time.Duration // of the requests that were answered 2xx
	failed int             // requests that were not, and were made again
	first  error           // of the first of those
	gaveUp error
}

const (
	// askers bounds the callbacks that a load hands over at the same time.
	askers = 64
	// HandOverLimit is how long a load tries to hand over one callback.
	HandOverLimit = 2 * time.Minute
	// AskTimeout bounds one request.
	AskTimeout = 10 * time.Second
)

// Load starts handing over rate callbacks a second, made by shape from 0 on, until end or finish. It keeps to
// the rate by the clock: what it was late for it makes up.
func (tr *Trial) Load(rate int, shape func(int) Submission) *Load {
	ld := &Load{l: tr, shape: shape}
	ld.group.SetLimit(askers)
	started, i := time.Now(), 0
	ld.stop = tr.Repeat(5*time.Millisecond, func(int) {
		for due := int(time.Since(started).Seconds() * float64(rate)); i < due && !ld.ended.Load(); i++ {
			n := i
			ld.group.Go(func() error {
				ld.handOver(n)
				return nil
			})
		}
	})
	tr.Cleanup(ld.end)
	return ld
}

// end stops the load, and waits for what is being handed over.
func (ld *Load) end() {
	ld.ended.Store(true)
	ld.stop()
	ld.group.Wait() // the functions return nil
}

// Finish ends the load, and returns its own view of it.
func (ld *Load) Finish() LoadReport {
	ld.l.Helper()
	ld.end()
	ld.mu.Lock()
	defer ld.mu.Unlock()
	if ld.gaveUp != nil {
		ld.l.Errorf("a callback could not be handed over: %v", ld.gaveUp)
	}
	return LoadReport{Took: judge.QuantilesOf(ld.took), Again: ld.failed, First: ld.first}
}

// A LoadReport says how long accepts took, how many requests had to be made again, and why the first of
// those.
type LoadReport struct {
	Took  judge.Quantiles
	Again int
	First error
}

func (ld *Load) handOver(i int) {
	s := ld.shape(i)
	deadline := time.Now().Add(HandOverLimit)
	for {
		asked := time.Now()
		id, err := ld.l.Ask(s)
		ld.mu.Lock()
		if err == nil {
			ld.took = append(ld.took, time.Since(asked))
			ld.mu.Unlock()
			ld.l.Note(id, s)
			return
		}
		ld.failed++
		if ld.first == nil {
			ld.first = err
		}
		if time.Now().After(deadline) {
			ld.gaveUp = errors.Join(ld.gaveUp, err)
			ld.mu.Unlock()
			return
		}
		ld.mu.Unlock()
		time.Sleep(50*time.Millisecond + rand.N(50*time.Millisecond)) // a caller's backoff
	}
}

// errNoneAlive: no process lives to be asked.
var errNoneAlive = errors.New("no dispatcher is alive")

// Ask posts a submission to any process that lives.
func (tr *Trial) Ask(s Submission) (string, error) {
	alive := tr.Alive()
	if len(alive) == 0 {
		return "", errNoneAlive
	}
	cb, err := alive[rand.N(len(alive))].Ask(s)
	return cb.ID, err
}

// AskAndNote is Ask of what must be accepted, and is in the books then.
func (tr *Trial) AskAndNote(s Submission) string {
	tr.Helper()
	id, err := tr.Ask(s)
	tr.Check(err)
	tr.Note(id, s)
	return id
}

// AcceptAll hands over the callbacks of these numbers, a few at a time, once each, and returns those that
// were not answered with 2xx: killed, or not up any more.
func (tr *Trial) AcceptAll(numbers []int, shape func(int) Submission) (unanswered []int) {
	var mu sync.Mutex
	AtOnce(8, len(numbers), func(k int) error { // which returns nil
		s := shape(numbers[k])
		id, err := tr.Ask(s)
		if err == nil {
			tr.Note(id, s)
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		unanswered = append(unanswered, numbers[k])
		return nil
	})
	return unanswered
}

// AcceptEach is AcceptAll of n that must all be accepted.
func (tr *Trial) AcceptEach(n int, shape func(int) Submission) {
	tr.Helper()
	if left := tr.AcceptAll(Numbers(n), shape); len(left) > 0 {
		tr.Errorf("%d of %d callbacks were not accepted", len(left), n)
	}
}

// AcceptMany hands over n callbacks in batches to one process; all must be accepted.
func (tr *Trial) AcceptMany(n int, shape func(int) Submission) {
	tr.Helper()
	c := tr.AnyProcess().Client
	const batch = 1000
	err := AtOnce(4, (n+batch-1)/batch, func(k int) error {
		var some []Submission
		for i := k * batch; i < min((k+1)*batch, n); i++ {
			some = append(some, shape(i))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		got, err := c.AcceptBatch(ctx, some)
		for i := range got {
			tr.Note(got[i].ID, some[i])
		}
		return err
	})
	if err != nil {
		tr.Fatalf("accept %d callbacks: %v", n, err)
	}
}

// AtOnce runs f for 0 to n-1, so many at a time, and returns the first error.
func AtOnce(limit, n int, f func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(limit)
	for i := range n {
		group.Go(func() error { return f(i) })
	}
	return group.Wait()
}

// Numbers are 0 to n-1.
func Numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// A seeding fills SQL with open callbacks faster than any caller could hand them over: each is a copy of one
// that the program has accepted, with an id, a reference, a body and a due time of its own. The program does
// not run meanwhile. Its counters by state and lane are not told of the copies.
type Seeding struct {
	// N copies, of which the first overdue were due within the minute before now, and the others are due from
	// a day on, spread over thirty days in another order than their ids'.
	N, Overdue int
	// Lanes that they are spread over, and the callback that is accepted for each of them; its reference is
	// SeedRef's.
	Lanes int
	Shape func(lane int, ref string) Submission
}

// SeedRef is the reference of the callback that is accepted for a lane.
func SeedRef(lane int) string { return fmt.Sprint("lane-", lane) }

const (
	// seedChunk is how many rows one statement inserts.
	seedChunk = 100_000
	// seedPatience bounds one of them.
	seedPatience = 3 * time.Minute
)

// Seed accepts one callback for each lane on the process, ends the process, and copies them. The copies are
// in the books as accepted. The first ones, whose due time is far away, stay open as the copies do.
func (tr *Trial) Seed(p *Process, s Seeding) {
	tr.Helper()
	tr.AcceptMany(s.Lanes, func(i int) Submission {
		c := s.Shape(i, SeedRef(i))
		c["delay"] = "2d"
		delete(c, "idempotency_key")
		return c
	})
	p.Exit(time.Minute)
	began := time.Now()
	tr.copyRows(s)
	tr.Mu.Lock()
	prefix := strings.TrimPrefix(tr.Accepted[len(tr.Accepted)-1].ID, "cb_")[:10]
	tr.Mu.Unlock()
	for i := range s.N {
		ref := fmt.Sprint("seed-", i)
		// Sixteen decimal digits are as good an end of a ULID as any.
		tr.NoteAccepted(fmt.Sprintf("cb_%s%016d", prefix, i), ref)
	}
	tr.Logf("%d open callbacks are seeded in SQL in %s", s.N, time.Since(began).Round(time.Millisecond))
}

// copyRows is one text for both databases, but for the bytes of the bodies.
func (tr *Trial) copyRows(s Seeding) {
	tr.Backend.KeepApart("callbacks were copied beside the program")
	postgres := tr.Backend.Postgres != ""
	bytes := func(text string) string {
		if postgres {
			return "convert_to(" + text + ", 'UTF8')"
		}
		return "CAST(" + text + " AS BLOB)"
	}
	// The copies' ids all begin alike, with the time at which the last of the first ones was accepted.
	series := func(first, end int) string {
		return fmt.Sprintf(`WITH RECURSIVE
			series(i) AS (SELECT CAST(%d AS BIGINT) UNION ALL SELECT i + 1 FROM series WHERE i < %d),
			lanes AS (SELECT id AS lane_id, ref, row_number() OVER (ORDER BY id) - 1 AS k FROM requests
				WHERE ref LIKE 'lane-%%'),
			born AS (SELECT substr(max(lane_id), 1, 10) AS prefix FROM lanes)`, first, end-1)
	}
	const id, ref = `born.prefix || substr(CAST(10000000000000000 + series.i AS TEXT), 2)`,
		`'seed-' || series.i`
	now := time.Now().UnixMilli()
	due := fmt.Sprintf(`CASE WHEN series.i < %d THEN %d - series.i %% 60000
		ELSE %d + (series.i * 7919) %% 2592000 * 1000 END`,
		s.Overdue, now, now+(24*time.Hour).Milliseconds())
	// copied is what is inserted into a table.
	copied := func(table string) string {
		columns := tr.columns(table)
		values := make([]string, len(columns))
		for i, c := range columns {
			switch c {
			case "id":
				values[i] = id
			case "ref":
				values[i] = ref
			case "url":
				values[i] = `replace(first.url, first.ref, ` + ref + `)`
			case "body":
				values[i] = bytes(`'{"order":"' || ` + ref + ` || '","paid":10000}'`)
			case "due_at", "first_due_at":
				values[i] = due
			default:
				values[i] = `first."` + c + `"`
			}
		}
		return ` INSERT INTO ` + table + ` ("` + strings.Join(columns, `", "`) + `") SELECT ` +
			strings.Join(values, ", ") + fmt.Sprintf(` FROM series JOIN lanes ON lanes.k = series.i %% %d
				JOIN %s AS first ON first.id = lanes.lane_id CROSS JOIN born`, s.Lanes, table)
	}
	callbacks, requests := copied("callbacks"), copied("requests")
	for at := 0; at < s.N; at += seedChunk {
		head := series(at, min(at+seedChunk, s.N))
		tr.Execute(head + callbacks)
		tr.Execute(head + requests)
	}
	// What a database that has lived with them would know.
	tr.Execute(`ANALYZE`)
	if !postgres {
		tr.Execute(`PRAGMA wal_checkpoint(TRUNCATE)`)
	}
}

// Execute changes the trial's SQL beside the program.
func (tr *Trial) Execute(statement string) {
	tr.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), seedPatience)
	defer cancel()
	if _, err := tr.Database().ExecContext(ctx, statement); err != nil {
		tr.Fatalf("%.200s …: %v", statement, err)
	}
}

// columns are the names of a table's columns.
func (tr *Trial) columns(table string) []string {
	tr.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rows, err := tr.Database().QueryContext(ctx, `SELECT * FROM `+table+` WHERE 1 = 0`)
	Check(tr, err)
	defer rows.Close()
	names, err := rows.Columns()
	Check(tr, err)
	return names
}
