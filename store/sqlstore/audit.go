package sqlstore

import (
	"context"
	"crypto/rand"
	"errors"
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

// Entries are committed without a place in the chain, in the transaction of what they record, so that no
// writer waits for another. ChainAudit gives them their places afterwards. See docs/adr/0029.

// chainEntries is how many entries one call of ChainAudit takes at most, in transactions of a maintenance
// batch each.
const chainEntries = 10_000

// ChainAudit gives the entries that wait for it their places in the chain, in the order of their ids, at most
// 10,000. key is asked for only if there are any. Processes that do it at once take turns. It returns the
// last link, and how many entries it has chained.
func (db *DB) ChainAudit(
	ctx context.Context, key func(context.Context) ([]byte, error),
) (head store.AuditLink, chained int, err error) {
	waits, err := sqldb.Exists(db.read(ctx, "look for entries to chain"), `SELECT 1 FROM audit WHERE seq = 0 LIMIT 1`)
	if err != nil || !waits {
		return head, 0, err
	}
	secret, err := key(ctx)
	if err != nil {
		return head, 0, fmt.Errorf("chain audit: its key: %w", err)
	}
	chained, err = db.inBatches(ctx, "chain audit", chainEntries, func(t *tx, batch int) (int, error) {
		last, taken, err := t.chainAudit(secret, batch)
		t.OnCommit(func() { head = last })
		return taken, err
	})
	return head, chained, err
}

// chainAudit chains so many entries at most. The head is locked before they are read, so that
// no two transactions give the same place away.
func (t *tx) chainAudit(key []byte, batch int) (head store.AuditLink, taken int, err error) {
	head, found, err := sqldb.One(t, func(l *store.AuditLink) sqldb.Columns {
		return sqldb.Columns{col("seq", &l.Seq), col("hash", &l.Hash)}
	}, `FROM audit_head WHERE id = 1 FOR UPDATE`)
	if err == nil && !found {
		err = errors.New("the row is not there")
	}
	if err != nil {
		return head, 0, fmt.Errorf("lock the head: %w", err)
	}
	entries, err := sqldb.Select(t, auditColumns, `FROM audit WHERE seq = 0 ORDER BY id LIMIT $1`, batch)
	if err != nil || len(entries) == 0 {
		return head, 0, named("read entries", err)
	}
	for i := range entries {
		head = head.Next(key, &entries[i])
		entries[i].Link = head
	}
	return head, len(entries), t.writeLinks(entries, head)
}

// writeLinks writes the places of entries, and the new head.
func (t *tx) writeLinks(entries []store.AuditEntry, head store.AuditLink) error {
	n, err := sqldb.ExecRows(t.Tx, `UPDATE audit SET seq = i.seq, hash = i.hash FROM $i
		WHERE audit.id = i.id AND audit.seq = 0`, entries,
		func(e *store.AuditEntry) sqldb.Columns {
			return sqldb.Columns{
				col("id", &e.ID),
				col("seq", &e.Link.Seq),
				col("hash", &e.Link.Hash),
			}
		})
	if err != nil {
		return fmt.Errorf("write links: %w", err)
	}
	if n != int64(len(entries)) {
		return fmt.Errorf("write links: %d entries, and %d of them were there", len(entries), n)
	}
	if _, err := t.Exec(`UPDATE audit_head SET seq = $1, hash = $2 WHERE id = 1`,
		head.Seq, head.Hash); err != nil {
		return fmt.Errorf("write the head: %w", err)
	}
	return nil
}

// AuditHead returns where the chain ends, all of it at one moment. Without the row of the head it is zero, as
// if nothing were chained.
func (db *DB) AuditHead(ctx context.Context) (store.AuditHead, error) {
	head, _, err := sqldb.One(db.read(ctx, "read the head of the audit"), func(h *store.AuditHead) sqldb.Columns {
		return sqldb.Columns{
			col(`COALESCE((SELECT seq FROM audit_head WHERE id = 1), 0)`, &h.Link.Seq),
			col(`COALESCE((SELECT hash FROM audit_head WHERE id = 1), '')`, &h.Link.Hash),
			col(`COALESCE((SELECT MAX(seq) FROM audit WHERE seq <> 0), 0)`, &h.Last),
			col(`(SELECT COUNT(*) FROM (SELECT 1 AS one FROM audit WHERE seq = 0 LIMIT $1) AS part)`, &h.Unchained),
		}
	}, "", store.MaxUnchained)
	return head, err
}

// chainPage names the condition of the index audit_chained, by which it is read.
const chainPage = `FROM audit WHERE seq > $1 AND seq <= $2 AND seq <> 0 ORDER BY seq LIMIT $3`

// ChainedAudit returns the entries of all projects with places above after, up to until, in their order, at
// most limit.
func (db *DB) ChainedAudit(ctx context.Context, after, until int64, limit int) ([]store.AuditEntry, error) {
	return sqldb.Select(db.read(ctx, "read the chain of the audit"), auditColumns, chainPage, after, until, limit)
}
