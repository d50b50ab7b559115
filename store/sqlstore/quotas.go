package sqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// OpenCallbacks returns how many open callbacks each of the projects has, all at one moment.
func (db *DB) OpenCallbacks(ctx context.Context, projects []string) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	stx, err := db.read.BeginTx(ctx, &sql.TxOptions{Isolation: db.dialect.snapshot})
	if err != nil {
		return nil, readError("count open callbacks", err)
	}
	defer func() { _ = stx.Rollback() }() // It has written nothing.
	pending, err := readDeltas(ctx, stx)
	if err != nil {
		return nil, readError("count open callbacks", err)
	}
	open := make(map[string]int64, len(projects))
	for _, project := range projects {
		open[project] = pending[project][stateCounter+":"+string(store.Scheduled)]
	}
	if err := db.queryInput(ctx, stx, []column{{name: "project", texts: projects}}, func(rows scanner) error {
		var project string
		var n int64
		err := rows.Scan(&project, &n)
		open[project] += n
		return err
	}, `SELECT project, value FROM counters
		WHERE kind = 'state' AND key = 'scheduled' AND project IN (SELECT i.project FROM %s)`); err != nil {
		return nil, readError("count open callbacks", err)
	}
	return open, nil
}

// Replays answers those of the drafts that repeat what was accepted before, by their idempotency key or as a
// poll that is open, as Accept would, and changes nothing. Each of the others has store.ErrNotFound.
func (db *DB) Replays(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	answers := make([]store.Accepted, len(drafts))
	for i := range answers {
		answers[i].Err = store.ErrNotFound
	}
	repeated := make(map[string][]int) // the drafts, by the callback that they repeat
	if err := db.findOpenPolls(ctx, drafts, repeated); err != nil {
		return nil, readError("find open polls", err)
	}
	if err := db.findKeys(ctx, drafts, repeated, answers); err != nil {
		return nil, readError("find idempotency keys", err)
	}
	ids := []column{{name: "id", texts: sortedKeys(repeated)}}
	if err := db.queryInput(ctx, db.read, ids, func(rows scanner) error {
		r, err := db.scanCallback(rows)
		for _, i := range repeated[r.ID] {
			answers[i] = store.Accepted{Callback: r.Callback, Replayed: true}
		}
		return err
	}, `SELECT `+callbackColumns+` FROM `+fromCallbacks+`
		WHERE callbacks.id IN (SELECT i.id FROM %s)`); err != nil {
		return nil, readError("read what was accepted before", err)
	}
	return answers, nil
}

// findOpenPolls finds the open polls that the drafts of polls would become.
func (db *DB) findOpenPolls(ctx context.Context, drafts []store.Draft, repeated map[string][]int) error {
	polls := make(map[string][]int)
	for i := range drafts {
		if drafts[i].Poll != nil {
			live := liveKey(&drafts[i].Callback)
			polls[live] = append(polls[live], i)
		}
	}
	lives := []column{{name: "live", texts: sortedKeys(polls)}}
	return db.queryInput(ctx, db.read, lives, func(rows scanner) error {
		var live, id string
		err := rows.Scan(&live, &id)
		repeated[id] = append(repeated[id], polls[live]...)
		return err
	}, `SELECT polls.live, polls.id FROM polls
		WHERE polls.live IN (SELECT i.live FROM %s) AND polls.live <> ''`)
}

// findKeys finds the callbacks that hold the idempotency keys of drafts. A key that was used with another
// request is answered at once.
func (db *DB) findKeys(
	ctx context.Context, drafts []store.Draft, repeated map[string][]int, answers []store.Accepted,
) error {
	given := make(map[idempotencyKey][]int)
	var keys []idempotencyKey
	for i := range drafts {
		if id := drafts[i].Idempotency; id != nil {
			k := idempotencyKey{drafts[i].Callback.Project, id.Route, id.Key}
			if given[k] == nil {
				keys = append(keys, k)
			}
			given[k] = append(given[k], i)
		}
	}
	return db.queryInput(ctx, db.read, []column{
		texts("project", keys, func(k idempotencyKey) string { return k.project }),
		texts("route", keys, func(k idempotencyKey) string { return k.route }),
		texts("key", keys, func(k idempotencyKey) string { return k.key }),
	}, func(rows scanner) error {
		var k idempotencyKey
		var fingerprint, id string
		if err := rows.Scan(&k.project, &k.route, &k.key, &fingerprint, &id); err != nil {
			return err
		}
		for _, i := range given[k] {
			if fingerprint != hex.EncodeToString(drafts[i].Idempotency.Fingerprint) {
				answers[i].Err = store.ErrIdempotencyMismatch
				continue
			}
			repeated[id] = append(repeated[id], i)
		}
		return nil
	}, `SELECT h.project, h.route, h.key, h.fingerprint, h.callback_id
		FROM %s
		JOIN idempotency AS h ON h.project = i.project AND h.route = i.route AND h.key = i.key`)
}

// queryInput runs a query over multi-row input, whose place in it is %s, unless there is none.
func (db *DB) queryInput(
	ctx context.Context, q Querier, columns []column, scan func(scanner) error, query string,
) error {
	if len(columns[0].texts) == 0 {
		return nil
	}
	input, _ := db.dialect.input(1, columns)
	args, err := db.dialect.args(columns)
	if err != nil {
		return err
	}
	return queryEach(ctx, q, scan, fmt.Sprintf(query, input), args...)
}
