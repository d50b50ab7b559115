package secret

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// useCursor is the use of the key that signs the cursors of lists, useAudit that of the key of the audit
// chain, useLink that of the key of merchants' links, useSink that of the key of sinks' ids. They are not
// among sign.Uses, so no caller can read or rotate them.
const (
	useCursor = "cursor"
	useAudit  = "audit"
	useLink   = "view_link"
	useSink   = "sink_id"
)

// CursorKey returns the 32 bytes that sign the cursors of lists. Its error is SQL's, or that of a keyring
// that cannot decrypt them.
func (s *Secrets) CursorKey(ctx context.Context) ([]byte, error) {
	key, err := s.installationKey(ctx, useCursor)
	if err != nil {
		return nil, fmt.Errorf("key of cursors: %w", err)
	}
	return key, nil
}

// AuditKey returns the key of the audit chain.
func (s *Secrets) AuditKey(ctx context.Context) ([]byte, error) {
	return s.installationKey(ctx, useAudit)
}

// LinkKey returns the 32 bytes that encrypt and authenticate the links to the pages of merchants.
func (s *Secrets) LinkKey(ctx context.Context) ([]byte, error) {
	key, err := s.installationKey(ctx, useLink)
	if err != nil {
		return nil, fmt.Errorf("key of view links: %w", err)
	}
	return key, nil
}

// SinkKey returns the 32 bytes that hash the sinks of alerts to their ids.
func (s *Secrets) SinkKey(ctx context.Context) ([]byte, error) {
	key, err := s.installationKey(ctx, useSink)
	if err != nil {
		return nil, fmt.Errorf("key of sinks: %w", err)
	}
	return key, nil
}

// installationKey returns a key that all processes share and that is never rotated. The first call generates
// it. SQL stores it like other secrets, with an empty project. The caller must not change it.
func (s *Secrets) installationKey(ctx context.Context, use string) ([]byte, error) {
	secrets, err := s.Project(ctx, "", use, s.clock.Now())
	if err != nil {
		return nil, err
	}
	return secrets[0].Key, nil
}

const (
	// refreshAfter is how long a process uses secrets before it reads them again. A rotation by another
	// process takes effect within that time.
	refreshAfter = 5 * time.Second
	// Overlap is how long a rotated secret signs together with its successor.
	Overlap = 24 * time.Hour
	// maxLaneSecrets bounds the cached derived secrets.
	maxLaneSecrets = 10_000
	// maxOwnSecrets bounds the owners whose secrets are cached.
	maxOwnSecrets = 50_000
	secretSize    = 32
)

// Secrets caches the secrets of owners, and derives those of lanes from the project's root secret. They are
// plain text in memory and encrypted in SQL.
type Secrets struct {
	store Store
	keys  *Keyring
	clock *clock.Clock
	ids   clock.IDs
	// unreadableTotal counts failed decryptions.
	unreadableTotal prometheus.Counter
	// missing is how many master keys rows in SQL name and the keyring lacks, by the last MeasureKeys.
	missing atomic.Int64
	// unreadable is the time of the last failed decryption, in Unix milliseconds; zero: none.
	unreadable atomic.Int64

	mu sync.Mutex
	// locks has an entry while the secrets of an owner are read or generated.
	locks  map[Owner]*ownerLock
	owners map[Owner]Owned
	lanes  map[LaneKey][]sign.Secret
}

// An Owner has its own secrets: an endpoint (its bare id), or with an empty Endpoint the project.
type Owner struct{ Project, Endpoint string }

// An ownerLock lets one goroutine at a time read or generate an owner's secrets.
type ownerLock struct {
	token chan struct{}
	// users is how many goroutines hold the token or wait for it. Secrets.mu guards it.
	users int
}

// A LaneKey is the key of a derived secret.
type LaneKey struct {
	Project, Lane string
	Kind          sign.Kind
}

// Owned are the secrets of an owner by use, the newest first. read is when they were read, tried when reading
// was last tried, in Unix milliseconds.
type Owned struct {
	ByUse       map[string][]sign.Secret
	read, tried int64
}

// UseRoot is the use of a project's root secret, from which the secrets of lanes are derived.
const UseRoot = ""

