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

// A Reencryption says how far a change of the master key is.
type Reencryption struct {
	// KeyID is the master key that encrypts now.
	KeyID string
	// Done rows were changed by this call, Failed ones could not be read.
	Done, Failed int
	// Left counts the rows that still have another key, those that failed among them; it counts up to
	// MaxCounted a table.
	Left int
	// Next is where the next call goes on; empty: this one has come to the end.
	Next string
}

const (
	// reencryptPage is the most rows of one transaction, reencryptPages the most transactions of a call.
	reencryptPage  = 200
	reencryptPages = 10
	// MaxCounted bounds what is counted of a table.
	MaxCounted = 100_000
)

// Reencrypt re-encrypts a bounded number of rows with the first master key, from a place on that an earlier
// call has returned; empty: from the beginning.
func (ct *Controller) Reencrypt(ctx context.Context, from string, by store.Actor) (Reencryption, error) {
	r := Reencryption{KeyID: ct.o.Keyring.KeyID()}
	place, err := parsePlace(from)
	if err != nil {
		return r, err
	}
	rows, err := ct.o.Store.SealedKeys(ctx, 0)
	if err != nil {
		return r, fmt.Errorf("read what is encrypted: %w", err)
	}
	old := slices.DeleteFunc(rows, func(row store.SealedRow) bool { return row.KeyID == r.KeyID })
	pages := reencryptPages
	for i := range old {
		at := reencryptPlace{table: old[i].Table, keyID: old[i].KeyID}
		switch at.compare(place) {
		case -1:
			continue
		case 0:
			at.after = place.after
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
			return r, fmt.Errorf("count what is left: %w", err)
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

// reencryptRows re-encrypts the rows of one table and one master key, of as many pages at most, and returns
// how many pages are left. Where they do not suffice, r.Next says where to go on.
func (ct *Controller) reencryptRows(
	ctx context.Context, r *Reencryption, p reencryptPlace, pages int, by store.Actor,
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

// A reencryptPlace is where a re-encryption goes on: after a row of a table and a master key.
type reencryptPlace struct {
	table        store.SealedTable
	keyID, after string
}

// compare orders places by table and master key, as SealedKeys returns them. The empty place comes before all
// others.
func (p reencryptPlace) compare(other reencryptPlace) int {
	tables := store.SealedTables()
	return cmp.Or(cmp.Compare(slices.Index(tables, p.table), slices.Index(tables, other.table)),
		cmp.Compare(p.keyID, other.keyID))
}

func (p reencryptPlace) String() string { return string(p.table) + "/" + p.keyID + "/" + p.after }

func parsePlace(text string) (reencryptPlace, error) {
	if text == "" {
		return reencryptPlace{}, nil
	}
	parts := strings.Split(text, "/")
	if len(parts) != 3 || !slices.Contains(store.SealedTables(), store.SealedTable(parts[0])) {
		return reencryptPlace{}, accept.Invalid("from", "is not the next of an answer to this call")
	}
	return reencryptPlace{store.SealedTable(parts[0]), parts[1], parts[2]}, nil
}
