package control

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A ProjectChange is a project as a caller asks for it. Nil fields and an empty Choice are not given.
type ProjectChange struct {
	ID   string
	Name *string
	accept.Choice
	Headers *[]store.Header
	// HeaderHosts are the hosts that Headers which are credentials go to.
	HeaderHosts *[]string
	// Quotas may be changed by the installation's own key alone; zero values take them away.
	Quotas store.QuotaChange
	// Clear names defaults that are to be the program's again: "policy", "success", "signer".
	Clear   []string
	Reason  string
	Invalid []store.FieldError
}

// maxProjectID is the most characters of a project's id and of a preset's name.
const maxProjectID = 64

// checkSlug judges a name that stands in paths.
func checkSlug(field, name string, f *accept.Findings) {
	const first, more = "abcdefghijklmnopqrstuvwxyz0123456789", "abcdefghijklmnopqrstuvwxyz0123456789_-"
	switch {
	case name == "":
		f.Add(field, "is required")
	case len(name) > maxProjectID, strings.Trim(name[:1], first) != "", strings.Trim(name, more) != "":
		f.Add(field, "is 1 to %d of a-z, 0-9, _ and -, the first a letter or digit", maxProjectID)
	}
}

// CreateProject makes a project.
func (ct *Controller) CreateProject(ctx context.Context, ch ProjectChange,
	by store.Actor) (store.Project, error) {
	now := ct.clock.Now()
	p := store.Project{ID: ch.ID, CreatedAt: now, UpdatedAt: now}
	f := accept.Findings(nil)
	checkSlug("id", ch.ID, &f)
	if err := ct.applyProject(accept.PlainView().ProjectView, &ch, &p, f); err != nil {
		return store.Project{}, err
	}
	p.Quotas = ch.Quotas.Of(p.Quotas)
	p, err := ct.o.Store.CreateProject(ctx, p, by)
	return p, ct.changed(ctx, "create project "+ch.ID, err)
}

// PatchProject changes what is given of a project, and nothing else. What was accepted before keeps what it
// has.
func (ct *Controller) PatchProject(ctx context.Context, id string, ch ProjectChange,
	by store.Actor) (store.Project, error) {
	v, err := ct.accept.Catalog.Project(ctx, id)
	if err != nil {
		return store.Project{}, err
	}
	// The project is judged as it is in the transaction: another change, or a new master key, may have come
	// in between.
	p, err := ct.o.Store.PatchProject(ctx, id, func(p *store.Project) error {
		p.Quotas = ch.Quotas.Of(p.Quotas)
		return ct.applyProject(v, &ch, p, nil)
	}, ct.clock.Now(), by)
	return p, ct.changed(ctx, "change project "+id, err)
}

func (ct *Controller) applyProject(v *accept.ProjectView, ch *ProjectChange, p *store.Project,
	f accept.Findings) error {
	f = append(f, ch.Invalid...)
	for _, field := range ch.Clear {
		switch field {
		case "policy":
			p.Defaults.Policy = store.PolicyChoice{}
		case "success":
			p.Defaults.Success = store.Success{}
		case "signer":
			p.Defaults.Signer = ""
		}
	}
	if ch.Name != nil {
		accept.CheckText("name", *ch.Name, MaxName, &f)
		p.Name = *ch.Name
	}
	chosen := v.Judge(&ch.Choice, &f).Or(accept.ProjectSending(&p.Defaults))
	p.Defaults.Policy, p.Defaults.Success, p.Defaults.Signer = chosen.Policy, chosen.Success, chosen.Signer
	if ch.Headers != nil {
		for _, h := range sign.CheckHeaders(*ch.Headers) {
			f.Add(h.Field, "%s", h.Message)
		}
		p.Defaults.Headers = ct.reuseSealed(p.ID, secret.ProjectOwner, p.Defaults.Headers, *ch.Headers)
	}
	if ch.HeaderHosts != nil {
		checkHosts("header_hosts", *ch.HeaderHosts, false, &f)
		p.Defaults.HeaderHosts = *ch.HeaderHosts
	}
	checkQuota("quotas.open_callbacks", ch.Quotas.OpenCallbacks, &f)
	checkQuota("quotas.lanes", ch.Quotas.Lanes, &f)
	return f.Err()
}

// checkQuota judges a quota; nil: it is not given.
func checkQuota(field string, given *int64, f *accept.Findings) {
	if given != nil && (*given < 0 || *given > store.MaxQuota) {
		f.Add(field, "is 0 (none) to %d", store.MaxQuota)
	}
}

// PauseProject holds all that a project sends until a time; with 0 it is resumed. Accepts go on.
func (ct *Controller) PauseProject(ctx context.Context, project string, until int64,
	by store.Actor) (store.Project, error) {
	var f accept.Findings
	checkReason(by, &f)
	if len(f) > 0 {
		return store.Project{}, f.Err()
	}
	p, err := ct.o.Store.SetProjectPause(ctx, project, until, by.Reason, ct.clock.Now(), by)
	return p, ct.changed(ctx, "pause project "+project, err)
}

