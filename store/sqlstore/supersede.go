package sqlstore

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A newer version of a reference and topic supersedes the older ones: their open callbacks are canceled. The
// row in table refs_latest holds the highest version, and serializes accepts of the same reference.

// A refKey identifies the callbacks whose versions supersede each other.
type refKey struct{ Project, Topic, Ref string }

var refKeyColumns = sqldb.Named[refKey](`project topic ref`)

// refKeyOf returns the key of a callback.
func refKeyOf(c *store.Callback) refKey { return refKey{c.Project, c.Topic, c.Ref} }

// A refVersion is a version of a reference with the time of its accept.
type refVersion struct {
	refKey
	Version, UpdatedAt int64
}

var refVersionColumns = sqldb.Named[refVersion](`project topic ref version updated_at`)

// supersedes reports whether the draft has a version, a reference and a topic, and wants to supersede.
func (e *acceptEntry) supersedes() bool {
	c := &e.draft.Callback
	return e.draft.Supersede && c.Version != nil && c.Ref != "" && c.Topic != ""
}

// supersede cancels the callbacks that the drafts supersede. A draft below the highest version of its
// reference begins as canceled; that version may come from an earlier accept or from the same group. An
// accept locks the row of its reference in refs_latest until the commit. So the next one sees the callbacks
// of all accepts before it, on whatever connection.
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
	// A reference with a higher stored version is left out: the accept of that version canceled the lower
	// ones.
	given = slices.DeleteFunc(given, func(v refVersion) bool { return v.Version < versions[v.refKey] })
	return t.cancelOlder(given, highest)
}

// raiseVersions stores the versions that are higher than the stored ones, and returns the stored ones. Every
// given reference is locked, in the order of the keys.
func (t *tx) raiseVersions(given []refVersion) (map[refKey]int64, error) {
	noted, err := sqldb.Returning(t, refVersionColumns,
		`INSERT INTO refs_latest (project, topic, ref, version, updated_at)
		SELECT i.project, i.topic, i.ref, i.version, i.updated_at FROM $i WHERE 1 = 1
		ON CONFLICT (project, topic, ref) DO UPDATE SET
			version = CASE
				WHEN excluded.version > refs_latest.version THEN excluded.version
				ELSE refs_latest.version
			END,
			updated_at = excluded.updated_at`, sqldb.Rows(given, refVersionColumns))
	return versionsOf(noted), named("store versions", err)
}

// versionsOf returns the versions by their references.
func versionsOf(noted []refVersion) map[refKey]int64 {
	versions := make(map[refKey]int64, len(noted))
	for _, v := range noted {
		versions[v.refKey] = v.Version
	}
	return versions
}

// cancelOlder cancels the open callbacks of the references that have a lower version, and adds them to the
// answers. The index requests_ref finds them.
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
		return named("find older versions", err)
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

// superseded reports which of the locked rows are terminal and have a version below the highest of their
// reference. A redrive does not revive those, and neither does a Retry with Newest. The rows in refs_latest
// stay locked, so an accept of a higher version waits for this transaction, and then cancels what it revived.
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

// PurgeVersions deletes the highest versions of up to limit references for which nothing was accepted since
// before. It returns how many, and whether there may be more.
func (db *DB) PurgeVersions(
	ctx context.Context, now, before int64, limit int,
) (removed int, more bool, err error) {
	return db.purgeByStatement(ctx, versionsPurge, now, before, limit, `DELETE FROM refs_latest
		WHERE (project, topic, ref) IN (
		SELECT project, topic, ref FROM refs_latest WHERE updated_at >= $1 AND updated_at < $2
		ORDER BY updated_at LIMIT $3) AND updated_at < $2
		RETURNING updated_at`)
}
