package harness

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// A seeding fills SQL with open callbacks faster than any caller could hand them over: each is a copy of one
// that the program has accepted, with an id, a reference, a body and a due time of its own. The program does
// not run meanwhile. Its counters by state and lane are not told of the copies.
type Seeding struct {
	// N copies, of which the first overdue were due within the minute before now, and the others are due from
	// a day on, spread over thirty days in another order than their ids'.
	N, Overdue int
	// Lanes that they are spread over, and the callback that is accepted for each of them; its reference is
	// made by seedRef.
	Lanes int
	Shape func(lane int) Submission
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
		c := s.Shape(i)
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
	tr.Helper()
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
	const id, ref = `born.prefix || substr(CAST(10000000000000000 + series.i AS TEXT), 2)`, `'seed-' || series.i`
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
	if err != nil {
		tr.Fatal(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		tr.Fatal(err)
	}
	return names
}
