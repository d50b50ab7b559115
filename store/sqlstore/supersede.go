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
type refKey struct{ project, topic, ref string }

func (e *acceptEntry) refKey() refKey {
	c := &e.draft.Callback
	return refKey{c.Project, c.Topic, c.Ref}
}

func refKeyColumns(k *refKey) sqldb.Columns {
	return sqldb.Columns{col("project", &k.project), col("topic", &k.topic), col("ref", &k.ref)}
}

// supersedes says that the draft takes part in that at all.
func (e *acceptEntry) supersedes() bool {
	c := &e.draft.Callback
	return e.draft.Supersede && c.Version != nil && c.Ref != "" && c.Topic != ""
}

// supersede cancels what the drafts supersede, and those of them that have been superseded themselves, by an earlier accept or by
// another draft of the group. Of each reference the highest version has a row, and whoever accepts one holds that row until it is
// committed: so the next one sees all that were before it, on whatever connection.
func (t *tx) supersede(entries []*acceptEntry) error {
	highest := make(map[refKey]*acceptEntry)
	var keys []refKey
	for _, e := range entries {
		if !e.supersedes() {
			continue
		}
		k := e.refKey()
		switch best := highest[k]; {
		case best == nil:
			keys = append(keys, k)
			highest[k] = e
		case *e.draft.Callback.Version > *best.draft.Callback.Version:
			highest[k] = e
		}
	}
	if len(keys) == 0 {
		return nil
	}
	slices.SortFunc(keys, func(a, b refKey) int {
		return cmp.Or(cmp.Compare(a.project, b.project), cmp.Compare(a.topic, b.topic), cmp.Compare(a.ref, b.ref))
	})
	versions, err := t.raiseVersions(keys, highest)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if c := &e.out.Callback; e.supersedes() && *c.Version < versions[e.refKey()] {
			c.State, c.Reason, c.DueAt, c.FinishedAt = store.Canceled, store.Superseded, 0, c.CreatedAt
		}
	}
	// Where a higher version was there before, that one has canceled what was below it.
	keys = slices.DeleteFunc(keys, func(k refKey) bool { return *highest[k].draft.Callback.Version < versions[k] })
	return t.cancelOlder(keys, highest)
}

// raiseVersions notes the versions of drafts, if they are higher than what was noted, and returns what is noted then.
func (t *tx) raiseVersions(keys []refKey, highest map[refKey]*acceptEntry) (map[refKey]int64, error) {
	versions := make(map[refKey]int64, len(keys))
	noted, err := sqldb.Returning(t, refVersionColumns, `INSERT INTO refs_latest (project, topic, ref, version, updated_at)
		SELECT i.project, i.topic, i.ref, i.version, i.updated_at FROM $i WHERE 1 = 1
		ON CONFLICT (project, topic, ref) DO UPDATE SET
			version = CASE WHEN excluded.version > refs_latest.version THEN excluded.version ELSE refs_latest.version END,
			updated_at = excluded.updated_at`, refVersions(keys, highest))
	for _, v := range noted {
		versions[v.refKey] = v.version
	}
	return versions, named("note versions", err)
}

// A refVersion is a version of a reference.
type refVersion struct {
	refKey
	version int64
}

func refVersionColumns(v *refVersion) sqldb.Columns {
	return append(refKeyColumns(&v.refKey), col("version", &v.version))
}

// refVersions are references with their highest drafts' versions.
func refVersions(keys []refKey, highest map[refKey]*acceptEntry) sqldb.Input {
	return sqldb.Rows(keys, func(k *refKey) sqldb.Columns {
		return append(refKeyColumns(k),
			calc("version", func() int64 { return *highest[*k].draft.Callback.Version }),
			calc("updated_at", func() int64 { return highest[*k].draft.Callback.CreatedAt }))
	})
}

// cancelOlder cancels the open callbacks of the references that have a lower version.
func (t *tx) cancelOlder(keys []refKey, highest map[refKey]*acceptEntry) error {
	if len(keys) == 0 {
		return nil
	}
	ids, err := sqldb.Values[string](t, `SELECT callbacks.id FROM $i
		JOIN requests ON requests.project = i.project AND requests.ref = i.ref AND requests.ref <> ''
			AND requests.topic = i.topic
		JOIN callbacks ON callbacks.id = requests.id
		WHERE `+isOpen+` AND requests.version < i.version`, refVersions(keys, highest))
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
			k := refKey{r.Project, r.Topic, r.Ref}
			older[k] = append(older[k], r)
		}
	}
	for _, k := range keys {
		e := highest[k]
		if e.out.Superseded, err = t.cancelAll(older[k], store.Superseded, e.draft.Callback.CreatedAt); err != nil {
			return err
		}
	}
	return nil
}

// superseded says which of the locked rows are terminal and have a version below the highest of their reference: what revives many at
// once leaves those as they are. Whoever accepts a higher version meanwhile waits for this transaction, and finds them open then.
func (t *tx) superseded(ids []string, rows map[string]row) (map[string]bool, error) {
	versions := make(map[string]int64) // of those that have ended
	keys := make(map[refKey]bool)
	for _, id := range ids {
		if r, ok := rows[id]; ok && r.Version != nil && r.Ref != "" && r.Topic != "" && r.State.Terminal() {
			versions[id] = *r.Version
			keys[refKey{r.Project, r.Topic, r.Ref}] = true
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	noted, err := sqldb.Select(t, refVersionColumns, `FROM refs_latest
		WHERE (project, topic, ref) IN (SELECT i.project, i.topic, i.ref FROM $i)
		ORDER BY project, topic, ref FOR SHARE`, sqldb.Rows(slices.Collect(maps.Keys(keys)), refKeyColumns))
	if err != nil {
		return nil, named("read the latest versions", err)
	}
	latest := make(map[refKey]int64)
	for _, v := range noted {
		latest[v.refKey] = v.version
	}
	late := make(map[string]bool)
	for id, version := range versions {
		r := rows[id]
		if highest, ok := latest[refKey{r.Project, r.Topic, r.Ref}]; ok && version < highest {
			late[id] = true
		}
	}
	return late, nil
}

// PurgeVersions forgets which version of a reference was the highest, of up to limit references that nothing
// was accepted for since before. It returns how many that were, and whether there may be more.
func (db *DB) PurgeVersions(
	ctx context.Context, now, before int64, limit int,
) (removed int, more bool, err error) {
	return db.deleteAged(ctx, versionsPurge, now, before, limit, `DELETE FROM refs_latest
		WHERE (project, topic, ref) IN (
		SELECT project, topic, ref FROM refs_latest WHERE updated_at >= $1 AND updated_at < $2
		ORDER BY updated_at LIMIT $3) AND updated_at < $2
		RETURNING updated_at`)
}
