package api

import (
	"context"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// policyKind is what /v1/policies has of its own.
func policyKind() presetKind {
	rows := func(p *control.Presets, from int64) (rows []preset) {
		for i := range p.OwnPolicies {
			policy := &p.OwnPolicies[i]
			rows = append(rows, preset{policy.Name, 0, func(o *jsonObject) {
				o.namedPolicy(policy, "", true, from)
			}})
		}
		for i := range p.Policies {
			policy := &p.Policies[i]
			rows = append(rows, preset{policy.Name, int64(1 + i), func(o *jsonObject) {
				o.namedPolicy(&policy.Policy, policy.About, false, from)
			}})
		}
		return rows
	}
	// A formula such as exp(1s,2,1h,10) is a name, too.
	formula := func(ctx context.Context, presets Engine, project, name string, from int64) (preset, error) {
		policy, err := presets.Policy(ctx, project, name)
		return preset{name, 0, func(o *jsonObject) { o.namedPolicy(&policy, "", false, from) }}, err
	}
	return presetKind{list: query.ListPolicies, timed: true, rows: rows, other: formula}
}

// namedPolicy writes the members of a policy: those of one given whole, and what follows from them.
func (o *jsonObject) namedPolicy(p *store.Policy, about string, own bool, from int64) {
	o.str("name", p.Name)
	o.orNull("about", about)
	o.boolean("own", own)
	o.policyMembers(p)
	attempts := len(p.Tiers) + 1
	if p.RepeatLast {
		attempts = 0 // its deadline ends it, not a number
	}
	o.intOrNull("attempts", attempts)
	sum := schedule.Tiers(p.Tiers).Sum()
	o.duration("sum", sum)
	o.integer("sum_ms", sum.Milliseconds())
	if from == 0 {
		return
	}
	o.key("times")
	o.b = append(o.b, '[')
	for i, at := range accept.LadderTimes(p, from) {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = append(appendTime(append(o.b, '"'), at), '"')
	}
	o.b = append(o.b, ']')
}

// putPolicy is PUT /v1/policies/{name}: 200 with the policy.
func (a *API) putPolicy(ctx context.Context, c *gin.Context, who caller) error {
	name, err := pathName(c, "name")
	if err != nil {
		return err
	}
	var (
		f      fields
		reason string
	)
	p := emptyPolicy()
	if err := readObject(c, false, &f, func(key, value []byte) bool {
		return f.policyMember("", key, value, &p) || f.reason(key, value, &reason)
	}); err != nil {
		return err
	}
	if f.policyEnd("", &p); len(f.invalid) > 0 {
		return f.err()
	}
	if err := a.Engine.PutPolicy(ctx, who.Project, name, p, who.By(reason)); err != nil {
		return unprefixed(err, "policy.")
	}
	return a.showPreset(ctx, c, who, policyKind(), name, 0)
}

// ruleKind is what /v1/success_rules has of its own.
func ruleKind() presetKind {
	return presetKind{list: query.ListRules, rows: func(p *control.Presets, _ int64) (rows []preset) {
		write := func(name, about string, place int, rule store.JSONText) {
			rows = append(rows, preset{name, int64(place), func(o *jsonObject) {
				o.str("name", name)
				o.orNull("about", about)
				o.boolean("own", place == 0)
				o.raw("rule", string(rule))
			}})
		}
		for _, r := range p.OwnRules {
			write(r.Name, "", 0, r.Rule)
		}
		for i, r := range p.Rules {
			write(r.Name, r.Description, 1+i, r.Rule)
		}
		return rows
	}}
}

// putRule is PUT /v1/success_rules/{name}: 200 with the rule.
func (a *API) putRule(ctx context.Context, c *gin.Context, who caller) error {
	name, err := pathName(c, "name")
	if err != nil {
		return err
	}
	var (
		f      fields
		reason string
		rule   = []byte{'{'}
	)
	// The engine reads the rule, and is given all of it as it stands in the request, but for what is the audit's.
	if err := readFields(c, false, &f, func(key, value []byte) bool {
		if f.reason(key, value, &reason) {
			return true
		}
		if len(rule) > 1 {
			rule = append(rule, ',')
		}
		rule = append(appendString(rule, string(key)), ':')
		rule = append(rule, value...)
		return true
	}); err != nil {
		return err
	}
	if err := a.Engine.PutSuccessRule(ctx, who.Project, name, append(rule, '}'), who.By(reason)); err != nil {
		return unprefixed(err, "")
	}
	return a.showPreset(ctx, c, who, ruleKind(), name, 0)
}

// profileKind is what /v1/profiles has of its own.
func profileKind() presetKind {
	return presetKind{list: query.ListProfiles, rows: func(p *control.Presets, _ int64) (rows []preset) {
		for i := range p.OwnProfiles {
			own := &p.OwnProfiles[i]
			rows = append(rows, preset{own.Name, 0, func(o *jsonObject) { o.profile(own, true) }})
		}
		for i := range p.Profiles {
			known := &p.Profiles[i]
			rows = append(rows, preset{known.Name, int64(1 + i), func(o *jsonObject) {
				o.profile(known, false)
			}})
		}
		return rows
	}}
}

// profile writes the members of a profile. What it does not choose is null.
func (o *jsonObject) profile(p *accept.Profile, own bool) {
	o.str("name", p.Name)
	o.orNull("about", p.About)
	o.boolean("own", own)
	o.policyChoice(&p.Policy)
	o.success(&p.Success)
	o.signer(p.Signer)
	if p.Timeout == 0 {
		o.orNull("timeout", "")
		return
	}
	o.duration("timeout", p.Timeout)
}

// putProfile is PUT /v1/profiles/{name}: 200 with the profile.
func (a *API) putProfile(ctx context.Context, c *gin.Context, who caller) error {
	name, err := pathName(c, "name")
	if err != nil {
		return err
	}
	var (
		f       fields
		choice  accept.Choice
		timeout time.Duration
		reason  string
	)
	if err := readFields(c, false, &f, func(key, value []byte) bool {
		if string(key) == "timeout" {
			f.wait("timeout", value, &timeout)
			return true
		}
		return f.choice(key, value, &choice) || f.reason(key, value, &reason)
	}); err != nil {
		return err
	}
	if err := a.Engine.PutProfile(ctx, who.Project, name, choice, timeout, who.By(reason)); err != nil {
		return err
	}
	return a.showPreset(ctx, c, who, profileKind(), name, 0)
}
