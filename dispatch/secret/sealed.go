package secret

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

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
		return fmt.Sprintf("the database has rows encrypted with master key %s (such as %s %s), which is "+
			"not given",
			p.KeyID, p.Table, p.ID)
	}
	return fmt.Sprintf("%s %s cannot be decrypted with master key %s, which it names: the row was changed "+
		"or damaged",
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
	_, err := k.OpenText(bound, sealed)
	return sealed, err
}

// Reseal encrypts what a row has with the first key.
func (k *Keyring) Reseal(r *store.SealedRow) error {
	err := k.eachSealed(r, func(bound, sealed string) (string, error) {
		plain, err := k.OpenText(bound, sealed)
		if err != nil {
			return "", err
		}
		return k.SealText(bound, plain), nil
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
		changed, err := change(BindTemplate(r.Project, r.ID), r.Template)
		r.Template = changed
		return err
	}
	owner := ProjectOwner
	switch r.Table {
	case store.SealedEndpoints:
		owner = EndpointOwner(r.ID)
	case store.SealedCallbacks, store.SealedPolls:
		owner = CallbackOwner(r.ID)
	}
	for i := range r.Headers {
		h := &r.Headers[i]
		text := h.Sealed()
		if text == "" {
			continue
		}
		of, sealed := SealedFor(text, owner)
		changed, err := change(bindHeader(r.Project, of, h.Name), sealed)
		if err != nil {
			return err
		}
		// the name of another owner stays behind it
		*h = store.SealedHeader(h.Name, changed+text[len(sealed):])
	}
	return nil
}

// unreadableFor is how long Health speaks of a secret that could not be decrypted.
const unreadableFor = 10 * time.Minute

// Unreadable says whether something sealed could not be opened lately.
func (s *Secrets) Unreadable() bool {
	at := s.unreadable.Load()
	return at != 0 && time.Since(time.UnixMilli(at)) < unreadableFor
}

// Opened takes notice of a decryption that failed, and returns its error.
func (s *Secrets) Opened(err error) error {
	if errors.Is(err, ErrUnknownKey) || errors.Is(err, ErrTampered) {
		s.unreadableTotal.Inc()
		s.unreadable.Store(time.Now().UnixMilli())
	}
	return err
}

// CheckKeys returns what of SQL cannot be read with the keyring. On a database that has nothing encrypted yet
// it stores the installation's own key for cursors, so that another keyring is noticed from then on.
func (s *Secrets) CheckKeys(ctx context.Context) ([]KeyProblem, error) {
	rows, err := s.store.SealedKeys(ctx, s.clock.Now())
	if err != nil {
		return nil, fmt.Errorf("read what is encrypted: %w", err)
	}
	if problems := s.keys.Check(rows); len(problems) > 0 {
		return problems, nil
	}
	if _, err := s.CursorKey(ctx); errors.Is(err, ErrUnknownKey) || errors.Is(err, ErrTampered) {
		// Another process has stored its own meanwhile.
		return []KeyProblem{{Table: store.SealedSecrets, ID: useCursor, Err: err}}, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the key of cursors: %w", err)
	}
	return nil, nil
}
