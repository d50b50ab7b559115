package sqlstore

import (
	"context"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

const (
	// cancelWindow is how many callbacks of a deleted endpoint one transaction looks at, cancelWindows how
	// many times one call does.
	cancelWindow  = 1000
	cancelWindows = 50
	// lateAcceptTime is for how long after an endpoint was deleted callbacks to it may still be accepted, by who
	// has not heard of it.
	lateAcceptTime = 10 * time.Minute
	// idSkew is by how much an id may lie before the time of its commit.
	idSkew = time.Minute
	// secondPass stands before the place of the second look.
	secondPass = aboveAllIDs
)

// CancelDeleted cancels up to limit open callbacks of deleted endpoints as Canceled, EndpointDeleted, and
// returns them as they were. One that is being attempted ends so if that fails. All callbacks of the endpoint
// are looked at, oldest first, once, and those that came late once more; then its secrets are removed. A call
// looks at a bounded number; fewer than limit does not mean that none is left.
func (db *DB) CancelDeleted(ctx context.Context, now int64, limit int) ([]store.OpenRow, error) {
	var canceled []store.OpenRow
	for range cancelWindows {
		if len(canceled) >= limit {
			break
		}
		var part []store.OpenRow
		found := false
		err := db.maintain(ctx, "cancel callbacks of deleted endpoints", func(t *tx) error {
			var err error
			part, found, err = t.cancelDeleted(now, min(limit-len(canceled), db.sql.Dialect.MaintenanceBatch))
			return err
		})
		if err != nil {
			return canceled, err
		}
		canceled = append(canceled, part...)
		if !found {
			break
		}
	}
	return canceled, nil
}

// A deletion is a deleted endpoint whose callbacks have still to be looked at.
type deletion struct {
	ID, Project, Canceling string
	DeletedAt              int64
}

// cancelDeleted looks at the next callbacks of one deleted endpoint, and says whether there was one.
func (t *tx) cancelDeleted(now int64, limit int) (canceled []store.OpenRow, found bool, err error) {
	d, found, err := sqldb.One(t, sqldb.Named[deletion](`id project canceling deleted_at`), `FROM endpoints
		WHERE canceling <> '' AND (canceling <> '`+secondPass+`' OR deleted_at <= $1)
		ORDER BY id
		LIMIT 1 FOR UPDATE SKIP LOCKED`, now-lateAcceptTime.Milliseconds())
	if err != nil || !found {
		return nil, false, err
	}
	after, second := strings.CutPrefix(d.Canceling, secondPass)
	if second {
		after = max(after, idsFrom(d.DeletedAt-idSkew.Milliseconds()))
	}
	open, last, more, err := t.openOf(d, after, limit)
	if err != nil {
		return nil, true, err
	}
	canceled, err = t.cancelAll(open, store.EndpointDeleted, now)
	if err != nil {
		return nil, true, err
	}
	next := last
	switch {
	case more && second:
		next = secondPass + last
	case !more && second:
		next = ""
		if _, err := t.Exec(`DELETE FROM secrets WHERE project = $1 AND owner = $2`, d.Project, d.ID); err !=
			nil {
			return nil, true, named("remove secrets", err)
		}
	case !more:
		next = secondPass
	}
	_, err = t.Exec(`UPDATE endpoints SET canceling = $1 WHERE id = $2`, next, d.ID)
	return canceled, true, err
}

// openOf returns the open ones among the next callbacks of an endpoint, at most limit, locked. It says which
// was the last that was looked at, and whether there may be more.
func (t *tx) openOf(d deletion, after string, limit int) (open []row, last string, more bool, err error) {
	var ids []string
	looked, err := sqldb.Select(t, sqldb.Named[store.Callback](`requests.id callbacks.state`),
		`FROM `+fromRequests+`
			AND requests.project = $1
			AND requests.endpoint_id = $2
			AND requests.endpoint_id <> ''
			AND requests.id > $3
		ORDER BY requests.id
		LIMIT $4`, d.Project, d.ID, after, cancelWindow)
	if err != nil {
		return nil, "", false, named("look for open callbacks", err)
	}
	last, more = after, len(looked) == cancelWindow
	for _, c := range looked {
		if len(ids) == limit {
			more = true
			break
		}
		last = c.ID
		if c.State == store.Scheduled {
			ids = append(ids, c.ID)
		}
	}
	found, err := t.callbacksByID(ids, " FOR UPDATE")
	if err != nil {
		return nil, "", false, err
	}
	for _, id := range ids {
		if r, ok := found[id]; ok && r.State == store.Scheduled {
			open = append(open, r)
		}
	}
	return open, last, more, nil
}
