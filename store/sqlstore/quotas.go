package sqlstore

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// OpenCallbacks returns how many open callbacks each of the projects has, all at one moment.
func (db *DB) OpenCallbacks(ctx context.Context, projects []string) (map[string]int64, error) {
	var open map[string]int64
	err := db.sql.Snapshot(ctx, "count open callbacks", func(read sqldb.Read) error {
		pending, err := readDeltas(read)
		if err != nil {
			return err
		}
		open, err = sqldb.Map[string, int64](read, `SELECT project, value FROM counters
			WHERE kind = 'state' AND key = 'scheduled' AND project IN (SELECT i.project FROM $i)`, sqldb.Texts("project", projects))
		for _, project := range projects {
			open[project] += pending[project][stateCounter+":"+string(store.Scheduled)]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return open, nil
}

// Replays answers those of the drafts that repeat what was accepted before, by their idempotency key or as a
// poll that is open, as Accept would, and changes nothing. Each of the others has store.ErrNotFound.
func (db *DB) Replays(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error) {
	answers := make([]store.Accepted, len(drafts))
	for i := range answers {
		answers[i].Err = store.ErrNotFound
	}
	repeated := make(map[string][]int) // the drafts, by the callback that they repeat
	if err := db.findOpenPolls(ctx, drafts, repeated); err != nil {
		return nil, err
	}
	if err := db.findKeys(ctx, drafts, repeated, answers); err != nil || len(repeated) == 0 {
		return answers, err
	}
	rows, err := db.callbacks(db.read(ctx, "read what was accepted before"), fromCallbacks+`
		WHERE callbacks.id IN (SELECT i.id FROM $i)`, sqldb.Texts("id", sortedKeys(repeated)))
	if err != nil {
		return nil, err
	}
	for i := range rows {
		for _, n := range repeated[rows[i].ID] {
			answers[n] = store.Accepted{Callback: rows[i].Callback, Replayed: true}
		}
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
	if len(polls) == 0 {
		return nil
	}
	open, err := sqldb.Map[string, string](db.read(ctx, "find open polls"), openPolls, sqldb.Texts("live", sortedKeys(polls)))
	for live, id := range open {
		repeated[id] = append(repeated[id], polls[live]...)
	}
	return err
}
