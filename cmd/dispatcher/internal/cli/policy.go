package cli

import (
	"bytes"
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
	serverFlags
	Name []string `arg:"" optional:"" help:"Only these."`
	From string   `placeholder:"TIME" help:"Show when the attempts of a ladder that begins then are made, if all fail at once: RFC 3339, or now."`
	JSON bool     `name:"json" help:"Print the server's answer for machines."`
}

// Run prints the policies.
func (cmd *policyList) Run(c *session) error {
	p := pager{path: "/v1/policies", q: url.Values{}}
	switch cmd.From {
	case "":
	case "now":
		p.q.Set("from", time.Now().UTC().Format(time.RFC3339))
	default:
		p.q.Set("from", cmd.From)
	}
	var answer client.Page[pickedPolicy]
	whole, err := p.page(c, remote.MostPerPage, &answer)
	if err != nil {
		return err
	}
	if cmd.JSON && len(cmd.Name) == 0 {
		return console.PrintJSON(c.Console, whole)
	}
	var policies []pickedPolicy
	left := slices.Clone(cmd.Name)
	for _, policy := range answer.Data {
		if len(cmd.Name) == 0 || slices.Contains(cmd.Name, policy.Name) {
			policies = append(policies, policy)
			left = slices.DeleteFunc(left, func(name string) bool { return name == policy.Name })
		}
	}
	switch {
	case len(left) > 0:
		return fmt.Errorf("there is no policy %q; \"dispatcher policy list\" shows all", console.Printable(left[0]))
	case cmd.JSON:
		data := make([]json.RawMessage, len(policies))
		for i := range policies {
			data[i] = policies[i].raw
		}
		return console.PrintValue(c.Console, map[string]any{"data": data, "next_cursor": nil})
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

func showPolicies(c *session, policies []pickedPolicy) {
	t := c.NewTable("name", "attempts", "sum", "timeout", "tiers", "about")
	t.Wrap(5, 44)
	t.Wrap(6, 40)
	for i := range policies {
		p := &policies[i].NamedPolicy
		about := p.About
		if p.Own {
			about = "the project's own"
		}
		t.Row(p.Name, attemptsOf(p), p.Sum, p.Timeout, tiersInShort(p), about)
	}
	t.Render()
}

func attemptsOf(p *client.NamedPolicy) string {
	return numberOr(p.Attempts, "until "+console.FirstOf(string(p.Deadline), "canceled"))
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
			parts = append(parts, strconv.Itoa(n-i)+"×"+string(p.Tiers[i]))
		} else {
			parts = append(parts, slices.Repeat([]string{string(p.Tiers[i])}, n-i)...)
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
func showLadder(c *session, p *client.NamedPolicy, apart bool) {
	if apart {
		fmt.Fprintln(c.Out)
	}
	what := attemptsOf(p)
	if p.Attempts != 0 {
		what += " attempts within " + string(p.Sum)
	}
	c.printf("%s: %s, each at most %s\n", c.Paint(p.Name, console.Bold), what, p.Timeout)
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
