package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (f *fixture) pauseProject(until int64, reason string) store.Project {
	return must(f.SetProjectPause(f.ctx(), project, until, reason, f.now, actor))
}

func testProjectChange(f *fixture) {
	def, err := f.Project(f.ctx(), project)
	if err != nil || def.ID != project {
		f.Fatalf("the first project: %v, %+v", err, def)
	}
	given := store.Project{
		ID: "shop", Name: "The “Shop”", CreatedAt: f.now, PausedUntil: 7,
		Quotas: store.Quotas{OpenCallbacks: 1, Lanes: 2},
		Defaults: store.Defaults{
			Policy:  store.PolicyChoice{Given: &store.Policy{Tiers: []time.Duration{time.Second}, Timeout: time.Second}},
			Success: store.Success{Name: "mine", Rule: `{"status":["200"]}`}, Signer: "none", Headers: []store.Header{{Name: "X", Value: "1"}},
		},
	}
	made := must(f.CreateProject(f.ctx(), given, actor))
	want := given
	want.PausedUntil, want.UpdatedAt, want.Version = 0, f.now, made.Version
	same(f, "made and read", []store.Project{want, want},
		[]store.Project{made, must(f.Project(f.ctx(), "shop"))})
	if made.Version == 0 {
		f.Error("it has no version")
	}
	f.fails(store.ErrExists, "create again", errOf(f.CreateProject(f.ctx(), given, actor)))
	f.now++
	want.Name, want.Defaults, want.UpdatedAt = "Other", store.Defaults{Policy: store.PolicyChoice{Name: "payment"}}, f.now
	want.Quotas.OpenCallbacks = store.MaxQuota
	patched, err := f.PatchProject(f.ctx(), "shop", func(p *store.Project) error {
		same(f, "as change is given it", given.Name, p.Name)
		p.Name, p.Defaults, p.Quotas.OpenCallbacks = want.Name, want.Defaults, store.MaxQuota
		p.ID, p.CreatedAt, p.PausedUntil, p.Version = "x", 1, 2, 3 // not its to change
		return nil
	}, f.now, actor)
	if err != nil || patched.Version <= made.Version {
		f.Errorf("patch: %v, %+v", err, patched)
	}
	want.Version = patched.Version
	same(f, "patched and read", []store.Project{want, want},
		[]store.Project{patched, must(f.Project(f.ctx(), "shop"))})
	refused := errors.New("refused")
	refuse := func(*store.Project) error { return refused }
	f.fails(refused, "a change that is refused", errOf(f.PatchProject(f.ctx(), "shop", refuse, f.now, actor)))
	f.fails(store.ErrNotFound, "patch of an unknown one",
		errOf(f.PatchProject(f.ctx(), "none", refuse, f.now, actor)))
	f.fails(store.ErrNotFound, "an unknown one", errOf(f.Project(f.ctx(), "none")))
	all, err := f.Projects(f.ctx(), "", 10)
	if err != nil || len(all) != 2 || all[0].ID != project || all[1].ID != "shop" {
		f.Errorf("all: %v, %+v", err, all)
	}
	if all, err := f.Projects(f.ctx(), project, 10); err != nil || len(all) != 1 {
		f.Errorf("after the first: %v, %+v", err, all)
	}
	changed, err := f.ProjectsChanged(f.ctx(), made.Version, 10)
	if err != nil || len(changed) != 1 || changed[0].Version != patched.Version {
		f.Errorf("changed: %v, %+v", err, changed)
	}
	entries, err := f.AuditEntries(f.ctx(), "shop", "", 10)
	if err != nil || len(entries) != 2 || entries[0].Action != "project.update" || entries[1].Action != "project.create" {
		f.Errorf("audit: %v, %+v", err, entries)
	}
}

func testProjectPause(f *fixture) {
	for i := range 3 {
		f.accept(func(d *store.Draft) { d.Callback.Lane = fmt.Sprint("lane-", i) })
	}
	other := f.accept(func(d *store.Draft) { d.Callback.Project = "other" })
	f.pauseLane("lane-1", f.now+9000, "own")
	p := f.pauseProject(f.now+5000, "incident")
	if p.PausedUntil != f.now+5000 || p.PausedAt != f.now || p.PauseReason != "incident" {
		f.Errorf("paused: %+v", p)
	}
	lanes, err := f.Lanes(f.ctx(), 0, 10)
	if err != nil || len(lanes) != 3 {
		f.Fatalf("lanes of a paused project: %v, %+v", err, lanes)
	}
	for i, l := range lanes {
		want := f.now + 5000
		if l.Key == "lane-1" {
			want = f.now + 9000
		}
		if l.PausedUntil != want || l.ProjectPause != f.now+5000 || l.ID == other.LaneID || i > 0 && l.Version <= lanes[i-1].Version {
			f.Errorf("lane: %+v", l)
		}
	}
	if p.Version <= lanes[2].Version {
		f.Errorf("the project's version %d is not after its lanes'", p.Version)
	}
	p = f.pauseProject(0, "x")
	if lanes, err := f.Lanes(f.ctx(), lanes[2].Version, 10); err != nil || len(lanes) != 3 || lanes[0].PausedUntil != 0 || lanes[1].PausedUntil != f.now+9000 {
		f.Errorf("lanes of a resumed project: %v, %+v", err, lanes)
	}
	if p.PausedUntil != 0 || p.PausedAt != 0 || p.PauseReason != "" {
		f.Errorf("resumed: %+v", p)
	}
	f.wantAudit("project.resume "+project, "project.pause "+project, "lane.pause lane-1")
	f.fails(store.ErrNotFound, "pause of an unknown one", errOf(f.SetProjectPause(f.ctx(), "none", 1, "", f.now, actor)))
}

