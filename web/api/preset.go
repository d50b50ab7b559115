package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// trimFieldPrefix removes a prefix from the field names of an error. The engine names a preset's fields as in
// a callback ("policy.tiers"), but here the body is the preset ("tiers").
func trimFieldPrefix(err error, prefix string) error {
	var invalid *store.InvalidError
	if !errors.As(err, &invalid) {
		return err // also for a nil error
	}
	named := &store.InvalidError{Fields: make([]store.FieldError, len(invalid.Fields))}
	for i, f := range invalid.Fields {
		f.Field = strings.TrimPrefix(f.Field, prefix)
		if f.Field == "" {
			f.Field = request
		}
		named.Fields[i] = f
	}
	return named
}

// A preset is a named policy, success rule or profile.
type preset struct {
	name string
	// position is zero for a preset of the project. The built-in presets count from 1, in their order.
	position int64
	// body is the preset as a type of package client.
	body any
}

// cursor returns the cursor that continues the list after the preset.
func (p *preset) cursor() store.Cursor { return store.Cursor{DueAt: p.position, ID: p.name} }

// presetOrder sorts the project's presets by name, followed by the built-in presets by position.
func presetOrder(a, b store.Cursor) int {
	return cmp.Or(cmp.Compare(a.DueAt, b.DueAt), strings.Compare(a.ID, b.ID))
}

// A presetKind has the differences between the routes of policies, success rules and profiles.
type presetKind struct {
	path string
	kind store.PresetKind
	list byte
	// rows returns the presets that the project may name: its own, then the built-in ones. For a policy, from
	// is the time of the first attempt; zero: the policy has no times.
	rows func(p *control.Presets, from int64) []preset
	// fallback finds a preset that is in no list. Nil: there are none.
	fallback func(ctx context.Context, e Engine, project, name string, from int64) (any, error)
	// read reads the preset of a PUT request, and the reason.
	read func(c *gin.Context, e Engine) (put putFunc, reason string, err error)
}

// A putFunc stores the preset that was read under a name.
type putFunc func(ctx context.Context, project, name string, by store.Actor) error

// listPresets handles GET of all presets of a kind. There are few, so it reads the whole list and cuts a
// page.
func (a *API) listPresets(k presetKind) handler {
	parse := func(q *query.Values) reader[preset] {
		from := k.from(q)
		return func(ctx context.Context, who caller, after store.Cursor, _ int) ([]preset, error) {
			presets, err := a.Engine.Presets(ctx, who.Project)
			return rowsAfter(k.rows(&presets, from), after, (*preset).cursor, presetOrder), err
		}
	}
	return listOf(a, k.list, parse, (*preset).cursor, func(p *preset) any { return p.body })
}

// from reads the time from which a policy's attempt times are computed. Zero: not given, or not a policy.
func (k *presetKind) from(q *query.Values) int64 {
	if k.kind != store.PresetPolicy {
		return 0
	}
	return q.Instant("from")
}

// getPreset handles GET of one preset. A preset of the project hides a built-in one.
func (a *API) getPreset(k presetKind) handlerOf {
	return func(ctx context.Context, c *gin.Context, who caller, name string) error {
		q, err := parseQuery(c)
		if err != nil {
			return err
		}
		from := k.from(q)
		q.Unknown()
		if err := q.Err(); err != nil {
			return err
		}
		return a.showPreset(ctx, c, who, k, name, from)
	}
}

// putPreset handles PUT of a preset of the project: 200 with the preset. k.read decodes the request and
// returns the function that stores it.
func (a *API) putPreset(k presetKind) handlerOf {
	return func(ctx context.Context, c *gin.Context, who caller, name string) error {
		put, reason, err := k.read(c, a.Engine)
		if err != nil {
			return err
		}
		if err := put(ctx, who.Project, name, who.By(reason)); err != nil {
			return err
		}
		return a.showPreset(ctx, c, who, k, name, 0)
	}
}

// deletePreset deletes a preset of the project. Callbacks that were accepted with it keep its values.
func (a *API) deletePreset(
	kind store.PresetKind,
) func(ctx context.Context, project, name string, by store.Actor) error {
	return func(ctx context.Context, project, name string, by store.Actor) error {
		return a.Engine.DeletePreset(ctx, project, kind, name, by)
	}
}

// showPreset responds with the preset of that name: first the project's own, then the built-in one, then what
// fallback finds. putPreset uses it too, so that its response is the stored preset.
func (a *API) showPreset(
	ctx context.Context, c *gin.Context, who caller, k presetKind, name string, from int64,
) error {
	presets, err := a.Engine.Presets(ctx, who.Project)
	if err != nil {
		return err
	}
	for _, p := range k.rows(&presets, from) {
		if p.name == name {
			return a.respond(c, http.StatusOK, p.body)
		}
	}
	if k.fallback == nil {
		return store.ErrNotFound
	}
	body, err := k.fallback(ctx, a.Engine, who.Project, name, from)
	if err != nil {
		return err
	}
	return a.respond(c, http.StatusOK, body)
}

func presetKinds() []presetKind { return []presetKind{policyKind(), ruleKind(), profileKind()} }

