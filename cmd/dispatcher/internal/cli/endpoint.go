package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// EndpointCommand is the API for endpoints from the shell.
type EndpointCommand struct {
	Create       endpointCreate `cmd:"" help:"Make an endpoint: a receiver with a secret, a policy, headers and limits of its own."`
	List         endpointList   `cmd:"" help:"List endpoints, newest first."`
	Get          endpointGet    `cmd:"" help:"Show one endpoint."`
	Set          endpointSet    `cmd:"" help:"Change what is given of an endpoint, and nothing else."`
	Put          endpointPut    `cmd:"" help:"Make or replace the endpoints of a file, one a line, by their external ids."`
	Delete       endpointDelete `cmd:"" help:"Remove an endpoint. Its open callbacks are canceled."`
	Pause        endpointPause  `cmd:"" help:"Hold an endpoint: callbacks are accepted, none is sent."`
	Resume       endpointResume `cmd:"" help:"Let a paused endpoint go on."`
	Test         endpointTest   `cmd:"" help:"Send an endpoint a test, which is attempted once."`
	Secret       endpointSecret `cmd:"" help:"Print what the receiver verifies with: the endpoint's secret, or the public key of a key pair."`
	RotateSecret endpointRotate `cmd:"" help:"Give an endpoint a new secret. The old one signs beside it for a while."`
}

// findEndpoint is the request for an endpoint by its id or its external id. Ids are made here and external
// ids never begin like them.
func findEndpoint(name string) (request, error) {
	if name == "" {
		return request{}, console.Wrong("an endpoint is named by its id or its external id; neither is empty")
	}
	path := "/v1/endpoints/by-external-id/"
	if strings.HasPrefix(name, store.EndpointPrefix) {
		path = "/v1/endpoints/"
	}
	return get(path + url.PathEscape(name)).orSay(
		fmt.Sprintf("no endpoint has the id or external id %q", name)), nil
}

// forEndpoint makes the path of a request, which begins behind an endpoint's own, that of the endpoint of a
// name. Only its id is part of such addresses, so that an external id is looked up first.
func (r request) forEndpoint(c *session, name string) (request, error) {
	if err := r.fill(c); err != nil {
		return r, err
	}
	id := name
	if !strings.HasPrefix(name, store.EndpointPrefix) {
		find, err := findEndpoint(name)
		if err != nil {
			return r, err
		}
		var ep client.Endpoint
		if _, err := c.call(find, &ep); err != nil {
			return r, err
		}
		id = ep.ID
	}
	if r.path != "/secret" { // there the secret may be what does not exist
		r = r.orSay(fmt.Sprintf("no endpoint has the id %q", id))
	}
	r.path = "/v1/endpoints/" + url.PathEscape(id) + r.path
	return r, nil
}

// askEndpoint is ask for the endpoint of a name.
func askEndpoint[T any](c *session, name string, r request, show func(*T)) error {
	r, err := r.forEndpoint(c, name)
	if err != nil {
		return err
	}
	return ask(c, r, show)
}

// endpointList lists endpoints.
type endpointList struct {
	Search  string `in:"search" placeholder:"TEXT" help:"Only those with this in id, external id, name or address."`
	Topic   string `in:"topic" placeholder:"TOPIC" help:"Only those that are told of events of this topic."`
	Held    bool   `in:"held" help:"Only those that are paused or disabled."`
	Failing bool   `in:"failing" help:"Only those whose last attempt failed."`
	listFlags
}

// Run prints the endpoints.
func (cmd *endpointList) Run(c *session) error {
	header, now := "id, external id, name, state, topics, url", time.Now()
	return list(c, cmd.listFlags, "/v1/endpoints", cmd, "no endpoints match", header,
		func(ep *client.Endpoint) []any {
			return []any{
				ep.ID, console.Short(ep.ExternalID, 32), console.Short(ep.Name, 24),
				endpointState(c, ep, now),
				console.Short(strings.Join(ep.Topics, " "), 32), console.Short(ep.URL, console.Widest),
			}
		})
}

// endpointGet shows one endpoint.
type endpointGet struct {
	ID string `arg:"" name:"endpoint" help:"The endpoint's id, ep_ and 26 characters, or your own name for it."`
	answerFlags
}

