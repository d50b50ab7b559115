package dispatch

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Choice is how something is to be sent, as far as a caller says it. Zero fields choose nothing.
type Choice struct {
	// Profile is a profile's name; what is chosen beside it comes before what the profile says.
	Profile string
	// PolicyName is a policy's name, or Policy is one given whole: then PolicyGiven is true.
	PolicyName  string
	Policy      store.Policy
	PolicyGiven bool
	// Success is a success rule's name, or SuccessRule is the JSON object of one given whole.
	Success     string
	SuccessRule []byte
	// Signer is a signer's name, or a JSON object with its options.
	Signer string
}

// A sending is a Choice that was judged.
type sending struct {
	policy  store.PolicyChoice
	success store.Success
	signer  string
}

// or returns s with what it has not chosen taken from other.
func (s sending) or(other sending) sending {
	if s.policy.IsZero() {
		s.policy = other.policy
	}
	if s.success == (store.Success{}) {
		s.success = other.success
	}
	if s.signer == "" {
		s.signer = other.signer
	}
	return s
}

// An acceptView is what submissions are judged by: their project, and the endpoints that they name.
type acceptView struct {
	*projectView
	endpoints map[string]*store.Endpoint
	// cardless says that the submissions need no check for card numbers.
	cardless bool
}

// plainView is that of a project that has set nothing.
func plainView() *acceptView { return &acceptView{projectView: &projectView{}} }

// blindView is that of whoever does not know what the project has set: names that no preset has may be its own.
func blindView() *acceptView { return &acceptView{projectView: &projectView{blind: true}} }

