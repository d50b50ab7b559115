package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

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
	for range chainEntries / db.sql.Dialect.MaintenanceBatch {
		taken := 0
		if err := db.maintain(ctx, "chain audit", func(t *tx) error {
			var err error
			head, taken, err = t.chainAudit(secret)
			return err
		}); err != nil {
			return head, chained, err
		}
		chained += taken
		if taken < db.sql.Dialect.MaintenanceBatch {
			break
		}
	}
	return head, chained, nil
}

// chainAudit chains a maintenance batch of entries at most. The head is locked before they are read, so that
// no two transactions give the same place away.
func (t *tx) chainAudit(key []byte) (head store.AuditLink, taken int, err error) {
	head, found, err := sqldb.One(t, func(l *store.AuditLink) sqldb.Columns {
		return sqldb.Columns{col("seq", &l.Seq), col("hash", &l.Hash)}
	}, `FROM audit_head WHERE id = 1 FOR UPDATE`)
	if err == nil && !found {
		err = errors.New("the row is not there")
	}
	if err != nil {
		return head, 0, fmt.Errorf("lock the head: %w", err)
	}
	entries, err := sqldb.Select(t, auditColumns, `FROM audit WHERE seq = 0 ORDER BY id LIMIT $1`, t.db.sql.Dialect.MaintenanceBatch)
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
		sqldb.Text("id", func(e store.AuditEntry) string { return e.ID }),
		sqldb.Int("seq", func(e store.AuditEntry) int64 { return e.Link.Seq }),
		sqldb.Text("hash", func(e store.AuditEntry) string { return e.Link.Hash }))
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
