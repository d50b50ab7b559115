package client

import (
	"context"
	"time"
)

// A RevealedSecret is a signing secret in the form that its receiver gets.
type RevealedSecret struct {
	// What the secret signs with.
	Use   string `json:"use"`
	ID    string `json:"id" api:"null"`
	Label string `json:"label" api:"null"`
	// For Standard Webhooks: whsec_ and base64.
	Secret string `json:"secret"`
	// Key with which receivers verify, if it is not the secret.
	Public string `json:"public" api:"null"`
	// Hosts that may get a credential or a signature of a private key, besides the endpoint's own host.
	Hosts []string `json:"hosts"`
}

// A Secret is a secret with its lane or endpoint.
type Secret struct {
	Lane       string `json:"lane" api:"null"`
	EndpointID string `json:"endpoint_id" api:"null"`
	RevealedSecret
}

// A Rotation replaces a secret.
type Rotation struct {
	// New secret. Not given: the server generates one.
	Secret string `json:"secret,omitempty" api:"lines"`
	// How receivers identify the secret.
	Label string `json:"label,omitempty" schema:"maxLength: 128"`
	// How long the old secret also signs, 0s to 30d. Use 0s for a leaked secret: the old secret ends at once.
	Overlap Duration `json:"overlap,omitempty" schema:"default: 1d"`
	// Hosts that may get a credential (text, basic) or a signature of a private key, besides the endpoint's
	// own host: host or host:port. "*" means every host, and is only for private keys of the project. Not
	// given: every host for a generated private key, no other host for anything else.
	Hosts *[]string `json:"hosts,omitempty" api:"most=100" schema:"maxItems: 100"`
	Change
}

// A ProjectRotation replaces a secret of the project.
type ProjectRotation struct {
	Rotation
	// Use of the secret. Not given: the root secret. The secrets of lanes are derived from it, and it is
	// never shown.
	Use string `json:"use,omitempty"`
}

// A RotatedSecret is the new secret, and the time until which the old one also signs.
type RotatedSecret struct {
	EndpointID string `json:"endpoint_id,omitempty"`
	// RevealedSecret is nil for the project's root secret, which is never shown.
	*RevealedSecret
	RotatedAt          time.Time `json:"rotated_at"`
	PreviousSignsUntil time.Time `json:"previous_signs_until"`
}

// A SecretQuery selects a secret. Lane selects that of a lane, with the signer of the lane (empty:
// standard-v1). Endpoint is an id or an external id. Use selects the project's own secret for that use.
type SecretQuery struct{ Lane, Signer, Endpoint, Use string }

// Secret returns a secret. The audit log records the read.
func (c *Client) Secret(ctx context.Context, which SecretQuery) (Secret, error) {
	q := params{"lane": which.Lane, "signer": which.Signer, "endpoint": which.Endpoint,
		"use": which.Use}.query()
	return read[Secret](ctx, c, q, "secret")
}

// RotateSecret replaces a secret of the project. The old secret also signs until its overlap ends.
func (c *Client) RotateSecret(ctx context.Context, r ProjectRotation) (RotatedSecret, error) {
	return call[RotatedSecret](ctx, c, "POST", r, "secret", "rotate")
}

// A ReencryptRequest runs one step of a change of the master key.
type ReencryptRequest struct {
	// Value of next in the previous response. Not given: the first step.
	From string `json:"from,omitempty"`
	Change
}

// A Reencryption is the result of one step of a change of the master key.
type Reencryption struct {
	// Id of the master key that encrypts.
	KeyID string `json:"key_id"`
	// Number of rows that were re-encrypted.
	Done int `json:"done"`
	// Number of rows that none of the master keys decrypts.
	Failed int `json:"failed"`
	// Number of rows that have another master key, including the failed rows. At most 100,000 rows of each
	// table are counted.
	Left int `json:"left"`
	// Value of from for the next step. Null: this was the last step.
	Next string `json:"next" api:"null"`
}

// Reencrypt re-encrypts a limited number of stored secrets with the first master key. It requires the admin
// key of the settings.
func (c *Client) Reencrypt(ctx context.Context, r ReencryptRequest) (Reencryption, error) {
	return call[Reencryption](ctx, c, "POST", r, "secret", "reencrypt")
}