func testPresets(f *fixture) {
	put := func(kind store.PresetKind, name string, value store.JSONText) store.Preset {
		return must(f.PutPreset(f.ctx(), store.Preset{
			Project: project, Kind: kind, Name: name, Value: value, UpdatedAt: f.now,
		}, actor))
	}
	version := func() int64 {
		f.Helper()
		p := must(f.Project(f.ctx(), project))
		return p.Version
	}
	b := put(store.PresetPolicy, "b", `{"tiers":["1s"]}`)
	a := put(store.PresetPolicy, "a", `{}`)
	rule := put(store.PresetSuccess, "a", `{"status":["200"]}`)
	before := version()
	f.now += 10
	changed := put(store.PresetPolicy, "b", `{"tiers":["2s"]}`)
	if changed.CreatedAt != b.CreatedAt || changed.UpdatedAt != f.now || version() <= before {
		f.Errorf("changed: %+v, version %d after %d", changed, version(), before)
	}
	same(f, "policies", []store.Preset{a, changed}, must(f.Presets(f.ctx(), project, store.PresetPolicy)))
	same(f, "all", []store.Preset{a, changed, rule}, must(f.AllPresets(f.ctx(), project)))
	before = version()
	if err := f.DeletePreset(f.ctx(), project, store.PresetPolicy, "a", f.now, actor); err != nil || version() <= before {
		f.Errorf("delete: %v, version %d after %d", err, version(), before)
	}
	f.fails(store.ErrNotFound, "delete again", f.DeletePreset(f.ctx(), project, store.PresetPolicy, "a", f.now, actor))
	f.fails(store.ErrNotFound, "put into an unknown project", errOf(f.PutPreset(f.ctx(), store.Preset{Project: "none", Kind: store.PresetPolicy, Name: "x"}, actor)))
	none(f, "another project's", must(f.AllPresets(f.ctx(), "other")))
	f.wantAudit("preset.delete policy/a", "preset.put policy/b", "preset.put success_rule/a", "preset.put policy/a", "preset.put policy/b")
}

func testKeys(f *fixture) {
	must(f.CreateProject(f.ctx(), store.Project{ID: "shop", CreatedAt: f.now}, actor))
	key := func(project string, n byte) store.Key {
		return store.Key{
			ID: f.id(), Project: project, Name: "n", Scopes: []store.Scope{store.ScopeSend, store.ScopeRead}, Hash: []byte{n, 0, 0xff},
			Hint: "…x", CreatedAt: f.now, ExpiresAt: f.now + 1000,
		}
	}
	first, second, other := key(project, 1), key(project, 2), key("shop", 3)
	for _, k := range []store.Key{first, second, other} {
		f.ok(f.AddKey(f.ctx(), k, actor))
	}
	f.fails(store.ErrExists, "a hash that is taken", f.AddKey(f.ctx(), key(project, 3), actor))
	f.fails(store.ErrNotFound, "a key of an unknown project", f.AddKey(f.ctx(), key("none", 4), actor))
	same(f, "by hash", other, must(f.KeyByHash(f.ctx(), other.Hash)))
	f.fails(store.ErrNotFound, "by an unknown hash", errOf(f.KeyByHash(f.ctx(), []byte{9})))
	for _, at := range []int64{f.now + 5, f.now + 3} {
		f.ok(f.TouchKeys(f.ctx(), map[string]int64{first.ID: at, f.id(): at}))
	}
	first.LastUsedAt = f.now + 5
	for range 2 {
		f.ok(f.RevokeKey(f.ctx(), project, second.ID, f.now, actor))
		f.now++
	}
	second.RevokedAt = f.now - 2
	f.fails(store.ErrNotFound, "revoke another project's", f.RevokeKey(f.ctx(), project, other.ID, f.now, actor))
	all := must(f.Keys(f.ctx(), project))
	same(f, "keys", []store.Key{second, first}, all)
	if got := all[0]; got.Valid(f.now) || !all[1].Valid(f.now) || !slices.Contains(got.Scopes, store.ScopeRead) {
		f.Errorf("validity: %+v", all)
	}
	f.wantAudit("key.revoke "+second.ID, "key.create "+second.ID, "key.create "+first.ID)
}
