package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// ProjectRows is what people change of projects in SQL, each in one audited transaction. An unknown project is store.ErrNotFound, one
// that exists already store.ErrExists.
type ProjectRows interface {
	CreateProject(ctx context.Context, p store.Project, by store.Actor) (store.Project, error)
	// PatchProject has change set the name, the defaults and the quotas of the project as it is; change may
	// be called more than once.
	PatchProject(
		ctx context.Context, id string, change func(*store.Project) error, now int64, by store.Actor,
	) (store.Project, error)
	SetProjectPause(ctx context.Context, project string, until int64, reason string, now int64, by store.Actor) (store.Project, error)
	PutPreset(ctx context.Context, p store.Preset, by store.Actor) (store.Preset, error)
	DeletePreset(ctx context.Context, project string, kind store.PresetKind, name string, now int64, by store.Actor) error
}

// A ProjectChange is a project as a caller asks for it. Nil fields and an empty Choice are not given.
type ProjectChange struct {
	ID   string
	Name *string
	Choice
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
func checkSlug(field, name string, f *findings) {
	const first, more = "abcdefghijklmnopqrstuvwxyz0123456789", "abcdefghijklmnopqrstuvwxyz0123456789_-"
	switch {
	case name == "":
		f.add(field, "is required")
	case len(name) > maxProjectID, strings.Trim(name[:1], first) != "", strings.Trim(name, more) != "":
		f.add(field, "is 1 to %d of a-z, 0-9, _ and -, the first a letter or digit", maxProjectID)
	}
}

// CreateProject makes a project.
func (e *Engine) CreateProject(ctx context.Context, ch ProjectChange, by store.Actor) (store.Project, error) {
	now := e.clock.now()
	p := store.Project{ID: ch.ID, CreatedAt: now, UpdatedAt: now}
	f := findings(nil)
	checkSlug("id", ch.ID, &f)
	if err := e.applyProject(plainView().projectView, &ch, &p, f); err != nil {
		return store.Project{}, err
	}
	p.Quotas = ch.Quotas.Of(p.Quotas)
	p, err := e.o.Store.CreateProject(ctx, p, by)
	if err != nil {
		return p, fmt.Errorf("create project %s: %w", ch.ID, err)
	}
	e.settingsChanged(ctx)
	return p, nil
}

// PatchProject changes what is given of a project, and nothing else. What was accepted before keeps what it has.
func (e *Engine) PatchProject(ctx context.Context, id string, ch ProjectChange, by store.Actor) (store.Project, error) {
	v, err := e.catalog.project(ctx, id)
	if err != nil {
		return store.Project{}, err
	}
	// The project is judged as it is in the transaction: another change, or a new master key, may have come
	// in between.
	p, err := e.o.Store.PatchProject(ctx, id, func(p *store.Project) error {
		p.Quotas = ch.Quotas.Of(p.Quotas)
		return e.applyProject(v, &ch, p, nil)
	}, e.clock.now(), by)
	if err != nil {
		return p, fmt.Errorf("change project %s: %w", id, err)
	}
	e.settingsChanged(ctx)
	return p, nil
}

func (e *Engine) applyProject(v *projectView, ch *ProjectChange, p *store.Project, f findings) error {
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
		checkText("name", *ch.Name, MaxName, &f)
		p.Name = *ch.Name
	}
	chosen := v.judge(&ch.Choice, &f).or(projectSending(&p.Defaults))
	p.Defaults.Policy, p.Defaults.Success, p.Defaults.Signer = chosen.policy, chosen.success, chosen.signer
	if ch.Headers != nil {
		for _, h := range sign.CheckHeaders(*ch.Headers) {
			f.add(h.Field, "%s", h.Message)
		}
		p.Defaults.Headers = e.reuseSealed(p.ID, projectOwner, p.Defaults.Headers, *ch.Headers)
	}
	if ch.HeaderHosts != nil {
		checkHosts("header_hosts", *ch.HeaderHosts, false, &f)
		p.Defaults.HeaderHosts = *ch.HeaderHosts
	}
	checkQuota("quotas.open_callbacks", ch.Quotas.OpenCallbacks, &f)
	checkQuota("quotas.lanes", ch.Quotas.Lanes, &f)
	if len(f) > 0 {
		return &store.InvalidError{Fields: f}
	}
	return nil
}

// checkQuota judges a quota; nil: it is not given.
func checkQuota(field string, given *int64, f *findings) {
	if given != nil && (*given < 0 || *given > store.MaxQuota) {
		f.add(field, "is 0 (none) to %d", store.MaxQuota)
	}
}

