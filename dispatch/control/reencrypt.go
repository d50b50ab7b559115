package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Reencryption is the progress of a change of the master key.
type Reencryption struct {
	// KeyID is the id of the current master key.
	KeyID string
	// Done is how many rows this call re-encrypted, Failed how many it could not decrypt.
	Done, Failed int
	// Left is how many rows still use another key, failed ones included; it counts at most MaxCounted a
	// table.
	Left int
	// Next is the cursor of the next call; empty: this call reached the end.
	Next string
}

const (
	// reencryptPage is the most rows of a transaction, reencryptPages the most transactions of a call.
	reencryptPage  = 200
	reencryptPages = 10
	// MaxCounted bounds the count of the rows of a table.
	MaxCounted = 100_000
)

// Reencrypt re-encrypts a bounded number of rows with the first master key. from is the Next of an earlier
// call; empty: begin.
func (ct *Controller) Reencrypt(ctx context.Context, from string, by store.Actor) (Reencryption, error) {
	r := Reencryption{KeyID: ct.o.Keyring.KeyID()}
	cursor, err := parseCursor(from)
	if err != nil {
		return r, err
	}
	rows, err := ct.o.Store.SealedKeys(ctx, 0)
	if err != nil {
		return r, fmt.Errorf("list encrypted rows: %w", err)
	}
	old := slices.DeleteFunc(rows, func(row store.SealedRow) bool { return row.KeyID == r.KeyID })
	pages := reencryptPages
	for i := range old {
		at := reencryptCursor{table: old[i].Table, keyID: old[i].KeyID}
		switch at.compare(cursor) {
		case -1:
			continue
		case 0:
			at.after = cursor.after
		}
		pages, err = ct.reencryptRows(ctx, &r, at, pages, by)
		if err != nil {
			return r, err
		}
		if r.Next != "" {
			break
		}
	}
	for _, row := range old {
		n, err := ct.o.Store.CountSealed(ctx, row.Table, row.KeyID, MaxCounted)
		if err != nil {
			return r, fmt.Errorf("count remaining rows: %w", err)
		}
		r.Left += n
	}
	if r.Left == 0 {
		r.Next = ""
	}
	if r.Done > 0 {
		ct.accept.SettingsChanged(ctx)
	}
	return r, nil
}

// reencryptRows re-encrypts rows of one table that use one master key, in at most the given number of pages.
// It returns how many pages are left. If rows may remain after the last page, it sets r.Next.
func (ct *Controller) reencryptRows(
	ctx context.Context, r *Reencryption, p reencryptCursor, pages int, by store.Actor,
) (left int, err error) {
	for ; pages > 0; pages-- {
		page, err := ct.o.Store.Reseal(ctx, p.table, p.keyID, p.after, reencryptPage, ct.o.Keyring.Reseal,
			ct.clock.Now(), by)
		if err != nil {
			return pages, fmt.Errorf("re-encrypt %s: %w", p.table, err)
		}
		r.Done, r.Failed = r.Done+page.Done, r.Failed+page.Failed
		if page.Done+page.Failed < reencryptPage {
			return pages - 1, nil
		}
		p.after = page.Last
	}
	r.Next = p.String()
	return 0, nil
}

// A reencryptCursor is a position in a re-encryption: after a row of a table and a master key.
type reencryptCursor struct {
	table        store.SealedTable
	keyID, after string
}

// compare orders cursors by table and master key, the order of SealedKeys. The empty cursor comes first.
func (p reencryptCursor) compare(other reencryptCursor) int {
	tables := store.SealedTables()
	return cmp.Or(cmp.Compare(slices.Index(tables, p.table), slices.Index(tables, other.table)),
		cmp.Compare(p.keyID, other.keyID))
}

func (p reencryptCursor) String() string { return string(p.table) + "/" + p.keyID + "/" + p.after }

func parseCursor(text string) (reencryptCursor, error) {
	if text == "" {
		return reencryptCursor{}, nil
	}
	parts := strings.Split(text, "/")
	if len(parts) != 3 || !slices.Contains(store.SealedTables(), store.SealedTable(parts[0])) {
		return reencryptCursor{}, accept.Invalid("from", `must be the "next" of an earlier response`)
	}
	return reencryptCursor{store.SealedTable(parts[0]), parts[1], parts[2]}, nil
}
