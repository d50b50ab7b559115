package cli

import (
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
	Name string `in:"name" placeholder:"TEXT" help:"A name for people."`
	choiceFlags
	Header []string `in:"headers,headers" short:"H" sep:"none" placeholder:"NAME:VALUE" help:"A header to send with every attempt; may be repeated."`
	// HeaderHosts are a list that replaces the one that there is.
	HeaderHosts []string `in:"header_hosts" placeholder:"HOST,..." help:"Hosts that those of the headers go to which are credentials, such as Authorization; to all others they are not sent."`
	MaxOpen     *int64   `in:"quotas.open_callbacks" placeholder:"N" help:"Most open callbacks; 0: no bound. Needs the settings' key."`
	MaxLanes    *int64   `in:"quotas.lanes" placeholder:"N" help:"Most lanes; 0: no bound. Needs the settings' key."`
	changeFlags
}

// projectCreate makes a project.
type projectCreate struct {
	ID string `in:"id" arg:"" help:"Its id: small letters, digits, _ and -, at most 64."`
	projectFields
}

// Run makes it.
func (cmd *projectCreate) Run(c *session) error {
	return ask(c, post("/v1/projects", cmd), func(p *client.Project) {
		c.printf("%s  made (\"dispatcher key create NAME --scope send --project %[1]s\" makes a key for it)\n", p.ID)
	})
}

// projectList lists projects.
type projectList struct{ listFlags }

// Run prints the projects.
func (cmd *projectList) Run(c *session) error {
	header, now := "id, name, state, policy, success, signer, quotas, made", time.Now()
	return list(c, cmd.listFlags, "/v1/projects", cmd, "there are no projects", header, func(p *client.Project) []any {
		state := ""
		if p.Paused {
			state = c.Paint("paused", console.Yellow) + " " + pausedText(&p.Pause)
		}
		return []any{
			p.ID, console.Short(p.Name, 32), state, console.Short(choiceText(p.Policy), 32), console.Short(choiceText(p.Success), 32),
			console.Short(choiceText(p.Signer), 32), quotasText(p.Quotas), agoOr(p.CreatedAt, now, ""),
		}
	})
}

// projectSet changes a project.
type projectSet struct {
	ID string `arg:"" help:"Id of the project."`
	projectFields
	Clear []string `enum:"policy,success,signer,name,header" placeholder:"FIELD" help:"Have these be the program's again: policy, success, signer, name, header."`
}

// Run changes it.
func (cmd *projectSet) Run(c *session) error {
	in, err := changed(c, cmd, cmd.Clear, "policy, success, signer, name or header")
	if err != nil {
		return err
	}
	r := request{http.MethodPatch, "/v1/projects/" + url.PathEscape(cmd.ID), in, fmt.Sprintf("there is no project %q", cmd.ID)}
	return ask(c, r, func(p *client.Project) { c.printf("%s  changed\n", p.ID) })
}
