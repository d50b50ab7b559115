package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// EndpointCommand has the commands for endpoints.
type EndpointCommand struct {
	Create       endpointCreate      `cmd:"" help:"Create an endpoint: a receiver with its own secret, policy, headers and limits."`
	List         endpointList        `cmd:"" help:"List endpoints, newest first."`
	Get          endpointGet         `cmd:"" help:"Show one endpoint."`
	Set          endpointSet         `cmd:"" help:"Change an endpoint. Only the given fields change."`
	Put          endpointPut         `cmd:"" help:"Create or replace endpoints from a file, one per line, by their external ids."`
	Delete       endpointDelete      `cmd:"" help:"Delete an endpoint and cancel its open callbacks."`
	Pause        endpointPause       `cmd:"" help:"Pause an endpoint. Callbacks are still accepted, but not sent."`
	Resume       endpointResume      `cmd:"" help:"Resume a paused endpoint."`
	Test         endpointTest        `cmd:"" help:"Send a test callback to an endpoint. It is attempted once."`
	Secret       endpointSecret      `cmd:"" help:"Print what the receiver needs to verify signatures: the secret, or the public key of a key pair."`
	RotateSecret endpointRotate      `cmd:"" help:"Replace the secret of an endpoint. Both secrets sign for a while."`
	ViewLink     endpointViewLink    `cmd:"" help:"Create a link to the page of an endpoint for its merchant."`
	RevokeLinks  endpointRevokeLinks `cmd:"" name:"revoke-view-links" help:"Revoke all links to the page of an endpoint for its merchant."`
}

// findEndpoint returns the request for an endpoint by its id or its external id. External ids cannot start
// with the prefix of ids.
func findEndpoint(name string) (request, error) {
	if name == "" {
		return request{}, console.Wrong("give the endpoint's id or external id")
	}
	path := "/v1/endpoints/by-external-id/"
	if strings.HasPrefix(name, store.EndpointPrefix) {
		path = "/v1/endpoints/"
	}
	return get(path + url.PathEscape(name)).onMissing(
		fmt.Sprintf("no endpoint has the id or external id %q", name)), nil
}

// forEndpoint completes a request whose path is relative to an endpoint. These paths need the id, so it looks
// up an external id first.
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
	if r.path != "/secret" { // a 404 may mean that there is no secret
		r = r.onMissing(fmt.Sprintf("no endpoint has the id %q", id))
	}
	r.path = "/v1/endpoints/" + url.PathEscape(id) + r.path
	return r, nil
}

// printEndpointResponse is printResponse for an endpoint by its id or external id.
func printEndpointResponse[T any](c *session, name string, r request, show func(*T)) error {
	r, err := r.forEndpoint(c, name)
	if err != nil {
		return err
	}
	return printResponse(c, r, show)
}

// endpointList lists endpoints.
type endpointList struct {
	Search  string `in:"search" placeholder:"TEXT" help:"Only if id, external id, name or URL contain this text."`
	Topic   string `in:"topic" placeholder:"TOPIC" help:"Only endpoints that subscribe to this topic."`
	Held    bool   `in:"held" help:"Only paused and disabled endpoints."`
	Failing bool   `in:"failing" help:"Only if the last attempt failed."`
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
	ID string `arg:"" name:"endpoint" help:"Id (ep_ and 26 characters) or external id of the endpoint."`
	answerFlags
}

// Run prints the endpoint.
func (cmd *endpointGet) Run(c *session) error {
	if err := c.connect(); err != nil {
		return err
	}
	r, err := findEndpoint(cmd.ID)
	if err != nil {
		return err
	}
	return printResponse(c, r, func(ep *client.Endpoint) { showEndpoint(c, ep, time.Now()) })
}

// endpointArg is the argument that names an endpoint.
type endpointArg struct {
	ID string `arg:"" name:"endpoint" help:"Id or external id of the endpoint."`
}

// endpointDelete deletes an endpoint.
type endpointDelete struct {
	endpointArg
	reasonFlag
	serverFlags
}