// PauseProject holds all that a project sends until a time; with 0 it is resumed. Accepts go on.
func (e *Engine) PauseProject(ctx context.Context, project string, until int64, by store.Actor) (store.Project, error) {
	if utf8.RuneCountInString(by.Reason) > MaxPauseReason {
		return store.Project{}, invalid("reason", fmt.Sprintf("is longer than %d characters", MaxPauseReason))
	}
	p, err := e.o.Store.SetProjectPause(ctx, project, until, by.Reason, e.clock.now(), by)
	if err != nil {
		return p, fmt.Errorf("pause project %s: %w", project, err)
	}
	e.settingsChanged(ctx)
	return p, nil
}

// PutPolicy gives a policy a name in the project. What was accepted before keeps the policy that it has.
func (e *Engine) PutPolicy(ctx context.Context, project, name string, p store.Policy, by store.Actor) error {
	f := findings(nil)
	checkPresetName(name, func(name string) bool { _, err := presetPolicy(name); return err == nil }, &f)
	checkPolicy(&p, "policy", &f)
	p.Name = name
	return e.putPreset(ctx, project, store.PresetPolicy, name, p, f, by)
}

// PutSuccessRule gives a success rule, a JSON object, a name in the project.
func (e *Engine) PutSuccessRule(ctx context.Context, project, name string, raw []byte, by store.Actor) error {
	f := findings(nil)
	checkPresetName(name, func(name string) bool { return slices.Contains(rule.Names(), name) }, &f)
	text, wrong := rule.Parse(raw)
	f = append(f, wrong...)
	return e.putPreset(ctx, project, store.PresetSuccess, name, text, f, by)
}

// PutProfile gives a choice a name in the project. Timeout replaces its policy's; zero: it does not.
func (e *Engine) PutProfile(ctx context.Context, project, name string, c Choice, timeout time.Duration, by store.Actor) error {
	v, err := e.catalog.project(ctx, project)
	if err != nil {
		return err
	}
	f := findings(nil)
	checkPresetName(name, func(name string) bool {
		return slices.ContainsFunc(ProfilePresets(), func(p Profile) bool { return p.Name == name })
	}, &f)
	if c.Profile != "" {
		f.add("profile", "a profile is not made of another one")
	}
	chosen := v.judge(&c, &f)
	if timeout != 0 && (timeout < minTimeout || timeout > maxTimeout) {
		f.add("timeout", "is 100ms to 60s")
	}
	if timeout != 0 && chosen.policy.IsZero() {
		f.add("timeout", "needs a policy beside it, whose time-out it replaces")
	}
	return e.putPreset(ctx, project, store.PresetProfile, name,
		Profile{Policy: chosen.policy, Success: chosen.success, Signer: chosen.signer, Timeout: timeout}, f, by)
}

func checkPresetName(name string, preset func(string) bool, f *findings) {
	checkSlug("name", name, f)
	if preset(name) {
		f.add("name", "%q is a preset, which every project knows; choose another name", name)
	}
}

func (e *Engine) putPreset(ctx context.Context, project string, kind store.PresetKind, name string, value any, f findings, by store.Actor) error {
	if len(f) > 0 {
		return &store.InvalidError{Fields: f}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", kind, name, err)
	}
	now := e.clock.now()
	p := store.Preset{Project: project, Kind: kind, Name: name, Value: store.JSONText(text), CreatedAt: now, UpdatedAt: now}
	if _, err := e.o.Store.PutPreset(ctx, p, by); err != nil {
		return fmt.Errorf("put %s %s: %w", kind, name, err)
	}
	e.settingsChanged(ctx)
	return nil
}

// DeletePreset takes a name away. Endpoints, profiles and defaults that still name it make what is accepted for them be refused, with
// the name that is gone.
func (e *Engine) DeletePreset(ctx context.Context, project string, kind store.PresetKind, name string, by store.Actor) error {
	if err := e.o.Store.DeletePreset(ctx, project, kind, name, e.clock.now(), by); err != nil {
		return fmt.Errorf("delete %s %s: %w", kind, name, err)
	}
	e.settingsChanged(ctx)
	return nil
}

// Presets are what a project may name.
type Presets struct {
	Policies []PolicyPreset
	Rules    []rule.Preset
	Profiles []Profile
	// Own policies, rules and profiles are the project's, by name.
	OwnPolicies []store.Policy
	OwnRules    []store.Success
	OwnProfiles []Profile
}

// Presets returns what the project may name: its own, and what every project knows.
func (e *Engine) Presets(ctx context.Context, project string) (Presets, error) {
	v, err := e.catalog.project(ctx, project)
	if err != nil {
		return Presets{}, err
	}
	p := Presets{Policies: PolicyPresets(), Rules: rule.Presets(), Profiles: ProfilePresets()}
	for _, name := range sortedKeys(v.policies) {
		p.OwnPolicies = append(p.OwnPolicies, v.policies[name])
	}
	for _, name := range sortedKeys(v.rules) {
		p.OwnRules = append(p.OwnRules, v.rules[name])
	}
	for _, name := range sortedKeys(v.profiles) {
		p.OwnProfiles = append(p.OwnProfiles, v.profiles[name])
	}
	return p, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
