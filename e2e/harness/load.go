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

// A Load submits callbacks at a rate, as the caller of a payment system does. Each has an idempotency key,
// and is submitted again, perhaps to another dispatcher, until a response is 2xx. The test fails if that
// takes longer than AcceptTimeout.
type Load struct {
	l     *Trial
	shape func(int) Submission
	stop  func()
	ended atomic.Bool
	group errgroup.Group

	mu     sync.Mutex
	took   []time.Duration // of the requests with a 2xx response
	failed int             // requests without one, which were repeated
	first  error           // the error of the first of those
	gaveUp error
}

const (
	// maxSubmitters bounds the callbacks that a load submits at the same time.
	maxSubmitters = 64
	// AcceptTimeout is how long a load tries to submit one callback.
	AcceptTimeout = 2 * time.Minute
	// SubmitTimeout is the timeout of one request.
	SubmitTimeout = 10 * time.Second
)

// Load starts to submit rate callbacks a second until Finish or the test's end. shape makes callback i, from
// 0 on. A load that falls behind the clock catches up.
func (tr *Trial) Load(rate int, shape func(int) Submission) *Load {
	ld := &Load{l: tr, shape: shape}
	ld.group.SetLimit(maxSubmitters)
	started, i := time.Now(), 0
	ld.stop = tr.Repeat(5*time.Millisecond, func(int) {
		for due := int(time.Since(started).Seconds() * float64(rate)); i < due && !ld.ended.Load(); i++ {
			n := i
			ld.group.Go(func() error {
				ld.submitUntilAccepted(n)
				return nil
			})
		}
	})
	tr.Cleanup(ld.end)
	return ld
}

// end stops the load and waits for its open requests.
func (ld *Load) end() {
	ld.ended.Store(true)
	ld.stop()
	ld.group.Wait() // the functions return nil
}

// Finish ends the load and returns its report. It fails the test if a callback was never accepted.
func (ld *Load) Finish() LoadReport {
	ld.l.Helper()
	ld.end()
	ld.mu.Lock()
	defer ld.mu.Unlock()
	if ld.gaveUp != nil {
		ld.l.Errorf("a callback was never accepted: %v", ld.gaveUp)
	}
	return LoadReport{Took: judge.QuantilesOf(ld.took), Again: ld.failed, First: ld.first}
}

// LoadReport has the latencies of accepted requests, the number of repeated requests, and the error of the
// first of those.
type LoadReport struct {
	Took  judge.Quantiles
	Again int
	First error
}

func (ld *Load) submitUntilAccepted(i int) {
	s := ld.shape(i)
	deadline := time.Now().Add(AcceptTimeout)
	for {
		began := time.Now()
		id, err := ld.l.Submit(s)
		ld.mu.Lock()
		if err == nil {
			ld.took = append(ld.took, time.Since(began))
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

// errNoneAlive is returned while no process runs.
var errNoneAlive = errors.New("no dispatcher is alive")

// Submit submits to a random live process.
func (tr *Trial) Submit(s Submission) (string, error) {
	alive := tr.Alive()
	if len(alive) == 0 {
		return "", errNoneAlive
	}
	cb, err := alive[rand.N(len(alive))].Submit(s)
	return cb.ID, err
}

// SubmitAndNote is Submit for a callback that must be accepted. It notes the callback in the ledger.
func (tr *Trial) SubmitAndNote(s Submission) string {
	tr.Helper()
	id, err := tr.Submit(s)
	tr.Check(err)
	tr.Note(id, s)
	return id
}

// AcceptAll submits the callbacks with these numbers, up to 8 at once and once each. It returns the numbers
// without a 2xx response, for example because the process was killed.
func (tr *Trial) AcceptAll(numbers []int, shape func(int) Submission) (unanswered []int) {
	var mu sync.Mutex
	AtOnce(8, len(numbers), func(k int) error { // always returns nil
		s := shape(numbers[k])
		id, err := tr.Submit(s)
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

// AcceptEach is AcceptAll for the numbers 0 to n-1. It fails the trial unless all are accepted.
func (tr *Trial) AcceptEach(n int, shape func(int) Submission) {
	tr.Helper()
	if left := tr.AcceptAll(Numbers(n), shape); len(left) > 0 {
		tr.Errorf("%d of %d callbacks were not accepted", len(left), n)
	}
}

// AcceptMany submits n callbacks in batches to one process. All must be accepted.
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

// AtOnce runs f for 0 to n-1, at most limit at a time, and returns the first error.
func AtOnce(limit, n int, f func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(limit)
	for i := range n {
		group.Go(func() error { return f(i) })
	}
	return group.Wait()
}

// Numbers returns 0 to n-1.
func Numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// Seeding describes open callbacks that are copied into SQL, which is faster than any caller. Each copy has
// its own id, reference, body and due time. The program does not run meanwhile, so its counters by state and
// lane do not include the copies.
type Seeding struct {
	// N is the number of copies. The first Overdue ones were due within the last minute. The others are due
	// between one day and 31 days from now, in another order than that of their ids.
	N, Overdue int
	// Lanes is the number of lanes, over which the copies are spread. Shape makes the callback that is
	// accepted first for each lane, with the reference SeedRef(lane).
	Lanes int
	Shape func(lane int, ref string) Submission
}

// SeedRef is the reference of the accepted callback of a lane.
func SeedRef(lane int) string { return fmt.Sprint("lane-", lane) }

const (
	// seedChunk is the number of rows that one statement inserts.
	seedChunk = 100_000
	// statementTimeout is the timeout of one statement.
	statementTimeout = 3 * time.Minute
)

// Seed accepts one callback for each lane on the process, ends the process, and copies the callbacks. The
// copies are noted as accepted. The first callbacks stay open too, because their due time is far away.
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
		// Sixteen decimal digits are a valid end of a ULID.
		tr.NoteAccepted(fmt.Sprintf("cb_%s%016d", prefix, i), ref)
	}
	tr.Logf("%d open callbacks are seeded in SQL in %s", s.N, time.Since(began).Round(time.Millisecond))
}

// copyRows uses the same SQL for both databases, except for the type of bodies.
func (tr *Trial) copyRows(s Seeding) {
	tr.Backend.SkipReconciliation("the test copies callbacks in SQL")
	postgres := tr.Backend.Postgres != ""
	bytes := func(text string) string {
		if postgres {
			return "convert_to(" + text + ", 'UTF8')"
		}
		return "CAST(" + text + " AS BLOB)"
	}
	// All copies' ids begin with the timestamp of the last first callback.
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
	// copied returns the INSERT of the copies into a table.
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
	// The statistics that a database with these rows would have collected by now.
	tr.Execute(`ANALYZE`)
	if !postgres {
		tr.Execute(`PRAGMA wal_checkpoint(TRUNCATE)`)
	}
}

// Execute runs a statement on the trial's SQL, without the program.
func (tr *Trial) Execute(statement string) {
	tr.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	if _, err := tr.Database().ExecContext(ctx, statement); err != nil {
		tr.Fatalf("%.200s …: %v", statement, err)
	}
}

// columns returns the names of a table's columns.
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
