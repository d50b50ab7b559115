package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// SuccessRuleCommand has the commands for success rules.
type SuccessRuleCommand struct {
	List   ruleList   `cmd:"" help:"List the named success rules, your own first."`
	Get    ruleGet    `cmd:"" help:"Show one success rule."`
	Put    rulePut    `cmd:"" help:"Create or replace a success rule of the project."`
	Delete ruleDelete `cmd:"" help:"Delete a success rule of the project."`
}

// ProfileCommand has the commands for profiles.
type ProfileCommand struct {
	List   profileList   `cmd:"" help:"List the named profiles, your own first."`
	Get    profileGet    `cmd:"" help:"Show one profile."`
	Put    profilePut    `cmd:"" help:"Create or replace a profile of the project."`
	Delete profileDelete `cmd:"" help:"Delete a profile of the project."`
}

// presetArg is the argument that names a policy, success rule or profile.
type presetArg struct {
	Name string `arg:"" help:"Name."`
}

// request returns a request for one preset. noun is the command for presets of its kind.
func (f *presetArg) request(method, noun string, in any) request {
	kinds := map[string]string{"policy": "policies", "success-rule": "success_rules", "profile": "profiles"}
	return request{method, "/v1/" + kinds[noun] + "/" + url.PathEscape(f.Name), in,
		fmt.Sprintf("there is no %s %q; \"dispatcher %s list\" shows all",
			strings.ReplaceAll(noun, "-", " "), f.Name, noun)}
}

// putFlags are the argument and the flags of a command that creates or replaces a preset.
type putFlags struct {
	presetArg
	Definition string `arg:"" placeholder:"JSON|@FILE|-" help:"The definition: a JSON object, @FILE, or - for the standard input. \"get NAME --json\" shows the fields of one."`
	changeFlags
}

// put creates or replaces a preset. The definition keeps its bytes, so that the server sees all of it.
func (f *putFlags) put(c *session, noun string) error {
	read, err := c.ReadInput(f.Definition)
	if err != nil {
		return console.Wrong("the definition: %s", err)
	}
	text := strings.TrimSpace(string(read))
	if !strings.HasPrefix(text, "{") || !json.Valid([]byte(text)) {
		return console.Wrong("the definition is not a JSON object%s", console.SyntaxOf([]byte(text)))
	}
	if f.Reason != "" {
		reason, err := json.Marshal(f.Reason)
		if err != nil {
			return err
		}
		members := strings.TrimSpace(strings.TrimSuffix(text, "}"))
		if members != "{" {
			members += ","
		}
		text = members + `"reason":` + string(reason) + "}"
	}
	r := f.request(http.MethodPut, noun, json.RawMessage(text))
	return printResponse(c, r, func(*json.RawMessage) {
		c.printf("%s  stored (see \"dispatcher %s get %[1]s\"); callbacks that are already accepted keep "+
			"the old definition\n", console.Printable(f.Name), noun)
	})
}

// deleteFlags are the argument and the flags of a command that deletes a preset.
type deleteFlags struct {
	presetArg
	reasonFlag
	serverFlags
}

// delete deletes a preset.
func (f *deleteFlags) delete(c *session, noun string) error {
	return c.done(f.request(http.MethodDelete, noun, f),
		"%s is deleted; callbacks that are already accepted keep it", console.Printable(f.Name))
}

// policyGet shows one policy.
type policyGet struct {
	Name string `arg:"" help:"Name, or a formula such as exp(1s,2,1h,10)."`
	From string `placeholder:"TIME" help:"Show the times of all attempts if the first one is at this time and each fails at once: RFC 3339, or now."`
	answerFlags
}