// view reads what the submissions are judged by.
func (e *Engine) view(ctx context.Context, project string, subs []Submission) (*acceptView, error) {
	p, err := e.catalog.project(ctx, project)
	if err != nil {
		return nil, err
	}
	v := &acceptView{projectView: p}
	var names []string
	for i := range subs {
		if name := subs[i].Endpoint; name != "" {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		if v.endpoints, err = e.catalog.named(ctx, project, names); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// policyOf returns the policy of a choice: given whole, the project's own of that name, or a preset.
func (v *projectView) policyOf(c store.PolicyChoice) (store.Policy, error) {
	if c.Given != nil {
		return *c.Given, nil
	}
	if p, ok := v.policies[c.Name]; ok {
		return p, nil
	}
	return presetPolicy(c.Name)
}

// successOf returns a success rule: given whole, the project's own of that name, or a preset.
func (v *projectView) successOf(s store.Success) (store.Success, error) {
	if s.Rule != "" || s.Name == rule.Default {
		return s, nil
	}
	if r, ok := v.rules[s.Name]; ok {
		return r, nil
	}
	if presets := rule.Names(); !slices.Contains(presets, s.Name) {
		return store.Success{}, fmt.Errorf("%q is not a success rule; known are %s, this project's own, or give an object",
			s.Name, strings.Join(presets, ", "))
	}
	return s, nil
}

// judge returns what was chosen, and adds what is wrong with it. Names are kept as names.
func (v *projectView) judge(c *Choice, f *findings) sending {
	var s sending
	if c.Profile != "" {
		s = v.judgeProfile(c.Profile, f)
	}
	switch {
	case c.PolicyGiven:
		checkPolicy(&c.Policy, "policy", f)
		s.policy = store.PolicyChoice{Given: &c.Policy}
	case c.PolicyName != "":
		s.policy = store.PolicyChoice{Name: c.PolicyName}
		if _, err := v.policyOf(s.policy); err != nil && !v.blind {
			f.add("policy", "%s", err)
		}
	}
	switch {
	case len(c.SuccessRule) > 0:
		rule, wrong := rule.Parse(c.SuccessRule)
		f.under("success", wrong)
		s.success = store.Success{Rule: rule}
	case c.Success != "":
		s.success = store.Success{Name: c.Success}
		if _, err := v.successOf(s.success); err != nil && !v.blind {
			f.add("success", "%s", err)
		}
	}
	if c.Signer != "" {
		s.signer = judgeSigner(c.Signer, f)
	}
	return s
}

// judgeProfile returns what a profile chooses. Its time-out becomes its policy's.
func (v *projectView) judgeProfile(name string, f *findings) (s sending) {
	p, err := v.profile(name)
	if err != nil {
		if !v.blind {
			f.add("profile", "%s", err)
		}
		return s
	}
	s = sending{policy: p.Policy, success: p.Success, signer: p.Signer}
	if p.Timeout == 0 || p.Policy.IsZero() {
		return s
	}
	policy, err := v.policyOf(p.Policy)
	if err != nil {
		f.add("profile", "its policy is gone: %s", err)
		return s
	}
	policy.Timeout = p.Timeout
	s.policy = store.PolicyChoice{Given: &policy}
	return s
}

// judgeSigner returns a signer as it is stored, and adds what is wrong with it.
func judgeSigner(text string, f *findings) string {
	switch text {
	case sign.Standard, sign.None:
		return text
	}
	raw := []byte(text)
	if !strings.HasPrefix(text, "{") {
		raw = strconv.AppendQuote(nil, text)
	}
	signer, wrong := sign.Parse(raw)
	f.under("signer", wrong)
	return signer
}

// under adds findings about the parts of a field.
func (f *findings) under(field string, wrong []store.FieldError) {
	for _, w := range wrong {
		switch {
		case w.Field == "":
			w.Field = field
		case strings.HasPrefix(w.Field, "["):
			w.Field = field + w.Field
		default:
			w.Field = field + "." + w.Field
		}
		*f = append(*f, w)
	}
}

// endpointSending is what an endpoint has chosen, projectSending what its project has.
func endpointSending(ep *store.Endpoint) sending {
	return sending{policy: ep.Policy, success: ep.Success, signer: ep.Signer}
}

func projectSending(d *store.Defaults) sending {
	return sending{policy: d.Policy, success: d.Success, signer: d.Signer}
}

// programSending is what is chosen where nobody has chosen anything.
func programSending() sending {
	return sending{
		policy: store.PolicyChoice{Name: DefaultPolicyName}, success: store.Success{Name: rule.Default}, signer: sign.Standard,
	}
}

// resolve finds how a callback is sent: as the submission says; else its endpoint; else its project; else the program. A callback keeps
// its policy and its success rule as they are now; how it is signed is its endpoint's to say whenever it is sent.
func (v *acceptView) resolve(s *Submission, ep *store.Endpoint, c *store.Callback, f *findings) {
	wrong := len(*f)
	chosen := v.judge(&s.Choice, f)
	if ep != nil {
		if s.Signer != "" {
			f.add("signer", "is the endpoint's to say")
		}
		chosen = chosen.or(endpointSending(ep))
	}
	chosen = chosen.or(projectSending(&v.Defaults)).or(programSending())
	if ep == nil {
		c.Signer = chosen.signer
	}
	if len(*f) > wrong {
		return
	}
	var err error
	if c.Policy, err = v.policyOf(chosen.policy); err != nil && !v.blind {
		f.add("policy", "the endpoint's, or the project's: %s", err)
	}
	if c.Success, err = v.successOf(chosen.success); err != nil && !v.blind {
		f.add("success", "the endpoint's, or the project's: %s", err)
	}
}

// withDefaults returns headers with those of others added that have not the name of one of them.
func withDefaults(headers, others []store.Header) []store.Header {
	all := headers
	for _, h := range others {
		same := func(own store.Header) bool { return strings.EqualFold(own.Name, h.Name) }
		if !slices.ContainsFunc(headers, same) {
			all = append(slices.Clip(all), h)
		}
	}
	return all
}

// Policy returns the policy of a name in the project: its own, a preset, or one made by a formula such as "exp(1s,2,1h,10)". It is
// store.ErrNotFound for any other.
func (e *Engine) Policy(ctx context.Context, project, name string) (store.Policy, error) {
	v, err := e.catalog.project(ctx, project)
	if err != nil {
		return store.Policy{}, err
	}
	p, err := v.policyOf(store.PolicyChoice{Name: name})
	if err != nil {
		return p, fmt.Errorf("%w: %w", store.ErrNotFound, err)
	}
	return p, nil
}

// IsSensitiveHeader says whether a header's value is a credential, or derived from one, so that it is not to be shown.
func IsSensitiveHeader(name string) bool { return store.IsSensitiveHeader(name) }