// New returns Secrets with an empty cache.
func New(s Store, k *Keyring, c *clock.Clock, m process.Metrics) *Secrets {
	secrets := &Secrets{
		store: s, keys: k, clock: c, locks: make(map[Owner]*ownerLock), owners: make(map[Owner]Owned),
		lanes: make(map[LaneKey][]sign.Secret),
		unreadableTotal: m.Counter("unreadable_secrets_total",
			"Failed decryptions of stored secrets and credentials with this process's master keys."),
	}
	m.Gauge("key_ring_keys", "Master keys of this process.", func() float64 { return float64(len(k.keys)) })
	m.Gauge("key_ring_missing", "Master keys that rows in SQL name and this process lacks, by a check "+
		"each 20 s. Attempts that need them are postponed.",
		func() float64 { return float64(secrets.missing.Load()) })
	return secrets
}

// ErrNoSecret: no secret exists for the signer's use, and none can be generated. ErrNotForHost: no secret may
// be used at the host.
var (
	ErrNoSecret   = errors.New("no secret for the signer")
	ErrNotForHost = errors.New("the signer's secret is not allowed at this host")
)

// A Signing describes a request to sign.
type Signing struct {
	Project, Lane, URL string
	// Kind is the kind of the signer.
	Kind sign.Kind
	// Endpoint is a bare id; empty: the callback has only a URL. Home: the URL is at the endpoint's own host.
	// Changed is when the endpoint last changed, in Unix milliseconds.
	Endpoint string
	Home     bool
	Changed  int64
}

// Signing returns the secrets that sign a callback at now, the current one first. An endpoint uses its own. A
// callback with only a URL uses the secret derived for its lane and signer, or the project's own if the
// signer sends its secret or has a private key. The latter are limited to their hosts: ErrNotForHost.
func (s *Secrets) Signing(ctx context.Context, to Signing, now int64) ([]sign.Secret, error) {
	kind := to.Kind
	if kind.Use == "" {
		return nil, nil
	}
	var secrets []sign.Secret
	var err error
	switch {
	case to.Endpoint != "":
		owner := Owner{to.Project, to.Endpoint}
		var since int64
		if kind.SendsSecret() {
			// The endpoint may have moved to another host together with a new secret: a secret that was read
			// before must not be sent there.
			since = to.Changed + changeMargin.Milliseconds()
		}
		own, ownErr := s.ownSince(ctx, owner, since, now)
		secrets, err = own.ByUse[kind.Use], ownErr
		if err == nil && len(secrets) == 0 {
			secrets, err = s.makeFirst(ctx, owner, kind.Use, now)
		}
	case !kind.IsBound():
		return s.Derived(ctx, LaneKey{to.Project, to.Lane, kind}, now)
	default:
		secrets, err = s.Project(ctx, to.Project, kind.Use, now)
	}
	if err != nil || !kind.IsBound() || to.Home {
		return secrets, err
	}
	return ForHost(secrets, to.URL)
}

// ForHost returns the secrets that may be used at the host of a URL, or ErrNotForHost.
func ForHost(secrets []sign.Secret, url string) ([]sign.Secret, error) {
	allowed := make([]sign.Secret, 0, len(secrets))
	for _, secret := range secrets {
		if store.NamesHost(secret.Hosts, url) {
			allowed = append(allowed, secret)
		}
	}
	if len(allowed) == 0 {
		return nil, ErrNotForHost
	}
	return allowed, nil
}

// Project returns the project's own secrets of a use, and generates the first one if possible. It generates
// no credential: no receiver would know it, and it would be allowed at no host.
func (s *Secrets) Project(ctx context.Context, project, use string, now int64) ([]sign.Secret, error) {
	owner := Owner{Project: project}
	own, err := s.Owned(ctx, owner, now)
	if err != nil || len(own.ByUse[use]) > 0 {
		return own.ByUse[use], err
	}
	if use == sign.UseText || use == sign.UseBasic {
		return nil, fmt.Errorf("%w: project %s, use %s", ErrNoSecret, project, use)
	}
	return s.makeFirst(ctx, owner, use, now)
}

