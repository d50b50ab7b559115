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

// Accepted is a callback for which a client got a 2xx response.
type Accepted struct {
	ID, Ref string
	Hash    Hash // of the submitted body
}

// An Arrival is one request at a receiver, with the receiver's clock.
type Arrival struct {
	ID     string
	Number int // of header webhook-attempt; zero: it was missing
	At     time.Time
	// End is when the response was written or the sender closed the connection; zero: the request is still
	// open.
	End  time.Time
	Hash Hash
	// Answered: the receiver wrote a whole response. The sender may still have missed it.
	Answered bool
}

// A Row is a callback in SQL.
type Row struct {
	ID, Ref, LockKey string
	State, Reason    string
	// DueAt is set while the callback is open.
	DueAt time.Time
	// FinishedAt is set once the callback is terminal.
	FinishedAt time.Time
	Hash       Hash // of the stored body; zero: retention has deleted it
	// Tiers are those of its policy; nil: the judge does not check the waits.
	Tiers []time.Duration
}

// Terminal reports whether the state is final.
func (r *Row) Terminal() bool {
	return r.State == "succeeded" || r.State == "dead" || r.State == "canceled"
}

// An Attempt is a row of the table attempts.
type Attempt struct {
	ID      string
	Number  int
	Outcome string // succeeded, failed, unknown
	Class   string
	Trigger string // schedule, manual
	Status  int    // of the response; zero: no response
	Charged bool
	Stale   bool // the result came after the claim was lost, and had no effect
	Started time.Time
	Ended   time.Time
	Due     time.Time
	NextDue time.Time // zero: none
}

// An Item is an entry of the index.
type Item struct {
	ID    string
	Place string // delayed, ready, leased
}

// Evidence is everything that one run left.
type Evidence struct {
	Accepted []Accepted
	Arrivals []Arrival
	Rows     []Row
	Attempts []Attempt
	// Index is the index now. It counts only if IndexRead is set.
	Index     []Item
	IndexRead bool
	// Healed is the time from the last fault until the last callback became terminal; zero: not measured.
	Healed time.Duration
}

// Bounds are the allowed costs of a fault. The zero value allows nothing: no duplicate, no overlap, no open
// callback.
type Bounds struct {
	// Duplicates in all, and for each callback.
	Duplicates, PerCallback int
	// Hit maps each callback to the number of faults that found it in flight. If it is not nil it replaces
	// PerCallback: a callback that no fault hit may have no duplicate.
	Hit map[string]int
	// Overlaps is the allowed number of overlapping sends of one callback. Only an expired lease or the last
	// request of a dead process causes them.
	Overlaps int
	// LockOverlaps is the same for callbacks with one lock key, for all keys together.
	LockOverlaps int
	// AfterTerminal is the number of sends that may arrive after the callback was terminal. A process that is
	// stopped between its last check and its write causes them.
	AfterTerminal int
	// Unrecorded is the number of arrivals without an attempt in SQL, because SQL itself lost the record.
	Unrecorded int
	// MayBeOpen: open callbacks are not lost if the index has them.
	MayBeOpen bool
	// SharedRefs: several callbacks may have one reference. Otherwise a second one means that one order was
	// accepted twice.
	SharedRefs bool
	// IndexUnread: no live process was left to report the embedded index.
	IndexUnread bool
	// Unknown are accepted ids that SQL lost on purpose, for example by a restore from an older backup. Each
	// must be missing.
	Unknown map[string]bool
	// Expect returns the state in which a reference must end; nil: succeeded. An empty state means any
	// terminal state.
	Expect func(ref string) string
	// Skew is the allowed difference between the clocks of SQL and the receiver; zero: 2 ms, for one machine.
	Skew time.Duration
	// Heal is the limit of Healed; zero: no limit.
	Heal time.Duration
}

// moment converts Unix milliseconds of SQL. Zero is the zero time.
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

// ReadRows reads all callbacks, with the hashes of their bodies.
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

// ReadAttempts reads all attempts.
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
