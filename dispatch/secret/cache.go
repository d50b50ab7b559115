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
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// useCursor is the use of the key that signs the cursors of lists, useAudit of the one that the chain of the
// audit is made with. They are none of sign.Uses: no caller can read or rotate them.
const (
	useCursor = "cursor"
	useAudit  = "audit"
)

// CursorKey returns the 32 bytes that sign the cursors of lists. Its error is SQL's, or that the key ring
// cannot open them.
func (s *Secrets) CursorKey(ctx context.Context) ([]byte, error) {
	key, err := s.installationKey(ctx, useCursor)
	if err != nil {
		return nil, fmt.Errorf("the key of cursors: %w", err)
	}
	return key, nil
}

// AuditKey returns the key of the chain.
func (s *Secrets) AuditKey(ctx context.Context) ([]byte, error) {
	return s.installationKey(ctx, useAudit)
}

// installationKey returns a key that is the same in all processes, and never rotated. The first call makes
// it, and it is kept in SQL as other secrets are, of no project. The caller must not change it.
func (s *Secrets) installationKey(ctx context.Context, use string) ([]byte, error) {
	secrets, err := s.Project(ctx, "", use, s.clock.Now())
	if err != nil {
		return nil, err
	}
	return secrets[0].Key, nil
}

const (
	// readAgain is how long a process signs with what it read before it reads again: a rotation elsewhere is
	// in force by then.
	readAgain = 5 * time.Second
	// Overlap is how long a rotated secret still signs beside its successor.
	Overlap = 24 * time.Hour
	// maxLaneSecrets bounds the derived secrets that are kept.
	maxLaneSecrets = 10_000
	// maxOwnSecrets bounds the owners whose secrets are kept.
	maxOwnSecrets = 50_000
	secretSize    = 32
)

// Secrets keeps the secrets that sign for a while, and derives those of lanes from their project's. In
// memory they are in clear; in SQL they are not.
type Secrets struct {
	store Store
	keys  *Keyring
	clock *clock.Clock
	ids   clock.IDs
	// unreadableTotal counts what could not be decrypted.
	unreadableTotal prometheus.Counter
	// unreadable is when something sealed could last not be opened, in Unix milliseconds; zero: never.
	unreadable atomic.Int64

	mu sync.Mutex
	// turns are of owners whose secrets are being read or made, for as long as that takes.
	turns  map[Owner]*ownerTurn
	owners map[Owner]Own
	lanes  map[LaneKey][]sign.Secret
}

// A Owner has secrets of its own: an endpoint, or with an empty id the project itself.
type Owner struct{ Project, Endpoint string }

// A ownerTurn lets one goroutine at a time read or make an owner's secrets.
type ownerTurn struct {
	token chan struct{}
	// users have the token or wait for it; under the cache's lock.
	users int
}

// A LaneKey finds what was derived for a lane and a signer.
type LaneKey struct {
	Project, Lane string
	Kind          sign.Kind
}

// Own are what an owner has, newest first, by their use. It was read at read; tried is when that was
// last tried.
type Own struct {
	ByUse       map[string][]sign.Secret
	read, tried int64
}

// UseRoot is the use of a project's root secret, from which those of lanes are derived.
const UseRoot = ""

// New returns secrets that are read from SQL when they are needed.
func New(s Store, k *Keyring, c *clock.Clock, m part.Metrics) *Secrets {
	return &Secrets{
		store: s, keys: k, clock: c, turns: make(map[Owner]*ownerTurn), owners: make(map[Owner]Own),
		lanes: make(map[LaneKey][]sign.Secret),
		unreadableTotal: m.Counter("unreadable_secrets_total",
			"Times that a stored secret or credential could not be decrypted with this process's master keys."),
	}
}

// ErrNoSecret: there is none of the use that a signer needs, and none can be made. ErrNotForHost: there is
// one that may not be used at the host.
var (
	ErrNoSecret   = errors.New("there is no secret for the signer")
	ErrNotForHost = errors.New("the signer's secret was not given for this host")
)

// A Signing says what is to be signed, and where it goes.
type Signing struct {
	Project, Lane, URL string
	// Kind is that of the signer.
	Kind sign.Kind
	// Endpoint is a bare id; empty: a plain address. Home says that the address is at the endpoint's own
	// host, and Changed is when the endpoint was last changed.
	Endpoint string
	Home     bool
	Changed  int64
}

