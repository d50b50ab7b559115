package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
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
	var answer client.Page[pickedPolicy]
	whole, err := remote.Page(ctx, cl, "/v1/policies", q, remote.MostPerPage, "", &answer)
	if err != nil {
		return err
	}
	if cmd.JSON && len(cmd.Name) == 0 {
		return console.PrintJSON(c, whole)
	}
	policies, err := picked(answer.Data, cmd.Name, func(p *pickedPolicy) string { return p.Name }, "policy")
	if err != nil {
		return err
	}
	switch {
	case cmd.JSON:
		return printPicked(c, policies)
	case cmd.From != "":
		for i := range policies {
			showLadder(c, &policies[i].NamedPolicy, i > 0)
		}
	default:
		showPolicies(c, policies)
	}
	return nil
}

// A pickedPolicy is a policy, and as the server wrote it.
type pickedPolicy struct {
	client.NamedPolicy
	raw json.RawMessage
}

// UnmarshalJSON keeps what it reads.
func (p *pickedPolicy) UnmarshalJSON(raw []byte) error {
	p.raw = bytes.Clone(raw)
	return json.Unmarshal(raw, &p.NamedPolicy)
}

// printPicked prints them as a list of the server's.
func printPicked(c *console.Console, policies []pickedPolicy) error {
	data := make([]json.RawMessage, len(policies))
	for i := range policies {
		data[i] = policies[i].raw
	}
	return console.PrintValue(c, map[string]any{"data": data, "next_cursor": nil})
}

func showPolicies(c *console.Console, policies []pickedPolicy) {
	about := func(p *pickedPolicy) any {
		if p.Own {
			return "the project's own"
		}
		return console.Printable(p.About)
	}
	console.ShowTable(c, policies, []console.Column[pickedPolicy]{
		{Name: "name", Of: func(p *pickedPolicy) any { return console.Printable(p.Name) }},
		{Name: "attempts", Of: func(p *pickedPolicy) any { return attemptsOf(&p.NamedPolicy) }},
		{Name: "sum", Of: func(p *pickedPolicy) any { return console.Printable(p.Sum) }},
		{Name: "timeout", Of: func(p *pickedPolicy) any { return console.Printable(p.Timeout) }},
		{Name: "tiers", Of: func(p *pickedPolicy) any { return tiersInShort(&p.NamedPolicy) }, Wrap: 44},
		{Name: "about", Of: about, Wrap: 40},
	})
}

func attemptsOf(p *client.NamedPolicy) string {
	return numberOr(p.Attempts, "until "+console.Printable(console.FirstOf(string(p.Deadline), "canceled")))
}

// tiersInShort prints the waits, runs of the same one in short.
func tiersInShort(p *client.NamedPolicy) string {
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
func showLadder(c *console.Console, p *client.NamedPolicy, apart bool) {
	if apart {
		fmt.Fprintln(c.Out)
	}
	what := attemptsOf(p)
	if p.Attempts != 0 {
		what += " attempts within " + console.Printable(p.Sum)
	}
	fmt.Fprintf(c.Out, "%s: %s, each at most %s\n", c.Paint(console.Printable(p.Name), console.Bold), what, console.Printable(p.Timeout))
	t := c.NewTable("attempt", "at", "after the first")
	for i := range p.Times {
		after := ""
		if i > 0 {
			after = schedule.FormatDuration(p.Times[i].Sub(p.Times[0]))
		}
		t.Row("#"+strconv.Itoa(i+1), console.ClockTime(p.Times[i]), after)
	}
	t.Render()
}
