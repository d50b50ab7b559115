package cli

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// endpointFields are the flags of endpoint create and endpoint set.
type endpointFields struct {
	ExternalID  string   `in:"external_id" placeholder:"TEXT" help:"Your own id for the endpoint, such as a merchant number. Callbacks can use it instead of the id."`
	Name        string   `in:"name" placeholder:"TEXT" help:"Display name."`
	Topic       []string `in:"topics,list" placeholder:"TOPIC" help:"Topic to subscribe to: payment.succeeded, payment.*, or * for all. Can be repeated."`
	URLOverride string   `in:"url_override" placeholder:"deny|same_host|any" help:"Whether a callback can have its own URL. Default: deny."`
	attemptChoices
	Rate        string `in:"rate" placeholder:"N/s" help:"Maximum rate of attempts: 50/s, 300/m, 10/h or 1/d."`
	Concurrency int    `in:"concurrency" placeholder:"N" help:"Maximum number of attempts in flight. Default: the setting lane_concurrency."`
	Disable     bool   `in:"enabled,not" xor:"enabled" help:"Disable the endpoint: callbacks are accepted, but not sent."`
	Secret      string `in:"secret,secret" placeholder:"TEXT|@FILE|-" help:"Signing secret in the form of its signer. Prefer @FILE or -: other users of this machine can see arguments. Default: a generated one."`
	SecretLabel string `in:"secret_label" placeholder:"TEXT" help:"Name of the secret at receivers, such as a certificate's serial number."`
	changeFlags
}

// endpointCreate creates an endpoint.
type endpointCreate struct {
	URL     string `in:"url" arg:"" help:"URL that is called."`
	Replace bool   `help:"Replace all of the endpoint with this --external-id, if there is one. Only its pause, its field enabled and its secret stay."`
	endpointFields
}

// Run creates the endpoint and prints its secret.
func (cmd *endpointCreate) Run(c *session) error {
	r, done := post("/v1/endpoints", cmd), "created"
	if cmd.Replace {
		if cmd.ExternalID == "" {
			return console.Wrong("--replace needs --external-id")
		}
		in, err := bodyOf(c, cmd)
		if err != nil {
			return err
		}
		delete(in, "external_id") // it is in the path
		r = request{method: http.MethodPut,
			path: "/v1/endpoints/by-external-id/" + url.PathEscape(cmd.ExternalID), in: in}
		done = "created or replaced"
	}
	return printResponse(c, r, func(ep *client.EndpointWithSecret) {
		console.MakeSafe(&ep.Endpoint)
		c.printf("%s  %s\n", titleOf(&ep.Endpoint), done)
		showReceiversPart(c, ep)
	})
}

// endpointSet changes an endpoint.
type endpointSet struct {
	endpointArg
	URL string `in:"url" placeholder:"URL" help:"URL that is called."`
	endpointFields
	Enable bool     `in:"enabled" xor:"enabled" help:"Enable the endpoint after --disable or after a 410 response."`
	Clear  []string `placeholder:"FIELD" help:"Remove these values: policy, success, signer, external-id, rate, concurrency, name, url-override, topic, header."`
}

// Help is the text below the summary of endpoint set --help.
func (*endpointSet) Help() string {
	return "Other fields stay. --topic and --header replace the whole list. Callbacks that are already " +
		"accepted keep their policy and success rule; changes of URL, signer, headers and limits " +
		"apply to them too."
}

// Run changes the endpoint.
func (cmd *endpointSet) Run(c *session) error {
	fields := "policy, success, signer, external-id, rate, concurrency, name, url-override, topic or header"
	in, err := changed(c, cmd, cmd.Clear, fields)
	if err != nil {
		return err
	}
	r := request{method: http.MethodPatch, in: in}
	return printEndpointResponse(c, cmd.ID, r, func(ep *client.Endpoint) {
		c.printf("%s  changed (see \"dispatcher endpoint get %s\")\n", titleOf(ep), ep.ID)
	})
}

// changed returns the body of a change. Fields that --clear names are null in it. fields lists the names that
// --clear accepts, for its error.
func changed(c *session, cmd any, names []string, fields string) (body, error) {
	in, err := bodyOf(c, cmd)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		field := clearable[strings.ReplaceAll(strings.TrimSpace(name), "_", "-")]
		switch _, given := in[field]; {
		case field == "":
			return nil, console.Wrong("--clear %q: unknown field; use %s", name, fields)
		case given:
			return nil, console.Wrong("--clear %s: another flag sets it, or it is cleared twice", name)
		}
		in[field] = nil
	}
	if !in.changes() {
		return nil, console.Wrong("nothing to change: give a field to set, or --clear")
	}
	return in, nil
}