// PutPolicy gives a policy a name in the project. What was accepted before keeps the policy that it has.
func (ct *Controller) PutPolicy(ctx context.Context, project, name string, p store.Policy,
	by store.Actor) error {
	f := accept.Findings(nil)
	checkPresetName(name, func(name string) bool {
		_, err := accept.PresetPolicy(name)
		return err == nil
	}, &f)
	accept.CheckPolicy(&p, "policy", &f)
	p.Name = name
	return ct.putPreset(ctx, project, store.PresetPolicy, name, p, f, by)
}

// PutSuccessRule gives a success rule, a JSON object, a name in the project.
func (ct *Controller) PutSuccessRule(ctx context.Context, project, name string, text []byte,
	by store.Actor) error {
	f := accept.Findings(nil)
	checkPresetName(name, func(name string) bool { return slices.Contains(rule.Names(), name) }, &f)
	stored, wrong := rule.Parse(text)
	f = append(f, wrong...)
	return ct.putPreset(ctx, project, store.PresetSuccess, name, stored, f, by)
}

// PutProfile gives a choice a name in the project. Timeout replaces its policy's; zero: it does not.
func (ct *Controller) PutProfile(ctx context.Context, project, name string, c accept.Choice,
	timeout time.Duration, by store.Actor) error {
	v, err := ct.accept.Catalog.Project(ctx, project)
	if err != nil {
		return err
	}
	f := accept.Findings(nil)
	checkPresetName(name, func(name string) bool {
		return slices.ContainsFunc(accept.ProfilePresets(), func(p accept.Profile) bool {
			return p.Name == name
		})
	}, &f)
	if c.Profile != "" {
		f.Add("profile", "a profile is not made of another one")
	}
	chosen := v.Judge(&c, &f)
	if timeout != 0 && (timeout < accept.MinTimeout || timeout > accept.MaxTimeout) {
		f.Add("timeout", "is 100ms to 60s")
	}
	if timeout != 0 && chosen.Policy.IsZero() {
		f.Add("timeout", "needs a policy beside it, whose time-out it replaces")
	}
	return ct.putPreset(ctx, project, store.PresetProfile, name,
		accept.Profile{Policy: chosen.Policy, Success: chosen.Success, Signer: chosen.Signer,
			Timeout: timeout}, f, by)
}

func checkPresetName(name string, preset func(string) bool, f *accept.Findings) {
	checkSlug("name", name, f)
	if preset(name) {
		f.Add("name", "%q is a preset, which every project knows; choose another name", name)
	}
}

func (ct *Controller) putPreset(ctx context.Context, project string, kind store.PresetKind, name string,
	value any, f accept.Findings, by store.Actor) error {
	if len(f) > 0 {
		return f.Err()
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", kind, name, err)
	}
	now := ct.clock.Now()
	p := store.Preset{Project: project, Kind: kind, Name: name, Value: store.JSONText(text), CreatedAt: now,
		UpdatedAt: now}
	_, err = ct.o.Store.PutPreset(ctx, p, by)
	return ct.changed(ctx, fmt.Sprintf("put %s %s", kind, name), err)
}

// DeletePreset takes a name away. Endpoints, profiles and defaults that still name it make what is accepted
// for them be refused, with the name that is gone.
func (ct *Controller) DeletePreset(ctx context.Context, project string, kind store.PresetKind, name string,
	by store.Actor) error {
	err := ct.o.Store.DeletePreset(ctx, project, kind, name, ct.clock.Now(), by)
	return ct.changed(ctx, fmt.Sprintf("delete %s %s", kind, name), err)
}

// Presets are what a project may name.
type Presets struct {
	Policies []accept.PolicyPreset
	Rules    []rule.Preset
	Profiles []accept.Profile
	// Own policies, rules and profiles are the project's, by name.
	OwnPolicies []store.Policy
	OwnRules    []store.Success
	OwnProfiles []accept.Profile
}

// Presets returns what the project may name: its own, and what every project knows.
func (ct *Controller) Presets(ctx context.Context, project string) (Presets, error) {
	v, err := ct.accept.Catalog.Project(ctx, project)
	if err != nil {
		return Presets{}, err
	}
	return Presets{
		Policies: accept.PolicyPresets(), Rules: rule.Presets(), Profiles: accept.ProfilePresets(),
		OwnPolicies: byName(v.Policies), OwnRules: byName(v.Rules), OwnProfiles: byName(v.Profiles),
	}, nil
}

func byName[T any](named map[string]T) (list []T) {
	for _, name := range slices.Sorted(maps.Keys(named)) {
		list = append(list, named[name])
	}
	return list
}
