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

// PolicyCommand is the API for policies from the shell.
type PolicyCommand struct {
	List policyList `cmd:"" help:"List the policies that can be named, with their tiers and sums; with --from, when each attempt would be."`
}

// policyList lists policies.
type policyList struct {
	Name []string `arg:"" optional:"" help:"Only these."`
	From string   `placeholder:"TIME" help:"Show when the attempts of a ladder that begins then are made, if all fail at once: RFC 3339, or now."`
	answerFlags
}

// Run prints the policies.
func (cmd *policyList) Run(c *session) error {
	q := url.Values{"limit": {strconv.Itoa(remote.MostPerPage)}}
	switch cmd.From {
	case "":
	case "now":
		q.Set("from", time.Now().UTC().Format(time.RFC3339))
	default:
		q.Set("from", cmd.From)
	}
	var answer client.Page[pickedPolicy]
	whole, err := c.call(get("/v1/policies?"+q.Encode()), &answer)
	if err != nil {
		return err
	}
	if cmd.JSON && len(cmd.Name) == 0 {
		return c.PrintJSON(whole)
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
	return numberOr(p.Attempts, "until "+cmp.Or(string(p.Deadline), "canceled"))
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

// SignerCommand explains the signers. It needs no server: all of this version know the same.
type SignerCommand struct {
	List signerList `cmd:"" help:"List the signers with their options and what their secrets are."`
}

// signerList lists signers.
type signerList struct {
	Name []string `arg:"" optional:"" help:"Only these."`
	JSON bool     `help:"Print JSON for machines."`
}

// A toldSigner is a signer in JSON.
type toldSigner struct {
	Name    string       `json:"name"`
	About   string       `json:"about"`
	Secret  string       `json:"secret,omitempty"`
	Options []toldOption `json:"options"`
}

// A toldOption is one of its options.
type toldOption struct {
	Name    string          `json:"name"`
	About   string          `json:"about"`
	Default json.RawMessage `json:"default"`
	shown   string
}

// Run prints them.
func (cmd *signerList) Run(c *console.Console) error {
	for _, name := range cmd.Name {
		if !slices.Contains(sign.Names(), name) {
			return console.Wrong("there is no signer %q; \"dispatcher signer list\" shows all", name)
		}
	}
	var list []toldSigner
	for _, s := range sign.Infos() {
		if len(cmd.Name) > 0 && !slices.Contains(cmd.Name, s.Name) {
			continue
		}
		told := toldSigner{Name: s.Name, About: s.Description, Secret: secretsForm(&s),
			Options: []toldOption{}}
		for _, o := range s.Options {
			told.Options = append(told.Options,
				toldOption{o.Name, o.Description, json.RawMessage(optionDefault(o)), string(o.Default)})
		}
		list = append(list, told)
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

// optionDefault returns an option's default as JSON; of the one that depends on another option, as text.
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

// secretsForm says how the secret that signs is written; empty: there is none.
func secretsForm(s *sign.Info) string {
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
		return "user:password; it cannot be made here, but must be given"
	case s.Use == sign.UseHMAC:
		return "24 to 64 bytes, written whsec_ and base64"
	}
	return ""
}

func showSigner(c *console.Console, s *toldSigner, apart bool) {
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
		t.Row(o.Name, o.shown, o.About)
	}
	t.Render()
}