// Signing returns the secrets that sign a callback at now, the present one first: its endpoint's own; or for
// a plain address what is derived for its lane and its signer, or the project's own where the signer sends
// its secret or has a private key. Those go only to hosts that they were given for: ErrNotForHost.
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
			since = to.Changed + changeMargin.Milliseconds() // another host may have come with another secret
		}
		own, ownErr := s.ownSince(ctx, owner, since, now)
		secrets, err = own.ByUse[kind.Use], ownErr
		if err == nil && len(secrets) == 0 {
			secrets, err = s.first(ctx, owner, kind.Use, now)
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

// ForHost returns those of the secrets that may be used at the host of an address, or ErrNotForHost.
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

// Project returns the project's own secrets of a use, and makes the first one where that can be done. A
// credential is not made: no receiver would know it, and it would be for no host.
func (s *Secrets) Project(ctx context.Context, project, use string, now int64) ([]sign.Secret, error) {
	owner := Owner{Project: project}
	own, err := s.Own(ctx, owner, now)
	if err != nil || len(own.ByUse[use]) > 0 {
		return own.ByUse[use], err
	}
	if use == sign.UseText || use == sign.UseBasic {
		return nil, fmt.Errorf("%w: project %s, use %s", ErrNoSecret, project, use)
	}
	return s.first(ctx, owner, use, now)
}

// first makes an owner's first secret of a use; ErrNoSecret where that cannot be done. Several processes may
// do it at once: one of them does. In this one it is done in turn with whoever reads, so that nobody keeps
// what he read before; and once, however many want it.
func (s *Secrets) first(ctx context.Context, owner Owner, use string, now int64) ([]sign.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, part.ClaimMargin)
	defer cancel()
	end, err := s.turn(ctx, owner, true)
	if err != nil {
		return nil, err
	}
	defer end()
	if known, ok, _ := s.known(owner, 0, now); ok && len(known.ByUse[use]) > 0 {
		return known.ByUse[use], nil
	}
	key, err := NewKey(use, "")
	if err != nil {
		return nil, fmt.Errorf("%w: project %s, use %s: %w", ErrNoSecret, owner.Project, use, err)
	}
	row := store.Secret{Project: owner.Project, Owner: owner.Endpoint, Use: use, Hosts: MadeHosts(use),
		CreatedAt: now}
	by := store.Actor{Name: "dispatcher", Reason: "the first secret of its owner"}
	if _, err := s.Add(ctx, row, key, 0, true, by); err != nil {
		return nil, err
	}
	byUse, err := s.read(ctx, owner, now)
	if err != nil {
		return nil, err
	}
	s.keep(owner, Own{byUse, now, now})
	if len(byUse[use]) == 0 {
		return nil, fmt.Errorf("%w: project %s, use %s", ErrNoSecret, owner.Project, use)
	}
	return byUse[use], nil
}

// MadeHosts are the hosts of a secret that is made here. A private key is for every host: it was made to sign
// for the project's receivers, and for nothing else.
func MadeHosts(use string) []string {
	if sign.IsPrivate(use) {
		return []string{store.AnyHost}
	}
	return nil
}

// Derived returns the secrets of a lane.
func (s *Secrets) Derived(ctx context.Context, key LaneKey, now int64) ([]sign.Secret, error) {
	root, err := s.Project(ctx, key.Project, UseRoot, now)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// What was derived from other secrets than these may have been put there by whoever still had those.
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

// Own returns what an owner has, read within the last readAgain if SQL answers.
func (s *Secrets) Own(ctx context.Context, owner Owner, now int64) (Own, error) {
	return s.ownSince(ctx, owner, 0, now)
}

// ownSince is own, but what was read before since is of no use.
func (s *Secrets) ownSince(ctx context.Context, owner Owner, since, now int64) (Own, error) {
	known, ok, fresh := s.known(owner, since, now)
	if fresh {
		return known, nil
	}
	// An attempt that waited longer would be put off in any case: its claim would be too old.
	ctx, cancel := context.WithTimeout(ctx, part.ClaimMargin)
	defer cancel()
	end, err := s.turn(ctx, owner, !ok)
	if err != nil {
		return known, err
	}
	if end == nil {
		return known, nil // What was read before is good enough while another reads.
	}
	defer end()
	known, ok, fresh = s.known(owner, since, now)
	if fresh {
		return known, nil
	}
	byUse, err := s.read(ctx, owner, now)
	switch {
	case err != nil && !ok:
		return known, err
	case err != nil:
		// What was read before is still a secret of the owner: a rotation waits, attempts need not.
		known.tried = now
		return s.keep(owner, known), nil
	}
	return s.keep(owner, Own{byUse, now, now}), nil
}

// keep remembers what was read of an owner.
func (s *Secrets) keep(owner Owner, own Own) Own {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.owners) >= maxOwnSecrets {
		for other := range s.owners { // any: all of them at once would have to be read again by everybody
			delete(s.owners, other)
			break
		}
	}
	s.owners[owner] = own
	return own
}

