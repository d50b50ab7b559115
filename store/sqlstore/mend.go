package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Mend changes where and how a callback is sent that is scheduled or dead: its URL and whether that follows its endpoint, lane, headers,
// policy, success rule and expiry. change sets them, and may be called more than once; whatever else it sets is left as it was. The
// callback stays in its state, a dead one too, and its payload never changes. It returns store.ErrNotFound, store.ErrAttempting,
// store.ErrTerminal, store.ErrPayloadPurged, store.ErrEndpointDeleted or the error of change.
func (db *DB) Mend(ctx context.Context, project, id string, change func(c *store.Callback) error, now int64, by store.Actor) (store.Callback, error) {
	c, err := db.mend(ctx, project, id, now, func(t *tx, m *row) (store.AuditEntry, error) {
		if m.State != store.Scheduled && m.State != store.Dead {
			return store.AuditEntry{}, store.ErrTerminal
		}
		wanted := m.Callback
		wanted.Headers, wanted.Labels = slices.Clone(m.Headers), maps.Clone(m.Labels)
		wanted.Policy.Tiers, wanted.Policy.StopOn = slices.Clone(m.Policy.Tiers), slices.Clone(m.Policy.StopOn)
		if err := change(&wanted); err != nil {
			return store.AuditEntry{}, err
		}
		changed, err := t.take(m, &wanted)
		if err != nil {
			return store.AuditEntry{}, err
		}
		return auditOf(project, actionMend, id, now, by, auditDiff{}, map[string]any{"changed": changed})
	})
	if err != nil {
		return store.Callback{}, fmt.Errorf("mend %s: %w", id, err)
	}
	return c, nil
}

// take gives a row what is wanted of it, writes the structured columns, and names what differs.
func (t *tx) take(m *row, wanted *store.Callback) (changed []string, err error) {
	if m.URL != wanted.URL || m.Follows != wanted.Follows {
		changed = append(changed, "url")
		m.URL, m.Follows = wanted.URL, wanted.Follows && m.EndpointID != ""
	}
	if m.Lane != wanted.Lane {
		changed = append(changed, "lane")
		if m.LaneID, err = t.laneID(m.Project, wanted.Lane); err != nil {
			return nil, err
		}
		m.Lane = wanted.Lane
	}
	if m.ExpiresAt != wanted.ExpiresAt {
		changed = append(changed, "expires_at")
		m.ExpiresAt = wanted.ExpiresAt
	}
	structured := false
	for _, part := range []struct {
		name string
		same bool
	}{
		{"headers", slices.Equal(m.Headers, wanted.Headers)}, {"policy", samePolicy(&m.Policy, &wanted.Policy)}, {"success", m.Success == wanted.Success},
	} {
		if !part.same {
			changed = append(changed, part.name)
			structured = true
		}
	}
	if !structured {
		return changed, nil
	}
	m.Headers, m.Policy, m.Success = wanted.Headers, wanted.Policy, wanted.Success
	return changed, t.writeStructured(m)
}

// writeStructured writes headers, policy and success rule.
func (t *tx) writeStructured(m *row) error {
	var headers string
	var errs [3]error
	if len(m.Headers) > 0 {
		headers, errs[0] = encode(m.Headers)
	}
	policy, err := encode(m.Policy)
	errs[1] = err
	success, err := encode(m.Success)
	errs[2] = err
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("encode callback: %w", err)
	}
	_, err = t.exec(`UPDATE callbacks SET timeout_ms = $1 WHERE id = $2`, timeoutMillis(m.Policy), m.ID)
	if err == nil {
		_, err = t.exec(`UPDATE requests SET headers = $1, policy = $2, success = $3, sealed_key = $4
			WHERE project = $5 AND id = $6`,
			headers, policy, success, store.SealedKey(m.Headers), m.Project, m.ID)
	}
	if err != nil {
		return fmt.Errorf("write structured columns: %w", err)
	}
	return nil
}