// Run shows it.
func (cmd *endpointGet) Run(c *session) error {
	if err := c.connect(); err != nil {
		return err
	}
	r, err := findEndpoint(cmd.ID)
	if err != nil {
		return err
	}
	return ask(c, r, func(ep *client.Endpoint) { showEndpoint(c, ep, time.Now()) })
}

// endpointArg names an endpoint.
type endpointArg struct {
	ID string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
}

// endpointDelete removes an endpoint.
type endpointDelete struct {
	endpointArg
	reasonFlag
	serverFlags
}

// Run removes it.
func (cmd *endpointDelete) Run(c *session) error {
	r, err := request{method: http.MethodDelete, in: cmd}.forEndpoint(c, cmd.ID)
	if err != nil {
		return err
	}
	return c.done(r, "%s is removed; what was open of it is canceled", console.Printable(cmd.ID))
}

// endpointPause holds an endpoint.
type endpointPause struct {
	endpointArg
	pauseFlags
}

// Run holds it.
func (cmd *endpointPause) Run(c *session) error {
	return askEndpoint(c, cmd.ID, post("/pause", cmd), func(ep *client.Endpoint) {
		c.printf("%s  is paused %s\n", titleOf(ep), pausedText(&ep.Pause))
	})
}

// endpointResume lets an endpoint go on.
type endpointResume struct {
	endpointArg
	changeFlags
}

// Run lets it go on. One that is disabled stays so.
func (cmd *endpointResume) Run(c *session) error {
	return askEndpoint(c, cmd.ID, post("/resume", cmd), func(ep *client.Endpoint) {
		if !ep.Enabled {
			c.printf("%s  is not paused, but disabled (%s): \"dispatcher endpoint set %s --enable\" has it "+
				"sent to again\n",
				titleOf(ep), ep.DisabledReason, ep.ID)
			return
		}
		c.printf("%s  goes on\n", titleOf(ep))
	})
}

// titleOf names an endpoint for people.
func titleOf(ep *client.Endpoint) string {
	if ep.ExternalID != "" {
		return ep.ID + "  " + console.Short(ep.ExternalID, console.Widest)
	}
	return ep.ID
}

// endpointState says in a few words whether an endpoint is sent to, and how it takes that.
func endpointState(c *session, ep *client.Endpoint, now time.Time) string {
	switch {
	case !ep.Enabled:
		return c.Paint("disabled: "+string(ep.DisabledReason), console.Red)
	case ep.Paused && !ep.PausedUntil.IsZero():
		return c.Paint("paused for "+console.Brief(ep.PausedUntil.Sub(now)), console.Yellow)
	case ep.Paused:
		return c.Paint("paused", console.Yellow)
	case !ep.FailingSince.IsZero():
		return c.Paint("failing since "+ago(ep.FailingSince, now), console.Red)
	case !ep.LastSuccessAt.IsZero():
		return c.Paint("ok, "+ago(ep.LastSuccessAt, now), console.Green)
	}
	return "not sent to yet"
}

// showEndpoint prints one endpoint.
func showEndpoint(c *session, ep *client.Endpoint, now time.Time) {
	state := endpointState(c, ep, now)
	if ep.Enabled && ep.Paused {
		state = c.Paint("paused", console.Yellow) + " " + pausedText(&ep.Pause)
	}
	chosen := func(choice client.Choice) string { return cmp.Or(choiceText(choice), "the project's default") }
	var headers []string
	for _, h := range slices.SortedFunc(slices.Values(ep.Headers), func(a, b client.Header) int {
		return strings.Compare(a.Name, b.Name)
	}) {
		headers = append(headers, "header", h.Name+": "+h.Value)
	}
	c.Lines(12, slices.Concat([]string{
		"endpoint", ep.ID, "external id", ep.ExternalID, "name", ep.Name, "state", state, "url", ep.URL,
		"override", meaning(string(ep.URLOverride)),
		"topics", cmp.Or(strings.Join(ep.Topics, " "), "none: it is told of no events"),
		"policy", chosen(ep.Policy), "success", chosen(ep.Success), "signer", chosen(ep.Signer),
	}, headers, []string{
		"rate", cmp.Or(ep.Rate, "any"),
		"in flight", "at most " + numberOr(ep.Concurrency, "the setting lane_concurrency"), "lane", ep.Lane,
		"failing", console.ClockTime(ep.FailingSince), "last success", console.ClockTime(ep.LastSuccessAt),
		"last failure", console.ClockTime(ep.LastFailureAt), "made", console.ClockTime(ep.CreatedAt),
		"changed", console.ClockTime(ep.UpdatedAt),
	})...)
}

