package sqlstore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// isNext is the condition for open strict rows, named by, of the lock key that another row has. It is written so that it matches the index
// over such rows, which alone is read.
func isNext(by, of string) string {
	return by + `.strict = 1 AND ` + by + `.state = 'scheduled' AND ` + by + `.project = ` + of + `.project AND ` + by + `.lock_key = ` + of + `.lock_key`
}

// NextStrict returns the open strict callback of a lock key that comes first; nil: there is none. It is for what has ended otherwise than
// by a result: by a cancel, an expiry, or because it was superseded.
func (db *DB) NextStrict(ctx context.Context, project, lockKey string) (*store.OpenRow, error) {
	rows, err := db.walk(ctx, "find the next strict callback", `SELECT `+openColumns+` FROM callbacks
		WHERE strict = 1 AND state = 'scheduled' AND project = $1 AND lock_key = $2
		ORDER BY id
		LIMIT 1`, project, lockKey)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// strictEnded notes a result that won and ended a row; lockKey is empty unless the row is strict.
func (t *tx) strictEnded(e *resultEntry, lockKey string) {
	if lockKey == "" || !e.out.Won || !e.out.State.Terminal() {
		return
	}
	if t.strict == nil {
		t.strict = make(map[laneKey][]*resultEntry)
	}
	k := laneKey{e.project, lockKey}
	t.strict[k] = append(t.strict[k], e)
}

// nextStrict tells the results that ended strict rows which is next.
func (t *tx) nextStrict() error {
	if len(t.strict) == 0 {
		return nil
	}
	ended := t.strict
	t.strict = nil
	keys := slices.Collect(maps.Keys(ended))
	input, args, _, err := t.input([]column{
		texts("project", keys, func(k laneKey) string { return k.project }),
		texts("lock_key", keys, func(k laneKey) string { return k.key }),
	})
	if err != nil {
		return err
	}
	err = t.each(func(rows scanner) error {
		r, err := scanOpen(rows)
		for _, e := range ended[laneKey{r.Project, r.LockKey}] {
			e.out.Next = &r
		}
		return err
	}, `SELECT `+openColumns+` FROM callbacks WHERE id IN (
		SELECT (SELECT MIN(first.id) FROM callbacks AS first WHERE `+isNext("first", "i")+`) FROM `+input+`)`, args...)
	if err != nil {
		return fmt.Errorf("find the next strict callbacks: %w", err)
	}
	return nil
}
