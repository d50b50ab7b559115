package judge

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// A Hash is the SHA-256 of a body.
type Hash = [sha256.Size]byte

// Accepted is a callback that a client was answered 2xx for.
type Accepted struct {
	ID, Ref string
	Hash    Hash // of the body that was handed over
}

// An Arrival is one request at a receiver, by the receiver's clock.
type Arrival struct {
	ID     string
	Number int // webhook-attempt; zero: it had none
	At     time.Time
	// End is when the answer was written or the sender hung up; zero: it is still being answered.
	End  time.Time
	Hash Hash
	// Answered: the receiver wrote a whole answer. It says nothing of whether the sender got it.
	Answered bool
}

// A Row is a callback in SQL.
type Row struct {
	ID, Ref, LockKey string
	State, Reason    string
	// DueAt is that of an open one.
	DueAt time.Time
	// FinishedAt is zero unless it is terminal.
	FinishedAt time.Time
	Hash       Hash // of the stored body; zero: retention has removed it
	// Tiers are its policy's; nil: its waits are not judged.
	Tiers []time.Duration
}

// Terminal says whether the row's state is final.
func (r *Row) Terminal() bool {
	return r.State == "succeeded" || r.State == "dead" || r.State == "canceled"
}

// An Attempt is a row of SQL's attempts.
type Attempt struct {
	ID      string
	Number  int
	Outcome string // succeeded, failed, unknown
	Class   string
	Trigger string // schedule, manual
	Status  int    // of the answer; zero: none came
	Charged bool
	Stale   bool // it came after its claim was lost, and had no effect
	Started time.Time
	Ended   time.Time
	Due     time.Time
	NextDue time.Time // zero: none
}

// An Item is what the index holds of a callback.
type Item struct {
	ID    string
	Place string // delayed, ready, leased
}

// Evidence is what one run left behind.
type Evidence struct {
	Accepted []Accepted
	Arrivals []Arrival
	Rows     []Row
	Attempts []Attempt
	// Index is what the index holds now. It counts only with IndexRead.
	Index     []Item
	IndexRead bool
	// Healed is how long after the last fault the last callback became terminal; zero: it was not measured.
	Healed time.Duration
}

// Bounds say what a fault may cost. The zero value allows nothing: no duplicate, no overlap, no open
// callback.
type Bounds struct {
	// Duplicates in all, and of each callback.
	Duplicates, PerCallback int
	// Hit are the callbacks that faults found in flight, and how often. If it is not nil it stands for
	// PerCallback: what was not hit has no duplicate.
	Hit map[string]int
	// Overlaps of sends of one callback, which only an expired lease or a dead process's last request
	// explain.
	Overlaps int
	// LockOverlaps of callbacks with one lock key, of all keys together, which only the same explain.
	LockOverlaps int
	// AfterTerminal is how many sends may have arrived after the callback was terminal: those of a process
	// that was stopped between its last look and its write.
	AfterTerminal int
	// Unrecorded is how many arrivals may have no attempt in SQL: those whose record was lost with SQL
	// itself.
	Unrecorded int
	// MayBeOpen: callbacks that are not terminal yet are no loss, if the index holds them.
	MayBeOpen bool
	// SharedRefs: several callbacks may have one reference. Otherwise a second one is an order that was taken
	// twice.
	SharedRefs bool
	// IndexUnread: no process was left that could have told what the index holds.
	IndexUnread bool
	// Unknown are accepted ids that SQL was made to forget, as a restore from an older backup does. Each must
	// be missing.
	Unknown map[string]bool
	// Expect is the state that a reference must end in; nil: succeeded. Empty text: any terminal state.
	Expect func(ref string) string
	// Skew is by how much the clocks of SQL and of the receiver may differ; zero: 2 ms, one machine.
	Skew time.Duration
	// Heal bounds Healed; zero: not judged.
	Heal time.Duration
}

// moment turns SQL's Unix milliseconds into a time; zero is none.
func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Each runs one for each row of a query.
func Each(ctx context.Context, db *sql.DB, one func(scan func(...any) error) error, query string,
	args ...any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err == nil {
		defer rows.Close()
		for err == nil && rows.Next() {
			err = one(rows.Scan)
		}
		err = errors.Join(err, rows.Err())
	}
	if err != nil {
		return fmt.Errorf("%.200s: %w", query, err)
	}
	return nil
}

// ReadRows reads every callback with the hash of its body.
func ReadRows(ctx context.Context, db *sql.DB) (rows []Row, err error) {
	policies := map[string][]time.Duration{}
	err = Each(ctx, db, func(scan func(...any) error) error {
		var r Row
		var due, finished int64
		var policy string
		var body []byte
		if err := scan(&r.ID, &r.Ref, &r.LockKey, &r.State, &r.Reason, &due, &finished, &policy,
			&body); err != nil {
			return err
		}
		r.ID, r.DueAt, r.FinishedAt = "cb_"+r.ID, moment(due), moment(finished)
		if body != nil {
			r.Hash = sha256.Sum256(body)
		}
		tiers, known := policies[policy]
		if !known {
			var p struct {
				Tiers []time.Duration `json:"tiers"`
			}
			if err := json.Unmarshal([]byte(policy), &p); err != nil {
				return fmt.Errorf("policy of %s: %w", r.ID, err)
			}
			tiers = p.Tiers
			policies[policy] = tiers
		}
		r.Tiers = tiers
		rows = append(rows, r)
		return nil
	}, `SELECT c.id, r.ref, c.lock_key, c.state, c.reason,
		c.due_at, c.finished_at, r.policy, COALESCE(r.body, p.body)
		FROM callbacks c
		JOIN requests r ON r.project = c.project AND r.id = c.id
		LEFT JOIN payloads p ON p.id = r.shared`)
	return rows, err
}

// ReadAttempts reads every attempt.
func ReadAttempts(ctx context.Context, db *sql.DB) (attempts []Attempt, err error) {
	err = Each(ctx, db, func(scan func(...any) error) error {
		var a Attempt
		var charged, stale int
		var started, ended, due, next int64
		err := scan(&a.ID, &a.Number, &a.Outcome, &a.Class, &a.Trigger, &a.Status, &charged, &stale,
			&started, &ended, &due, &next)
		a.ID, a.Charged, a.Stale = "cb_"+a.ID, charged != 0, stale != 0
		a.Started, a.Ended, a.Due, a.NextDue = moment(started), moment(ended), moment(due), moment(next)
		attempts = append(attempts, a)
		return err
	}, `SELECT callback_id, number, outcome, class, "trigger", status, charged, stale,
			started_at, ended_at, due_at, next_due_at FROM attempts`)
	return attempts, err
}
