package accept

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

// SignerOf returns the signer of an endpoint: its own, the project's, or the default.
func (v *ProjectView) SignerOf(ep *store.Endpoint) string {
	return EndpointSending(ep).Or(ProjectSending(&v.Defaults)).Or(ProgramSending()).Signer
}

// A Choice selects policy, success rule and signer in a request. Zero fields select nothing.
type Choice struct {
	// Profile is the name of a profile. The other fields override it.
	Profile string
	// PolicyName is the name of a policy. With PolicyGiven, Policy is a whole policy instead.
	PolicyName  string
	Policy      store.Policy
	PolicyGiven bool
	// Success is the name of a success rule, or SuccessRule is a whole one as a JSON object.
	Success     string
	SuccessRule []byte
	// Signer is the name of a signer, or a JSON object with its options.
	Signer string
}

// A sending is a validated Choice: how a callback is sent and judged.
type sending struct {
	Policy  store.PolicyChoice
	Success store.Success
	Signer  string
}

// Or returns s with its empty fields taken from other.
func (s sending) Or(other sending) sending {
	if s.Policy.IsZero() {
		s.Policy = other.Policy
	}
	if s.Success == (store.Success{}) {
		s.Success = other.Success
	}
	if s.Signer == "" {
		s.Signer = other.Signer
	}
	return s
}

// An acceptView is what submissions are validated against: their project, and the endpoints that they name.
type acceptView struct {
	*ProjectView
	endpoints map[string]*store.Endpoint
	// cardsChecked: the submissions were checked for card numbers before.
	cardsChecked bool
}

// PlainView is the view of a project without settings.
func PlainView() *acceptView { return &acceptView{ProjectView: &ProjectView{}} }

// offlineView is the view of a caller without access to the project's settings. A name that is no preset may
// exist there.
func offlineView() *acceptView { return &acceptView{ProjectView: &ProjectView{offline: true}} }

