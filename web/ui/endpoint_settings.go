package ui

import (
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A setting is a value that applies to an endpoint.
type setting struct {
	Name, Value string
	// Data is true if Value is no text of the catalogue. Detail is more data, such as the intervals of a
	// policy.
	Data   bool
	Detail string
	// From says where the value comes from. It is empty if the endpoint sets the value itself.
	From string
}

// settingsOf returns the settings that apply to an endpoint: its own, those of the project, or the defaults.
func (u *UI) settingsOf(r *request, b *base, row *endpointRow) ([]setting, error) {
	project, err := u.Store.Project(r.ctx, r.caller.Project)
	if err != nil {
		return nil, err
	}
	presets, err := u.Engine.Presets(r.ctx, r.caller.Project)
	if err != nil {
		return nil, err
	}
	own, its := accept.EndpointSending(&row.Endpoint), accept.ProjectSending(&project.Defaults)
	applies := own.Or(its).Or(accept.ProgramSending())
	from := func(own, project bool) string {
		switch {
		case own:
			return ""
		case project:
			return b.T("endpoint.from.project")
		}
		return b.T("endpoint.from.default")
	}
	all := []setting{
		{
			Name: "endpoint.field.policy", Value: policyText(applies.Policy), Data: true,
			Detail: namedTiers(&presets, applies.Policy),
			From:   from(!own.Policy.IsZero(), !its.Policy.IsZero()),
		}, {
			Name: "column.rule", Value: successText(applies.Success), Data: true,
			From: from(own.Success != store.Success{}, its.Success != store.Success{}),
		}, {
			Name: "endpoint.field.signer", Value: applies.Signer, Data: true,
			From: from(own.Signer != "", its.Signer != ""),
		},
	}
	return append(all, b.limitsOf(row)...), nil
}

// limitsOf returns the settings of an endpoint that no project has.
func (b *base) limitsOf(row *endpointRow) []setting {
	rate := setting{Name: "endpoint.field.rate", Value: row.Rate.String(), Data: true}
	if rate.Value == "" {
		rate = setting{Name: rate.Name, Value: b.T("endpoint.unbounded"), From: b.T("endpoint.from.default")}
	}
	limit := setting{Name: "endpoint.field.concurrency", Data: true}
	switch {
	case row.Concurrency > 0:
		limit.Value = b.N(row.Concurrency)
	case row.Lane != nil && row.Lane.State != nil && row.Lane.State.Limit > 0:
		limit.Value, limit.From = b.N(row.Lane.State.Limit), b.T("endpoint.from.default")
	default: // known after the first attempt
		limit.Value, limit.Data = b.T("endpoint.from.process"), false
		limit.From = b.T("endpoint.from.default")
	}
	override := setting{Name: "endpoint.field.url_override",
		Value: b.T("endpoint.override." + string(store.OverrideDeny)), From: b.T("endpoint.from.default")}
	if row.URLOverride != "" && row.URLOverride != store.OverrideDeny {
		override = setting{Name: override.Name, Value: b.T("endpoint.override." + string(row.URLOverride))}
	}
	return []setting{rate, limit, override}
}

// namedTiers returns the intervals of a policy that is given by its name. It is empty for other policies.
func namedTiers(presets *control.Presets, chosen store.PolicyChoice) string {
	if chosen.Given != nil {
		return ""
	}
	named := presets.OwnPolicies
	for i := range presets.Policies {
		named = append(named[:len(named):len(named)], presets.Policies[i].Policy)
	}
	for i := range named {
		if named[i].Name == chosen.Name {
			return strings.Trim(policyText(store.PolicyChoice{Given: &named[i]}), "[]")
		}
	}
	return ""
}
