package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// ProjectCommand is the API for projects from the shell.
type ProjectCommand struct {
	Create projectCreate `cmd:"" help:"Make a project: keys, endpoints, callbacks and secrets of its own. Only the admin key of the settings may."`
	List   projectList   `cmd:"" help:"List projects, by id."`
	Set    projectSet    `cmd:"" help:"Change the defaults of a project, and nothing else."`
}

// A shownProject is what the commands read of a project.
type shownProject struct {
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Policy  json.RawMessage `json:"policy"`
	Success json.RawMessage `json:"success"`
	Signer  json.RawMessage `json:"signer"`
	Quotas  shownQuotas     `json:"quotas"`
	shownPause
	CreatedAt *time.Time `json:"created_at"`
}

// shownQuotas are the quotas of a project; nil: there is none.
type shownQuotas struct {
	OpenCallbacks *int64 `json:"open_callbacks"`
	Lanes         *int64 `json:"lanes"`
}

func (q shownQuotas) String() string {
	var parts []string
	if q.OpenCallbacks != nil {
		parts = append(parts, fmt.Sprintf("%d open callbacks", *q.OpenCallbacks))
	}
	if q.Lanes != nil {
		parts = append(parts, fmt.Sprintf("%d lanes", *q.Lanes))
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
	Reason      string   `placeholder:"TEXT" help:"Why, for the audit."`
	JSON        bool     `name:"json" help:"Print the server's answer for machines."`
}

// put writes what was given into the body of a request.
func (f *projectFields) put(c *console.Console, in map[string]any) error {
	if err := f.choiceFlags.put(c, in); err != nil {
		return err
	}
	putTexts(in, map[string]string{"name": f.Name})
	quotas := map[string]any{}
	if f.MaxOpen != nil {
		quotas["open_callbacks"] = *f.MaxOpen
	}
	if f.MaxLanes != nil {
		quotas["lanes"] = *f.MaxLanes
	}
	if len(quotas) > 0 {
		in["quotas"] = quotas
	}
	headers, err := headerLines(f.Header)
	if len(headers) > 0 {
		in["headers"] = headers
	}
	if len(f.HeaderHosts) > 0 {
		in["header_hosts"] = f.HeaderHosts
	}
	return err
}

// projectCreate makes a project.
type projectCreate struct {
	remote.Flags
	ID string `arg:"" help:"Its id: small letters, digits, _ and -, at most 64."`
	projectFields
}

// Run makes it.
func (cmd *projectCreate) Run(ctx context.Context, c *console.Console) error {
	in := map[string]any{"id": cmd.ID}
	if err := cmd.put(c, in); err != nil {
		return err
	}
	putTexts(in, map[string]string{"reason": cmd.Reason})
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	var p shownProject
	answer, err := cl.Call(ctx, http.MethodPost, "/v1/projects", in, &p)
	if err != nil {
		return err
	}
	if cmd.JSON {
		return console.PrintJSON(c, answer)
	}
	fmt.Fprintf(c.Out, "%s  made (\"dispatcher key create NAME --scope send --project %[1]s\" makes a key for it)\n", console.Printable(p.ID))
	return nil
}

// projectList lists projects.
type projectList struct {
	remote.Flags
	listFlags
}

// Run prints the projects.
func (cmd *projectList) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	return showList(ctx, c, cl, "/v1/projects", url.Values{}, cmd.listFlags, "there are no projects", func(projects []shownProject) {
		now := time.Now()
		t := c.NewTable("id", "name", "state", "policy", "success", "signer", "quotas", "made")
		for i := range projects {
			p := &projects[i]
			state := ""
			if p.Paused {
				state = c.Paint("paused", text.FgYellow) + " " + p.sentence()
			}
			t.AppendRow([]any{
				console.Printable(p.ID), console.Short(p.Name, 32), state, console.Short(choiceText(p.Policy), 32),
				console.Short(choiceText(p.Success), 32), console.Short(choiceText(p.Signer), 32), p.Quotas.String(),
				agoOr(p.CreatedAt, now, ""),
			})
		}
		t.Render()
	})
}

// projectSet changes a project.
type projectSet struct {
	remote.Flags
	ID string `arg:"" help:"Id of the project."`
	projectFields
	Clear []string `enum:"policy,success,signer,name,header" placeholder:"FIELD" help:"Have these be the program's again: policy, success, signer, name, header."`
}

// Run changes it.
func (cmd *projectSet) Run(ctx context.Context, c *console.Console) error {
	in := map[string]any{}
	if err := cmd.put(c, in); err != nil {
		return err
	}
	for _, name := range cmd.Clear {
		field := clearable[name]
		if _, given := in[field]; given {
			return &console.UsageError{Lines: []string{fmt.Sprintf("--clear %s takes away what another flag gives, or stands twice", name)}}
		}
		in[field] = nil
	}
	if len(in) == 0 {
		return &console.UsageError{Lines: []string{"nothing to change: give what is to be another, or --clear"}}
	}
	putTexts(in, map[string]string{"reason": cmd.Reason})
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	var p shownProject
	answer, err := cl.Call(ctx, http.MethodPatch, "/v1/projects/"+url.PathEscape(cmd.ID), in, &p)
	if err != nil {
		return remote.InWords(err, "there is no project %q", cmd.ID)
	}
	if cmd.JSON {
		return console.PrintJSON(c, answer)
	}
	fmt.Fprintf(c.Out, "%s  changed\n", console.Printable(p.ID))
	return nil
}
