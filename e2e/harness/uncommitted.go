package harness

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// UncommittedClaims are what processes had claimed in SQL and not committed when they were killed or stopped.
// By G4 such a fault may send each of them once more, and no other callback. SQL shows them: a live process
// soon commits its claims, those of a dead one stay until they run out.
type UncommittedClaims struct {
	tr     *Trial
	claims map[openClaim]bool
	faults int
	most   int // the most that one fault cost
}

// An openClaim is a claim without a result.
type openClaim struct {
	id    string
	fence int64
}

// UncommittedClaims starts without any.
func (tr *Trial) UncommittedClaims() *UncommittedClaims {
	return &UncommittedClaims{tr: tr, claims: map[openClaim]bool{}}
}

// Take adds what the process left behind that was killed or stopped at that time. Span is how long the others
// may take for what they had claimed before, less than such a claim lives; with no other process it is zero.
func (t *UncommittedClaims) Take(at time.Time, span time.Duration) {
	t.tr.Helper()
	timer := time.NewTimer(time.Until(at.Add(span)))
	defer timer.Stop()
	<-timer.C
	if len(t.tr.Alive()) == 0 {
		t.tr.awaitSessionsEnd()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	rows, err := t.tr.Database().QueryContext(ctx,
		`SELECT id, fence FROM callbacks WHERE state = 'scheduled' AND claim_token <> '' AND claimed_at <= $1`,
		at.UnixMilli())
	if err != nil {
		t.tr.Fatalf("read claims: %v", err)
	}
	defer rows.Close()
	before := len(t.claims)
	for rows.Next() {
		var c openClaim
		if err := rows.Scan(&c.id, &c.fence); err != nil {
			t.tr.Fatalf("read a claim: %v", err)
		}
		t.claims[c] = true
	}
	if err := rows.Err(); err != nil {
		t.tr.Fatalf("read claims: %v", err)
	}
	t.faults++
	t.most = max(t.most, len(t.claims)-before)
}

// awaitSessionsEnd waits until PostgreSQL is done with what the processes, all of them dead, had sent it: it
// commits that whether anybody waits for it or not.
func (tr *Trial) awaitSessionsEnd() {
	tr.Helper()
	if tr.Backend.Postgres == "" {
		return
	}
	Eventually(tr, time.Minute, "the sessions of the dead have ended", func() error {
		var n int
		err := tr.Database().QueryRowContext(tr.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'dispatcher'`).Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d have not", n)
		}
		return err
	})
}

// Bounds are what these faults may cost: of what they hit, as often as they hit it, and of nothing else.
func (t *UncommittedClaims) Bounds(heal time.Duration) judge.Bounds {
	b := judge.Bounds{Duplicates: len(t.claims), Hit: map[string]int{}, Heal: heal}
	for c := range t.claims {
		b.Hit["cb_"+c.id]++
	}
	return b
}

// Over says which of the claims has not been taken up yet.
func (t *UncommittedClaims) Over() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	rows, err := t.tr.Database().QueryContext(ctx,
		`SELECT id, fence FROM callbacks WHERE state = 'scheduled' AND claim_token <> ''`)
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

// Account fails the trial if SQL records a claim without a result that none of the faults explains: then
// something else lost it.
func (t *UncommittedClaims) Account() {
	t.tr.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rows, err := t.tr.Database().QueryContext(ctx,
		`SELECT callback_id, fence FROM attempts WHERE class = 'crashed'`)
	if err != nil {
		t.tr.Fatalf("read crashed attempts: %v", err)
	}
	defer rows.Close()
	complain := Violations(t.tr)
	for rows.Next() {
		var c openClaim
		if err := rows.Scan(&c.id, &c.fence); err != nil {
			t.tr.Fatalf("read a crashed attempt: %v", err)
		}
		if !t.claims[c] {
			complain("claim %d of cb_%s ended without a result, and none of the %d faults had it in flight", c.fence,
				c.id, t.faults)
		}
	}
	if err := rows.Err(); err != nil {
		t.tr.Fatalf("read crashed attempts: %v", err)
	}
}

// Len is how many claims were left.
func (t *UncommittedClaims) Len() int { return len(t.claims) }

// Faults is how often Take was called.
func (t *UncommittedClaims) Faults() int { return t.faults }

// Continue makes another trial the one that fails and whose SQL is read.
func (t *UncommittedClaims) Continue(tr *Trial) { t.tr = tr }

// String is for the table's remarks.
func (t *UncommittedClaims) String() string {
	return fmt.Sprintf("claimed and not committed at the faults: %d in all, %d at most at one", len(t.claims),
		t.most)
}
