package control

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// keyAge is how long a valid key is cached. A key that another process revoked is refused after that
	// time.
	keyAge = 5 * time.Second
	// maxKnownKeys bounds the cache of texts, valid and invalid ones together.
	maxKnownKeys = 10_000
	keyBytes     = 24
	hintLength   = 4
)

// keyText is the prefix of every key, so that secret scanners recognize a leaked one.
const keyText = "dk_"

// A keyCache caches lookups of keys for keyAge.
type keyCache struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]knownKey
	// revoked counts revocations in this process. A lookup that began before a revocation is not cached after
	// it.
	revoked int
	used    map[string]int64
}

type knownKey struct {
	key  store.Key
	none bool
	read time.Time
}

// Authenticate returns the valid key with that text. Its error is store.ErrNotFound if there is none.
func (ct *Controller) Authenticate(ctx context.Context, text string) (store.Key, error) {
	if !strings.HasPrefix(text, keyText) {
		return store.Key{}, store.ErrNotFound
	}
	return ct.AuthenticateHash(ctx, HashKey(text))
}

// HashKey returns the hash that identifies a key where its text must not be stored.
func HashKey(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }

// AuthenticateHash is Authenticate for a caller that keeps the hash of a key, such as a session of the admin
// UI. A key that was revoked or has expired since is refused. The cache answers for keyAge. While SQL does
// not answer, a cached valid key stays valid.
func (ct *Controller) AuthenticateHash(ctx context.Context, hash [sha256.Size]byte) (store.Key, error) {
	c := &ct.apiKeys
	c.mu.Lock()
	known, ok := c.known[hash]
	revoked := c.revoked
	c.mu.Unlock()
	if !ok || time.Since(known.read) > keyAge {
		key, err := ct.o.Store.KeyByHash(ctx, hash[:])
		switch {
		case err == nil, errors.Is(err, store.ErrNotFound):
			known = knownKey{key: key, none: err != nil, read: time.Now()}
			c.keep(hash, known, revoked)
		case !ok || known.none:
			return store.Key{}, fmt.Errorf("read a key: %w", err)
		}
		// While SQL does not answer, a cached valid key stays valid.
	}
	now := ct.clock.Now()
	if known.none || !known.key.Valid(now) {
		return store.Key{}, store.ErrNotFound
	}
	c.use(known.key.ID, now)
	return known.key, nil
}

// keep caches a lookup that began after the given number of revocations. It drops the lookup if a revocation
// followed.
func (c *keyCache) keep(hash [sha256.Size]byte, k knownKey, revoked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.revoked != revoked {
		return
	}
	if c.known == nil || len(c.known) >= maxKnownKeys {
		c.known = make(map[[sha256.Size]byte]knownKey)
	}
	c.known[hash] = k
}

// use records when a key was used; TouchKeys writes it.
func (c *keyCache) use(id string, now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used == nil {
		c.used = make(map[string]int64)
	}
	c.used[id] = now
}

// TouchKeys writes the last uses of keys since its last call. On an error they are dropped.
func (ct *Controller) TouchKeys(ctx context.Context) error {
	c := &ct.apiKeys
	c.mu.Lock()
	used := c.used
	c.used = nil
	c.mu.Unlock()
	if len(used) == 0 {
		return nil
	}
	if err := ct.o.Store.TouchKeys(ctx, used); err != nil {
		return fmt.Errorf("record the last use of keys: %w", err)
	}
	return nil
}

// A KeyRequest describes a new API key.
type KeyRequest struct {
	Name   string
	Scopes []string
	// EndpointID binds the key to one endpoint of the project, by its bare id. Its scopes are then read and
	// resend. Empty: the key is for the whole project.
	EndpointID string
	// ExpiresIn is the lifetime of the key, at most 4000 days; nil: it does not expire.
	ExpiresIn *time.Duration
	Invalid   []store.FieldError
}

// CreateKey creates a key of the project and returns its text. Only the hash is stored, so the text cannot be
// shown again.
func (ct *Controller) CreateKey(ctx context.Context, project string, r KeyRequest,
	by store.Actor) (store.Key, string, error) {
	now := ct.clock.Now()
	f := accept.Findings(slices.Clone(r.Invalid))
	k := store.Key{ID: ct.ids.New(clock.TimeOf(now)), Project: project, Name: r.Name, CreatedAt: now,
		EndpointID: r.EndpointID}
	if r.Name == "" {
		f.Add("name", "is required")
	}
	accept.CheckText("name", r.Name, MaxName, &f)
	k.Scopes = r.scopes(&f)
	if r.ExpiresIn != nil {
		if *r.ExpiresIn <= 0 || *r.ExpiresIn > 10*accept.MaxDelay {
			f.Add("expires_in", "must be more than 0s and at most 4000d")
		}
		k.ExpiresAt = now + r.ExpiresIn.Milliseconds()
	}
	if len(f) > 0 {
		return store.Key{}, "", f.Err()
	}
	secret := make([]byte, keyBytes)
	if _, err := rand.Read(secret); err != nil {
		return store.Key{}, "", fmt.Errorf("create key: %w", err)
	}
	text := keyText + base64.RawURLEncoding.EncodeToString(secret)
	hash := HashKey(text)
	k.Hash, k.Hint = hash[:], text[len(text)-hintLength:]
	if err := ct.o.Store.AddKey(ctx, k, by); err != nil {
		return store.Key{}, "", fmt.Errorf("create key: %w", err)
	}
	return k, text, nil
}

// scopes returns the scopes of the request without repetitions, and records invalid ones.
func (r *KeyRequest) scopes(f *accept.Findings) (scopes []store.Scope) {
	allowed, names, one := store.Scopes[:], "send, read, operate, admin", "send, read, operate or admin"
	if r.EndpointID != "" {
		allowed, names, one = store.EndpointScopes[:], "read, resend", "read or resend with an endpoint"
	}
	if len(r.Scopes) == 0 {
		f.Add("scopes", "must contain at least one of %s", names)
	}
	for i, text := range r.Scopes {
		s := store.Scope(text)
		if !slices.Contains(allowed, s) {
			f.Add(fmt.Sprintf("scopes[%d]", i), "must be %s", one)
		} else if !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	return scopes
}

// Keys returns the project's keys, newest first. Revoked keys are included.
func (ct *Controller) Keys(ctx context.Context, project string) ([]store.Key, error) {
	keys, err := ct.o.Store.Keys(ctx, project)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return keys, nil
}

// RevokeKey revokes a key: at once in this process, within keyAge in others.
func (ct *Controller) RevokeKey(ctx context.Context, project, id string, by store.Actor) error {
	if err := ct.o.Store.RevokeKey(ctx, project, id, ct.clock.Now(), by); err != nil {
		return fmt.Errorf("revoke key: %w", err)
	}
	ct.apiKeys.revoke(id)
	return nil
}

// revoke removes a key from the cache.
func (c *keyCache) revoke(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revoked++
	maps.DeleteFunc(c.known, func(_ [sha256.Size]byte, k knownKey) bool { return k.key.ID == id })
}
