package sqlstore

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A refKey is what callbacks have in common of which a newer version supersedes the older ones.
type refKey struct{ Project, Topic, Ref string }

var refKeyColumns = sqldb.Named[refKey](`project topic ref`)

func refKeyOf(c *store.Callback) refKey { return refKey{c.Project, c.Topic, c.Ref} }

// A refVersion is a version of a reference, and when it was accepted.
type refVersion struct {
	refKey
	Version, UpdatedAt int64
}

var refVersionColumns = sqldb.Named[refVersion](`project topic ref version updated_at`)

// supersedes says that the draft takes part in that at all.
func (e *acceptEntry) supersedes() bool {
	c := &e.draft.Callback
	return e.draft.Supersede && c.Version != nil && c.Ref != "" && c.Topic != ""
}

// supersede cancels what the drafts supersede, and those of them that have been superseded themselves, by an
// earlier accept or by another draft of the group. Of each reference the highest version has a row, and
// whoever accepts one holds that row until it is committed: so the next one sees all that were before it, on
// whatever connection.
func (t *tx) supersede(entries []*acceptEntry) error {
	highest := make(map[refKey]*acceptEntry)
	for _, e := range entries {
		if !e.supersedes() {
			continue
		}
		k := refKeyOf(&e.draft.Callback)
		if best := highest[k]; best == nil || *e.draft.Callback.Version > *best.draft.Callback.Version {
			highest[k] = e
		}
	}
	if len(highest) == 0 {
		return nil
	}
	var given []refVersion
	for k, e := range highest {
		given = append(given, refVersion{k, *e.draft.Callback.Version, e.draft.Callback.CreatedAt})
	}
	slices.SortFunc(given, func(a, b refVersion) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Topic, b.Topic),
			cmp.Compare(a.Ref, b.Ref))
	})
	versions, err := t.raiseVersions(given)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if c := &e.out.Callback; e.supersedes() && *c.Version < versions[refKeyOf(c)] {
			c.State, c.Reason, c.DueAt, c.FinishedAt = store.Canceled, store.Superseded, 0, c.CreatedAt
		}
	}
	// Where a higher version was there before, that one has canceled what was below it.
	given = slices.DeleteFunc(given, func(v refVersion) bool { return v.Version < versions[v.refKey] })
	return t.cancelOlder(given, highest)
}

// raiseVersions notes the versions of drafts, if they are higher than what was noted, and returns what is
// noted then.
func (t *tx) raiseVersions(given []refVersion) (map[refKey]int64, error) {
	noted, err := sqldb.Returning(t, refVersionColumns,
		`INSERT INTO refs_latest (project, topic, ref, version, updated_at)
		SELECT i.project, i.topic, i.ref, i.version, i.updated_at FROM $i WHERE 1 = 1
		ON CONFLICT (project, topic, ref) DO UPDATE SET
			version = CASE WHEN excluded.version > refs_latest.version THEN excluded.version ELSE refs_latest.version END,
			updated_at = excluded.updated_at`, sqldb.Rows(given, refVersionColumns))
	return versionsOf(noted), named("note versions", err)
}

// versionsOf are the versions by their references.
func versionsOf(noted []refVersion) map[refKey]int64 {
	versions := make(map[refKey]int64, len(noted))
	for _, v := range noted {
		versions[v.refKey] = v.Version
	}
	return versions
}

// cancelOlder cancels the open callbacks of the references that have a lower version.
func (t *tx) cancelOlder(given []refVersion, highest map[refKey]*acceptEntry) error {
	if len(given) == 0 {
		return nil
	}
	ids, err := sqldb.Values[string](t, `SELECT callbacks.id FROM $i
		JOIN requests ON requests.project = i.project AND requests.ref = i.ref AND requests.ref <> ''
			AND requests.topic = i.topic
		JOIN callbacks ON callbacks.id = requests.id
		WHERE `+isOpen+` AND requests.version < i.version`, sqldb.Rows(given, refVersionColumns))
	if err != nil {
		return named("look for older versions", err)
	}
	found, err := t.callbacksByID(ids, " FOR UPDATE")
	if err != nil {
		return err
	}
	older := make(map[refKey][]row)
	for _, id := range slices.Sorted(slices.Values(ids)) {
		if r, ok := found[id]; ok && r.State == store.Scheduled {
			k := refKeyOf(&r.Callback)
			older[k] = append(older[k], r)
		}
	}
	for _, v := range given {
		e := highest[v.refKey]
		e.out.Superseded, err = t.cancelAll(older[v.refKey], store.Superseded, v.UpdatedAt)
		if err != nil {
			return err
		}
	}
	return nil
}

// superseded says which of the locked rows are terminal and have a version below the highest of their
// reference: what revives many at once leaves those as they are. Whoever accepts a higher version meanwhile
// waits for this transaction, and finds them open then.
func (t *tx) superseded(ids []string, rows map[string]row) (map[string]bool, error) {
	ended := make(map[string]refVersion)
	keys := make(map[refKey]bool)
	for _, id := range ids {
		if r, ok := rows[id]; ok && r.Version != nil && r.Ref != "" && r.Topic != "" && r.State.Terminal() {
			ended[id] = refVersion{refKeyOf(&r.Callback), *r.Version, 0}
			keys[ended[id].refKey] = true
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	noted, err := sqldb.Select(t, refVersionColumns, `FROM refs_latest
		WHERE (project, topic, ref) IN (SELECT i.project, i.topic, i.ref FROM $i)
		ORDER BY project, topic, ref FOR SHARE`,
		sqldb.Rows(slices.Collect(maps.Keys(keys)), refKeyColumns))
	if err != nil {
		return nil, named("read the latest versions", err)
	}
	latest, late := versionsOf(noted), make(map[string]bool)
	for id, v := range ended {
		highest, ok := latest[v.refKey]
		late[id] = ok && v.Version < highest
	}
	return late, nil
}

// PurgeVersions forgets which version of a reference was the highest, of up to limit references that nothing
// was accepted for since before. It returns how many that were, and whether there may be more.
func (db *DB) PurgeVersions(
	ctx context.Context, now, before int64, limit int,
) (removed int, more bool, err error) {
	return db.purgeByStatement(ctx, versionsPurge, now, before, limit, `DELETE FROM refs_latest
		WHERE (project, topic, ref) IN (
		SELECT project, topic, ref FROM refs_latest WHERE updated_at >= $1 AND updated_at < $2
		ORDER BY updated_at LIMIT $3) AND updated_at < $2
		RETURNING updated_at`)
}
