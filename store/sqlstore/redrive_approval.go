package sqlstore

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// approve records the second person. An approval that comes too late finds a redrive that has ended, even if
// ExpireRedrives has not ended it yet.
func approve(r *store.Redrive, now int64, by store.Actor) error {
	switch {
	case by.ID == "" || by.ID == r.ActorID:
		return store.ErrSecondPerson
	case now >= r.CreatedAt+store.ApprovalTime:
		return store.ErrTerminal
	}
	r.Approver, r.ApprovedAt = by.Name, now
	return nil
}

// ExpireRedrives cancels up to limit redrives whose approval did not come in time. It reports whether others
// await theirs. The query repeats the WHERE of the index redrives_awaiting.
func (db *DB) ExpireRedrives(ctx context.Context, now int64, limit int) (awaiting bool, err error) {
	oldest, err := readRedrives(db.read(ctx, "find redrives without approval"),
		`WHERE state = 'awaiting_approval' ORDER BY created_at LIMIT $1`, limit)
	if err != nil {
		return false, err
	}
	for i := range oldest {
		if oldest[i].CreatedAt > now-store.ApprovalTime {
			return true, nil
		}
		if err := db.expireRedrive(ctx, oldest[i].ID, now); err != nil {
			return true, err
		}
	}
	return len(oldest) == limit, nil
}

// expireRedrive cancels a redrive unless it was approved or canceled meanwhile.
func (db *DB) expireRedrive(ctx context.Context, id string, now int64) error {
	by := store.Actor{Name: "dispatcher", Reason: "not approved in time"}
	return db.change(ctx, "expire redrive "+id, func(t *tx) error {
		r, err := t.lockRedrive(id)
		if err != nil || r.State != store.RedriveAwaiting {
			return err
		}
		before := r
		r.State, r.FinishedAt = store.RedriveCanceled, now
		if _, err := t.Exec(`DELETE FROM redrive_items WHERE redrive_id = $1`, id); err != nil {
			return named("delete its items", err)
		}
		if err := t.writeRedrive(&r, now); err != nil {
			return err
		}
		return t.auditChange(r.Project, "redrive.expire", id, now, by, diff(redriveParts, &before, &r), nil)
	})
}

// needsApproval reports whether a redrive whose callbacks are all stored needs a second person: it has more
// than its limit, alone or together with the redrives of the last hour that needed none. Otherwise a large
// redrive could be split into small ones.
func (t *tx) needsApproval(r *store.Redrive, now int64) (bool, error) {
	if r.ApprovalAbove <= 0 || r.Matched == 0 {
		return false, nil
	}
	recent, _, err := sqldb.Value[int64](t, `SELECT CAST(COALESCE(
			SUM(CASE WHEN state = 'canceled' THEN done + failed ELSE matched END), 0) AS BIGINT)
		FROM redrives WHERE project = $1 AND id >= $2 AND id <> $3 AND approved_at = 0
			AND state <> 'awaiting_approval'`,
		r.Project, store.FirstID(max(0, now-store.ApprovalWindow)), r.ID)
	return r.Matched+recent > r.ApprovalAbove, named("add up recent redrives", err)
}