// makeFirst generates an owner's first secret of a use, or returns ErrNoSecret. It holds the owner's lock, so
// that this process generates one secret only and no reader caches the state before. Among several processes
// the store keeps the first (onlyIfNone).
func (s *Secrets) makeFirst(ctx context.Context, owner Owner, use string, now int64) ([]sign.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, process.ClaimMargin)
	defer cancel()
	end, err := s.lock(ctx, owner, true)
	if err != nil {
		return nil, err
	}
	defer end()
	if cached, ok, _ := s.cached(owner, 0, now); ok && len(cached.ByUse[use]) > 0 {
		return cached.ByUse[use], nil
	}
	key, err := NewKey(use, "")
	if err != nil {
		return nil, fmt.Errorf("%w: project %s, use %s: %w", ErrNoSecret, owner.Project, use, err)
	}
	row := store.Secret{Project: owner.Project, Owner: owner.Endpoint, Use: use, Hosts: GeneratedHosts(use),
		CreatedAt: now}
	by := store.Actor{Name: "dispatcher", Reason: "the first secret of its owner"}
	if _, err := s.Add(ctx, row, key, 0, true, by); err != nil {
		return nil, err
	}
	byUse, err := s.read(ctx, owner, now)
	if err != nil {
		return nil, err
	}
	s.keep(owner, Owned{byUse, now, now})
	if len(byUse[use]) == 0 {
		return nil, fmt.Errorf("%w: project %s, use %s", ErrNoSecret, owner.Project, use)
	}
	return byUse[use], nil
}

// GeneratedHosts returns the Hosts of a secret that Dispatcher generates for a use. Empty means only the
// endpoint's own host. A private key may sign for every host: it is never sent, and only receivers of its
// project trust the public key.
func GeneratedHosts(use string) []string {
	if sign.IsPrivate(use) {
		return []string{store.AnyHost}
	}
	return nil
}

// Derived returns the secrets of a lane, the current one first.
func (s *Secrets) Derived(ctx context.Context, key LaneKey, now int64) ([]sign.Secret, error) {
	root, err := s.Project(ctx, key.Project, UseRoot, now)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// An entry may have been derived from a root secret that was rotated since, so the ids are compared.
	if derived, ok := s.lanes[key]; ok && slices.EqualFunc(derived, root, func(a, b sign.Secret) bool {
		return a.ID == b.ID
	}) {
		return derived, nil
	}
	derived := make([]sign.Secret, len(root))
	for i, secret := range root {
		derived[i] = sign.Secret{ID: secret.ID, Key: LaneSecret(secret.Key, key.Kind.Name, key.Lane)}
		if key.Kind.Use == sign.UseText {
			derived[i].Key = hex.AppendEncode(nil, derived[i].Key)
		}
	}
	if len(s.lanes) >= maxLaneSecrets {
		clear(s.lanes)
	}
	s.lanes[key] = derived
	return derived, nil
}

// Owned returns an owner's secrets, read within the last refreshAfter if SQL answers.
func (s *Secrets) Owned(ctx context.Context, owner Owner, now int64) (Owned, error) {
	return s.ownSince(ctx, owner, 0, now)
}

// ownSince is Owned, but secrets that were read before since are not used.
func (s *Secrets) ownSince(ctx context.Context, owner Owner, since, now int64) (Owned, error) {
	cached, ok, fresh := s.cached(owner, since, now)
	if fresh {
		return cached, nil
	}
	// Do not wait longer than ClaimMargin: an attempt that begins later after its claim is not made.
	ctx, cancel := context.WithTimeout(ctx, process.ClaimMargin)
	defer cancel()
	end, err := s.lock(ctx, owner, !ok)
	if err != nil {
		return cached, err
	}
	if end == nil {
		return cached, nil // another goroutine refreshes them
	}
	defer end()
	cached, ok, fresh = s.cached(owner, since, now)
	if fresh {
		return cached, nil
	}
	byUse, err := s.read(ctx, owner, now)
	switch {
	case err != nil && !ok:
		return cached, err
	case err != nil:
		// The cached secrets are still valid while SQL does not answer. Only a rotation is late.
		cached.tried = now
		return s.keep(owner, cached), nil
	}
	return s.keep(owner, Owned{byUse, now, now}), nil
}

// keep caches an owner's secrets.
func (s *Secrets) keep(owner Owner, own Owned) Owned {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.owners) >= maxOwnSecrets {
		for other := range s.owners { // drop one at random; dropping all would cause a burst of reads
			delete(s.owners, other)
			break
		}
	}
	s.owners[owner] = own
	return own
}

