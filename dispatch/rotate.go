package dispatch

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A SecretQuery says which signing secret is meant: by what a signer signs in a lane, an endpoint's, or, with
// neither, the project's own of a use.
type SecretQuery struct {
	Lane string
	// Signer is a signer's name, for a lane; empty: standard-v1.
	Signer string
	// Endpoint is a bare id.
	Endpoint string
	// Use is what the secret signs with; empty: what its signer needs for an endpoint, and for a project the
	// root secret, from which those of lanes are derived. It is not for lanes.
	Use string
}

// A ShownSecret is a signing secret as its receiver is given it.
type ShownSecret struct {
	// ID names it in attempts. Label is what receivers know it by; mostly empty.
	ID, Label, Use string
	Secret         string
	// Public is what receivers verify with, where that is not the secret itself.
	Public string
	// Hosts are where it may be used beside its endpoint's own host.
	Hosts []string
}

// RevealSecret returns the present signing secret that is meant. That it was shown is audited.
func (e *Engine) RevealSecret(ctx context.Context, project string, q SecretQuery, by store.Actor) (ShownSecret, error) {
	secrets, use, err := e.meant(ctx, project, q)
	if err != nil {
		return ShownSecret{}, err
	}
	object := q.Lane
	if q.Endpoint != "" {
		object = store.EndpointPrefix + q.Endpoint
	}
	err = e.o.Store.AppendAudit(ctx, store.AuditEntry{
		ID: e.ids.make(time.Now()), Project: project, At: e.clock.now(), Actor: by.Name, Address: by.Address,
		Action: "secret.read", Object: object, Reason: by.Reason,
	})
	if err != nil {
		return ShownSecret{}, fmt.Errorf("audit: %w", err)
	}
	return shown(use, &secrets[0])
}

func shown(use string, s *sign.Secret) (ShownSecret, error) {
	public, err := sign.PublicOf(use, s.Key)
	if err != nil {
		return ShownSecret{}, fmt.Errorf("show a secret: %w", err)
	}
	return ShownSecret{
		ID: s.ID, Label: s.Label, Use: use, Secret: sign.FormatSecretFor(use, s.Key), Public: public, Hosts: s.Hosts,
	}, nil
}

// meant finds secrets, the present one first.
func (e *Engine) meant(ctx context.Context, project string, q SecretQuery) (secrets []sign.Secret, use string, err error) {
	now := e.clock.now()
	use = q.Use
	switch {
	case q.Endpoint != "" && q.Lane != "":
		return nil, "", invalid("lane", "give a lane or an endpoint")
	case q.Endpoint != "":
		var signer string
		if signer, use, err = e.signerUse(ctx, project, q.Endpoint); err != nil {
			return nil, "", err
		}
		if q.Use != "" && q.Use != use {
			return nil, "", invalid("use", fmt.Sprintf("the endpoint's signer uses %q", use))
		}
		to := signing{project: project, endpoint: q.Endpoint, signer: signer, home: true}
		secrets, err = e.secrets.signing(ctx, to, now)
	case q.Lane != "" && q.Use != "":
		return nil, "", invalid("use", "is not for a lane; give signer")
	case q.Lane != "":
		return e.meantInLane(ctx, project, q, now)
	case !sign.IsUse(use):
		return nil, "", invalid("use", "is required with neither lane nor endpoint: "+usesText())
	default:
		secrets, err = e.secrets.project(ctx, project, use, now)
	}
	if errors.Is(err, errNoSecret) {
		return nil, "", fmt.Errorf("%w: %w", store.ErrNotFound, err)
	}
	return secrets, use, err
}

// meantInLane finds the secrets by which a signer signs in a lane: derived for it, or the project's own for
// signers that send their secret or have a private key.
func (e *Engine) meantInLane(
	ctx context.Context, project string, q SecretQuery, now int64,
) (secrets []sign.Secret, use string, err error) {
	signer := cmp.Or(q.Signer, sign.Standard)
	kind, err := sign.KindOf(signer)
	if err != nil || !slices.Contains(sign.Names(), signer) {
		return nil, "", invalid("signer", "is one of "+strings.Join(sign.Names(), ", "))
	}
	switch {
	case kind.Use == "":
		return nil, "", invalid("signer", signer+" has no secret")
	case kind.IsBound():
		secrets, err = e.secrets.project(ctx, project, kind.Use, now)
		if errors.Is(err, errNoSecret) {
			err = fmt.Errorf("%w: %w", store.ErrNotFound, err)
		}
		return secrets, kind.Use, err
	}
	secrets, err = e.secrets.derived(ctx, laneKey{project, q.Lane, kind}, now)
	return secrets, kind.Use, err
}

