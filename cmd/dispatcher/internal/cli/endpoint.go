package cli

import (
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

// findEndpoint is the request for an endpoint by its id or its external id. Ids are made here and external ids never begin
// like them.
func findEndpoint(name string) (request, error) {
	if name == "" {
		return request{}, console.Wrong("an endpoint is named by its id or its external id; neither is empty")
	}
	path := "/v1/endpoints/by-external-id/"
	if strings.HasPrefix(name, store.EndpointPrefix) {
		path = "/v1/endpoints/"
	}
	return get(path + url.PathEscape(name)).orSay(fmt.Sprintf("no endpoint has the id or external id %q", name)), nil
}

// forEndpoint makes the path of a request, which begins behind an endpoint's own, that of the endpoint of a name. Only its
// id is part of such addresses, so that an external id is looked up first.
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
	return list(c, cmd.listFlags, "/v1/endpoints", cmd, "no endpoints match", header, func(ep *client.Endpoint) []any {
		return []any{
			ep.ID, console.Short(ep.ExternalID, 32), console.Short(ep.Name, 24), endpointState(c, ep, now),
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

// endpointDelete removes an endpoint.
type endpointDelete struct {
	ID     string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	Reason string `in:"reason" placeholder:"TEXT" help:"Why, for the audit."`
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
	ID string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
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
	ID string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	changeFlags
}

// Run lets it go on. One that is disabled stays so.
func (cmd *endpointResume) Run(c *session) error {
	return askEndpoint(c, cmd.ID, post("/resume", cmd), func(ep *client.Endpoint) {
		if !ep.Enabled {
			c.printf("%s  is not paused, but disabled (%s): \"dispatcher endpoint set %s --enable\" has it sent to again\n",
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
	chosen := func(choice client.Choice) string { return console.FirstOf(choiceText(choice), "the project's default") }
	var headers []string
	for _, h := range slices.SortedFunc(slices.Values(ep.Headers), func(a, b client.Header) int { return strings.Compare(a.Name, b.Name) }) {
		headers = append(headers, "header", h.Name+": "+h.Value)
	}
	c.Lines(12, slices.Concat([]string{
		"endpoint", ep.ID, "external id", ep.ExternalID, "name", ep.Name, "state", state, "url", ep.URL,
		"override", meaning(string(ep.URLOverride)),
		"topics", console.FirstOf(strings.Join(ep.Topics, " "), "none: it is told of no events"),
		"policy", chosen(ep.Policy), "success", chosen(ep.Success), "signer", chosen(ep.Signer),
	}, headers, []string{
		"rate", console.FirstOf(ep.Rate, "any"),
		"in flight", "at most " + numberOr(ep.Concurrency, "the setting lane_concurrency"), "lane", ep.Lane,
		"failing", console.ClockTime(ep.FailingSince), "last success", console.ClockTime(ep.LastSuccessAt),
		"last failure", console.ClockTime(ep.LastFailureAt), "made", console.ClockTime(ep.CreatedAt),
		"changed", console.ClockTime(ep.UpdatedAt),
	})...)
}
