package cli

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// A shownSecret is a signing secret as the API tells it.
type shownSecret struct {
	Use    string `json:"use"`
	ID     string `json:"id"`
	Label  string `json:"label"`
	Secret string `json:"secret"`
	// Public is what receivers verify with, where that is not the secret itself.
	Public string `json:"public"`
	// Until is when the one before it no longer signs; nil except after a rotation.
	Until *time.Time `json:"previous_signs_until"`
}

// print prints what a receiver verifies with, and nothing else: the output is what "listen --secret" takes.
func (s *shownSecret) print(c *console.Console, answer []byte, asJSON, private bool) error {
	switch {
	case asJSON:
		return console.PrintJSON(c, answer)
	case s.Public != "" && !private:
		printLines(c, s.Public)
	default:
		printLines(c, s.Secret)
	}
	return nil
}

// endpointSecret prints an endpoint's secret.
type endpointSecret struct {
	remote.Flags
	ID      string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	Private bool   `help:"Of a key pair: the private key, which signs."`
	JSON    bool   `name:"json" help:"Print the server's answer for machines."`
}

// Help is what endpoint secret --help says below the flags' summary.
func (*endpointSecret) Help() string {
	return "It needs a key of scope admin, and is audited. The output is what \"dispatcher listen --secret\" takes."
}

// Run prints it.
func (cmd *endpointSecret) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	var s shownSecret
	answer, err := callEndpoint(ctx, cl, http.MethodGet, cmd.ID, "/secret", nil, &s)
	if err != nil {
		return err
	}
	return s.print(c, answer, cmd.JSON, cmd.Private)
}

// endpointRotate gives an endpoint a new secret.
type endpointRotate struct {
	remote.Flags
	ID      string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	Secret  string `placeholder:"TEXT|@FILE|-" help:"The new one, as the endpoint's signer wants it; better in a file, or on the standard input with -, than where other users of this machine see it. Default: one is made."`
	Label   string `placeholder:"TEXT" help:"What receivers know it by, such as a certificate's serial number."`
	Overlap string `placeholder:"DURATION" help:"How long the old one signs beside it, 0s to 30d. 0s: it ends at once, as one that leaked must. Default: 1d."`
	Reason  string `placeholder:"TEXT" help:"Why, for the audit."`
	JSON    bool   `name:"json" help:"Print the server's answer for machines."`
}

// Help is what endpoint rotate-secret --help says below the flags' summary.
func (*endpointRotate) Help() string {
	return "During the overlap, standard-v1, standard-v1a, t-v1 and hmac-sha256-body sign with both, so that receivers can change when they like; the others sign with the " +
		"new one at once. The new secret (of a key pair, the public key) goes to the standard output, all else to the error output. It needs a key of scope admin."
}

// Run rotates, and prints the new secret.
func (cmd *endpointRotate) Run(ctx context.Context, c *console.Console) error {
	in := map[string]any{}
	secret, err := console.ReadSecret(c, "secret", cmd.Secret)
	if err != nil {
		return err
	}
	putTexts(in, map[string]string{"secret": secret, "label": cmd.Label, "overlap": cmd.Overlap, "reason": cmd.Reason})
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	var s shownSecret
	answer, err := callEndpoint(ctx, cl, http.MethodPost, cmd.ID, "/rotate_secret", in, &s)
	if err != nil {
		return err
	}
	if !cmd.JSON {
		what := "secret"
		if s.Public != "" {
			what = "key pair, of which this is the public key"
		}
		old := "the old one no longer signs"
		if s.Until != nil && s.Until.After(time.Now()) {
			old = "where the signer has room for two, the old one signs beside it until " + console.ClockTime(s.Until)
		}
		fmt.Fprintf(c.Err, "%s has a new %s; %s\n", console.Printable(cmd.ID), what, old)
	}
	return s.print(c, answer, cmd.JSON, false)
}
