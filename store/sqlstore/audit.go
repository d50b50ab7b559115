package sqlstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The actions that this package writes into the audit.
const (
	actionCancel          = "callback.cancel"
	actionRetry           = "callback.retry"
	actionReschedule      = "callback.reschedule"
	actionMend            = "callback.mend"
	actionResolve         = "poll.resolve"
	actionCreateSchedule  = "schedule.create"
	actionUpdateSchedule  = "schedule.update"
	actionDeleteSchedule  = "schedule.delete"
	actionRunSchedule     = "schedule.run"
	actionAddSecret       = "secret.add"
	actionSetLane         = "lane.limits"
	actionPauseLane       = "lane.pause"
	actionResumeLane      = "lane.resume"
	actionCreateProject   = "project.create"
	actionUpdateProject   = "project.update"
	actionPauseProject    = "project.pause"
	actionResumeProject   = "project.resume"
	actionPutPreset       = "preset.put"
	actionDeletePreset    = "preset.delete"
	actionAddKey          = "key.create"
	actionRevokeKey       = "key.revoke"
	actionCreateEndpoint  = "endpoint.create"
	actionUpdateEndpoint  = "endpoint.update"
	actionPauseEndpoint   = "endpoint.pause"
	actionResumeEndpoint  = "endpoint.resume"
	actionEnableEndpoint  = "endpoint.enable"
	actionDisableEndpoint = "endpoint.disable"
	actionDeleteEndpoint  = "endpoint.delete"
	actionRebuildIndex    = "index.rebuild"
	actionReencrypt       = "secret.reencrypt"
)

// An idSource makes ULIDs that rise within a process, also within one millisecond.
type idSource struct {
	mu      sync.Mutex
	entropy io.Reader
}

// next returns one of this moment by this machine's clock.
func (s *idSource) next() (string, error) { return s.at(ulid.Timestamp(time.Now())) }

// at returns one of that time, in Unix milliseconds.
func (s *idSource) at(ms uint64) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entropy == nil {
		s.entropy = ulid.Monotonic(rand.Reader, 0)
	}
	id, err := ulid.New(ms, s.entropy)
	if err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	return id.String(), nil
}

// audit appends entries to the audit, in the transaction of what they record. Empty ids are made.
func (t *tx) audit(entries ...store.AuditEntry) error {
	for i := range entries {
		if entries[i].ID != "" {
			continue
		}
		id, err := t.db.ids.next()
		if err != nil {
			return err
		}
		entries[i].ID = id
	}
	input, args, _, err := t.input([]column{
		texts("id", entries, func(e store.AuditEntry) string { return e.ID }),
		texts("project", entries, func(e store.AuditEntry) string { return e.Project }),
		ints("at", entries, func(e store.AuditEntry) int64 { return e.At }),
		texts("actor", entries, func(e store.AuditEntry) string { return e.Actor }),
		texts("address", entries, func(e store.AuditEntry) string { return e.Address }),
		texts("action", entries, func(e store.AuditEntry) string { return e.Action }),
		texts("object", entries, func(e store.AuditEntry) string { return e.Object }),
		texts("reason", entries, func(e store.AuditEntry) string { return e.Reason }),
		texts("before", entries, func(e store.AuditEntry) string { return e.Before }),
		texts("after", entries, func(e store.AuditEntry) string { return e.After }),
		texts("detail", entries, func(e store.AuditEntry) string { return e.Detail }),
	})
	if err != nil {
		return err
	}
	if _, err := t.exec(`INSERT INTO audit
			(id, project, at, actor, address, action, object, reason, before, after, detail)
		SELECT i.id, i.project, i.at, i.actor, i.address, i.action, i.object, i.reason,
			i.before, i.after, i.detail
		FROM `+input, args...); err != nil {
		return fmt.Errorf("append to audit: %w", err)
	}
	return nil
}

// auditChange appends one entry.
func (t *tx) auditChange(
	project, action, object string, at int64, by store.Actor, changed auditDiff, detail any,
) error {
	entry, err := auditOf(project, action, object, at, by, changed, detail)
	if err != nil {
		return err
	}
	return t.audit(entry)
}

// auditOf is the entry of a change to one object; detail may be nil.
func auditOf(
	project, action, object string, at int64, by store.Actor, changed auditDiff, detail any,
) (e store.AuditEntry, err error) {
	e = store.AuditEntry{
		Project: project, At: at, Actor: by.Name, Address: by.Address,
		Action: action, Object: object, Reason: by.Reason,
	}
	if e.Before, e.After, err = changed.texts(); err != nil || detail == nil {
		return e, err
	}
	if e.Detail, err = encode(detail); err != nil {
		return e, fmt.Errorf("encode audit detail: %w", err)
	}
	return e, nil
}

// AppendAudit records a mutation that has no row of its own. An empty id is made.
func (db *DB) AppendAudit(ctx context.Context, e store.AuditEntry) error {
	if err := db.change(ctx, func(t *tx) error { return t.audit(e) }); err != nil {
		return fmt.Errorf("append audit: %w", err)
	}
	return nil
}
