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

// trimFieldPrefix names the fields of an error as they stand in a request whose body is a field of that name
// elsewhere.
func trimFieldPrefix(err error, prefix string) error {
	var invalid *store.InvalidError
	if !errors.As(err, &invalid) {
		return err // nil too
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

// A preset is a policy, a success rule or a profile that can be named.
type preset struct {
	name string
	// position is zero for one of the project's own; those that every project knows count from 1, in their own
	// order.
	position int64
	// body is it as a type of package client.
	body any
}

// cursor is where the list goes on after the preset.
func (p *preset) cursor() store.Cursor { return store.Cursor{DueAt: p.position, ID: p.name} }

// presetOrder sorts a project's own by their names, and behind them what every project knows by place.
func presetOrder(a, b store.Cursor) int {
	return cmp.Or(cmp.Compare(a.DueAt, b.DueAt), strings.Compare(a.ID, b.ID))
}

// A presetKind is what the routes of one kind of preset differ in.
type presetKind struct {
	path string
	kind store.PresetKind
	list byte
	// rows are what the project may name: its own, then what every project knows. The times of policies run
	// from from; zero: they have none.
	rows func(p *control.Presets, from int64) []preset
	// fallback finds what is in no list; nil: there is no such thing.
	fallback func(ctx context.Context, e Engine, project, name string, from int64) (any, error)
	// read reads what is to be put, and why.
	read func(c *gin.Context, e Engine) (put putFunc, reason string, err error)
}

// A putFunc gives what was read a name.
type putFunc func(ctx context.Context, project, name string, by store.Actor) error

// listPresets is GET of a kind. There are few: the list is read whole.
func (a *API) listPresets(k presetKind) handler {
	ask := func(q *query.Values) reader[preset] {
		from := k.from(q)
		return func(ctx context.Context, who caller, after store.Cursor, _ int) ([]preset, error) {
			presets, err := a.Engine.Presets(ctx, who.Project)
			return rowsAfter(k.rows(&presets, from), after, (*preset).cursor, presetOrder), err
		}
	}
	return listOf(a, k.list, ask, (*preset).cursor, func(p *preset) any { return p.body })
}

// from is when the times of policies run from; zero: they have none.
func (k *presetKind) from(q *query.Values) int64 {
	if k.kind != store.PresetPolicy {
		return 0
	}
	return q.Instant("from")
}

// getPreset is GET of one, the project's own before what every project knows.
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

// putPreset is PUT of one of the project's own: 200 with it. k.read reads the request and returns what puts
// it.
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

// deletePreset deletes one of the project's own. What was accepted with it keeps what it was.
func (a *API) deletePreset(
	kind store.PresetKind,
) func(ctx context.Context, project, name string, by store.Actor) error {
	return func(ctx context.Context, project, name string, by store.Actor) error {
		return a.Engine.DeletePreset(ctx, project, kind, name, by)
	}
}

func (a *API) showPreset(ctx context.Context, c *gin.Context, who caller, k presetKind, name string,
	from int64) error {
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
	shown, err := k.fallback(ctx, a.Engine, who.Project, name, from)
	if err != nil {
		return err
	}
	return a.respond(c, http.StatusOK, shown)
}

func presetKinds() []presetKind { return []presetKind{policyKind(), ruleKind(), profileKind()} }

// policyKind is what /v1/policies has of its own.
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
	// A formula such as exp(1s,2,1h,10) is a name, too.
	formula := func(ctx context.Context, e Engine, project, name string, from int64) (any, error) {
		policy, err := e.Policy(ctx, project, name)
		return namedPolicy(&policy, "", false, from), err
	}
	return presetKind{
		path: "/v1/policies", kind: store.PresetPolicy, list: query.ListPolicies,
		rows: rows, fallback: formula, read: readPolicy,
	}
}

// namedPolicy is a policy: the members of one given whole, and what follows from them.
func namedPolicy(p *store.Policy, about string, own bool, from int64) client.NamedPolicy {
	sum := schedule.Tiers(p.Tiers).Sum()
	out := client.NamedPolicy{
		Name: p.Name, About: about, Own: own, PolicyMembers: policyOf(p), Attempts: len(p.Tiers) + 1,
		Sum: duration(sum), SumMs: sum.Milliseconds(),
	}
	if p.RepeatLast {
		out.Attempts = 0 // its deadline ends it, not a number
	}
	if from != 0 {
		for _, at := range accept.LadderTimes(p, from) {
			out.Times = append(out.Times, moment(at))
		}
	}
	return out
}

// readPolicy reads a policy.
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

// ruleKind is what /v1/success_rules has of its own.
func ruleKind() presetKind {
	rows := func(p *control.Presets, _ int64) (rows []preset) {
		add := func(name, about string, place int, rule store.JSONText) {
			shown := client.NamedRule{Name: name, About: about, Own: place == 0, Rule: storedJSON(rule)}
			rows = append(rows, preset{name, int64(place), shown})
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

// readRule reads a success rule. The engine judges it, and is given all of it as it stands in the request,
// but for what is the audit's.
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

// profileKind is what /v1/profiles has of its own.
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

// profileOf is a profile. What it does not choose is null.
func profileOf(p *accept.Profile, own bool) client.NamedProfile {
	return client.NamedProfile{
		Name: p.Name, About: p.About, Own: own, Policy: policyChoiceOf(&p.Policy),
		Success: successOf(&p.Success),
		Signer:  signerOf(p.Signer), Timeout: nonZeroDuration(p.Timeout),
	}
}

// readProfile reads a profile.
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
