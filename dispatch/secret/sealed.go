package secret

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A KeyProblem is a master key of rows in SQL that the keyring cannot decrypt.
type KeyProblem struct {
	KeyID string
	// Table and ID identify one of the rows.
	Table store.SealedTable
	ID    string
	// Err is ErrUnknownKey, or ErrTampered if the keyring has a key with that id.
	Err error
}

// String describes the problem in one sentence.
func (p KeyProblem) String() string {
	if errors.Is(p.Err, ErrUnknownKey) {
		return fmt.Sprintf("the database has rows encrypted with master key %s (such as %s %s), which is "+
			"missing in the settings", p.KeyID, p.Table, p.ID)
	}
	return fmt.Sprintf("%s %s cannot be decrypted with its master key %s: the row was changed or damaged",
		p.Table, p.ID, p.KeyID)
}

// Check decrypts the given rows, one for each table and master key, and returns a problem for each failure.
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

// Reseal re-encrypts a row with the current key.
func (k *Keyring) Reseal(r *store.SealedRow) error {
	err := k.eachSealed(r, func(bound, sealed string) (string, error) {
		plain, err := k.OpenText(bound, sealed)
		if err != nil {
			return "", err
		}
		return k.SealText(bound, plain), nil
	})
	if err == nil {
		r.KeyID = k.current
	}
	return err
}

// eachSealed replaces every ciphertext of a row with the result of change, which gets the ciphertext and what
// it is bound to. An error ends it, and leaves the row partly changed.
func (k *Keyring) eachSealed(r *store.SealedRow, change func(bound, sealed string) (string, error)) error {
	switch r.Table {
	case store.SealedSecrets:
		// A secret is stored as bytes beside its key's id. change takes both as one text, as headers have it.
		sealed := store.SealedText(r.Secret.KeyID, base64.RawStdEncoding.EncodeToString(r.Secret.Ciphertext))
		changed, err := change(bindSecret(r.Secret), sealed)
		if err != nil {
			return err
		}
		_, text, _ := store.CutSealed(changed)
		r.Secret.Ciphertext, err = base64.RawStdEncoding.DecodeString(text)
		return err
	case store.SealedSchedules, store.SealedAlerts:
		bound := BindTemplate(r.Project, r.ID)
		if r.Table == store.SealedAlerts {
			bound = BindSink(r.Project, r.ID)
		}
		changed, err := change(bound, r.Template)
		r.Template = changed
		return err
	}
	owner := ProjectOwner // of the headers that a project gives to all its callbacks
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
		sealedFor, sealed := CutOwner(text, owner)
		changed, err := change(bindHeader(r.Project, sealedFor, h.Name), sealed)
		if err != nil {
			return err
		}
		suffix := text[len(sealed):] // the name of another owner, if any: see SealResult
		*h = store.SealedHeader(h.Name, changed+suffix)
	}
	return nil
}

// unreadableFor is how long Unreadable reports a failed decryption.
const unreadableFor = 10 * time.Minute

// Unreadable reports whether a decryption failed in the last 10 minutes.
func (s *Secrets) Unreadable() bool {
	at := s.unreadable.Load()
	return at != 0 && time.Since(time.UnixMilli(at)) < unreadableFor
}

// KeysFail reports whether the last MeasureKeys missed a master key, or a decryption failed in the last
// minute. It is for alerts, which end soon after their cause.
func (s *Secrets) KeysFail() bool {
	at := s.unreadable.Load()
	return s.missing.Load() > 0 || at != 0 && time.Since(time.UnixMilli(at)) < time.Minute
}

// RecordOpen counts err if it is a failed decryption, and returns it.
func (s *Secrets) RecordOpen(err error) error {
	if errors.Is(err, ErrUnknownKey) || errors.Is(err, ErrTampered) {
		s.unreadableTotal.Inc()
		s.unreadable.Store(time.Now().UnixMilli())
	}
	return err
}

// MeasureKeys sets the metric of master keys that rows in SQL name and the keyring lacks. Another process may
// have been started with a new key.
func (s *Secrets) MeasureKeys(ctx context.Context) error {
	rows, err := s.store.SealedKeys(ctx, s.clock.Now())
	if err != nil {
		return fmt.Errorf("list encrypted rows: %w", err)
	}
	missing := make(map[string]bool)
	for i := range rows {
		if _, ok := s.keys.keys[rows[i].KeyID]; !ok {
			missing[rows[i].KeyID] = true
		}
	}
	s.missing.Store(int64(len(missing)))
	return nil
}

// CheckKeys returns the master keys in SQL that the keyring cannot use. In a database without encrypted rows
// it stores the key of cursors, so that a wrong keyring is noticed from then on.
func (s *Secrets) CheckKeys(ctx context.Context) ([]KeyProblem, error) {
	rows, err := s.store.SealedKeys(ctx, s.clock.Now())
	if err != nil {
		return nil, fmt.Errorf("list encrypted rows: %w", err)
	}
	if problems := s.keys.Check(rows); len(problems) > 0 {
		return problems, nil
	}
	if _, err := s.CursorKey(ctx); errors.Is(err, ErrUnknownKey) || errors.Is(err, ErrTampered) {
		// Another process has just stored a key with its own keyring.
		return []KeyProblem{{Table: store.SealedSecrets, ID: useCursor, Err: err}}, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the key of cursors: %w", err)
	}
	return nil, nil
}