// Help is the text below the summary of endpoint delete --help.
func (*endpointDelete) Help() string {
	return "With the server's setting approval_above, a redrive deletes an endpoint that has open " +
		"callbacks. If it needs an approval the command ends with exit code 3, and prints the command for " +
		"the second person."
}

// Run deletes the endpoint. If a redrive does it, Run waits until that has finished or awaits an approval.
func (cmd *endpointDelete) Run(c *session) error {
	r, err := request{method: http.MethodDelete, in: cmd}.forEndpoint(c, cmd.ID)
	if err != nil {
		return err
	}
	answer, err := c.call(r, nil)
	if err != nil {
		return err
	}
	if len(answer) > 0 {
		var job client.Redrive
		if err := json.Unmarshal(answer, &job); err != nil {
			return fmt.Errorf("the response is not from a dispatcher: %w", err)
		}
		if err := awaitRedrive(c, job.ID, false); err != nil {
			return err
		}
	}
	c.printf("%s is deleted; its open callbacks are canceled\n", console.Printable(cmd.ID))
	return nil
}

// endpointPause pauses an endpoint.
type endpointPause struct {
	endpointArg
	pauseFlags
}

// Run pauses the endpoint.
func (cmd *endpointPause) Run(c *session) error {
	return printEndpointResponse(c, cmd.ID, post("/pause", cmd), func(ep *client.Endpoint) {
		c.printf("%s  paused %s\n", titleOf(ep), pausedText(&ep.Pause))
	})
}

// endpointResume resumes an endpoint.
type endpointResume struct {
	endpointArg
	changeFlags
}

// Run resumes the endpoint. A disabled endpoint stays disabled.
func (cmd *endpointResume) Run(c *session) error {
	return printEndpointResponse(c, cmd.ID, post("/resume", cmd), func(ep *client.Endpoint) {
		if !ep.Enabled {
			c.printf("%s  resumed, but still disabled (%s); to enable it: "+
				"\"dispatcher endpoint set %s --enable\"\n", titleOf(ep), ep.DisabledReason, ep.ID)
			return
		}
		c.printf("%s  resumed\n", titleOf(ep))
	})
}

// titleOf returns the id and the external id of an endpoint.
func titleOf(ep *client.Endpoint) string {
	if ep.ExternalID != "" {
		return ep.ID + "  " + console.Short(ep.ExternalID, console.Widest)
	}
	return ep.ID
}

// endpointState formats in a few words whether the endpoint is enabled, paused or failing.
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
	return "not used yet"
}

// headerLines returns headers as pairs of name and text for Lines, sorted by name.
func headerLines(headers client.Headers) (lines []string) {
	for _, h := range slices.SortedFunc(slices.Values(headers), func(a, b client.Header) int {
		return strings.Compare(a.Name, b.Name)
	}) {
		lines = append(lines, "header", h.Name+": "+h.Value)
	}
	return lines
}

// showEndpoint prints one endpoint.
func showEndpoint(c *session, ep *client.Endpoint, now time.Time) {
	state := endpointState(c, ep, now)
	if ep.Enabled && ep.Paused {
		state = c.Paint("paused", console.Yellow) + " " + pausedText(&ep.Pause)
	}
	chosen := func(choice client.Choice) string { return cmp.Or(choiceText(choice), "the project's default") }
	c.Lines(12, slices.Concat([]string{
		"endpoint", ep.ID, "external id", ep.ExternalID, "name", ep.Name, "state", state, "url", ep.URL,
		"override", meaning(string(ep.URLOverride)),
		"topics", cmp.Or(strings.Join(ep.Topics, " "), "none"),
		"policy", chosen(ep.Policy), "success", chosen(ep.Success), "signer", chosen(ep.Signer),
	}, headerLines(ep.Headers), []string{
		"rate", cmp.Or(ep.Rate, "unlimited"),
		"in flight", "at most " + numberOr(ep.Concurrency, "the setting lane_concurrency"), "lane", ep.Lane,
		"failing", console.ClockTime(ep.FailingSince), "last success", console.ClockTime(ep.LastSuccessAt),
		"last failure", console.ClockTime(ep.LastFailureAt), "created", console.ClockTime(ep.CreatedAt),
		"changed", console.ClockTime(ep.UpdatedAt),
	})...)
}
