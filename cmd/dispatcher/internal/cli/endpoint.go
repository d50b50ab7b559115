package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

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

// A shownEndpoint is what the commands read of an endpoint.
type shownEndpoint struct {
	ID             string            `json:"id"`
	ExternalID     string            `json:"external_id"`
	Name           string            `json:"name"`
	URL            string            `json:"url"`
	URLOverride    string            `json:"url_override"`
	Topics         []string          `json:"topics"`
	Policy         json.RawMessage   `json:"policy"`
	Success        json.RawMessage   `json:"success"`
	Signer         json.RawMessage   `json:"signer"`
	Headers        map[string]string `json:"headers"`
	Rate           string            `json:"rate"`
	Concurrency    *int              `json:"concurrency"`
	Enabled        bool              `json:"enabled"`
	DisabledReason string            `json:"disabled_reason"`
	shownPause
	Lane          string     `json:"lane"`
	FailingSince  *time.Time `json:"failing_since"`
	LastSuccessAt *time.Time `json:"last_success_at"`
	LastFailureAt *time.Time `json:"last_failure_at"`
	CreatedAt     *time.Time `json:"created_at"`
	UpdatedAt     *time.Time `json:"updated_at"`
	// Secret is there only in the answer that it was made or given with.
	Secret string `json:"secret"`
}

// title names an endpoint for people.
func (ep *shownEndpoint) title() string {
	if ep.ExternalID != "" {
		return console.Printable(ep.ID) + "  " + console.Short(ep.ExternalID, console.Widest)
	}
	return console.Printable(ep.ID)
}

// endpointPath returns where an endpoint's own address begins. Ids are made here and external ids never begin like them.
func endpointPath(name string) string {
	if strings.HasPrefix(name, store.EndpointPrefix) {
		return "/v1/endpoints/" + url.PathEscape(name)
	}
	return "/v1/endpoints/by-external-id/" + url.PathEscape(name)
}

// findEndpoint reads an endpoint by its id or its external id.
func findEndpoint(ctx context.Context, cl *remote.Client, name string) (*shownEndpoint, []byte, error) {
	if name == "" {
		return nil, nil, &console.UsageError{Lines: []string{"an endpoint is named by its id or its external id; neither is empty"}}
	}
	ep := &shownEndpoint{}
	answer, err := cl.Call(ctx, http.MethodGet, endpointPath(name), nil, ep)
	return ep, answer, remote.InWords(err, "no endpoint has the id or external id %q", name)
}

// callEndpoint makes a call for the endpoint of that name. Only its id is part of such addresses, so that an external id is looked up
// first.
func callEndpoint(ctx context.Context, cl *remote.Client, method, name, call string, in, out any) ([]byte, error) {
	id := name
	if !strings.HasPrefix(name, store.EndpointPrefix) {
		ep, _, err := findEndpoint(ctx, cl, name)
		if err != nil {
			return nil, err
		}
		id = ep.ID
	}
	answer, err := cl.Call(ctx, method, endpointPath(id)+call, in, out)
	if call != "/secret" { // there the secret may be what does not exist
		err = remote.InWords(err, "no endpoint has the id %q", id)
	}
	return answer, err
}

// endpointList lists endpoints.
type endpointList struct {
	remote.Flags
	Search  string `placeholder:"TEXT" help:"Only those with this in id, external id, name or address."`
	Topic   string `placeholder:"TOPIC" help:"Only those that are told of events of this topic."`
	Held    bool   `help:"Only those that are paused or disabled."`
	Failing bool   `help:"Only those whose last attempt failed."`
	listFlags
}

// Run prints the endpoints.
func (cmd *endpointList) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	q := url.Values{}
	for name, value := range map[string]string{"search": cmd.Search, "topic": cmd.Topic} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, yes := range map[string]bool{"held": cmd.Held, "failing": cmd.Failing} {
		if yes {
			q.Set(name, "true")
		}
	}
	return showList(ctx, c, cl, "/v1/endpoints", q, cmd.listFlags, "no endpoints match", func(list []shownEndpoint) {
		showEndpoints(c, list, time.Now())
	})
}

// endpointGet shows one endpoint.
type endpointGet struct {
	remote.Flags
	ID   string `arg:"" name:"endpoint" help:"The endpoint's id, ep_ and 26 characters, or your own name for it."`
	JSON bool   `name:"json" help:"Print the server's answer for machines."`
}

// Run shows it.
func (cmd *endpointGet) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	ep, answer, err := findEndpoint(ctx, cl, cmd.ID)
	if err != nil {
		return err
	}
	if cmd.JSON {
		return console.PrintJSON(c, answer)
	}
	showEndpoint(c, ep, time.Now())
	return nil
}

// endpointDelete removes an endpoint.
type endpointDelete struct {
	remote.Flags
	ID     string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
}

// Run removes it.
func (cmd *endpointDelete) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	if _, err := callEndpoint(ctx, cl, http.MethodDelete, cmd.ID, "", reasonOf(cmd.Reason), nil); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "%s is removed; what was open of it is canceled\n", console.Printable(cmd.ID))
	return nil
}

// endpointPause holds an endpoint.
type endpointPause struct {
	remote.Flags
	ID string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	pauseFlags
}

// Run holds it.
func (cmd *endpointPause) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	var ep shownEndpoint
	answer, err := callEndpoint(ctx, cl, http.MethodPost, cmd.ID, "/pause", cmd.request(), &ep)
	if err != nil {
		return err
	}
	if cmd.JSON {
		return console.PrintJSON(c, answer)
	}
	fmt.Fprintf(c.Out, "%s  is paused %s\n", ep.title(), ep.sentence())
	return nil
}

// endpointResume lets an endpoint go on.
type endpointResume struct {
	remote.Flags
	ID string `arg:"" name:"endpoint" help:"The endpoint's id or external id."`
	resumeFlags
}

// Run lets it go on. One that is disabled stays so.
func (cmd *endpointResume) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	var ep shownEndpoint
	answer, err := callEndpoint(ctx, cl, http.MethodPost, cmd.ID, "/resume", reasonOf(cmd.Reason), &ep)
	if err != nil {
		return err
	}
	if cmd.JSON {
		return console.PrintJSON(c, answer)
	}
	if !ep.Enabled {
		fmt.Fprintf(c.Out, "%s  is not paused, but disabled (%s): \"dispatcher endpoint set %s --enable\" has it sent to again\n",
			ep.title(), console.Printable(ep.DisabledReason), console.Printable(ep.ID))
		return nil
	}
	fmt.Fprintf(c.Out, "%s  goes on\n", ep.title())
	return nil
}
