package sqlstore

import (
	"context"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

const (
	// cancelWindow is how many callbacks of a deleted endpoint one transaction scans, and cancelWindows how
	// many such transactions one call runs.
	cancelWindow  = 1000
	cancelWindows = 50
	// lateAcceptTime is how long after its deletion an endpoint may still get callbacks. Another process may
	// accept them until it reads that the endpoint is deleted.
	lateAcceptTime = 10 * time.Minute
	// idSkew is how far the time of an id may lie before the commit of its row.
	idSkew = time.Minute
	// secondPass precedes the position in column canceling during the second pass.
	secondPass = aboveAllIDs
)

// CancelDeleted cancels up to limit open callbacks of deleted endpoints as Canceled, EndpointDeleted, and
// returns them as they were before. A callback that is being attempted ends so if its attempt fails. It scans
// all callbacks of a deleted endpoint, oldest first. A second pass, lateAcceptTime after the deletion, finds
// those that were accepted late. Then it deletes the endpoint's secrets. A call scans a bounded number, so
// fewer than limit callbacks do not mean that none is left. The position is in column canceling, and moves in
// the transaction that cancels: after a crash another process goes on there.
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

// A deletion is a deleted endpoint whose callbacks are still to be canceled. Canceling is the position.
type deletion struct {
	ID, Project, Canceling string
	DeletedAt              int64
}

// cancelDeleted cancels the next callbacks of one deleted endpoint, and reports whether there was such an
// endpoint. The endpoint's row is locked; other processes skip it and take another one.
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
		_, err := t.Exec(`DELETE FROM secrets WHERE project = $1 AND owner = $2`, d.Project, d.ID)
		if err != nil {
			return nil, true, named("remove secrets", err)
		}
	case !more:
		next = secondPass
	}
	_, err = t.Exec(`UPDATE endpoints SET canceling = $1 WHERE id = $2`, next, d.ID)
	return canceled, true, err
}

// openOf scans the endpoint's next callbacks by the index requests_endpoint, and returns the open ones, at
// most limit, locked. last is the last id that it scanned, and more is set if there may be others. A callback
// that ends between the scan and the lock is left out.
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
		return nil, "", false, named("find open callbacks", err)
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