// view reads the project and the endpoints of submissions.
func (ac *Accepter) view(ctx context.Context, project string, subs []Submission) (*acceptView, error) {
	p, err := ac.Catalog.Project(ctx, project)
	if err != nil {
		return nil, err
	}
	v := &acceptView{ProjectView: p}
	var names []string
	for i := range subs {
		if name := subs[i].Endpoint; name != "" {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		v.endpoints, err = ac.Catalog.Named(ctx, project, names)
		if err != nil {
			return nil, err
		}
	}
	return v, nil
}

// PolicyOf returns the policy of a choice: the one given whole, the project's own of that name, or a preset.
func (v *ProjectView) PolicyOf(c store.PolicyChoice) (store.Policy, error) {
	if c.Given != nil {
		return *c.Given, nil
	}
	if p, ok := v.Policies[c.Name]; ok {
		return p, nil
	}
	return PresetPolicy(c.Name)
}

// successOf returns a success rule: the one given whole, the project's own of that name, or a preset.
func (v *ProjectView) successOf(s store.Success) (store.Success, error) {
	if s.Rule != "" || s.Name == rule.Default {
		return s, nil
	}
	if r, ok := v.Rules[s.Name]; ok {
		return r, nil
	}
	if presets := rule.Names(); !slices.Contains(presets, s.Name) {
		return store.Success{}, fmt.Errorf("%q is not a success rule; use %s, a rule of the project, "+
			"or an object", s.Name, strings.Join(presets, ", "))
	}
	return s, nil
}

// CheckChoice validates a choice, and adds what is wrong with it to f; the result is of use only if nothing
// was added. A policy or rule given by name stays a name: endpoints, profiles and projects follow its later
// changes, and a callback copies it when it is accepted. Only a profile with a timeout copies its policy
// here, because the timeout replaces that of the policy.
func (v *ProjectView) CheckChoice(c *Choice, f *Findings) sending {
	var s sending
	if c.Profile != "" {
		s = v.profileChoice(c.Profile, f)
	}
	switch {
	case c.PolicyGiven:
		CheckPolicy(&c.Policy, "policy", f)
		s.Policy = store.PolicyChoice{Given: &c.Policy}
	case c.PolicyName != "":
		s.Policy = store.PolicyChoice{Name: c.PolicyName}
		if _, err := v.PolicyOf(s.Policy); err != nil && !v.offline {
			f.Add("policy", "%s", err)
		}
	}
	switch {
	case len(c.SuccessRule) > 0:
		parsed, wrong := rule.Parse(c.SuccessRule)
		f.Under("success", wrong)
		s.Success = store.Success{Rule: parsed}
	case c.Success != "":
		s.Success = store.Success{Name: c.Success}
		if _, err := v.successOf(s.Success); err != nil && !v.offline {
			f.Add("success", "%s", err)
		}
	}
	if c.Signer != "" {
		s.Signer = parseSigner(c.Signer, f)
	}
	return s
}

// profileChoice returns the choices of a profile. The profile's timeout replaces that of its policy.
func (v *ProjectView) profileChoice(name string, f *Findings) (s sending) {
	p, err := v.profile(name)
	if err != nil {
		if !v.offline {
			f.Add("profile", "%s", err)
		}
		return s
	}
	s = sending{Policy: p.Policy, Success: p.Success, Signer: p.Signer}
	if p.Timeout == 0 || p.Policy.IsZero() {
		return s
	}
	policy, err := v.PolicyOf(p.Policy)
	if err != nil {
		f.Add("profile", "its policy does not exist: %s", err)
		return s
	}
	policy.Timeout = p.Timeout
	s.Policy = store.PolicyChoice{Given: &policy}
	return s
}

// parseSigner returns a signer in its stored form, and adds what is wrong with it.
func parseSigner(text string, f *Findings) string {
	switch text {
	case sign.Standard, sign.None:
		return text
	}
	raw := []byte(text)
	if !strings.HasPrefix(text, "{") {
		raw = strconv.AppendQuote(nil, text)
	}
	signer, wrong := sign.Parse(raw)
	f.Under("signer", wrong)
	return signer
}

// EndpointSending returns the choices of an endpoint.
func EndpointSending(ep *store.Endpoint) sending {
	return sending{Policy: ep.Policy, Success: ep.Success, Signer: ep.Signer}
}

// ProjectSending returns the choices of a project.
func ProjectSending(d *store.Defaults) sending {
	return sending{Policy: d.Policy, Success: d.Success, Signer: d.Signer}
}

// ProgramSending returns the defaults of the program.
func ProgramSending() sending {
	return sending{
		Policy: store.PolicyChoice{Name: DefaultPolicyName}, Success: store.Success{Name: rule.Default},
		Signer: sign.Standard,
	}
}

// resolve decides how a callback is sent: by the submission, else its endpoint, else its project, else the
// defaults. The callback stores its policy and success rule, so later changes do not affect it. The signer of
// an endpoint is not stored: each attempt looks it up. policyKnown is false after a finding, and if only the
// server knows the policy.
func (v *acceptView) resolve(
	s *Submission, ep *store.Endpoint, c *store.Callback, f *Findings,
) (policyKnown bool) {
	wrong := len(*f)
	chosen := v.CheckChoice(&s.Choice, f)
	if ep != nil {
		if s.Signer != "" {
			f.Add("signer", "is not allowed with an endpoint, which has its own")
		}
		chosen = chosen.Or(EndpointSending(ep))
	}
	chosen = chosen.Or(ProjectSending(&v.Defaults)).Or(ProgramSending())
	if ep == nil {
		c.Signer = chosen.Signer
	}
	if len(*f) > wrong {
		return false
	}
	var err error
	c.Policy, err = v.PolicyOf(chosen.Policy)
	policyKnown = err == nil
	if err != nil && !v.offline {
		f.Add("policy", "of the endpoint or the project: %s", err)
	}
	c.Success, err = v.successOf(chosen.Success)
	if err != nil && !v.offline {
		f.Add("success", "of the endpoint or the project: %s", err)
	}
	return policyKnown
}

// Policy returns a policy of the project by name: its own, a preset, or one made by a formula such as
// "exp(1s,2,1h,10)". Its error is store.ErrNotFound for any other name.
func (ac *Accepter) Policy(ctx context.Context, project, name string) (store.Policy, error) {
	v, err := ac.Catalog.Project(ctx, project)
	if err != nil {
		return store.Policy{}, err
	}
	p, err := v.PolicyOf(store.PolicyChoice{Name: name})
	if err != nil {
		return p, fmt.Errorf("%w: %w", store.ErrNotFound, err)
	}
	return p, nil
}
