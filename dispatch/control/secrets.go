package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// labelRule describes a valid label. Labels are sent in a header.
const labelRule = "must be at most 128 printable ASCII characters"

func validLabel(label string) bool {
	return len(label) <= MaxName && strings.IndexFunc(label, func(r rune) bool {
		return r < ' ' || r > '~'
	}) < 0
}

// A SecretQuery selects a signing secret: the one that a signer uses in a lane, the one of an endpoint, or,
// with neither, the project's own for a use.
type SecretQuery struct {
	Lane string
	// Signer is the name of a signer, for a lane; empty: standard-v1.
	Signer string
	// Endpoint is a bare id.
	Endpoint string
	// Use is the purpose of the secret. Empty: for an endpoint the use of its signer, for a project the root
	// secret, which those of lanes are derived from. It must be empty for a lane.
	Use string
}

// RevealSecret returns the current signing secret that the query selects. The access is audited first.
func (ct *Controller) RevealSecret(ctx context.Context, project string, q SecretQuery,
	by store.Actor) (secret.RevealedSecret, error) {
	secrets, use, err := ct.findSecrets(ctx, project, q)
	if err != nil {
		return secret.RevealedSecret{}, err
	}
	object := q.Lane
	if q.Endpoint != "" {
		object = store.EndpointPrefix + q.Endpoint
	}
	if err := ct.audit(ctx, project, "secret.read", object, "", by); err != nil {
		return secret.RevealedSecret{}, err
	}
	return secret.Reveal(use, &secrets[0])
}

// findSecrets finds the secrets that the query selects, the current one first.
func (ct *Controller) findSecrets(ctx context.Context, project string,
	q SecretQuery) (secrets []sign.Secret, use string, err error) {
	now := ct.clock.Now()
	use = q.Use
	switch {
	case q.Endpoint != "" && q.Lane != "":
		return nil, "", accept.Invalid("lane", "give a lane or an endpoint, not both")
	case q.Endpoint != "":
		kind, err := ct.signerKind(ctx, project, q.Endpoint)
		if err != nil {
			return nil, "", err
		}
		if q.Use != "" && q.Use != kind.Use {
			return nil, "", accept.Invalid("use", fmt.Sprintf("the endpoint's signer uses %q", kind.Use))
		}
		to := secret.Signing{Project: project, Endpoint: q.Endpoint, Kind: kind, Home: true}
		secrets, err = ct.secret.Signing(ctx, to, now)
		return secrets, kind.Use, notFound(err)
	case q.Lane != "" && q.Use != "":
		return nil, "", accept.Invalid("use", "must be empty for a lane; give signer")
	case q.Lane != "":
		return ct.findLaneSecrets(ctx, project, q, now)
	case !sign.IsUse(use):
		return nil, "", accept.Invalid("use",
			"is required without lane and endpoint, one of "+secret.UseNames())
	default:
		secrets, err = ct.secret.Project(ctx, project, use, now)
	}
	return secrets, use, notFound(err)
}

// notFound turns the error of a missing secret into store.ErrNotFound, for a caller that asked for that
// secret.
func notFound(err error) error {
	if errors.Is(err, secret.ErrNoSecret) {
		return fmt.Errorf("%w: %w", store.ErrNotFound, err)
	}
	return err
}

// findLaneSecrets finds the secrets that a signer uses in a lane. They are derived for the lane, except for
// signers that send their secret or have a private key: those use the project's own.
func (ct *Controller) findLaneSecrets(
	ctx context.Context, project string, q SecretQuery, now int64,
) (secrets []sign.Secret, use string, err error) {
	signer := cmp.Or(q.Signer, sign.Standard)
	kind, err := sign.KindOf(signer)
	if err != nil || !slices.Contains(sign.Names(), signer) {
		return nil, "", accept.Invalid("signer", "must be one of "+strings.Join(sign.Names(), ", "))
	}
	switch {
	case kind.Use == "":
		return nil, "", accept.Invalid("signer", signer+" has no secret")
	case kind.IsBound():
		secrets, err = ct.secret.Project(ctx, project, kind.Use, now)
		return secrets, kind.Use, notFound(err)
	}
	secrets, err = ct.secret.Derived(ctx, secret.LaneKey{Project: project, Lane: q.Lane, Kind: kind}, now)
	return secrets, kind.Use, err
}

