package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
)

// showReceiversPart prints what a receiver needs to verify signatures: the secret, or the public key of a key
// pair. The private key is not printed, because no receiver needs it.
func showReceiversPart(c *session, ep *client.EndpointWithSecret) {
	if ep.Secret == "" {
		return
	}
	name, value := "secret", ep.Secret
	for use, begins := range map[string]string{sign.UseEd25519: "whsk_", sign.UseRSA: "-----BEGIN"} {
		if !strings.HasPrefix(ep.Secret, begins) {
			continue
		}
		if key, err := sign.ParseSecretFor(use, ep.Secret); err == nil {
			if public, err := sign.PublicOf(use, key); err == nil {
				name, value = "public key", public
			}
		}
	}
	c.printf("%s for the receiver (\"dispatcher endpoint secret %s\" prints it again):\n", name, ep.ID)
	printLines(c, value)
}

// printSecret prints only the secret or, without private, the public key of a key pair. The output is the
// input of "listen --secret".
func printSecret(c *session, private bool) func(*client.RevealedSecret) {
	return func(s *client.RevealedSecret) {
		if s.Public != "" && !private {
			printLines(c, s.Public)
			return
		}
		printLines(c, s.Secret)
	}
}

// endpointSecret prints an endpoint's secret.
type endpointSecret struct {
	endpointArg
	Private bool `help:"Print the private key of a key pair."`
	answerFlags
}

// Help is the text below the summary of endpoint secret --help.
func (*endpointSecret) Help() string {
	return "Needs a key with the scope admin. The call is written to the audit log. " +
		"\"dispatcher listen --secret\" takes the output."
}

// Run prints the secret.
func (cmd *endpointSecret) Run(c *session) error {
	return printEndpointResponse(c, cmd.ID, get("/secret"), printSecret(c, cmd.Private))
}

// endpointRotate replaces the secret of an endpoint.
type endpointRotate struct {
	endpointArg
	Secret  string   `in:"secret,secret" placeholder:"TEXT|@FILE|-" help:"New secret in the form of the endpoint's signer. Prefer @FILE or -: other users of this machine can see arguments. Default: a generated one."`
	Hosts   []string `in:"hosts" placeholder:"HOST" help:"Further hosts that a credential or a private key can be used for, besides the endpoint's own."`
	Label   string   `in:"label" placeholder:"TEXT" help:"Name of the secret at receivers, such as a certificate's serial number."`
	Overlap string   `in:"overlap" placeholder:"DURATION" help:"How long the old secret signs too, 0s to 30d. Use 0s if it leaked. Default: 1d."`
	changeFlags
}

// Help is the text below the summary of endpoint rotate-secret --help.
func (*endpointRotate) Help() string {
	return "During the overlap, standard-v1, standard-v1a, t-v1 and hmac-sha256-body sign with both " +
		"secrets, so that receivers can switch at any time. The other signers use only the new one. " +
		"The new secret, or the public key of a new key pair, goes to the standard output, and everything " +
		"else to the error output. Needs a key with the scope admin."
}

// Run replaces the secret and prints the new one.
func (cmd *endpointRotate) Run(c *session) error {
	return printEndpointResponse(c, cmd.ID, post("/rotate_secret", cmd), func(s *client.RotatedSecret) {
		revealed := s.RevealedSecret
		if revealed == nil {
			revealed = &client.RevealedSecret{}
		}
		what := "secret"
		if revealed.Public != "" {
			what = "key pair; this is its public key"
		}
		fmt.Fprintf(c.Err, "%s has a new %s; %s\n", console.Printable(cmd.ID), what,
			oldSecret(s, "if the signer supports two secrets, "))
		printSecret(c, false)(revealed)
	})
}

// oldSecret formats how long the secret before a rotation still signs. condition is put in front of it.
func oldSecret(s *client.RotatedSecret, condition string) string {
	if s.PreviousSignsUntil.After(time.Now()) {
		return condition + "the old one also signs until " + console.ClockTime(s.PreviousSignsUntil)
	}
	return "the old one no longer signs"
}
