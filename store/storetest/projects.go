package storetest

import (
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (f *fixture) pauseProject(until int64, reason string) store.Project {
	return must(f.SetProjectPause(f.ctx(), project, until, reason, f.now, actor))
}

// newProjects makes projects.
func (f *fixture) newProjects(ids ...string) {
	for _, id := range ids {
		must(f.CreateProject(f.ctx(), store.Project{ID: id, CreatedAt: f.now}, actor))
	}
}

func testProjectChange(f *fixture) {
	get := func() store.Project { return must(f.Project(f.ctx(), "shop")) }
	same(f, "the first project", project, must(f.Project(f.ctx(), project)).ID)
	given := store.Project{
		ID: "shop", Name: "The “Shop”", CreatedAt: f.now, PausedUntil: 7,
		Quotas: store.Quotas{OpenCallbacks: 1, Lanes: 2},
		Defaults: store.Defaults{
			Policy: store.PolicyChoice{Given: &store.Policy{Tiers: []time.Duration{time.Second},
				Timeout: time.Second}},
			Success: store.Success{Name: "mine", Rule: `{"status":["200"]}`}, Signer: "none",
			Headers: []store.Header{{Name: "X", Value: "1"}},
		},
	}
	made := must(f.CreateProject(f.ctx(), given, actor))
	want := given
	want.PausedUntil, want.UpdatedAt, want.Version = 0, f.now, made.Version
	both(f, "made", want, made, get())
	f.check(made.Version != 0, "it has no version")
	f.fails(store.ErrExists, "create again", errOf(f.CreateProject(f.ctx(), given, actor)))
	f.now++
	want.Name, want.UpdatedAt, want.Quotas.OpenCallbacks = "Other", f.now, store.MaxQuota
	want.Defaults = store.Defaults{Policy: store.PolicyChoice{Name: "payment"}}
	patched := must(f.PatchProject(f.ctx(), "shop", infallible(func(p *store.Project) {
		same(f, "as change is given it", given.Name, p.Name)
		p.Name, p.Defaults, p.Quotas.OpenCallbacks = want.Name, want.Defaults, store.MaxQuota
		p.ID, p.CreatedAt, p.PausedUntil, p.Version = "x", 1, 2, 3 // not its to change
	}), f.now, actor))
	f.check(patched.Version > made.Version, "version %d after %d", patched.Version, made.Version)
	want.Version = patched.Version
	both(f, "patched", want, patched, get())
	change := refuse(func(*store.Project) {})
	f.fails(errRefused, "a change that is refused", errOf(f.PatchProject(f.ctx(), "shop", change, f.now, actor)))
	f.missing("patch of an unknown one", errOf(f.PatchProject(f.ctx(), "none", change, f.now, actor)))
	f.missing("an unknown one", errOf(f.Project(f.ctx(), "none")))
	names := func(projects []store.Project) []string {
		return each(projects, func(p store.Project) string { return p.ID })
	}
	same(f, "all", []string{project, "shop"}, names(must(f.Projects(f.ctx(), "", 10))))
	same(f, "after the first", []string{"shop"}, names(must(f.Projects(f.ctx(), project, 10))))
	same(f, "changed", []store.Project{patched}, must(f.ProjectsChanged(f.ctx(), made.Version, 10)))
	same(f, "audit", []string{"project.update", "project.create"},
		each(must(f.AuditEntries(f.ctx(), "shop", "", 10)), func(e store.AuditEntry) string { return e.Action }))
}

func testProjectPause(f *fixture) {
	for i := range 3 {
		f.accept(inLane(fmt.Sprint("lane-", i)))
	}
	other := f.accept(inProject("other"))
	f.pauseLane("lane-1", f.now+9000, "own")
	p := f.pauseProject(f.now+5000, "incident")
	f.check(p.PausedUntil == f.now+5000 && p.PausedAt == f.now && p.PauseReason == "incident", "paused: %+v", p)
	// lanes reads the three that have changed since a version, the one with a pause of its own last.
	var last int64
	lanes := func(pause, until int64) {
		lanes := must(f.Lanes(f.ctx(), last, 10))
		f.require(len(lanes) == 3, "lanes that have changed: %+v", lanes)
		for _, l := range lanes {
			want := until
			if l.Key == "lane-1" {
				want = f.now + 9000
			}
			f.check(l.PausedUntil == want && l.ProjectPause == pause && l.ID != other.LaneID && l.Version > last,
				"%+v", l)
			last = l.Version
		}
	}
	lanes(f.now+5000, f.now+5000)
	f.check(p.Version > last, "the project's version %d is not after its lanes'", p.Version)
	p = f.pauseProject(0, "x")
	lanes(0, 0)
	f.check(p.PausedUntil == 0 && p.PausedAt == 0 && p.PauseReason == "", "resumed: %+v", p)
	f.wantAudit("project.resume "+project, "project.pause "+project, "lane.pause lane-1")
	f.missing("pause of an unknown one", errOf(f.SetProjectPause(f.ctx(), "none", 1, "", f.now, actor)))
}

func testPresets(f *fixture) {
	// change makes a change that gives the project another version.
	change := func(change func()) {
		version := func() int64 { return must(f.Project(f.ctx(), project)).Version }
		before := version()
		change()
		f.check(version() > before, "version %d after %d", version(), before)
	}
	put := func(kind store.PresetKind, name string, value store.JSONText) (p store.Preset) {
		change(func() {
			p = must(f.PutPreset(f.ctx(), store.Preset{
				Project: project, Kind: kind, Name: name, Value: value, UpdatedAt: f.now,
			}, actor))
		})
		return p
	}
	b := put(store.PresetPolicy, "b", `{"tiers":["1s"]}`)
	a := put(store.PresetPolicy, "a", `{}`)
	rule := put(store.PresetSuccess, "a", `{"status":["200"]}`)
	f.now += 10
	changed := put(store.PresetPolicy, "b", `{"tiers":["2s"]}`)
	f.check(changed.CreatedAt == b.CreatedAt && changed.UpdatedAt == f.now, "changed: %+v", changed)
	same(f, "policies", []store.Preset{a, changed}, must(f.Presets(f.ctx(), project, store.PresetPolicy)))
	same(f, "all", []store.Preset{a, changed, rule}, must(f.AllPresets(f.ctx(), project)))
	remove := func() error { return f.DeletePreset(f.ctx(), project, store.PresetPolicy, "a", f.now, actor) }
	change(func() { f.ok(remove()) })
	f.missing("delete again", remove())
	f.missing("put into an unknown project", errOf(f.PutPreset(f.ctx(),
		store.Preset{Project: "none", Kind: store.PresetPolicy, Name: "x"}, actor)))
	none(f, "another project's", must(f.AllPresets(f.ctx(), "other")))
	f.wantAudit("preset.delete policy/a", "preset.put policy/b", "preset.put success_rule/a",
		"preset.put policy/a",
		"preset.put policy/b")
}

func testKeys(f *fixture) {
	f.newProjects("shop")
	key := func(project string, n byte) store.Key {
		return store.Key{
			ID: f.id(), Project: project, Name: "n", Scopes: []store.Scope{store.ScopeSend, store.ScopeRead},
			Hash: []byte{n, 0, 0xff}, Hint: "…x", CreatedAt: f.now, ExpiresAt: f.now + 1000,
		}
	}
	first, second, other := key(project, 1), key(project, 2), key("shop", 3)
	for _, k := range []store.Key{first, second, other} {
		f.ok(f.AddKey(f.ctx(), k, actor))
	}
	f.fails(store.ErrExists, "a hash that is taken", f.AddKey(f.ctx(), key(project, 3), actor))
	f.missing("a key of an unknown project", f.AddKey(f.ctx(), key("none", 4), actor))
	same(f, "by hash", other, must(f.KeyByHash(f.ctx(), other.Hash)))
	f.missing("by an unknown hash", errOf(f.KeyByHash(f.ctx(), []byte{9})))
	for _, at := range []int64{f.now + 5, f.now + 3} {
		f.ok(f.TouchKeys(f.ctx(), map[string]int64{first.ID: at, f.id(): at}))
	}
	first.LastUsedAt, second.RevokedAt = f.now+5, f.now
	for range 2 {
		f.ok(f.RevokeKey(f.ctx(), project, second.ID, f.now, actor))
		f.now++
	}
	f.missing("revoke another project's", f.RevokeKey(f.ctx(), project, other.ID, f.now, actor))
	all := must(f.Keys(f.ctx(), project))
	same(f, "keys", []store.Key{second, first}, all)
	f.check(!all[0].Valid(f.now) && all[1].Valid(f.now), "validity: %+v", all)
	f.wantAudit("key.revoke "+second.ID, "key.create "+second.ID, "key.create "+first.ID)
}
