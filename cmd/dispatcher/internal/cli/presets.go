package cli

import (
	"bytes"
	"cmp"
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
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// PolicyCommand has the commands for policies.
type PolicyCommand struct {
	List   policyList   `cmd:"" help:"List the named policies with their tiers and total durations; with --from, the time of each attempt."`
	Get    policyGet    `cmd:"" help:"Show one policy, by its name or its formula."`
	Put    policyPut    `cmd:"" help:"Create or replace a policy of the project."`
	Delete policyDelete `cmd:"" help:"Delete a policy of the project."`
}

// policyList lists policies.
type policyList struct {
	Name []string `arg:"" optional:"" help:"Names to list. Default: all."`
	From string   `placeholder:"TIME" help:"Show the times of all attempts if the first one is at this time and each fails at once: RFC 3339, or now."`
	answerFlags
}

// Run prints the policies.
func (cmd *policyList) Run(c *session) error {
	q := url.Values{"limit": {strconv.Itoa(remote.MostPerPage)}}
	if from := startTime(cmd.From); from != "" {
		q.Set("from", from)
	}
	var answer client.Page[rawPolicy]
	whole, err := c.call(get("/v1/policies?"+q.Encode()), &answer)
	if err != nil {
		return err
	}
	if cmd.JSON && len(cmd.Name) == 0 {
		return c.PrintJSON(whole)
	}
	var policies []rawPolicy
	left := slices.Clone(cmd.Name)
	for _, policy := range answer.Data {
		if len(cmd.Name) == 0 || slices.Contains(cmd.Name, policy.Name) {
			policies = append(policies, policy)
			left = slices.DeleteFunc(left, func(name string) bool { return name == policy.Name })
		}
	}
	switch {
	case len(left) > 0:
		return fmt.Errorf("there is no policy %q; \"dispatcher policy list\" shows all",
			console.Printable(left[0]))
	case cmd.JSON:
		data := make([]json.RawMessage, len(policies))
		for i := range policies {
			data[i] = policies[i].raw
		}
		return c.PrintValue(map[string]any{"data": data, "next_cursor": nil})
	case cmd.From != "":
		for i := range policies {
			showTimes(c, &policies[i].NamedPolicy, i > 0)
		}
	default:
		showPolicies(c, policies)
	}
	return nil
}

// startTime returns the value of --from as a query parameter.
func startTime(from string) string {
	if from == "now" {
		return time.Now().UTC().Format(time.RFC3339)
	}
	return from
}

// rawPolicy is a policy, and its JSON as the server wrote it.
type rawPolicy struct {
	client.NamedPolicy
	raw json.RawMessage
}

// UnmarshalJSON decodes the policy and keeps its JSON.
func (p *rawPolicy) UnmarshalJSON(raw []byte) error {
	p.raw = bytes.Clone(raw)
	return json.Unmarshal(raw, &p.NamedPolicy)
}

func showPolicies(c *session, policies []rawPolicy) {
	t := c.NewTable("name", "attempts", "total", "timeout", "tiers", "about")
	t.Wrap(5, 44)
	t.Wrap(6, 40)
	for i := range policies {
		p := &policies[i].NamedPolicy
		t.Row(p.Name, attemptsOf(p), p.Sum, p.Timeout, tiersInShort(p), aboutText(p.About, p.Own))
	}
	t.Render()
}

func attemptsOf(p *client.NamedPolicy) string {
	return numberOr(p.Attempts, "until "+cmp.Or(string(p.Deadline), "canceled"))
}

// tiersInShort formats the waits; it writes three or more equal ones as 3×30m.
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

// showTimes prints the times of a policy's attempts. apart puts an empty line in front.
func showTimes(c *session, p *client.NamedPolicy, apart bool) {
	if apart {
		fmt.Fprintln(c.Out)
	}
	what := attemptsOf(p)
	if p.Attempts != 0 {
		what += " attempts within " + string(p.Sum)
	}
	c.printf("%s: %s, timeout %s each\n", c.Paint(p.Name, console.Bold), what, p.Timeout)
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

// SignerCommand has the commands for signers. They need no server, because the signers depend only on the
// version.
type SignerCommand struct {
	List signerList `cmd:"" help:"List the signers with their options and the form of their secrets."`
}

// signerList lists signers.
type signerList struct {
	Name []string `arg:"" optional:"" help:"Names to list. Default: all."`
	JSON bool     `help:"Print JSON for machines."`
}

// signerInfo is a signer in the JSON output.
type signerInfo struct {
	Name    string       `json:"name"`
	About   string       `json:"about"`
	Secret  string       `json:"secret,omitempty"`
	Options []optionInfo `json:"options"`
}

// optionInfo is an option of a signer.
type optionInfo struct {
	Name    string          `json:"name"`
	About   string          `json:"about"`
	Default json.RawMessage `json:"default"`
	text    string          // the default as the table prints it
}

// Run prints the signers.
func (cmd *signerList) Run(c *console.Console) error {
	for _, name := range cmd.Name {
		if !slices.Contains(sign.Names(), name) {
			return console.Wrong("there is no signer %q; \"dispatcher signer list\" shows all", name)
		}
	}
	var list []signerInfo
	for _, s := range sign.Infos() {
		if len(cmd.Name) > 0 && !slices.Contains(cmd.Name, s.Name) {
			continue
		}
		info := signerInfo{Name: s.Name, About: s.Description, Secret: secretForm(&s),
			Options: []optionInfo{}}
		for _, o := range s.Options {
			info.Options = append(info.Options,
				optionInfo{o.Name, o.Description, json.RawMessage(optionDefault(o)), string(o.Default)})
		}
		list = append(list, info)
	}
	if cmd.JSON {
		encoder := json.NewEncoder(c.Out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(list)
	}
	for i := range list {
		showSigner(c, &list[i], i > 0)
	}
	return nil
}

// optionDefault returns an option's default as JSON. A default that depends on another option is a text.
func optionDefault(o sign.Option) string {
	if json.Valid([]byte(o.Default)) {
		return string(o.Default)
	}
	quoted, err := json.Marshal(string(o.Default))
	if err != nil {
		return "null"
	}
	return string(quoted)
}

// secretForm describes the form of a signer's secret; "" if it needs none.
func secretForm(s *sign.Info) string {
	switch {
	case s.Name == sign.SortedKV:
		return "the key itself, 8 to 4096 characters; with alg rsa2 a private RSA key, PEM"
	case s.Use == sign.UseEd25519:
		return "a private key, whsk_ and base64; receivers verify with the public one, whpk_ and base64"
	case s.Use == sign.UseRSA:
		return "a private RSA key, PEM; receivers verify with the public one"
	case s.Use == sign.UseText:
		return "the token itself, 8 to 4096 characters"
	case s.Use == sign.UseBasic:
		return "user:password; it is never generated, so give it"
	case s.Use == sign.UseHMAC:
		return "24 to 64 bytes, written whsec_ and base64"
	}
	return ""
}

// showSigner prints a signer with its options. apart puts an empty line in front.
func showSigner(c *console.Console, s *signerInfo, apart bool) {
	if apart {
		fmt.Fprintln(c.Out)
	}
	fmt.Fprintf(c.Out, "%s\n%s\n", c.Paint(s.Name, console.Bold), s.About)
	if s.Secret != "" {
		fmt.Fprintf(c.Out, "secret: %s\n", s.Secret)
	}
	if len(s.Options) == 0 {
		return
	}
	t := c.NewTable("option", "default", "")
	t.Wrap(2, 36)
	t.Wrap(3, 60)
	for _, o := range s.Options {
		t.Row(o.Name, o.text, o.About)
	}
	t.Render()
}
