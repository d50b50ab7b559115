package faults

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// A toll is what processes had claimed in SQL and not committed when they were killed or stopped. By G4 no such fault may cost
// more duplicates than that, and none of any other callback. SQL shows it: a claim of a process that lives is over soon, one
// of a process that does not stays until it runs out, which is at the earliest its timeout and 15 s later.
type uncommitted struct {
	l      *trial
	claims map[openClaim]bool
	faults int
	most   int // the most that one fault cost
}

// An unkept claim is one that no result came of.
type openClaim struct {
	id    string
	fence int64
}

func (tr *trial) uncommittedClaims() *uncommitted {
	return &uncommitted{l: tr, claims: map[openClaim]bool{}}
}

// take adds what the process left behind that was killed or stopped at that time. Span is how long the others may take for
// what they had claimed before, less than such a claim lives; with no other process it is zero.
func (t *uncommitted) take(at time.Time, span time.Duration) {
	t.l.Helper()
	timer := time.NewTimer(time.Until(at.Add(span)))
	defer timer.Stop()
	<-timer.C
	if len(t.l.Alive()) == 0 {
		t.l.awaitSessionsEnd()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	rows, err := t.l.Database().QueryContext(ctx, `SELECT id, fence FROM callbacks WHERE state = 'scheduled' AND claim_token <> '' AND claimed_at <= $1`, at.UnixMilli())
	if err != nil {
		t.l.Fatalf("read claims: %v", err)
	}
	defer rows.Close()
	before := len(t.claims)
	for rows.Next() {
		var c openClaim
		if err := rows.Scan(&c.id, &c.fence); err != nil {
			t.l.Fatalf("read a claim: %v", err)
		}
		t.claims[c] = true
	}
	if err := rows.Err(); err != nil {
		t.l.Fatalf("read claims: %v", err)
	}
	t.faults++
	t.most = max(t.most, len(t.claims)-before)
}

// awaitSessionsEnd waits until PostgreSQL is done with what the processes, all of them dead, had sent it: it commits that whether
// anybody waits for it or not.
func (tr *trial) awaitSessionsEnd() {
	tr.Helper()
	if tr.Backend.Postgres == "" {
		return
	}
	harness.Eventually(tr, time.Minute, "the sessions of the dead have ended", func() error {
		var n int
		err := tr.Database().QueryRowContext(tr.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'dispatcher'`).Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d have not", n)
		}
		return err
	})
}

// bounds are what these faults may cost: of what they hit, as often as they hit it, and of nothing else.
func (t *uncommitted) bounds(heal time.Duration) judge.Bounds {
	b := judge.Bounds{Duplicates: len(t.claims), Hit: map[string]int{}, Heal: heal}
	for c := range t.claims {
		b.Hit["cb_"+c.id]++
	}
	return b
}

// over says which of the claims somebody still has, or nobody has taken up yet.
func (t *uncommitted) over() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	rows, err := t.l.Database().QueryContext(ctx, `SELECT id, fence FROM callbacks WHERE state = 'scheduled' AND claim_token <> ''`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var c openClaim
		if err := rows.Scan(&c.id, &c.fence); err != nil {
			return err
		}
		if t.claims[c] {
			return fmt.Errorf("claim %d of cb_%s is still there", c.fence, c.id)
		}
	}
	return rows.Err()
}

// atLeast says whether a metric of a process has come to a value.
func atLeast(p *harness.Process, name string, want float64) error {
	got, err := p.Metric(name)
	if err == nil && got < want {
		err = fmt.Errorf("%s is %v, want %v", name, got, want)
	}
	return err
}

// account fails the trial if SQL records a claim without a result that none of the faults explains: then something else lost it.
func (t *uncommitted) account() {
	t.l.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rows, err := t.l.Database().QueryContext(ctx, `SELECT callback_id, fence FROM attempts WHERE class = 'crashed'`)
	if err != nil {
		t.l.Fatalf("read crashed attempts: %v", err)
	}
	defer rows.Close()
	complain := harness.Violations(t.l)
	for rows.Next() {
		var c openClaim
		if err := rows.Scan(&c.id, &c.fence); err != nil {
			t.l.Fatalf("read a crashed attempt: %v", err)
		}
		if !t.claims[c] {
			complain("claim %d of cb_%s ended without a result, and none of the %d faults had it in flight", c.fence, c.id, t.faults)
		}
	}
	if err := rows.Err(); err != nil {
		t.l.Fatalf("read crashed attempts: %v", err)
	}
}

// String is for the table's remarks.
func (t *uncommitted) String() string {
	return fmt.Sprintf("claimed and not committed at the faults: %d in all, %d at most at one", len(t.claims), t.most)
}

// sum adds up a metric over all processes that live.
func (tr *trial) sum(name string, parts ...string) float64 {
	tr.Helper()
	sum := 0.0
	for _, p := range tr.Alive() {
		v, err := p.Metric(name, parts...)
		if err != nil {
			tr.Fatal(err)
		}
		sum += v
	}
	return sum
}

// awaitEmptyIndex waits until Redis holds nothing any more: the verdict, which asks too, reads everything else each time.
func (tr *trial) awaitEmptyIndex(limit time.Duration) {
	tr.Helper()
	if tr.Backend.Redis == "" {
		return
	}
	harness.Eventually(tr, limit, "the index is empty", func() error {
		items, err := tr.Backend.ReadIndex(tr.Context())
		if err == nil && len(items) > 0 {
			err = fmt.Errorf("it holds %d", len(items))
		}
		return err
	})
}
