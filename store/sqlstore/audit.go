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
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
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
		var err error
		if entries[i].ID, err = t.db.ids.next(); err != nil {
			return err
		}
	}
	return named("append to audit", sqldb.InsertRows(t.Tx, "audit", entryColumns, entries, ""))
}

// entryColumns describe an entry of the audit but for its place in the chain, which it gets later.
func entryColumns(e *store.AuditEntry) sqldb.Columns {
	return sqldb.Columns{
		col("id", &e.ID),
		col("project", &e.Project),
		col("at", &e.At),
		col("actor", &e.Actor),
		col("address", &e.Address),
		col("action", &e.Action),
		col("object", &e.Object),
		col("reason", &e.Reason),
		col("before", &e.Before),
		col("after", &e.After),
		col("detail", &e.Detail),
	}
}

func auditColumns(e *store.AuditEntry) sqldb.Columns {
	return append(entryColumns(e), col("seq", &e.Link.Seq), col("hash", &e.Link.Hash))
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
	return db.change(ctx, "append audit", func(t *tx) error { return t.audit(e) })
}
