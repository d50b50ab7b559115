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
)

// ProjectCommand is the API for projects from the shell.
type ProjectCommand struct {
	Create projectCreate `cmd:"" help:"Make a project: keys, endpoints, callbacks and secrets of its own. Only the admin key of the settings may."`
	List   projectList   `cmd:"" help:"List projects, by id."`
	Set    projectSet    `cmd:"" help:"Change the defaults of a project, and nothing else."`
}

// quotasText names the quotas that a project has.
func quotasText(q client.Quotas) string {
	var parts []string
	if q.OpenCallbacks != 0 {
		parts = append(parts, fmt.Sprintf("%d open callbacks", q.OpenCallbacks))
	}
	if q.Lanes != 0 {
		parts = append(parts, fmt.Sprintf("%d lanes", q.Lanes))
	}
	return strings.Join(parts, ", ")
}

// projectFields are what can be said of a project: what callbacks get that bring none, nor get any from their endpoint.
type projectFields struct {
	Name string `placeholder:"TEXT" help:"A name for people."`
	choiceFlags
	Header []string `short:"H" sep:"none" placeholder:"NAME:VALUE" help:"A header to send with every attempt; may be repeated."`
	// HeaderHosts are a list that replaces the one that there is.
	HeaderHosts []string `placeholder:"HOST,..." help:"Hosts that those of the headers go to which are credentials, such as Authorization; to all others they are not sent."`
	MaxOpen     *int64   `placeholder:"N" help:"Most open callbacks; 0: no bound. Needs the settings' key."`
	MaxLanes    *int64   `placeholder:"N" help:"Most lanes; 0: no bound. Needs the settings' key."`
	changeFlags
}

// put writes what was given into the body of a request.
func (f *projectFields) put(c *console.Console, in body) error {
	if err := f.choiceFlags.put(c, in); err != nil {
		return err
	}
	in.texts("name", f.Name)
	quotas := body{}
	if f.MaxOpen != nil {
		quotas["open_callbacks"] = *f.MaxOpen
	}
	if f.MaxLanes != nil {
		quotas["lanes"] = *f.MaxLanes
	}
	if len(quotas) > 0 {
		in["quotas"] = quotas
	}
	if len(f.HeaderHosts) > 0 {
		in["header_hosts"] = f.HeaderHosts
	}
	return in.headers(f.Header)
}

// projectCreate makes a project.
type projectCreate struct {
	ID string `arg:"" help:"Its id: small letters, digits, _ and -, at most 64."`
	projectFields
}

// Run makes it.
func (cmd *projectCreate) Run(ctx context.Context, c *console.Console) error {
	in := body{"id": cmd.ID}
	if err := cmd.put(c, in); err != nil {
		return err
	}
	in.texts("reason", cmd.Reason)
	return ask(ctx, c, cmd.answerFlags, post("/v1/projects", in), func(p *client.Project) {
		fmt.Fprintf(c.Out, "%s  made (\"dispatcher key create NAME --scope send --project %[1]s\" makes a key for it)\n", console.Printable(p.ID))
	})
}

// projectList lists projects.
type projectList struct{ listFlags }

// Run prints the projects.
func (cmd *projectList) Run(ctx context.Context, c *console.Console) error {
	now := time.Now()
	state := func(p *client.Project) any {
		if !p.Paused {
			return ""
		}
		return c.Paint("paused", console.Yellow) + " " + pausedText(&p.Pause)
	}
	return list(ctx, c, cmd.listFlags, "/v1/projects", url.Values{}, "there are no projects", []console.Column[client.Project]{
		{Name: "id", Of: func(p *client.Project) any { return console.Printable(p.ID) }},
		{Name: "name", Of: func(p *client.Project) any { return console.Short(p.Name, 32) }},
		{Name: "state", Of: state},
		{Name: "policy", Of: func(p *client.Project) any { return console.Short(choiceText(p.Policy), 32) }},
		{Name: "success", Of: func(p *client.Project) any { return console.Short(choiceText(p.Success), 32) }},
		{Name: "signer", Of: func(p *client.Project) any { return console.Short(choiceText(p.Signer), 32) }},
		{Name: "quotas", Of: func(p *client.Project) any { return quotasText(p.Quotas) }},
		{Name: "made", Of: func(p *client.Project) any { return agoOr(p.CreatedAt, now, "") }},
	})
}

// projectSet changes a project.
type projectSet struct {
	ID string `arg:"" help:"Id of the project."`
	projectFields
	Clear []string `enum:"policy,success,signer,name,header" placeholder:"FIELD" help:"Have these be the program's again: policy, success, signer, name, header."`
}

// Run changes it.
func (cmd *projectSet) Run(ctx context.Context, c *console.Console) error {
	in := body{}
	if err := cmd.put(c, in); err != nil {
		return err
	}
	if err := in.clear(cmd.Clear, clearable, "policy, success, signer, name or header"); err != nil {
		return err
	}
	if len(in) == 0 {
		return console.Wrong("nothing to change: give what is to be another, or --clear")
	}
	in.texts("reason", cmd.Reason)
	r := request{
		http.MethodPatch, "/v1/projects/" + url.PathEscape(cmd.ID), in, fmt.Sprintf("there is no project %q", cmd.ID),
	}
	return ask(ctx, c, cmd.answerFlags, r, func(p *client.Project) { fmt.Fprintf(c.Out, "%s  changed\n", console.Printable(p.ID)) })
}
