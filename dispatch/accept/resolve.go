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

// SignerOf returns the signer of an endpoint.
func (v *ProjectView) SignerOf(ep *store.Endpoint) string {
	return EndpointSending(ep).Or(ProjectSending(&v.Defaults)).Or(programSending()).Signer
}

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
	Policy  store.PolicyChoice
	Success store.Success
	Signer  string
}

// Or returns s with what it has not chosen taken from other.
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

// An acceptView is what submissions are judged by: their project, and the endpoints that they name.
type acceptView struct {
	*ProjectView
	endpoints map[string]*store.Endpoint
	// cardless says that the submissions need no check for card numbers.
	cardless bool
}

// PlainView is that of a project that has set nothing.
func PlainView() *acceptView { return &acceptView{ProjectView: &ProjectView{}} }

// blindView is that of whoever does not know what the project has set: names that no preset has may be its
// own.
func blindView() *acceptView { return &acceptView{ProjectView: &ProjectView{blind: true}} }

// view reads what the submissions are judged by.
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

// PolicyOf returns the policy of a choice: given whole, the project's own of that name, or a preset.
func (v *ProjectView) PolicyOf(c store.PolicyChoice) (store.Policy, error) {
	if c.Given != nil {
		return *c.Given, nil
	}
	if p, ok := v.Policies[c.Name]; ok {
		return p, nil
	}
	return PresetPolicy(c.Name)
}

// successOf returns a success rule: given whole, the project's own of that name, or a preset.
func (v *ProjectView) successOf(s store.Success) (store.Success, error) {
	if s.Rule != "" || s.Name == rule.Default {
		return s, nil
	}
	if r, ok := v.Rules[s.Name]; ok {
		return r, nil
	}
	if presets := rule.Names(); !slices.Contains(presets, s.Name) {
		return store.Success{}, fmt.Errorf("%q is not a success rule; known are %s, this project's own, or "+
			"give an object",
			s.Name, strings.Join(presets, ", "))
	}
	return s, nil
}

// Judge returns what was chosen, and adds what is wrong with it. Names are kept as names.
func (v *ProjectView) Judge(c *Choice, f *Findings) sending {
	var s sending
	if c.Profile != "" {
		s = v.judgeProfile(c.Profile, f)
	}
	switch {
	case c.PolicyGiven:
		CheckPolicy(&c.Policy, "policy", f)
		s.Policy = store.PolicyChoice{Given: &c.Policy}
	case c.PolicyName != "":
		s.Policy = store.PolicyChoice{Name: c.PolicyName}
		if _, err := v.PolicyOf(s.Policy); err != nil && !v.blind {
			f.Add("policy", "%s", err)
		}
	}
	switch {
	case len(c.SuccessRule) > 0:
		rule, wrong := rule.Parse(c.SuccessRule)
		f.Under("success", wrong)
		s.Success = store.Success{Rule: rule}
	case c.Success != "":
		s.Success = store.Success{Name: c.Success}
		if _, err := v.successOf(s.Success); err != nil && !v.blind {
			f.Add("success", "%s", err)
		}
	}
	if c.Signer != "" {
		s.Signer = judgeSigner(c.Signer, f)
	}
	return s
}

// judgeProfile returns what a profile chooses. Its time-out becomes its policy's.
func (v *ProjectView) judgeProfile(name string, f *Findings) (s sending) {
	p, err := v.profile(name)
	if err != nil {
		if !v.blind {
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
		f.Add("profile", "its policy is gone: %s", err)
		return s
	}
	policy.Timeout = p.Timeout
	s.Policy = store.PolicyChoice{Given: &policy}
	return s
}

// judgeSigner returns a signer as it is stored, and adds what is wrong with it.
func judgeSigner(text string, f *Findings) string {
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

// EndpointSending is what an endpoint has chosen, ProjectSending what its project has.
func EndpointSending(ep *store.Endpoint) sending {
	return sending{Policy: ep.Policy, Success: ep.Success, Signer: ep.Signer}
}

func ProjectSending(d *store.Defaults) sending {
	return sending{Policy: d.Policy, Success: d.Success, Signer: d.Signer}
}

// programSending is what is chosen where nobody has chosen anything.
func programSending() sending {
	return sending{
		Policy: store.PolicyChoice{Name: DefaultPolicyName}, Success: store.Success{Name: rule.Default},
		Signer: sign.Standard,
	}
}

// resolve finds how a callback is sent: as the submission says; else its endpoint; else its project; else the
// program. A callback keeps its policy and its success rule as they are now; how it is signed is its
// endpoint's to say whenever it is sent.
func (v *acceptView) resolve(s *Submission, ep *store.Endpoint, c *store.Callback, f *Findings) {
	wrong := len(*f)
	chosen := v.Judge(&s.Choice, f)
	if ep != nil {
		if s.Signer != "" {
			f.Add("signer", "is the endpoint's to say")
		}
		chosen = chosen.Or(EndpointSending(ep))
	}
	chosen = chosen.Or(ProjectSending(&v.Defaults)).Or(programSending())
	if ep == nil {
		c.Signer = chosen.Signer
	}
	if len(*f) > wrong {
		return
	}
	var err error
	c.Policy, err = v.PolicyOf(chosen.Policy)
	if err != nil && !v.blind {
		f.Add("policy", "the endpoint's, or the project's: %s", err)
	}
	c.Success, err = v.successOf(chosen.Success)
	if err != nil && !v.blind {
		f.Add("success", "the endpoint's, or the project's: %s", err)
	}
}

// Policy returns the policy of a name in the project: its own, a preset, or one made by a formula such as
// "exp(1s,2,1h,10)". It is store.ErrNotFound for any other.
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
