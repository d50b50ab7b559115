package sqlstore

import (
	"context"
	"maps"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// isNext is the condition for open strict rows, named by, of the lock key that another row has. It is written
// so that it matches the index over such rows, which alone is read.
func openStrictOf(by, of string) string {
	return by + `.strict = 1 AND ` + by + `.state = 'scheduled' AND ` + by + `.project = ` + of +
		`.project AND ` + by + `.lock_key = ` + of + `.lock_key`
}

// NextStrict returns the open strict callback of a lock key that comes first; nil: there is none. It is for
// what has ended otherwise than by a result: by a cancel, an expiry, or because it was superseded.
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

// noteStrictEnd notes a result that won and ended a strict row.
func (e *resultEntry) noteStrictEnd(c *store.Callback) {
	if c.Strict && e.out.Won && e.out.State.Terminal() {
		e.strict = c.LockKey
	}
}

var strictColumns = sqldb.Named[laneKey](`project lock_key=Key`)

// attachNextStrict tells the results that ended strict rows which is next.
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