// endpointFields are what can be said of an endpoint, whether it is made or changed.
type endpointFields struct {
	ExternalID  string   `in:"external_id" placeholder:"TEXT" help:"Your own name for it, such as a merchant number; callbacks may name it by that."`
	Name        string   `in:"name" placeholder:"TEXT" help:"A name for people."`
	Topic       []string `in:"topics,list" placeholder:"TOPIC" help:"Events that it is told of: payment.succeeded, payment.*, or * for all; may be repeated."`
	URLOverride string   `in:"url_override" placeholder:"deny|same_host|any" help:"Whether a callback may bring an address of its own. Default: deny."`
	attemptChoices
	Rate        string `in:"rate" placeholder:"N/s" help:"How many attempts may begin: 50/s, 300/m, 10/h or 1/d."`
	Concurrency int    `in:"concurrency" placeholder:"N" help:"How many attempts may be in flight. Default: the setting lane_concurrency."`
	Disable     bool   `in:"enabled,not" xor:"enabled" help:"Disable it: callbacks are accepted and held."`
	Secret      string `in:"secret,secret" placeholder:"TEXT|@FILE|-" help:"The secret that signs, as its signer wants it; better in a file, or on the standard input with -, than where other users of this machine see it. Default: one is made."`
	SecretLabel string `in:"secret_label" placeholder:"TEXT" help:"What receivers know the secret by, such as a certificate's serial number."`
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

// showReceiversPart prints what a receiver needs to verify with. Of a key pair that is the public key: the
// private one is nobody's to carry around.
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
	endpointArg
	URL string `in:"url" placeholder:"URL" help:"Address that is called."`
	endpointFields
	Enable bool     `in:"enabled" xor:"enabled" help:"Have it sent to again after it was disabled, by --disable or because it answered 410."`
	Clear  []string `placeholder:"FIELD" help:"Take these away: policy, success, signer, external-id, rate, concurrency, name, url-override, topic, header."`
}

// Help is what endpoint set --help says below the flags' summary.
func (*endpointSet) Help() string {
	return "What is not given stays. Topics and headers are given whole: those that are not named again " +
		"are gone. Callbacks that were accepted before keep their policy " +
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

// changed is the body of a change, without the fields that --clear takes away by its own names of them; among
// says which there are.
func changed(c *session, cmd any, names []string, among string) (body, error) {
	in, err := bodyOf(c, cmd)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		field := clearable[strings.ReplaceAll(strings.TrimSpace(name), "_", "-")]
		switch _, given := in[field]; {
		case field == "":
			return nil, console.Wrong("--clear %q: it is %s", name, among)
		case given:
			return nil, console.Wrong("--clear %s takes away what another flag gives, or stands twice", name)
		}
		in[field] = nil
	}
	if !in.changes() {
		return nil, console.Wrong("nothing to change: give what is to be another, or --clear")
	}
	return in, nil
}

// printSecret prints what a receiver verifies with, and nothing else: the output is what "listen --secret"
// takes.
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
	Private bool `help:"Of a key pair: the private key, which signs."`
	answerFlags
}

// Help is what endpoint secret --help says below the flags' summary.
func (*endpointSecret) Help() string {
	return "It needs a key of scope admin, and is audited. The output is what \"dispatcher listen " +
		"--secret\" takes."
}

// Run prints it.
func (cmd *endpointSecret) Run(c *session) error {
	return askEndpoint(c, cmd.ID, get("/secret"), printSecret(c, cmd.Private))
}

// endpointRotate gives an endpoint a new secret.
type endpointRotate struct {
	endpointArg
	Secret  string `in:"secret,secret" placeholder:"TEXT|@FILE|-" help:"The new one, as the endpoint's signer wants it; better in a file, or on the standard input with -, than where other users of this machine see it. Default: one is made."`
	Label   string `in:"label" placeholder:"TEXT" help:"What receivers know it by, such as a certificate's serial number."`
	Overlap string `in:"overlap" placeholder:"DURATION" help:"How long the old one signs beside it, 0s to 30d. 0s: it ends at once, as one that leaked must. Default: 1d."`
	changeFlags
}

