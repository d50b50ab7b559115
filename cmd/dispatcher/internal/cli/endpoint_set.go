package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
)

// endpointFields are what can be said of an endpoint, whether it is made or changed.
type endpointFields struct {
	ExternalID  string   `placeholder:"TEXT" help:"Your own name for it, such as a merchant number; callbacks may name it by that."`
	Name        string   `placeholder:"TEXT" help:"A name for people."`
	Topic       []string `placeholder:"TOPIC" help:"Events that it is told of: payment.succeeded, payment.*, or * for all; may be repeated."`
	URLOverride string   `name:"url-override" placeholder:"deny|same_host|any" help:"Whether a callback may bring an address of its own. Default: deny."`
	choiceFlags
	Header      []string `short:"H" sep:"none" placeholder:"NAME:VALUE" help:"A header to send with every attempt; may be repeated."`
	Rate        string   `placeholder:"N/s" help:"How many attempts may begin: 50/s, 300/m, 10/h or 1/d."`
	Concurrency int      `placeholder:"N" help:"How many attempts may be in flight. Default: the setting lane_concurrency."`
	Disable     bool     `xor:"enabled" help:"Disable it: callbacks are accepted and held."`
	Secret      string   `placeholder:"TEXT|@FILE|-" help:"The secret that signs, as its signer wants it; better in a file, or on the standard input with -, than where other users of this machine see it. Default: one is made."`
	SecretLabel string   `placeholder:"TEXT" help:"What receivers know the secret by, such as a certificate's serial number."`
	changeFlags
}

// put writes what was given into the body of a request.
func (f *endpointFields) put(c *console.Console, in body) error {
	if err := f.choiceFlags.put(c, in); err != nil {
		return err
	}
	secret, err := console.ReadSecret(c, "secret", f.Secret)
	if err != nil {
		return err
	}
	in.texts("external_id", f.ExternalID, "name", f.Name, "url_override", f.URLOverride, "rate", f.Rate, "secret", secret,
		"secret_label", f.SecretLabel)
	if topics := console.NonEmpty(f.Topic); len(topics) > 0 {
		in["topics"] = topics
	}
	if f.Concurrency != 0 {
		in["concurrency"] = f.Concurrency
	}
	if f.Disable {
		in["enabled"] = false
	}
	return in.headers(f.Header)
}

// endpointCreate makes an endpoint.
type endpointCreate struct {
	URL string `arg:"" help:"Address that is called."`
	endpointFields
}

// Run makes it, and shows its secret.
func (cmd *endpointCreate) Run(ctx context.Context, c *console.Console) error {
	in := body{"url": cmd.URL}
	if err := cmd.put(c, in); err != nil {
		return err
	}
	in.texts("reason", cmd.Reason)
	return ask(ctx, c, cmd.answerFlags, post("/v1/endpoints", in), func(ep *client.EndpointWithSecret) {
		fmt.Fprintf(c.Out, "%s  made\n", titleOf(&ep.Endpoint))
		showReceiversPart(c, ep)
	})
}

// showReceiversPart prints what a receiver needs to verify with. Of a key pair that is the public key: the private one is nobody's to
// carry around.
func showReceiversPart(c *console.Console, ep *client.EndpointWithSecret) {
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
	fmt.Fprintf(c.Out, "%s for its receiver (\"dispatcher endpoint secret %s\" shows it again):\n", name, console.Printable(ep.ID))
	printLines(c, value)
}

// endpointSet changes an endpoint.
type endpointSet struct {
	ID  string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	URL string `name:"url" placeholder:"URL" help:"Address that is called."`
	endpointFields
	Enable bool     `xor:"enabled" help:"Have it sent to again after it was disabled, by --disable or because it answered 410."`
	Clear  []string `placeholder:"FIELD" help:"Take these away: policy, success, signer, external-id, rate, concurrency, name, url-override, topic, header."`
}

// Help is what endpoint set --help says below the flags' summary.
func (*endpointSet) Help() string {
	return "What is not given stays. Topics and headers are given whole: those that are not named again are gone. Callbacks that were accepted before keep their policy " +
		"and success rule; address, signer, headers and limits are the endpoint's whenever something is sent."
}

// clearable are the fields that can be taken away, by what --clear calls them.
var clearable = map[string]string{
	"policy": "policy", "success": "success", "signer": "signer", "external-id": "external_id", "rate": "rate", "concurrency": "concurrency",
	"name": "name", "url-override": "url_override", "topic": "topics", "topics": "topics", "header": "headers", "headers": "headers",
}

// Run changes it.
func (cmd *endpointSet) Run(ctx context.Context, c *console.Console) error {
	in := body{}
	if err := cmd.put(c, in); err != nil {
		return err
	}
	in.texts("url", cmd.URL)
	if cmd.Enable {
		in["enabled"] = true
	}
	among := "policy, success, signer, external-id, rate, concurrency, name, url-override, topic or header"
	if err := in.clear(cmd.Clear, clearable, among); err != nil {
		return err
	}
	if len(in) == 0 {
		return console.Wrong("nothing to change: give what is to be another, or --clear")
	}
	in.texts("reason", cmd.Reason)
	r := request{method: http.MethodPatch, in: in}
	return askEndpoint(ctx, c, cmd.answerFlags, cmd.ID, r, func(ep *client.Endpoint) {
		fmt.Fprintf(c.Out, "%s  changed (see \"dispatcher endpoint get %s\")\n", titleOf(ep), console.Printable(ep.ID))
	})
}
