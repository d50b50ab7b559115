package cli

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
)

// endpointFields are what can be said of an endpoint, whether it is made or changed.
type endpointFields struct {
	ExternalID  string   `in:"external_id" placeholder:"TEXT" help:"Your own name for it, such as a merchant number; callbacks may name it by that."`
	Name        string   `in:"name" placeholder:"TEXT" help:"A name for people."`
	Topic       []string `in:"topics,list" placeholder:"TOPIC" help:"Events that it is told of: payment.succeeded, payment.*, or * for all; may be repeated."`
	URLOverride string   `in:"url_override" name:"url-override" placeholder:"deny|same_host|any" help:"Whether a callback may bring an address of its own. Default: deny."`
	choiceFlags
	Header      []string `in:"headers,headers" short:"H" sep:"none" placeholder:"NAME:VALUE" help:"A header to send with every attempt; may be repeated."`
	Rate        string   `in:"rate" placeholder:"N/s" help:"How many attempts may begin: 50/s, 300/m, 10/h or 1/d."`
	Concurrency int      `in:"concurrency" placeholder:"N" help:"How many attempts may be in flight. Default: the setting lane_concurrency."`
	Disable     bool     `in:"enabled,not" xor:"enabled" help:"Disable it: callbacks are accepted and held."`
	Secret      string   `in:"secret,secret" placeholder:"TEXT|@FILE|-" help:"The secret that signs, as its signer wants it; better in a file, or on the standard input with -, than where other users of this machine see it. Default: one is made."`
	SecretLabel string   `in:"secret_label" placeholder:"TEXT" help:"What receivers know the secret by, such as a certificate's serial number."`
	changeFlags
}

// endpointCreate makes an endpoint.
type endpointCreate struct {
	URL string `in:"url" arg:"" help:"Address that is called."`
	endpointFields
}

// Run makes it, and shows its secret.
func (cmd *endpointCreate) Run(c *session) error {
	return ask(c, post("/v1/endpoints", cmd), func(ep *client.EndpointWithSecret) {
		console.MakeSafe(&ep.Endpoint)
		c.printf("%s  made\n", titleOf(&ep.Endpoint))
		showReceiversPart(c, ep)
	})
}

// showReceiversPart prints what a receiver needs to verify with. Of a key pair that is the public key: the private one is nobody's to
// carry around.
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
	c.printf("%s for its receiver (\"dispatcher endpoint secret %s\" shows it again):\n", name, ep.ID)
	printLines(c, value)
}

// endpointSet changes an endpoint.
type endpointSet struct {
	ID  string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	URL string `in:"url" name:"url" placeholder:"URL" help:"Address that is called."`
	endpointFields
	Enable bool     `in:"enabled" xor:"enabled" help:"Have it sent to again after it was disabled, by --disable or because it answered 410."`
	Clear  []string `placeholder:"FIELD" help:"Take these away: policy, success, signer, external-id, rate, concurrency, name, url-override, topic, header."`
}

// Help is what endpoint set --help says below the flags' summary.
func (*endpointSet) Help() string {
	return "What is not given stays. Topics and headers are given whole: those that are not named again are gone. Callbacks that were accepted before keep their policy " +
		"and success rule; address, signer, headers and limits are the endpoint's whenever something is sent."
}

// Run changes it.
func (cmd *endpointSet) Run(c *session) error {
	among := "policy, success, signer, external-id, rate, concurrency, name, url-override, topic or header"
	in, err := changed(c, cmd, cmd.Clear, among)
	if err != nil {
		return err
	}
	r := request{method: http.MethodPatch, in: in}
	return askEndpoint(c, cmd.ID, r, func(ep *client.Endpoint) {
		c.printf("%s  changed (see \"dispatcher endpoint get %s\")\n", titleOf(ep), ep.ID)
	})
}

// changed is the body of a change, with what is taken away.
func changed(c *session, cmd any, names []string, among string) (body, error) {
	in, err := bodyOf(c, cmd)
	if err == nil {
		err = in.clear(names, clearable, among)
	}
	if err == nil && !in.changes() {
		err = console.Wrong("nothing to change: give what is to be another, or --clear")
	}
	return in, err
}

// printSecret prints what a receiver verifies with, and nothing else: the output is what "listen --secret" takes.
func printSecret(c *session, private bool) func(*client.ShownSecret) {
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
func (cmd *endpointSecret) Run(c *session) error {
	return askEndpoint(c, cmd.ID, get("/secret"), printSecret(c, cmd.Private))
}

// endpointRotate gives an endpoint a new secret.
type endpointRotate struct {
	ID      string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	Secret  string `in:"secret,secret" placeholder:"TEXT|@FILE|-" help:"The new one, as the endpoint's signer wants it; better in a file, or on the standard input with -, than where other users of this machine see it. Default: one is made."`
	Label   string `in:"label" placeholder:"TEXT" help:"What receivers know it by, such as a certificate's serial number."`
	Overlap string `in:"overlap" placeholder:"DURATION" help:"How long the old one signs beside it, 0s to 30d. 0s: it ends at once, as one that leaked must. Default: 1d."`
	changeFlags
}

// Help is what endpoint rotate-secret --help says below the flags' summary.
func (*endpointRotate) Help() string {
	return "During the overlap, standard-v1, standard-v1a, t-v1 and hmac-sha256-body sign with both, so that receivers can change when they like; the others sign with the " +
		"new one at once. The new secret (of a key pair, the public key) goes to the standard output, all else to the error output. It needs a key of scope admin."
}

// Run rotates, and prints the new secret.
func (cmd *endpointRotate) Run(c *session) error {
	return askEndpoint(c, cmd.ID, post("/rotate_secret", cmd), func(s *client.RotatedSecret) {
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
