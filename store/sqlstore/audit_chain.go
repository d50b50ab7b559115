package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
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
	waits, err := db.hasUnchained(ctx)
	if err != nil || !waits {
		return head, 0, err
	}
	secret, err := key(ctx)
	if err != nil {
		return head, 0, fmt.Errorf("chain audit: its key: %w", err)
	}
	for range chainEntries / db.dialect.maintenanceBatch {
		taken := 0
		if err := db.maintain(ctx, func(t *tx) error {
			var err error
			head, taken, err = t.chainAudit(secret)
			return err
		}); err != nil {
			return head, chained, fmt.Errorf("chain audit: %w", err)
		}
		chained += taken
		if taken < db.dialect.maintenanceBatch {
			break
		}
	}
	return head, chained, nil
}

// hasUnchained looks for an entry that waits, without a transaction that would write.
func (db *DB) hasUnchained(ctx context.Context) (waits bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	if err := queryEach(ctx, db.read, func(scanner) error { waits = true; return nil },
		`SELECT 1 FROM audit WHERE seq = 0 LIMIT 1`); err != nil {
		return false, readError("look for entries to chain", err)
	}
	return waits, nil
}

// chainAudit chains a maintenance batch of entries at most. The head is locked before they are read, so that
// no two transactions give the same place away.
func (t *tx) chainAudit(key []byte) (head store.AuditLink, taken int, err error) {
	found := false
	if err := t.each(func(rows scanner) error { found = true; return rows.Scan(&head.Seq, &head.Hash) },
		`SELECT seq, hash FROM audit_head WHERE id = 1`+t.db.dialect.forUpdate); err != nil {
		return head, 0, fmt.Errorf("lock the head: %w", err)
	}
	if !found {
		return head, 0, errors.New("the row of the head is not there")
	}
	var entries []store.AuditEntry
	if err := t.each(func(rows scanner) error {
		e, err := scanAudit(rows)
		entries = append(entries, e)
		return err
	}, `SELECT `+auditColumns+` FROM audit WHERE seq = 0 ORDER BY id LIMIT $1`,
		t.db.dialect.maintenanceBatch); err != nil {
		return head, 0, fmt.Errorf("read entries: %w", err)
	}
	if len(entries) == 0 {
		return head, 0, nil
	}
	for i := range entries {
		head = head.Next(key, &entries[i])
		entries[i].Link = head
	}
	return head, len(entries), t.writeLinks(entries, head)
}

// writeLinks writes the places of entries, and the new head.
func (t *tx) writeLinks(entries []store.AuditEntry, head store.AuditLink) error {
	input, args, _, err := t.input([]column{
		texts("id", entries, func(e store.AuditEntry) string { return e.ID }),
		ints("seq", entries, func(e store.AuditEntry) int64 { return e.Link.Seq }),
		texts("hash", entries, func(e store.AuditEntry) string { return e.Link.Hash }),
	})
	if err != nil {
		return err
	}
	n, err := t.exec(`UPDATE audit SET seq = i.seq, hash = i.hash FROM `+input+`
		WHERE audit.id = i.id AND audit.seq = 0`, args...)
	if err != nil {
		return fmt.Errorf("write links: %w", err)
	}
	if n != int64(len(entries)) {
		return fmt.Errorf("write links: %d entries, and %d of them were there", len(entries), n)
	}
	if _, err := t.exec(`UPDATE audit_head SET seq = $1, hash = $2 WHERE id = 1`,
		head.Seq, head.Hash); err != nil {
		return fmt.Errorf("write the head: %w", err)
	}
	return nil
}

// AuditHead returns where the chain ends, all of it at one moment. Without the row of the head it is zero, as
// if nothing were chained.
func (db *DB) AuditHead(ctx context.Context) (h store.AuditHead, err error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	if err := queryEach(ctx, db.read, func(rows scanner) error {
		return rows.Scan(&h.Link.Seq, &h.Link.Hash, &h.Last, &h.Unchained)
	}, `SELECT
			COALESCE((SELECT seq FROM audit_head WHERE id = 1), 0),
			COALESCE((SELECT hash FROM audit_head WHERE id = 1), ''),
			COALESCE((SELECT MAX(seq) FROM audit WHERE seq <> 0), 0),
			(SELECT COUNT(*) FROM (SELECT 1 AS one FROM audit WHERE seq = 0 LIMIT $1) AS part)`,
		store.MaxUnchained); err != nil {
		return h, readError("read the head of the audit", err)
	}
	return h, nil
}

// readChain names the condition of the index audit_chained, by which it is read.
const readChain = `SELECT ` + auditColumns + ` FROM audit
	WHERE seq > $1 AND seq <= $2 AND seq <> 0 ORDER BY seq LIMIT $3`

// ChainedAudit returns the entries of all projects with places above after, up to until, in their order, at
// most limit.
func (db *DB) ChainedAudit(ctx context.Context, after, until int64, limit int) ([]store.AuditEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var entries []store.AuditEntry
	if err := queryEach(ctx, db.read, func(rows scanner) error {
		e, err := scanAudit(rows)
		entries = append(entries, e)
		return err
	}, readChain,
		after, until, limit); err != nil {
		return nil, readError("read the chain of the audit", err)
	}
	return entries, nil
}
