package sqlstore

import (
	"context"
	"maps"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A strict callback waits for all older open strict callbacks of its lock key. The stamp enforces that order:
// see stampUpdate. The functions in this file only find the next callback, so that the index need not wait
// for its own timer. The index callbacks_strict serves all of them.

// openStrictOf is the condition for open strict rows (by) with the project and lock key of another row (of).
// It repeats the WHERE of callbacks_strict word for word: only then is that index used, and no table read.
func openStrictOf(by, of string) string {
	return by + `.strict = 1 AND ` + by + `.state = 'scheduled' AND ` + by + `.project = ` + of +
		`.project AND ` + by + `.lock_key = ` + of + `.lock_key`
}

// NextStrict returns the oldest open strict callback of a lock key, or nil if none is open. The index calls
// it after a strict callback ended without a result: by a cancel, by its expiry or by a newer version. Then
// it brings the next callback forward. The explanation of a waiting callback uses it, too.
func (db *DB) NextStrict(ctx context.Context, project, lockKey string) (*store.OpenRow, error) {
	next, found, err := sqldb.One(db.read(ctx, "find the next strict callback"), openColumns, `FROM callbacks
		WHERE strict = 1 AND state = 'scheduled' AND project = $1 AND lock_key = $2
		ORDER BY id
		LIMIT 1`, project, lockKey)
	if err != nil || !found {
		return nil, err
	}
	return &next, nil
}

// noteStrictEnd keeps the lock key of a strict row that this result ended, for attachNextStrict.
func (e *resultEntry) noteStrictEnd(c *store.Callback) {
	if c.Strict && e.out.Won && e.out.State.Terminal() {
		e.strict = c.LockKey
	}
}

var strictColumns = sqldb.Named[laneKey](`project lock_key=Key`)

// attachNextStrict adds the next callback of the lock key to each result that ended a strict row. It runs in
// the transaction of the results and after their updates, so it does not find a row that just ended. The
// answer only saves time: the stamp of that callback checks the order again.
func (t *tx) attachNextStrict(entries []*resultEntry) error {
	ended := make(map[laneKey][]*resultEntry)
	for _, e := range entries {
		if e.strict != "" {
			k := laneKey{e.project, e.strict}
			ended[k] = append(ended[k], e)
		}
	}
	if len(ended) == 0 {
		return nil
	}
	rows, err := sqldb.Select(t, openColumns, `FROM callbacks WHERE id IN (
		SELECT (SELECT MIN(first.id) FROM callbacks AS first WHERE `+openStrictOf("first", "i")+`) FROM $i)`,
		sqldb.Rows(slices.Collect(maps.Keys(ended)), strictColumns))
	for i := range rows {
		for _, e := range ended[laneKey{rows[i].Project, rows[i].LockKey}] {
			e.out.Next = &rows[i]
		}
	}
	return named("find the next strict callbacks", err)
}
