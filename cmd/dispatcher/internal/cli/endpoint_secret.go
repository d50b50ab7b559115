package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// printSecret prints what a receiver verifies with, and nothing else: the output is what "listen --secret" takes.
func printSecret(c *console.Console, private bool) func(*client.ShownSecret) {
	return func(s *client.ShownSecret) {
		if s.Public != "" && !private {
			printLines(c, s.Public)
			return
		}
		printLines(c, s.Secret)
	}
}

// endpointSecret prints an endpoint's secret.
type endpointSecret struct {
	ID      string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	Private bool   `help:"Of a key pair: the private key, which signs."`
	answerFlags
}

// Help is what endpoint secret --help says below the flags' summary.
func (*endpointSecret) Help() string {
	return "It needs a key of scope admin, and is audited. The output is what \"dispatcher listen --secret\" takes."
}

// Run prints it.
func (cmd *endpointSecret) Run(ctx context.Context, c *console.Console) error {
	return askEndpoint(ctx, c, cmd.answerFlags, cmd.ID, get("/secret"), printSecret(c, cmd.Private))
}

// endpointRotate gives an endpoint a new secret.
type endpointRotate struct {
	ID      string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	Secret  string `placeholder:"TEXT|@FILE|-" help:"The new one, as the endpoint's signer wants it; better in a file, or on the standard input with -, than where other users of this machine see it. Default: one is made."`
	Label   string `placeholder:"TEXT" help:"What receivers know it by, such as a certificate's serial number."`
	Overlap string `placeholder:"DURATION" help:"How long the old one signs beside it, 0s to 30d. 0s: it ends at once, as one that leaked must. Default: 1d."`
	changeFlags
}

// Help is what endpoint rotate-secret --help says below the flags' summary.
func (*endpointRotate) Help() string {
	return "During the overlap, standard-v1, standard-v1a, t-v1 and hmac-sha256-body sign with both, so that receivers can change when they like; the others sign with the " +
		"new one at once. The new secret (of a key pair, the public key) goes to the standard output, all else to the error output. It needs a key of scope admin."
}

// Run rotates, and prints the new secret.
func (cmd *endpointRotate) Run(ctx context.Context, c *console.Console) error {
	in := body{}
	secret, err := console.ReadSecret(c, "secret", cmd.Secret)
	if err != nil {
		return err
	}
	in.texts("secret", secret, "label", cmd.Label, "overlap", cmd.Overlap, "reason", cmd.Reason)
	return askEndpoint(ctx, c, cmd.answerFlags, cmd.ID, post("/rotate_secret", in), func(s *client.RotatedSecret) {
		shown := s.ShownSecret
		if shown == nil {
			shown = &client.ShownSecret{}
		}
		what := "secret"
		if shown.Public != "" {
			what = "key pair, of which this is the public key"
		}
		fmt.Fprintf(c.Err, "%s has a new %s; %s\n", console.Printable(cmd.ID), what, oldSecret(s, "where the signer has room for two, "))
		printSecret(c, false)(shown)
	})
}

// oldSecret says how long the secret before a rotation signs; where limits that.
func oldSecret(s *client.RotatedSecret, where string) string {
	if s.PreviousSignsUntil.After(time.Now()) {
		return where + "the old one signs beside it until " + console.ClockTime(s.PreviousSignsUntil)
	}
	return "the old one no longer signs"
}
