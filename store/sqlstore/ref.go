package sqlstore

import (
	"context"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// maxOfRef is how many callbacks of a reference OfRef reads. A reference seldom has more than ten.
const maxOfRef = 5000

// recentOfRef are the newest callbacks of a reference ($1, $2), at most $3 of them, by the index
// requests_ref.
const recentOfRef = `(SELECT requests.id, callbacks.claim_until, CASE
			WHEN callbacks.state = 'scheduled' AND callbacks.claim_until > $4 THEN 'attempting'
			ELSE callbacks.state
		END AS state, CASE
			WHEN callbacks.kind = 'poll' AND callbacks.state = 'succeeded' THEN callbacks.reason
			ELSE ''
		END AS answer
		FROM ` + fromRequests + `
			AND requests.project = $1 AND requests.ref = $2 AND requests.ref <> ''
		ORDER BY requests.id DESC
		LIMIT $3) AS recent`

const (
	statesOfRef = `SELECT recent.state || ' ' || recent.answer, COUNT(*) FROM ` + recentOfRef + `
		GROUP BY recent.state, recent.answer`
	firstOfRef = `SELECT recent.id FROM ` + recentOfRef + `
		ORDER BY CASE
				WHEN recent.state IN ('scheduled', 'attempting') THEN 0
				WHEN recent.state = 'dead' THEN 1
				ELSE 2
			END, recent.id DESC
		LIMIT $5`
)

// OfRef returns up to limit callbacks of a reference and counts all of them: open ones first, then dead ones,
// then the others, each newest first. Of a reference with more than 5,000 callbacks it reads the newest.
func (db *DB) OfRef(ctx context.Context, project, ref string, now int64, limit int) (store.RefPage, error) {
	page := store.RefPage{Counts: make(map[store.State]int64), Polls: make(map[store.Reason]int64)}
	err := db.sql.Snapshot(ctx, "list callbacks of a reference", func(read sqldb.Read) error {
		read = read.Planned()
		counts, err := sqldb.Map[string, int64](read, statesOfRef, project, ref, maxOfRef+1, now)
		if err != nil {
			return err
		}
		total := int64(0)
		for name, n := range counts {
			if state, answer, _ := strings.Cut(name, " "); answer != "" {
				page.Polls[store.Reason(answer)] = n
			} else {
				page.Counts[store.State(state)] = n
			}
			total += n
		}
		page.More = total > maxOfRef
		ids, err := sqldb.Values[string](read, firstOfRef, project, ref, maxOfRef+1, now,
			min(max(limit, 1), maxList))
		if err != nil || len(ids) == 0 {
			return err
		}
		rows, err := db.callbacks(read, fromCallbacks+`
			WHERE callbacks.id IN (SELECT i.id FROM $i)`, sqldb.Texts("id", ids))
		byID := make(map[string]*row, len(rows))
		for i := range rows {
			byID[rows[i].ID] = &rows[i]
		}
		for _, id := range ids {
			if r := byID[id]; r != nil {
				page.Callbacks = append(page.Callbacks, r.Callback)
			}
		}
		return err
	})
	return page, err
}