// signerKind returns the kind of an endpoint's signer. It fails if the signer has no secret.
func (ct *Controller) signerKind(ctx context.Context, project, endpoint string) (sign.Kind, error) {
	ep, err := ct.accept.Catalog.Endpoint(ctx, endpoint)
	if err != nil {
		return sign.Kind{}, err
	}
	if ep.Project != project || ep.DeletedAt != 0 {
		return sign.Kind{}, store.ErrNotFound
	}
	v, err := ct.accept.Catalog.Project(ctx, project)
	if err != nil {
		return sign.Kind{}, err
	}
	kind, err := sign.KindOf(v.SignerOf(ep))
	if err != nil {
		return sign.Kind{}, fmt.Errorf("signer of endpoint %s: %w", endpoint, err)
	}
	switch {
	case kind.IsSealedURL():
		return sign.Kind{}, accept.Invalid("endpoint", "is of an alert; change the sink of the alert")
	case kind.Use == "":
		return sign.Kind{}, accept.Invalid("signer",
			fmt.Sprintf("the endpoint's signer, %s, has no secret", kind.Name))
	}
	return kind, nil
}

// A Rotation describes a new signing secret.
type Rotation struct {
	// Secret is the new secret in the format of its use; empty: it is generated.
	Secret string
	// Label is the name that receivers know the secret by.
	Label string
	// Hosts are the hosts, besides the endpoint's own, that a credential or a private key may be used for.
	// Nil: all hosts for a generated private key, none for any other.
	Hosts *[]string
	// Overlap is how long the old secret signs as well; nil: one day. Zero ends it at once, which a leaked
	// secret requires.
	Overlap *time.Duration
	Reason  string
}

// maxOverlap is the longest overlap of an old and a new secret.
const maxOverlap = 30 * 24 * time.Hour

// RotateSecret stores a new signing secret of an endpoint or a project. It returns the secret, and until when
// the old one signs as well, in Unix milliseconds. A lane has no secret to rotate: it is derived from the
// project's root secret, which an empty query selects.
func (ct *Controller) RotateSecret(ctx context.Context, project string, q SecretQuery, r Rotation,
	by store.Actor) (secret.RevealedSecret, int64, error) {
	now := ct.clock.Now()
	f := accept.Findings(nil)
	overlap := secret.Overlap
	if r.Overlap != nil {
		overlap = *r.Overlap
		if overlap < 0 || overlap > maxOverlap {
			f.Add("overlap", "must be 0s to 30d")
		}
	}
	if !validLabel(r.Label) {
		f.Add("label", labelRule)
	}
	use := q.Use
	if q.Endpoint != "" {
		kind, err := ct.signerKind(ctx, project, q.Endpoint)
		if err != nil {
			return secret.RevealedSecret{}, 0, err
		}
		use = kind.Use
	} else if use != secret.UseRoot && !sign.IsUse(use) {
		f.Add("use", "must be one of %s", secret.UseNames())
	}
	if q.Lane != "" {
		f.Add("lane", "a lane's secret is derived; rotate the project's")
	}
	hosts := r.hosts(use, &f)
	if len(f) > 0 {
		return secret.RevealedSecret{}, 0, f.Err()
	}
	key, err := secret.NewKey(use, r.Secret)
	if err != nil {
		return secret.RevealedSecret{}, 0, accept.Invalid("secret", err.Error())
	}
	row := store.Secret{Project: project, Owner: q.Endpoint, Use: use, Label: r.Label, Hosts: hosts,
		CreatedAt: now}
	until := now + overlap.Milliseconds()
	s, err := ct.addSecret(ctx, row, key, until, by)
	return s, until, err
}

// addSecret stores a secret and returns it in its receiver's format. The previous secret signs until the
// given time.
func (ct *Controller) addSecret(
	ctx context.Context, row store.Secret, key []byte, until int64, by store.Actor,
) (secret.RevealedSecret, error) {
	id, err := ct.secret.Add(ctx, row, key, until, false, by)
	if err != nil {
		return secret.RevealedSecret{}, err
	}
	ct.secret.Forget(row.Project)
	if row.Use == secret.UseRoot {
		return secret.RevealedSecret{ID: id}, nil // the root secret is never returned
	}
	return secret.Reveal(row.Use, &sign.Secret{ID: id, Label: row.Label, Hosts: row.Hosts, Key: key})
}

// hosts returns the hosts of the new secret, and adds what is wrong with them.
func (r *Rotation) hosts(use string, f *accept.Findings) []string {
	switch {
	case r.Hosts == nil && r.Secret == "":
		return secret.GeneratedHosts(use)
	case r.Hosts == nil:
		return nil
	case use == secret.UseRoot || use == sign.UseHMAC:
		f.Add("hosts", "is only for credentials and private keys: %s, %s, %s and %s",
			sign.UseText, sign.UseBasic, sign.UseRSA, sign.UseEd25519)
	}
	checkHosts("hosts", *r.Hosts, sign.IsPrivate(use), f)
	return *r.Hosts
}
