package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
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

// titleOf names an endpoint for people.
func titleOf(ep *client.Endpoint) string {
	if ep.ExternalID != "" {
		return console.Printable(ep.ID) + "  " + console.Short(ep.ExternalID, console.Widest)
	}
	return console.Printable(ep.ID)
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
func (r request) forEndpoint(ctx context.Context, cl *remote.Client, name string) (request, error) {
	id := name
	if !strings.HasPrefix(name, store.EndpointPrefix) {
		find, err := findEndpoint(name)
		if err != nil {
			return r, err
		}
		var ep client.Endpoint
		if _, err := find.made(ctx, cl, &ep); err != nil {
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
func askEndpoint[T any](
	ctx context.Context, c *console.Console, f answerFlags, name string, r request, show func(*T),
) error {
	cl, err := remote.New(c, f.Flags)
	if err != nil {
		return err
	}
	if r, err = r.forEndpoint(ctx, cl, name); err != nil {
		return err
	}
	return askAt(ctx, c, cl, f.JSON, r, show)
}

// endpointList lists endpoints.
type endpointList struct {
	Search  string `placeholder:"TEXT" help:"Only those with this in id, external id, name or address."`
	Topic   string `placeholder:"TOPIC" help:"Only those that are told of events of this topic."`
	Held    bool   `help:"Only those that are paused or disabled."`
	Failing bool   `help:"Only those whose last attempt failed."`
	listFlags
}

// Run prints the endpoints.
func (cmd *endpointList) Run(ctx context.Context, c *console.Console) error {
	q := parameters("search", cmd.Search, "topic", cmd.Topic, "held", yes(cmd.Held), "failing", yes(cmd.Failing))
	now := time.Now()
	return list(ctx, c, cmd.listFlags, "/v1/endpoints", q, "no endpoints match", []console.Column[client.Endpoint]{
		{Name: "id", Of: func(ep *client.Endpoint) any { return console.Printable(ep.ID) }},
		{Name: "external id", Of: func(ep *client.Endpoint) any { return console.Short(ep.ExternalID, 32) }},
		{Name: "name", Of: func(ep *client.Endpoint) any { return console.Short(ep.Name, 24) }},
		{Name: "state", Of: func(ep *client.Endpoint) any { return endpointState(c, ep, now) }},
		{Name: "topics", Of: func(ep *client.Endpoint) any { return console.Short(strings.Join(ep.Topics, " "), 32) }},
		{Name: "url", Of: func(ep *client.Endpoint) any { return console.Short(ep.URL, console.Widest) }},
	})
}

// endpointGet shows one endpoint.
type endpointGet struct {
	ID string `arg:"" name:"endpoint" help:"The endpoint's id, ep_ and 26 characters, or your own name for it."`
	answerFlags
}

// Run shows it.
func (cmd *endpointGet) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	r, err := findEndpoint(cmd.ID)
	if err != nil {
		return err
	}
	return askAt(ctx, c, cl, cmd.JSON, r, func(ep *client.Endpoint) { showEndpoint(c, ep, time.Now()) })
}

// endpointDelete removes an endpoint.
type endpointDelete struct {
	ID     string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
	remote.Flags
}

// Run removes it.
func (cmd *endpointDelete) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	r, err := request{method: http.MethodDelete, in: reasonOf(cmd.Reason)}.forEndpoint(ctx, cl, cmd.ID)
	if err != nil {
		return err
	}
	if _, err := r.made(ctx, cl, nil); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "%s is removed; what was open of it is canceled\n", console.Printable(cmd.ID))
	return nil
}

// endpointPause holds an endpoint.
type endpointPause struct {
	ID string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	pauseFlags
}

// Run holds it.
func (cmd *endpointPause) Run(ctx context.Context, c *console.Console) error {
	return askEndpoint(ctx, c, cmd.answerFlags, cmd.ID, post("/pause", cmd.body()), func(ep *client.Endpoint) {
		fmt.Fprintf(c.Out, "%s  is paused %s\n", titleOf(ep), pausedText(&ep.Pause))
	})
}

// endpointResume lets an endpoint go on.
type endpointResume struct {
	ID string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	changeFlags
}

// Run lets it go on. One that is disabled stays so.
func (cmd *endpointResume) Run(ctx context.Context, c *console.Console) error {
	return askEndpoint(ctx, c, cmd.answerFlags, cmd.ID, post("/resume", reasonOf(cmd.Reason)), func(ep *client.Endpoint) {
		if !ep.Enabled {
			fmt.Fprintf(c.Out, "%s  is not paused, but disabled (%s): \"dispatcher endpoint set %s --enable\" has it sent to again\n",
				titleOf(ep), console.Printable(ep.DisabledReason), console.Printable(ep.ID))
			return
		}
		fmt.Fprintf(c.Out, "%s  goes on\n", titleOf(ep))
	})
}