// turn takes an owner's turn, and returns what ends it. Without wait it returns nil where another has the
// turn.
func (s *Secrets) turn(ctx context.Context, owner Owner, wait bool) (end func(), err error) {
	s.mu.Lock()
	t := s.turns[owner]
	if t != nil && !wait {
		s.mu.Unlock()
		return nil, nil
	}
	if t == nil {
		t = &ownerTurn{token: make(chan struct{}, 1)}
		s.turns[owner] = t
	}
	t.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.users--
		if t.users == 0 {
			delete(s.turns, owner)
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

// known returns what was read of an owner, since a time or later, and whether that was within the last
// readAgain.
func (s *Secrets) known(owner Owner, since, now int64) (known Own, ok, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok = s.owners[owner]
	ok = ok && known.read >= since
	return known, ok, ok && now-known.tried <= readAgain.Milliseconds() && now >= known.tried
}

// read decrypts an owner's secrets.
func (s *Secrets) read(ctx context.Context, owner Owner, now int64) (map[string][]sign.Secret, error) {
	rows, err := s.store.OwnedSecrets(ctx, owner.Project, owner.Endpoint, now)
	if err != nil {
		return nil, fmt.Errorf("read the secrets of project %s: %w", owner.Project, err)
	}
	byUse := make(map[string][]sign.Secret)
	for i := range rows {
		key, err := s.keys.Open(bindSecret(&rows[i]), rows[i].KeyID, rows[i].Ciphertext)
		if s.Opened(err) != nil {
			return nil, fmt.Errorf("decrypt a secret of project %s: %w", owner.Project, err)
		}
		byUse[rows[i].Use] = append(byUse[rows[i].Use], sign.Secret{
			ID: rows[i].ID, Label: rows[i].Label, Hosts: rows[i].Hosts, Key: key,
		})
	}
	return byUse, nil
}

// Add stores a new secret, whose project, owner, use and label are given, and returns its id.
func (s *Secrets) Add(ctx context.Context, row store.Secret, key []byte, retireAt int64, onlyIfNone bool,
	by store.Actor) (string, error) {
	row.ID = s.ids.New(time.UnixMilli(row.CreatedAt))
	row.KeyID, row.Ciphertext = s.keys.Seal(bindSecret(&row), key)
	if err := s.store.AddSecret(ctx, row, retireAt, onlyIfNone, by); err != nil {
		return "", fmt.Errorf("store a secret of project %s: %w", row.Project, err)
	}
	return row.ID, nil
}

// changeMargin is by how much the clocks of two processes may differ.
const changeMargin = time.Second

// Forget has the secrets of a project, and of its endpoints, read again.
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

// A RevealedSecret is a signing secret as its receiver is given it.
type RevealedSecret struct {
	// ID names it in attempts. Label is what receivers know it by; mostly empty.
	ID, Label, Use string
	Secret         string
	// Public is what receivers verify with, where that is not the secret itself.
	Public string
	// Hosts are where it may be used beside its endpoint's own host.
	Hosts []string
}

func Reveal(use string, s *sign.Secret) (RevealedSecret, error) {
	public, err := sign.PublicOf(use, s.Key)
	if err != nil {
		return RevealedSecret{}, fmt.Errorf("show a secret: %w", err)
	}
	return RevealedSecret{
		ID: s.ID, Label: s.Label, Use: use, Secret: sign.FormatSecretFor(use, s.Key), Public: public,
		Hosts: s.Hosts,
	}, nil
}

func UsesText() string { return strings.Join(sign.Uses(), ", ") }

// NewKey reads a secret, or makes one.
func NewKey(use, text string) ([]byte, error) {
	switch {
	case text != "" && use == UseRoot:
		return sign.ParseSecretFor(sign.UseHMAC, text)
	case text != "":
		return sign.ParseSecretFor(use, text)
	case use != UseRoot && use != useCursor && use != useAudit:
		return sign.NewSecret(use)
	}
	key := make([]byte, secretSize)
	_, err := rand.Read(key)
	return key, err
}