// Run prints the policy.
func (cmd *policyGet) Run(c *session) error {
	arg := presetArg{cmd.Name}
	r := arg.request(http.MethodGet, "policy", nil)
	if from := startTime(cmd.From); from != "" {
		r.path += "?from=" + url.QueryEscape(from)
	}
	return printResponse(c, r, func(p *client.NamedPolicy) {
		if cmd.From != "" {
			showTimes(c, p, false)
			return
		}
		stopOn := strings.Trim(fmt.Sprint(p.StopOn), "[]")
		c.Lines(12, "policy", p.Name, "about", aboutText(p.About, p.Own), "tiers", tiersInShort(p),
			"attempts", attemptsOf(p), "total", string(p.Sum), "deadline", string(p.Deadline),
			"timeout", string(p.Timeout), "jitter", fmt.Sprint(p.Jitter),
			"retry-after", "at most "+string(p.RetryAfterCap),
			"overload", "at least "+string(p.OverloadFloor), "stops on", stopOn)
	})
}

// policyPut creates or replaces a policy.
type policyPut struct{ putFlags }

// Run stores the policy.
func (cmd *policyPut) Run(c *session) error { return cmd.put(c, "policy") }

// policyDelete deletes a policy.
type policyDelete struct{ deleteFlags }

// Run deletes the policy.
func (cmd *policyDelete) Run(c *session) error { return cmd.delete(c, "policy") }

// ruleList lists success rules.
type ruleList struct{ listFlags }

// Run prints the success rules.
func (cmd *ruleList) Run(c *session) error {
	return list(c, cmd.listFlags, "/v1/success_rules", cmd, "there are no success rules", "name, about",
		func(r *client.NamedRule) []any { return []any{r.Name, aboutText(r.About, r.Own)} })
}

// aboutText describes a preset.
func aboutText(about string, own bool) string {
	if own {
		return "the project's own"
	}
	return about
}

// ruleGet shows a success rule.
type ruleGet struct {
	presetArg
	answerFlags
}

// Run prints the success rule.
func (cmd *ruleGet) Run(c *session) error {
	return printResponse(c, cmd.request(http.MethodGet, "success-rule", nil), func(r *client.NamedRule) {
		c.Lines(12, "success rule", r.Name, "about", aboutText(r.About, r.Own), "rule", jsonText(r.Rule))
	})
}

// rulePut creates or replaces a success rule.
type rulePut struct{ putFlags }

// Run stores the success rule.
func (cmd *rulePut) Run(c *session) error { return cmd.put(c, "success-rule") }

// ruleDelete deletes a success rule.
type ruleDelete struct{ deleteFlags }

// Run deletes the success rule.
func (cmd *ruleDelete) Run(c *session) error { return cmd.delete(c, "success-rule") }

// profileList lists profiles.
type profileList struct{ listFlags }

// Run prints the profiles.
func (cmd *profileList) Run(c *session) error {
	header := "name, policy, success, signer, timeout, about"
	return list(c, cmd.listFlags, "/v1/profiles", cmd, "there are no profiles", header,
		func(p *client.NamedProfile) []any {
			return []any{
				p.Name, console.Short(choiceText(p.Policy), 32), console.Short(choiceText(p.Success), 32),
				console.Short(choiceText(p.Signer), 32), p.Timeout, aboutText(p.About, p.Own),
			}
		})
}

// profileGet shows a profile.
type profileGet struct {
	presetArg
	answerFlags
}

// Run prints the profile.
func (cmd *profileGet) Run(c *session) error {
	return printResponse(c, cmd.request(http.MethodGet, "profile", nil), func(p *client.NamedProfile) {
		c.Lines(12, "profile", p.Name, "about", aboutText(p.About, p.Own), "policy", choiceText(p.Policy),
			"success", choiceText(p.Success), "signer", choiceText(p.Signer), "timeout", string(p.Timeout))
	})
}

// profilePut creates or replaces a profile.
type profilePut struct{ putFlags }

// Run stores the profile.
func (cmd *profilePut) Run(c *session) error { return cmd.put(c, "profile") }

// profileDelete deletes a profile.
type profileDelete struct{ deleteFlags }

// Run deletes the profile.
func (cmd *profileDelete) Run(c *session) error { return cmd.delete(c, "profile") }
