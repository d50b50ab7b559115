package judge

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
)

// moment turns SQL's Unix milliseconds into a time; zero is none.
func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// ReadRows reads every callback with the hash of its body.
func ReadRows(ctx context.Context, db *sql.DB) ([]Row, error) {
	found, err := db.QueryContext(ctx, `SELECT c.id, r.ref, c.lock_key, c.state, c.reason,
		c.due_at, c.finished_at, r.policy, COALESCE(r.body, p.body)
		FROM callbacks c
		JOIN requests r ON r.project = c.project AND r.id = c.id
		LEFT JOIN payloads p ON p.id = r.shared`)
	if err != nil {
		return nil, fmt.Errorf("read callbacks: %w", err)
	}
	defer found.Close()
	var rows []Row
	policies := map[string][]time.Duration{}
	for found.Next() {
		var r Row
		var due, finished int64
		var policy string
		var body []byte
		if err := found.Scan(&r.ID, &r.Ref, &r.LockKey, &r.State, &r.Reason, &due, &finished, &policy,
			&body); err != nil {
			return nil, fmt.Errorf("read a callback: %w", err)
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
				return nil, fmt.Errorf("policy of %s: %w", r.ID, err)
			}
			tiers = p.Tiers
			policies[policy] = tiers
		}
		r.Tiers = tiers
		rows = append(rows, r)
	}
	return rows, found.Err()
}

// ReadAttempts reads every attempt.
func ReadAttempts(ctx context.Context, db *sql.DB) ([]Attempt, error) {
	found, err := db.QueryContext(ctx,
		`SELECT callback_id, number, outcome, class, "trigger", status, charged, stale,
			started_at, ended_at, due_at, next_due_at FROM attempts`)
	if err != nil {
		return nil, fmt.Errorf("read attempts: %w", err)
	}
	defer found.Close()
	var attempts []Attempt
	for found.Next() {
		var a Attempt
		var charged, stale int
		var started, ended, due, next int64
		if err := found.Scan(&a.ID, &a.Number, &a.Outcome, &a.Class, &a.Trigger, &a.Status, &charged, &stale,
			&started, &ended, &due, &next); err != nil {
			return nil, fmt.Errorf("read an attempt: %w", err)
		}
		a.ID, a.Charged, a.Stale = "cb_"+a.ID, charged != 0, stale != 0
		a.Started, a.Ended, a.Due, a.NextDue = moment(started), moment(ended), moment(due), moment(next)
		attempts = append(attempts, a)
	}
	return attempts, found.Err()
}
