package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// PolicyCommand is the API for policies from the shell.
type PolicyCommand struct {
	List policyList `cmd:"" help:"List the policies that can be named, with their tiers and sums; with --from, when each attempt would be."`
}

// policyList lists policies.
type policyList struct {
	remote.Flags
	Name []string `arg:"" optional:"" help:"Only these."`
	From string   `placeholder:"TIME" help:"Show when the attempts of a ladder that begins then are made, if all fail at once: RFC 3339, or now."`
	JSON bool     `name:"json" help:"Print the server's answer for machines."`
}

// A shownPolicy is what the command reads of a policy.
type shownPolicy struct {
	Name       string      `json:"name"`
	About      string      `json:"about"`
	Own        bool        `json:"own"`
	Tiers      []string    `json:"tiers"`
	RepeatLast bool        `json:"repeat_last"`
	Deadline   string      `json:"deadline"`
	Timeout    string      `json:"timeout"`
	Jitter     float64     `json:"jitter"`
	StopOn     []int       `json:"stop_on"`
	Attempts   *int        `json:"attempts"`
	Sum        string      `json:"sum"`
	Times      []time.Time `json:"times"`
}

// Run prints the policies.
func (cmd *policyList) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	q := url.Values{}
	switch cmd.From {
	case "":
	case "now":
		q.Set("from", time.Now().UTC().Format(time.RFC3339))
	default:
		q.Set("from", cmd.From)
	}
	var answer struct {
		Data []json.RawMessage `json:"data"`
	}
	whole, err := remote.Page(ctx, cl, "/v1/policies", q, remote.MostPerPage, "", &answer)
	if err != nil {
		return err
	}
	if cmd.JSON && len(cmd.Name) == 0 {
		return console.PrintJSON(c, whole)
	}
	policies, err := cmd.pick(answer.Data)
	if err != nil {
		return err
	}
	switch {
	case cmd.JSON:
		return printPicked(c, policies)
	case cmd.From != "":
		for i := range policies {
			showLadder(c, &policies[i].shownPolicy, i > 0)
		}
	default:
		showPolicies(c, policies)
	}
	return nil
}

// A pickedPolicy is a policy, and as the server wrote it.
type pickedPolicy struct {
	shownPolicy
	raw json.RawMessage
}

// pick returns those that were named, or all.
func (cmd *policyList) pick(data []json.RawMessage) ([]pickedPolicy, error) {
	var picked []pickedPolicy
	known := map[string]bool{}
	for i, raw := range data {
		p := pickedPolicy{raw: raw}
		if err := json.Unmarshal(raw, &p.shownPolicy); err != nil {
			return nil, fmt.Errorf("policy %d of the answer: %w", i+1, err)
		}
		known[p.Name] = true
		if len(cmd.Name) == 0 || slices.Contains(cmd.Name, p.Name) {
			picked = append(picked, p)
		}
	}
	for _, name := range cmd.Name {
		if !known[name] {
			return nil, fmt.Errorf("there is no policy %q; \"dispatcher policy list\" shows all", console.Printable(name))
		}
	}
	return picked, nil
}

func printPicked(c *console.Console, policies []pickedPolicy) error {
	data := make([]json.RawMessage, len(policies))
	for i := range policies {
		data[i] = policies[i].raw
	}
	answer, err := json.Marshal(map[string]any{"data": data, "next_cursor": nil})
	if err != nil {
		return fmt.Errorf("encode the policies: %w", err)
	}
	return console.PrintJSON(c, answer)
}

func showPolicies(c *console.Console, policies []pickedPolicy) {
	t := c.NewTable("name", "attempts", "sum", "timeout", "tiers", "about")
	for i := range policies {
		p := &policies[i]
		about := p.About
		if p.Own {
			about = "the project's own"
		}
		t.AppendRow([]any{console.Printable(p.Name), p.attempts(), console.Printable(p.Sum), console.Printable(p.Timeout), p.tiers(), console.Printable(about)})
	}
	t.SetColumnConfigs([]table.ColumnConfig{
		{Name: "tiers", WidthMax: 44, WidthMaxEnforcer: text.WrapSoft}, {Name: "about", WidthMax: 40, WidthMaxEnforcer: text.WrapSoft},
	})
	t.Render()
}

func (p *shownPolicy) attempts() string {
	if p.Attempts == nil {
		return "until " + console.Printable(console.FirstOf(p.Deadline, "canceled"))
	}
	return strconv.Itoa(*p.Attempts)
}

// tiers prints the waits, runs of the same one in short.
func (p *shownPolicy) tiers() string {
	var parts []string
	for i := 0; i < len(p.Tiers); {
		n := i
		for n < len(p.Tiers) && p.Tiers[n] == p.Tiers[i] {
			n++
		}
		if n-i > 2 {
			parts = append(parts, strconv.Itoa(n-i)+"×"+console.Printable(p.Tiers[i]))
		} else {
			parts = append(parts, slices.Repeat([]string{console.Printable(p.Tiers[i])}, n-i)...)
		}
		i = n
	}
	s := strings.Join(parts, " ")
	if p.RepeatLast {
		s += " …"
	}
	return s
}

// showLadder prints when the attempts of a policy are made.
func showLadder(c *console.Console, p *shownPolicy, apart bool) {
	if apart {
		fmt.Fprintln(c.Out)
	}
	what := p.attempts()
	if p.Attempts != nil {
		what += " attempts within " + console.Printable(p.Sum)
	}
	fmt.Fprintf(c.Out, "%s: %s, each at most %s\n", c.Paint(console.Printable(p.Name), text.Bold), what, console.Printable(p.Timeout))
	t := c.NewTable("attempt", "at", "after the first")
	for i := range p.Times {
		after := ""
		if i > 0 {
			after = schedule.FormatDuration(p.Times[i].Sub(p.Times[0]))
		}
		t.AppendRow([]any{"#" + strconv.Itoa(i+1), console.ClockTime(&p.Times[i]), after})
	}
	t.Render()
}