func usesText() string {
	text := ""
	for i, use := range sign.Uses() {
		if i > 0 {
			text += ", "
		}
		text += use
	}
	return text
}

// signerUse returns an endpoint's signer and the use of its secrets.
func (e *Engine) signerUse(ctx context.Context, project, endpoint string) (signer, use string, err error) {
	ep, err := e.catalog.endpoint(ctx, endpoint)
	if err != nil {
		return "", "", err
	}
	if ep.Project != project || ep.DeletedAt != 0 {
		return "", "", store.ErrNotFound
	}
	v, err := e.catalog.project(ctx, project)
	if err != nil {
		return "", "", err
	}
	signer = v.signerOf(ep)
	if use, err = sign.UseOf(signer); err != nil {
		return "", "", fmt.Errorf("signer of endpoint %s: %w", endpoint, err)
	}
	if use == "" {
		return "", "", invalid("signer", fmt.Sprintf("the endpoint's signer, %s, has no secret", signer))
	}
	return signer, use, nil
}

// A Rotation asks for a new signing secret.
type Rotation struct {
	// Secret is the new one as its use writes it; empty: one is made.
	Secret string
	// Label is what receivers know it by.
	Label string
	// Hosts are where a credential or a private key may be used beside its endpoint's own host. Nil:
	// everywhere for a private key that is made, nowhere for any other.
	Hosts *[]string
	// Overlap is how long the old one still signs beside it; nil: a day. Zero: it ends at once, as one that
	// leaked must.
	Overlap *time.Duration
	Reason  string
}

// maxOverlap is the longest that an old secret signs beside a new one.
const maxOverlap = 30 * 24 * time.Hour

// RotateSecret gives an endpoint, or a project, a new signing secret, and returns it and until when the old
// one signs beside it. The secret of a lane cannot be rotated by itself: it is derived from the project's
// root secret, which is what an empty query means.
func (e *Engine) RotateSecret(ctx context.Context, project string, q SecretQuery, r Rotation, by store.Actor) (ShownSecret, int64, error) {
	now := e.clock.now()
	f := findings(nil)
	overlap := secretOverlap
	if r.Overlap != nil {
		if overlap = *r.Overlap; overlap < 0 || overlap > maxOverlap {
			f.add("overlap", "is 0s to 30d")
		}
	}
	if !validLabel(r.Label) {
		f.add("label", labelText)
	}
	use := q.Use
	if q.Endpoint != "" {
		var err error
		if _, use, err = e.signerUse(ctx, project, q.Endpoint); err != nil {
			return ShownSecret{}, 0, err
		}
	} else if use != useRoot && !sign.IsUse(use) {
		f.add("use", "is one of %s", usesText())
	}
	if q.Lane != "" {
		f.add("lane", "a lane's secret is derived; rotate the project's")
	}
	hosts := r.hosts(use, &f)
	if len(f) > 0 {
		return ShownSecret{}, 0, &store.InvalidError{Fields: f}
	}
	key, err := newKey(use, r.Secret)
	if err != nil {
		return ShownSecret{}, 0, invalid("secret", err.Error())
	}
	row := store.Secret{Project: project, Owner: q.Endpoint, Use: use, Label: r.Label, Hosts: hosts, CreatedAt: now}
	until := now + overlap.Milliseconds()
	id, err := e.secrets.add(ctx, row, key, until, false, by)
	if err != nil {
		return ShownSecret{}, 0, err
	}
	e.secrets.forget(project)
	if use == useRoot {
		return ShownSecret{ID: id}, until, nil // nobody is given the root
	}
	s, err := shown(use, &sign.Secret{ID: id, Label: r.Label, Hosts: hosts, Key: key})
	return s, until, err
}

// hosts returns the hosts of a rotation's secret, and adds what is wrong with them.
func (r *Rotation) hosts(use string, f *findings) []string {
	switch {
	case r.Hosts == nil && r.Secret == "":
		return madeHosts(use)
	case r.Hosts == nil:
		return nil
	case use == useRoot || use == sign.UseHMAC:
		f.add("hosts", "is for credentials and private keys: %s, %s, %s and %s", sign.UseText, sign.UseBasic,
			sign.UseRSA, sign.UseEd25519)
	}
	checkHosts("hosts", *r.Hosts, sign.IsPrivate(use), f)
	return *r.Hosts
}

// newKey reads a secret, or makes one.
func newKey(use, text string) ([]byte, error) {
	switch {
	case text != "" && use == useRoot:
		return sign.ParseSecretFor(sign.UseHMAC, text)
	case text != "":
		return sign.ParseSecretFor(use, text)
	case use != useRoot && use != useCursor && use != useAudit:
		return sign.NewSecret(use)
	}
	key := make([]byte, secretSize)
	_, err := rand.Read(key)
	return key, err
}