// Help is what endpoint rotate-secret --help says below the flags' summary.
func (*endpointRotate) Help() string {
	return "During the overlap, standard-v1, standard-v1a, t-v1 and hmac-sha256-body sign with both, so " +
		"that receivers can change when they like; the others sign with the " +
		"new one at once. The new secret (of a key pair, the public key) goes to the standard output, all else to the error output. It needs a key of scope admin."
}

// Run rotates, and prints the new secret.
func (cmd *endpointRotate) Run(c *session) error {
	return askEndpoint(c, cmd.ID, post("/rotate_secret", cmd), func(s *client.RotatedSecret) {
		shown := s.RevealedSecret
		if shown == nil {
			shown = &client.RevealedSecret{}
		}
		what := "secret"
		if shown.Public != "" {
			what = "key pair, of which this is the public key"
		}
		fmt.Fprintf(c.Err, "%s has a new %s; %s\n", console.Printable(cmd.ID), what,
			oldSecret(s, "where the signer has room for two, "))
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

// endpointTest sends a test.
type endpointTest struct {
	serverFlags
	endpointArg
	Wait    bool   `help:"Wait until it has ended, show how, and exit with 1 unless it succeeded."`
	Timeout string `default:"90s" placeholder:"DURATION" help:"With --wait: how long to wait. Default: 90s."`
	JSON    bool   `help:"Print JSON for machines: the callback, with --wait its attempts under \"attempts\"."`
}

// quietWait is how long nothing is said of a test that has not ended.
const quietWait = 3 * time.Second

// Run sends the test, and with --wait says how it ended.
func (cmd *endpointTest) Run(c *session) error {
	limit, err := schedule.ParseDuration(cmd.Timeout)
	if err != nil || limit <= 0 {
		return console.Wrong("--timeout: %q is not a duration such as 90s", cmd.Timeout)
	}
	r, err := post("/test", nil).forEndpoint(c, cmd.ID)
	if err != nil {
		return err
	}
	var cb client.Callback
	answer, err := c.call(r, &cb)
	switch {
	case err != nil:
		return err
	case cmd.Wait:
		return cmd.await(c, cb.ID, limit)
	case cmd.JSON:
		return c.PrintJSON(answer)
	}
	c.printf("%s  is attempted once (see \"dispatcher callback get %[1]s\", or give --wait)\n", cb.ID)
	return nil
}

// await shows how a test ended, or what keeps it.
func (cmd *endpointTest) await(c *session, id string, limit time.Duration) error {
	began := time.Now()
	for said := false; ; {
		var cb client.Callback
		answer, err := c.call(get(remote.CallbackPath(id)), &cb)
		if err != nil {
			return err
		}
		if !cb.FinishedAt.IsZero() {
			return cmd.ended(c, &cb, answer)
		}
		waited := time.Since(began)
		if waited >= limit || !said && waited >= quietWait {
			var x client.Explanation
			if _, err := c.call(get(remote.CallbackPath(id)+"/explain"), &x); err != nil {
				return err
			}
			if waited >= limit {
				showExplanation(c, c.Err, &x)
				return fmt.Errorf("the test has not ended within %s; it stays open (see \"dispatcher "+
					"callback get %s\")", limit, id)
			}
			fmt.Fprintf(c.Err, "still waiting: %s\n", x.Summary)
			said = true
		}
		console.Pause(c.ctx, min(max(waited/10, 20*time.Millisecond), time.Second))
		if err := c.ctx.Err(); err != nil {
			return err
		}
	}
}

// ended prints the attempt of a test that is terminal, and ends with 1 if it failed.
func (cmd *endpointTest) ended(c *session, cb *client.Callback, answer []byte) error {
	raw, err := remote.NewestAttempts(c.ctx, c.client, cb.ID, 0)
	if err != nil {
		return err
	}
	if cmd.JSON {
		if err := printWithAttempts(c, answer, raw); err != nil {
			return err
		}
	} else {
		list, err := safeAttempts(raw)
		if err != nil {
			return err
		}
		c.printf("%s  %s\n", cb.ID, stateText(c, cb))
		for i := range list {
			a := &list[i]
			colour := console.Red
			if a.Outcome == "succeeded" {
				colour = console.Green
			}
			c.printf("  %s %s  %s  after %.1fms\n", cb.Method, console.Short(cb.URL, console.Widest),
				c.Paint(answerText(a), colour), a.TimingsMs.Total)
		}
	}
	if cb.State != "succeeded" {
		return console.ErrShown
	}
	return nil
}
