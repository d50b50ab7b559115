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

// A ProjectChange creates or changes a project. Nil fields and an empty Choice leave the value as it is.
type ProjectChange struct {
	ID   string
	Name *string
	accept.Choice
	Headers *[]store.Header
	// HeaderHosts are the hosts that receive those Headers that are credentials.
	HeaderHosts *[]string
	// Quotas may be changed only with the installation's own key. A zero value removes a quota.
	Quotas store.QuotaChange
	// Reconcile is the daily reconciliation; the zero value ends it.
	Reconcile *store.Reconciling
	// Clear names defaults to reset to the program's: "policy", "success", "signer".
	Clear   []string
	Reason  string
	Invalid []store.FieldError
}

// maxProjectID is the most characters in the id of a project and in the name of a preset.
const maxProjectID = 64

// checkSlug validates a name that is part of URL paths.
func checkSlug(field, name string, f *accept.Findings) {
	const first, more = "abcdefghijklmnopqrstuvwxyz0123456789", "abcdefghijklmnopqrstuvwxyz0123456789_-"
	switch {
	case name == "":
		f.Add(field, "is required")
	case len(name) > maxProjectID, strings.Trim(name[:1], first) != "", strings.Trim(name, more) != "":
		f.Add(field, "must be 1 to %d of a-z, 0-9, _ and -, the first a letter or digit", maxProjectID)
	}
}

// CreateProject creates a project.
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
	return p, ct.settingsChanged(ctx, "create project "+ch.ID, err)
}

// PatchProject changes the given fields of a project. Callbacks that were accepted before keep their
// settings.
func (ct *Controller) PatchProject(ctx context.Context, id string, ch ProjectChange,
	by store.Actor) (store.Project, error) {
	v, err := ct.accept.Catalog.Project(ctx, id)
	if err != nil {
		return store.Project{}, err
	}
	// Validate the row that the transaction reads: another change, or a new master key, may have come since.
	p, err := ct.o.Store.PatchProject(ctx, id, func(p *store.Project) error {
		p.Quotas = ch.Quotas.Of(p.Quotas)
		return ct.applyProject(v, &ch, p, nil)
	}, ct.clock.Now(), by)
	return p, ct.settingsChanged(ctx, "change project "+id, err)
}

// applyProject validates a change and makes it in p. Cleared fields are reset first, so a request that clears
// and sets a field sets it. A header that did not change keeps its ciphertext.
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
	chosen := v.CheckChoice(&ch.Choice, &f).Or(accept.ProjectSending(&p.Defaults))
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
	if ch.Reconcile != nil {
		if ch.Reconcile.At != "" {
			checkReconciling(ch.Reconcile, &f)
		}
		setReconciling(p, *ch.Reconcile, ct.clock.Now())
	}
	checkQuota("quotas.open_callbacks", ch.Quotas.OpenCallbacks, &f)
	checkQuota("quotas.lanes", ch.Quotas.Lanes, &f)
	return f.Err()
}

// checkQuota validates a quota; nil: not given.
func checkQuota(field string, given *int64, f *accept.Findings) {
	if given != nil && (*given < 0 || *given > store.MaxQuota) {
		f.Add(field, "must be 0 (none) to %d", store.MaxQuota)
	}
}

// PauseProject pauses all sending of a project until a time in Unix milliseconds; 0 resumes it. New callbacks
// are still accepted.
func (ct *Controller) PauseProject(ctx context.Context, project string, until int64,
	by store.Actor) (store.Project, error) {
	var f accept.Findings
	checkReason(by, &f)
	if len(f) > 0 {
		return store.Project{}, f.Err()
	}
	p, err := ct.o.Store.SetProjectPause(ctx, project, until, by.Reason, ct.clock.Now(), by)
	return p, ct.settingsChanged(ctx, "pause project "+project, err)
}

// StopSending stops all sending of the installation until a time in Unix milliseconds, and with zero ends the
// stop. Attempts in flight end normally, and callbacks are still accepted.
func (ct *Controller) StopSending(ctx context.Context, until int64, by store.Actor) (store.Stop, error) {
	var f accept.Findings
	checkReason(by, &f)
	if by.Reason == "" && until != 0 {
		f.Add("reason", "is required")
	}
	if len(f) > 0 {
		return store.Stop{}, f.Err()
	}
	s, err := ct.o.Store.SetStop(ctx, until, ct.clock.Now(), by)
	if err != nil {
		return s, fmt.Errorf("stop sending: %w", err)
	}
	ct.index.StopChanged(ctx)
	return s, nil
}

// SendingStop returns the stop of all sending; the zero value if there is none now.
func (ct *Controller) SendingStop(ctx context.Context) (store.Stop, error) {
	s, err := ct.o.Store.Stop(ctx)
	if err != nil || !s.On(ct.clock.Now()) {
		return store.Stop{}, err
	}
	return s, nil
}

// PutPolicy stores a named policy of the project. Callbacks that were accepted before keep theirs.
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

// PutSuccessRule stores a named success rule of the project. The text is a JSON object.
func (ct *Controller) PutSuccessRule(ctx context.Context, project, name string, text []byte,
	by store.Actor) error {
	f := accept.Findings(nil)
	checkPresetName(name, func(name string) bool { return slices.Contains(rule.Names(), name) }, &f)
	stored, wrong := rule.Parse(text)
	f = append(f, wrong...)
	return ct.putPreset(ctx, project, store.PresetSuccess, name, stored, f, by)
}

// PutProfile stores a named profile of the project. A timeout that is not zero replaces the timeout of the
// profile's policy.
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
		f.Add("profile", "must not be set: a profile cannot refer to another profile")
	}
	chosen := v.CheckChoice(&c, &f)
	if timeout != 0 && (timeout < accept.MinTimeout || timeout > accept.MaxTimeout) {
		f.Add("timeout", "must be 100ms to 60s")
	}
	if timeout != 0 && chosen.Policy.IsZero() {
		f.Add("timeout", "requires a policy, whose timeout it replaces")
	}
	return ct.putPreset(ctx, project, store.PresetProfile, name,
		accept.Profile{Policy: chosen.Policy, Success: chosen.Success, Signer: chosen.Signer,
			Timeout: timeout}, f, by)
}

func checkPresetName(name string, preset func(string) bool, f *accept.Findings) {
	checkSlug("name", name, f)
	if preset(name) {
		f.Add("name", "%q is a built-in preset; choose another name", name)
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
	return ct.settingsChanged(ctx, fmt.Sprintf("put %s %s", kind, name), err)
}

// DeletePreset deletes a named policy, success rule or profile. While an endpoint, a profile or a default
// still refers to the name, callbacks that need it are refused with an error that contains it.
func (ct *Controller) DeletePreset(ctx context.Context, project string, kind store.PresetKind, name string,
	by store.Actor) error {
	err := ct.o.Store.DeletePreset(ctx, project, kind, name, ct.clock.Now(), by)
	return ct.settingsChanged(ctx, fmt.Sprintf("delete %s %s", kind, name), err)
}

// Presets are the policies, success rules and profiles that a project can refer to by name.
type Presets struct {
	Policies []accept.PolicyPreset
	Rules    []rule.Preset
	Profiles []accept.Profile
	// The project's own, sorted by name.
	OwnPolicies []store.Policy
	OwnRules    []store.Success
	OwnProfiles []accept.Profile
}

// Presets returns the built-in presets and the project's own.
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
