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

// moment turns SQL's Unix milliseconds into a time; zero is none.
func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Each runs one for each row of a query.
func Each(ctx context.Context, db *sql.DB, one func(scan func(...any) error) error, query string, args ...any) error {
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
		if err := scan(&r.ID, &r.Ref, &r.LockKey, &r.State, &r.Reason, &due, &finished, &policy, &body); err != nil {
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
