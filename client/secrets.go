package client

import (
	"context"
	"time"
)

// A RevealedSecret is a signing secret as its receiver is given it.
type RevealedSecret struct {
	// What it signs with.
	Use   string `json:"use"`
	ID    string `json:"id" api:"null"`
	Label string `json:"label" api:"null"`
	// For Standard Webhooks whsec_ and base64.
	Secret string `json:"secret"`
	// What receivers verify with, where that is not the secret itself.
	Public string `json:"public" api:"null"`
	// Where a credential or a private key may be used, beside its endpoint's own host.
	Hosts []string `json:"hosts"`
}

// A Secret is a secret and what it signs for.
type Secret struct {
	Lane       string `json:"lane" api:"null"`
	EndpointID string `json:"endpoint_id" api:"null"`
	RevealedSecret
}

// A Rotation replaces a secret.
type Rotation struct {
	// The new one; none: one is made.
	Secret string `json:"secret,omitempty" api:"lines"`
	// What receivers know it by.
	Label string `json:"label,omitempty" schema:"maxLength: 128"`
	// How long the old one signs beside it, 0s to 30d. 0s: it ends at once, as one that leaked must.
	Overlap Duration `json:"overlap,omitempty" schema:"default: 1d"`
	// Where a credential (text, basic) or a private key may be used, beside the endpoint's own host: host
	// or host:port.
	// "*", for private keys of the project alone: everywhere. None: everywhere for a private key that is
	// made, nowhere for any other.
	Hosts *[]string `json:"hosts,omitempty" api:"most=100" schema:"maxItems: 100"`
	Change
}

// A ProjectRotation replaces a secret of the project.
type ProjectRotation struct {
	Rotation
	// Use of the secret; none: the root secret, from which those of lanes are derived and which is never
	// shown.
	Use string `json:"use,omitempty"`
}

// A RotatedSecret is the new secret, and until when the old one signs.
type RotatedSecret struct {
	EndpointID string `json:"endpoint_id,omitempty"`
	// The secret; nil for the project's root secret, which is never shown.
	*RevealedSecret
	RotatedAt          time.Time `json:"rotated_at"`
	PreviousSignsUntil time.Time `json:"previous_signs_until"`
}

// A SecretQuery says which secret is meant: that of a lane (with the signer that signs in it; empty:
// standard-v1), of an
// endpoint by its id or external id, or the project's own of a use.
type SecretQuery struct{ Lane, Signer, Endpoint, Use string }

// Secret returns a secret. Reading it is audited.
func (c *Client) Secret(ctx context.Context, which SecretQuery) (Secret, error) {
	q := params{"lane": which.Lane, "signer": which.Signer, "endpoint": which.Endpoint,
		"use": which.Use}.query()
	return read[Secret](ctx, c, q, "secret")
}

// RotateSecret makes a new secret of the project. The old one signs beside it for a while.
func (c *Client) RotateSecret(ctx context.Context, r ProjectRotation) (RotatedSecret, error) {
	return call[RotatedSecret](ctx, c, "POST", r, "secret", "rotate")
}

// A ReencryptRequest says where a step of a change of the master key goes on.
type ReencryptRequest struct {
	// Where to go on: next of the answer before. None: at the beginning.
	From string `json:"from,omitempty"`
	Change
}

// A Reencryption is what one step of a change of the master key has done.
type Reencryption struct {
	// The id of the master key that encrypts.
	KeyID string `json:"key_id"`
	// Rows that were re-encrypted.
	Done int `json:"done"`
	// Rows that none of the master keys decrypts.
	Failed int `json:"failed"`
	// Rows that have another master key, those that failed among them; of each table at most 100,000 are
	// counted.
	Left int `json:"left"`
	// Where the next step goes on; null: this was the last.
	Next string `json:"next" api:"null"`
}

// Reencrypt re-encrypts a bounded number of stored secrets with the first master key. Only the admin key
// of the settings
// may.
func (c *Client) Reencrypt(ctx context.Context, r ReencryptRequest) (Reencryption, error) {
	return call[Reencryption](ctx, c, "POST", r, "secret", "reencrypt")
}
