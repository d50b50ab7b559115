package dispatch

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// SealedRows reads and changes what SQL has encrypted, for checks of the keyring and for a change of the
// master key.
type SealedRows interface {
	// SealedKeys returns, of every table, one row for each master key that is used in it at now; with zero
	// also of what is not used any more.
	SealedKeys(ctx context.Context, now int64) ([]store.SealedRow, error)
	// CountSealed counts the rows of a table that a master key has sealed, up to most.
	CountSealed(ctx context.Context, table store.SealedTable, keyID string, most int) (int, error)
	// Reseal has change re-encrypt such rows, with ids above after, at most limit. A row that change refuses
	// stays as it was. change may be called more than once. What was changed is audited in the same
	// transaction.
	Reseal(ctx context.Context, table store.SealedTable, keyID, after string, limit int,
		change func(*store.SealedRow) error, now int64, by store.Actor) (store.SealedPage, error)
}

// A KeyProblem is a master key that SQL names and that a keyring cannot open rows with.
type KeyProblem struct {
	KeyID string
	// Table and ID name one of the rows.
	Table store.SealedTable
	ID    string
	// Err is ErrUnknownKey, or ErrTampered where the keyring has a key of that id.
	Err error
}

// String says what is wrong in one sentence.
func (p KeyProblem) String() string {
	if errors.Is(p.Err, ErrUnknownKey) {
		return fmt.Sprintf("the database has rows encrypted with master key %s (such as %s %s), which is not given",
			p.KeyID, p.Table, p.ID)
	}
	return fmt.Sprintf("%s %s cannot be decrypted with master key %s, which it names: the row was changed or damaged",
		p.Table, p.ID, p.KeyID)
}

// Check opens one row of each master key that SQL names, and returns those keys with which that fails.
func (k *Keyring) Check(rows []store.SealedRow) []KeyProblem {
	var problems []KeyProblem
	for i := range rows {
		r := rows[i]
		if err := k.eachSealed(&r, k.tryOpen); err != nil {
			problems = append(problems, KeyProblem{KeyID: r.KeyID, Table: r.Table, ID: r.ID, Err: err})
		}
	}
	return problems
}

func (k *Keyring) tryOpen(bound, sealed string) (string, error) {
	_, err := k.openText(bound, sealed)
	return sealed, err
}

// reseal encrypts what a row has with the first key.
func (k *Keyring) reseal(r *store.SealedRow) error {
	err := k.eachSealed(r, func(bound, sealed string) (string, error) {
		plain, err := k.openText(bound, sealed)
		if err != nil {
			return "", err
		}
		return k.sealText(bound, plain), nil
	})
	if err == nil {
		r.KeyID = k.first
	}
	return err
}

// eachSealed replaces every ciphertext of a row by what change makes of it.
func (k *Keyring) eachSealed(r *store.SealedRow, change func(bound, sealed string) (string, error)) error {
	switch r.Table {
	case store.SealedSecrets:
		sealed := store.SealedText(r.Secret.KeyID, base64.RawStdEncoding.EncodeToString(r.Secret.Ciphertext))
		changed, err := change(bindSecret(r.Secret), sealed)
		if err != nil {
			return err
		}
		_, text, _ := store.CutSealed(changed)
		r.Secret.Ciphertext, err = base64.RawStdEncoding.DecodeString(text)
		return err
	case store.SealedSchedules:
		changed, err := change(bindTemplate(r.Project, r.ID), r.Template)
		r.Template = changed
		return err
	}
	owner := projectOwner
	switch r.Table {
	case store.SealedEndpoints:
		owner = endpointOwner(r.ID)
	case store.SealedCallbacks, store.SealedPolls:
		owner = callbackOwner(r.ID)
	}
	for i := range r.Headers {
		h := &r.Headers[i]
		text := h.Sealed()
		if text == "" {
			continue
		}
		of, sealed := sealedFor(text, owner)
		changed, err := change(bindHeader(r.Project, of, h.Name), sealed)
		if err != nil {
			return err
		}
		*h = store.SealedHeader(h.Name, changed+text[len(sealed):]) // the name of another owner stays behind it
	}
	return nil
}

// unreadableFor is how long Health speaks of a secret that could not be decrypted.
const unreadableFor = 10 * time.Minute

// unreadable remembers when something sealed could last not be opened, in Unix milliseconds; zero: never.
type unreadable struct{ at atomic.Int64 }

func (u *unreadable) lately() bool {
	at := u.at.Load()
	return at != 0 && time.Since(time.UnixMilli(at)) < unreadableFor
}

// opened takes notice of a decryption that failed, and returns its error.
func (e *Engine) opened(err error) error {
	if errors.Is(err, ErrUnknownKey) || errors.Is(err, ErrTampered) {
		e.metrics.unreadable.Inc()
		e.unreadable.at.Store(time.Now().UnixMilli())
	}
	return err
}

// CheckKeys returns what of SQL cannot be read with the keyring. On a database that has nothing encrypted yet
// it stores the installation's own key for cursors, so that another keyring is noticed from then on.
func (e *Engine) CheckKeys(ctx context.Context) ([]KeyProblem, error) {
	rows, err := e.o.Store.SealedKeys(ctx, e.clock.now())
	if err != nil {
		return nil, fmt.Errorf("read what is encrypted: %w", err)
	}
	if problems := e.o.Keyring.Check(rows); len(problems) > 0 {
		return problems, nil
	}
	if _, err := e.CursorKey(ctx); errors.Is(err, ErrUnknownKey) || errors.Is(err, ErrTampered) {
		// Another process has stored its own meanwhile.
		return []KeyProblem{{Table: store.SealedSecrets, ID: useCursor, Err: err}}, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the key of cursors: %w", err)
	}
	return nil, nil
}

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
func (e *Engine) Reencrypt(ctx context.Context, from string, by store.Actor) (Reencryption, error) {
	r := Reencryption{KeyID: e.o.Keyring.KeyID()}
	place, err := parsePlace(from)
	if err != nil {
		return r, err
	}
	rows, err := e.o.Store.SealedKeys(ctx, 0)
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
		if pages, err = e.reencryptRows(ctx, &r, at, pages, by); err != nil {
			return r, err
		}
		if r.Next != "" {
			break
		}
	}
	for _, row := range old {
		n, err := e.o.Store.CountSealed(ctx, row.Table, row.KeyID, MaxCounted)
		if err != nil {
			return r, fmt.Errorf("count what is left: %w", err)
		}
		r.Left += n
	}
	if r.Left == 0 {
		r.Next = ""
	}
	if r.Done > 0 {
		e.settingsChanged(ctx)
	}
	return r, nil
}

// reencryptRows re-encrypts the rows of one table and one master key, of as many pages at most, and returns
// how many pages are left. Where they do not suffice, r.Next says where to go on.
func (e *Engine) reencryptRows(
	ctx context.Context, r *Reencryption, p reencryptPlace, pages int, by store.Actor,
) (left int, err error) {
	for ; pages > 0; pages-- {
		page, err := e.o.Store.Reseal(ctx, p.table, p.keyID, p.after, reencryptPage, e.o.Keyring.reseal,
			e.clock.now(), by)
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
		return reencryptPlace{}, invalid("from", "is not the next of an answer to this call")
	}
	return reencryptPlace{store.SealedTable(parts[0]), parts[1], parts[2]}, nil
}
