package harness

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// Claims are the claims that processes had in SQL without a result when they were killed or stopped. By
// guarantee G4 such a fault may cause one more send for each of them, and none for other callbacks. SQL shows
// them: a live process soon commits its claims, while those of a dead process stay until they expire.
type Claims struct {
	open map[openClaim]bool
	// Faults is the number of calls of Take.
	Faults int
	most   int // the highest number of claims that one fault left
}

// An openClaim is a claim without a result.
type openClaim struct {
	id    string
	fence int64
}

func (c *openClaim) fields() []any { return []any{&c.id, &c.fence} }

// Len returns the number of claims that the faults left.
func (c *Claims) Len() int { return len(c.open) }

// Hit returns how often the faults found each callback in flight.
func (c *Claims) Hit() map[string]int {
	hit := map[string]int{}
	for claim := range c.open {
		hit["cb_"+claim.id]++
	}
	return hit
}

// String is for the remarks of the fault table.
func (c *Claims) String() string {
	return fmt.Sprintf("claimed and not committed at the faults: %d in all, %d at most at one", len(c.open),
		c.most)
}

// Take adds the open claims of a process that was killed or stopped at that time. It first waits for span, in
// which the other processes commit the claims they had. span must be shorter than the life of a claim.
func (tr *Trial) Take(at time.Time, span time.Duration) {
	tr.Helper()
	tr.MarkFault()
	if len(tr.Alive()) > 0 {
		time.Sleep(time.Until(at.Add(span))) // the live processes commit their own claims until then
	} else {
		tr.awaitSessionsEnd()
	}
	c := &tr.Claims
	if c.open == nil {
		c.open = map[openClaim]bool{}
	}
	before := len(c.open)
	for _, claim := range Rows(tr, (*openClaim).fields, `SELECT id, fence FROM callbacks
		WHERE state = 'scheduled' AND claim_token <> '' AND claimed_at <= $1`, at.UnixMilli()) {
		c.open[claim] = true
	}
	c.Faults++
	c.most = max(c.most, len(c.open)-before)
}

// Kill kills a process, and adds its open claims.
func (tr *Trial) Kill(p *Process, span time.Duration) {
	tr.Helper()
	at := time.Now()
	p.Kill()
	tr.Take(at, span)
}

// KillOne is Kill for one of the first processes of the trial. If it was the only one, KillOne starts another
// process and returns it.
func (tr *Trial) KillOne(p *Process, span time.Duration) *Process {
	tr.Helper()
	tr.Kill(p, span)
	if len(tr.Alive()) > 0 {
		return nil
	}
	return tr.Serve()
}

// AwaitDeath waits until a process has killed itself at its failpoint, and adds its open claims. It returns
// the time of the end.
func (tr *Trial) AwaitDeath(p *Process, limit, span time.Duration) (at time.Time) {
	tr.Helper()
	tr.AwaitFailpoint(p, limit)
	at = time.Now()
	tr.Take(at, span)
	return at
}

// awaitSessionsEnd waits until PostgreSQL has finished the statements of the dead processes. It commits them
// even though no client waits for them.
func (tr *Trial) awaitSessionsEnd() {
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

// Hit adds the costs of the faults to the bounds: each callback may have as many duplicates as faults hit it.
func (tr *Trial) Hit(b judge.Bounds) judge.Bounds {
	b.Duplicates, b.Hit = tr.Claims.Len(), tr.Claims.Hit()
	return b
}

// Conclude waits until all callbacks are terminal, and calls Accounted.
func (tr *Trial) Conclude(settle, heal time.Duration) judge.Verdict {
	tr.Helper()
	tr.Settle(settle)
	return tr.Accounted(judge.Bounds{Heal: heal})
}

// TakenUp returns an error that names a claim which no process has taken over yet.
func (tr *Trial) TakenUp() error {
	for _, c := range Rows(tr, (*openClaim).fields,
		`SELECT id, fence FROM callbacks WHERE state = 'scheduled' AND claim_token <> ''`) {
		if tr.Claims.open[c] {
			return fmt.Errorf("claim %d of cb_%s is still open", c.fence, c.id)
		}
	}
	return nil
}

// Accounted is Verdict with these bounds and those of the claims that the faults left. It fails the trial if
// SQL records a crashed claim that none of the faults explains, because something else lost it.
func (tr *Trial) Accounted(b judge.Bounds) judge.Verdict {
	tr.Helper()
	violation := Violations(tr)
	for _, c := range Rows(tr, (*openClaim).fields,
		`SELECT callback_id, fence FROM attempts WHERE class = 'crashed'`) {
		if !tr.Claims.open[c] {
			violation("claim %d of cb_%s ended without a result, and none of the %d faults had it in flight",
				c.fence, c.id, tr.Claims.Faults)
		}
	}
	return tr.Verdict(tr.Hit(b))
}

// Rows reads rows of the trial's SQL into values of T. scan returns pointers to the fields of T.
func Rows[T any](tr *Trial, scan func(*T) []any, query string, args ...any) (all []T) {
	tr.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tr.Check(judge.Each(ctx, tr.Database(), func(read func(...any) error) error {
		var v T
		err := read(scan(&v)...)
		all = append(all, v)
		return err
	}, query, args...))
	return all
}
