package dispatch

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// secretAge is how long a process signs with what it read before it reads again: a rotation elsewhere is in force by
	// then.
	secretAge = 5 * time.Second
	// secretOverlap is how long a rotated secret still signs beside its successor.
	secretOverlap = 24 * time.Hour
	// maxLaneSecrets bounds the derived secrets that are kept.
	maxLaneSecrets = 10_000
	secretSize     = 32
)

// secretCache derives lanes' secrets from their project's, and keeps both for a while. In memory they are in clear; in SQL
// they are not.
type secretCache struct {
	store Secrets
	keys  *Keyring
	ids   idSource

	mu       sync.Mutex
	projects map[string]projectSecrets
	lanes    map[laneKey][][]byte
}

type laneKey struct{ project, lane string }

type projectSecrets struct {
	secrets [][]byte
	read    int64
}

func newSecretCache(s Secrets, k *Keyring) *secretCache {
	return &secretCache{store: s, keys: k, projects: map[string]projectSecrets{}, lanes: map[laneKey][][]byte{}}
}

// lane returns the secrets that sign for a lane at now, the present one first.
func (s *secretCache) lane(ctx context.Context, project, lane string, now int64) ([][]byte, error) {
	key := laneKey{project, lane}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.projects[project]
	if !ok || now-p.read > secretAge.Milliseconds() || now < p.read {
		secrets, err := s.read(ctx, project, now)
		switch {
		case err != nil && !ok:
			return nil, err
		case err != nil:
			// What was read before is still a secret of the project: a rotation waits, attempts need not.
			secrets = p.secrets
		}
		if !sameSecrets(secrets, p.secrets) {
			clear(s.lanes)
		}
		p = projectSecrets{secrets: secrets, read: now}
		s.projects[project] = p
	}
	if derived, ok := s.lanes[key]; ok {
		return derived, nil
	}
	derived := make([][]byte, len(p.secrets))
	for i, secret := range p.secrets {
		derived[i] = LaneSecret(secret, lane)
	}
	if len(s.lanes) >= maxLaneSecrets {
		clear(s.lanes)
	}
	s.lanes[key] = derived
	return derived, nil
}

func sameSecrets(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if string(a[i]) != string(b[i]) {
			return false
		}
	}
	return true
}

// read decrypts the project's secrets, and makes the first one when there is none.
func (s *secretCache) read(ctx context.Context, project string, now int64) ([][]byte, error) {
	rows, err := s.store.Secrets(ctx, project, now)
	if err != nil {
		return nil, fmt.Errorf("read the secrets of project %s: %w", project, err)
	}
	if len(rows) == 0 {
		if err := s.add(ctx, project, now, 0, true, store.Actor{Name: "dispatcher", Reason: "first secret of the project"}); err != nil {
			return nil, err
		}
		if rows, err = s.store.Secrets(ctx, project, now); err != nil {
			return nil, fmt.Errorf("read the secrets of project %s: %w", project, err)
		}
	}
	secrets := make([][]byte, len(rows))
	for i := range rows {
		secrets[i], err = s.keys.Open(rows[i].ID, rows[i].KeyID, rows[i].Ciphertext)
		if err != nil {
			return nil, fmt.Errorf("decrypt a secret of project %s: %w", project, err)
		}
	}
	return secrets, nil
}

// add stores a new secret for the project.
func (s *secretCache) add(ctx context.Context, project string, now, retireAt int64, onlyIfNone bool, by store.Actor) error {
	plain := make([]byte, secretSize)
	if _, err := rand.Read(plain); err != nil {
		return fmt.Errorf("make a secret: %w", err)
	}
	id := s.ids.make(time.UnixMilli(now))
	keyID, ciphertext := s.keys.Seal(id, plain)
	err := s.store.AddSecret(ctx, store.Secret{ID: id, Project: project, KeyID: keyID, Ciphertext: ciphertext, CreatedAt: now}, retireAt, onlyIfNone, by)
	if err != nil {
		return fmt.Errorf("store a secret of project %s: %w", project, err)
	}
	return nil
}

// forget has the project's secrets read again.
func (s *secretCache) forget(project string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.projects, project)
	clear(s.lanes)
}

// LaneSecret returns the present signing secret of a lane as its receiver is given it: "whsec_…". Showing it is audited.
func (e *Engine) LaneSecret(ctx context.Context, project, lane string, by store.Actor) (string, error) {
	secrets, err := e.secrets.lane(ctx, project, lane, e.clock.now())
	if err != nil {
		return "", err
	}
	err = e.o.Store.AppendAudit(ctx, store.AuditEntry{
		ID: e.ids.make(time.Now()), Project: project, At: e.clock.now(),
		Actor: by.Name, Action: "secret.read", Object: lane, Reason: by.Reason,
	})
	if err != nil {
		return "", fmt.Errorf("audit: %w", err)
	}
	return outbound.FormatSecret(secrets[0]), nil
}

// RotateSecret gives the project a new signing secret; the old one signs beside it for a day.
func (e *Engine) RotateSecret(ctx context.Context, project string, by store.Actor) error {
	now := e.clock.now()
	if err := e.secrets.add(ctx, project, now, now+secretOverlap.Milliseconds(), false, by); err != nil {
		return err
	}
	e.secrets.forget(project)
	return nil
}