// lock takes an owner's lock, and returns the function that releases it. Without wait it returns nil if
// another goroutine has the lock.
func (s *Secrets) lock(ctx context.Context, owner Owner, wait bool) (end func(), err error) {
	s.mu.Lock()
	t := s.locks[owner]
	if t != nil && !wait {
		s.mu.Unlock()
		return nil, nil
	}
	if t == nil {
		t = &ownerLock{token: make(chan struct{}, 1)}
		s.locks[owner] = t
	}
	t.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.users--
		if t.users == 0 {
			delete(s.locks, owner)
		}
	}
	select {
	case t.token <- struct{}{}:
		return func() { <-t.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// cached returns an owner's cached secrets if they were read at since or later. fresh: they were read, or
// reading was tried, within the last refreshAfter.
func (s *Secrets) cached(owner Owner, since, now int64) (cached Owned, ok, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cached, ok = s.owners[owner]
	ok = ok && cached.read >= since
	return cached, ok, ok && now-cached.tried <= refreshAfter.Milliseconds() && now >= cached.tried
}

// read reads and decrypts an owner's secrets.
func (s *Secrets) read(ctx context.Context, owner Owner, now int64) (map[string][]sign.Secret, error) {
	rows, err := s.store.OwnedSecrets(ctx, owner.Project, owner.Endpoint, now)
	if err != nil {
		return nil, fmt.Errorf("read secrets of project %s: %w", owner.Project, err)
	}
	byUse := make(map[string][]sign.Secret)
	for i := range rows {
		key, err := s.keys.Open(bindSecret(&rows[i]), rows[i].KeyID, rows[i].Ciphertext)
		if s.RecordOpen(err) != nil {
			return nil, fmt.Errorf("decrypt a secret of project %s: %w", owner.Project, err)
		}
		byUse[rows[i].Use] = append(byUse[rows[i].Use], sign.Secret{
			ID: rows[i].ID, Label: rows[i].Label, Hosts: rows[i].Hosts, Key: key,
		})
	}
	return byUse, nil
}

// Add encrypts and stores a new secret, and returns its id. row has the project, owner, use, label and hosts.
// The previous secret signs until retireAt. With onlyIfNone it stores nothing if the owner has a secret of
// that use.
func (s *Secrets) Add(ctx context.Context, row store.Secret, key []byte, retireAt int64, onlyIfNone bool,
	by store.Actor) (string, error) {
	row.ID = s.ids.New(time.UnixMilli(row.CreatedAt))
	row.KeyID, row.Ciphertext = s.keys.Seal(bindSecret(&row), key)
	if err := s.store.AddSecret(ctx, row, retireAt, onlyIfNone, by); err != nil {
		return "", fmt.Errorf("store a secret of project %s: %w", row.Project, err)
	}
	return row.ID, nil
}

// changeMargin is how far the clocks of two processes may differ.
const changeMargin = time.Second

// Forget drops the cached secrets of a project and of its endpoints.
func (s *Secrets) Forget(project string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for owner := range s.owners {
		if owner.Project == project {
			delete(s.owners, owner)
		}
	}
	clear(s.lanes)
}

// A RevealedSecret is a signing secret in the format that its receiver gets.
type RevealedSecret struct {
	// ID identifies the secret in attempts. Label is the name that receivers know it by, or empty.
	ID, Label, Use string
	Secret         string
	// Public is the key that receivers verify with, if that is not the secret itself.
	Public string
	// Hosts are where the secret may be used besides its endpoint's own host.
	Hosts []string
}

// Reveal returns a secret in its receiver's format.
func Reveal(use string, s *sign.Secret) (RevealedSecret, error) {
	public, err := sign.PublicOf(use, s.Key)
	if err != nil {
		return RevealedSecret{}, fmt.Errorf("reveal secret: %w", err)
	}
	return RevealedSecret{
		ID: s.ID, Label: s.Label, Use: use, Secret: sign.FormatSecretFor(use, s.Key), Public: public,
		Hosts: s.Hosts,
	}, nil
}

// UseNames returns the uses that callers may name, as a list in words.
func UseNames() string { return strings.Join(sign.Uses(), ", ") }

// NewKey decodes a secret, or generates one if text is empty.
func NewKey(use, text string) ([]byte, error) {
	switch {
	case text != "" && use == UseRoot:
		return sign.ParseSecretFor(sign.UseHMAC, text)
	case text != "":
		return sign.ParseSecretFor(use, text)
	case !slices.Contains([]string{UseRoot, useCursor, useAudit, useLink, useSink}, use):
		return sign.NewSecret(use)
	}
	key := make([]byte, secretSize)
	_, err := rand.Read(key)
	return key, err
}