// policyKind is the kind of /v1/policies.
func policyKind() presetKind {
	rows := func(p *control.Presets, from int64) (rows []preset) {
		for i := range p.OwnPolicies {
			own := &p.OwnPolicies[i]
			rows = append(rows, preset{own.Name, 0, namedPolicy(own, "", true, from)})
		}
		for i := range p.Policies {
			known := &p.Policies[i]
			rows = append(rows, preset{known.Name, int64(1 + i),
				namedPolicy(&known.Policy, known.About, false, from)})
		}
		return rows
	}
	// A formula such as exp(1s,2,1h,10) is also a name.
	formula := func(ctx context.Context, e Engine, project, name string, from int64) (any, error) {
		policy, err := e.Policy(ctx, project, name)
		return namedPolicy(&policy, "", false, from), err
	}
	return presetKind{
		path: "/v1/policies", kind: store.PresetPolicy, list: query.ListPolicies,
		rows: rows, fallback: formula, read: readPolicy,
	}
}

// namedPolicy converts a policy, with the values that follow from its members.
func namedPolicy(p *store.Policy, about string, own bool, from int64) client.NamedPolicy {
	sum := schedule.Tiers(p.Tiers).Sum()
	out := client.NamedPolicy{
		Name: p.Name, About: about, Own: own, PolicyMembers: policyOf(p), Attempts: len(p.Tiers) + 1,
		Sum: duration(sum), SumMs: sum.Milliseconds(),
	}
	if p.RepeatLast {
		out.Attempts = 0 // the deadline ends it, not a number of attempts
	}
	if from != 0 {
		for _, at := range accept.LadderTimes(p, from) {
			out.Times = append(out.Times, moment(at))
		}
	}
	return out
}

// readPolicy reads the policy of a PUT request.
func readPolicy(c *gin.Context, e Engine) (put putFunc, reason string, err error) {
	var f fields
	p := emptyPolicy()
	if err := readObject(c, false, &f, func(key, value []byte) bool {
		return f.policyMember("", key, value, &p) || f.reason(key, value, &reason)
	}); err != nil {
		return nil, "", err
	}
	f.requireTiers("", &p)
	return func(ctx context.Context, project, name string, by store.Actor) error {
		return trimFieldPrefix(e.PutPolicy(ctx, project, name, p, by), "policy.")
	}, reason, f.err()
}

// ruleKind is the kind of /v1/success_rules.
func ruleKind() presetKind {
	rows := func(p *control.Presets, _ int64) (rows []preset) {
		add := func(name, about string, position int, rule store.JSONText) {
			body := client.NamedRule{Name: name, About: about, Own: position == 0, Rule: storedJSON(rule)}
			rows = append(rows, preset{name, int64(position), body})
		}
		for _, r := range p.OwnRules {
			add(r.Name, "", 0, r.Rule)
		}
		for i, r := range p.Rules {
			add(r.Name, r.Description, 1+i, r.Rule)
		}
		return rows
	}
	return presetKind{
		path: "/v1/success_rules", kind: store.PresetSuccess, list: query.ListRules,
		rows: rows, read: readRule,
	}
}

// readRule reads the success rule of a PUT request. The engine validates it, and gets all members except
// reason as they are in the request.
func readRule(c *gin.Context, e Engine) (put putFunc, reason string, err error) {
	var f fields
	rule := jsonObject{[]byte("{")}
	if err := readObject(c, false, &f, func(key, value []byte) bool {
		if !f.reason(key, value, &reason) {
			rule.member(key, value)
		}
		return true
	}); err != nil {
		return nil, "", err
	}
	rule.close()
	return func(ctx context.Context, project, name string, by store.Actor) error {
		return trimFieldPrefix(e.PutSuccessRule(ctx, project, name, rule.b, by), "")
	}, reason, f.err()
}

// profileKind is the kind of /v1/profiles.
func profileKind() presetKind {
	rows := func(p *control.Presets, _ int64) (rows []preset) {
		for i := range p.OwnProfiles {
			rows = append(rows, preset{p.OwnProfiles[i].Name, 0, profileOf(&p.OwnProfiles[i], true)})
		}
		for i := range p.Profiles {
			rows = append(rows, preset{p.Profiles[i].Name, int64(1 + i), profileOf(&p.Profiles[i], false)})
		}
		return rows
	}
	return presetKind{
		path: "/v1/profiles", kind: store.PresetProfile, list: query.ListProfiles,
		rows: rows, read: readProfile,
	}
}

// profileOf converts a profile. A value that it does not set is null.
func profileOf(p *accept.Profile, own bool) client.NamedProfile {
	return client.NamedProfile{
		Name: p.Name, About: p.About, Own: own, Policy: policyChoiceOf(&p.Policy),
		Success: successOf(&p.Success),
		Signer:  signerOf(p.Signer), Timeout: nonZeroDuration(p.Timeout),
	}
}

// readProfile reads the profile of a PUT request.
func readProfile(c *gin.Context, e Engine) (put putFunc, reason string, err error) {
	r, d, err := read[client.ProfilePut](c, false)
	if err != nil {
		return nil, "", err
	}
	var timeout time.Duration
	if given := length(r.Timeout); given != nil {
		timeout = *given
	}
	return func(ctx context.Context, project, name string, by store.Actor) error {
		return e.PutProfile(ctx, project, name, d.choice, timeout, by)
	}, r.Reason, d.err()
}
