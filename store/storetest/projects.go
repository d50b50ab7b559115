package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (f *fixture) pauseProject(until int64, reason string) store.Project {
	f.Helper()
	p, err := f.SetProjectPause(f.ctx(), project, until, reason, f.now, actor)
	f.ok(err)
	return p
}

func testProjectChange(f *fixture) {
	def, err := f.Project(f.ctx(), project)
	if err != nil || def.ID != project {
		f.Fatalf("the first project: %v, %+v", err, def)
	}
	given := store.Project{
		ID: "shop", Name: "The “Shop”", CreatedAt: f.now, PausedUntil: 7,
		Defaults: store.Defaults{
			Policy:  store.PolicyChoice{Given: &store.Policy{Tiers: []time.Duration{time.Second}, Timeout: time.Second}},
			Success: store.Success{Name: "mine", Rule: `{"status":["200"]}`}, Signer: "none", Headers: []store.Header{{Name: "X", Value: "1"}},
		},
	}
	made, err := f.CreateProject(f.ctx(), given, actor)
	f.ok(err)
	want := given
	want.PausedUntil, want.UpdatedAt, want.Version = 0, f.now, made.Version
	if diff := cmp.Diff(want, made); diff != "" || made.Version == 0 {
		f.Errorf("made (-want +got):\n%s", diff)
	}
	read, err := f.Project(f.ctx(), "shop")
	if diff := cmp.Diff(want, read); diff != "" || err != nil {
		f.Errorf("read: %v (-want +got):\n%s", err, diff)
	}
	f.fails(store.ErrExists, "create again", errOf(f.CreateProject(f.ctx(), given, actor)))
	f.now++
	want.Name, want.Defaults, want.UpdatedAt = "Other", store.Defaults{Policy: store.PolicyChoice{Name: "payment"}}, f.now
	patched, err := f.PatchProject(f.ctx(), want, actor)
	if err != nil || patched.Version <= made.Version {
		f.Errorf("patch: %v, %+v", err, patched)
	}
	want.Version = patched.Version
	if read, err := f.Project(f.ctx(), "shop"); err != nil || cmp.Diff(want, read) != "" || cmp.Diff(want, patched) != "" {
		f.Errorf("patched: %v, %+v, want %+v", err, read, want)
	}
	f.fails(store.ErrNotFound, "patch of an unknown one", errOf(f.PatchProject(f.ctx(), store.Project{ID: "none"}, actor)))
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
	if p.PausedUntil != f.now+5000 || p.PauseReason != "incident" {
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
	if p.PausedUntil != 0 || p.PauseReason != "" {
		f.Errorf("resumed: %+v", p)
	}
	f.wantAudit("project.resume "+project, "project.pause "+project, "lane.pause lane-1")
	f.fails(store.ErrNotFound, "pause of an unknown one", errOf(f.SetProjectPause(f.ctx(), "none", 1, "", f.now, actor)))
}

func testPresets(f *fixture) {
	put := func(kind store.PresetKind, name string, value store.JSONText) store.Preset {
		f.Helper()
		p, err := f.PutPreset(f.ctx(), store.Preset{Project: project, Kind: kind, Name: name, Value: value, UpdatedAt: f.now}, actor)
		f.ok(err)
		return p
	}
	version := func() int64 {
		f.Helper()
		p, err := f.Project(f.ctx(), project)
		f.ok(err)
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
	policies, err := f.Presets(f.ctx(), project, store.PresetPolicy)
	if diff := cmp.Diff([]store.Preset{a, changed}, policies); err != nil || diff != "" {
		f.Errorf("policies: %v (-want +got):\n%s", err, diff)
	}
	all, err := f.AllPresets(f.ctx(), project)
	if diff := cmp.Diff([]store.Preset{a, changed, rule}, all); err != nil || diff != "" {
		f.Errorf("all: %v (-want +got):\n%s", err, diff)
	}
	before = version()
	if err := f.DeletePreset(f.ctx(), project, store.PresetPolicy, "a", f.now, actor); err != nil || version() <= before {
		f.Errorf("delete: %v, version %d after %d", err, version(), before)
	}
	f.fails(store.ErrNotFound, "delete again", f.DeletePreset(f.ctx(), project, store.PresetPolicy, "a", f.now, actor))
	f.fails(store.ErrNotFound, "put into an unknown project", errOf(f.PutPreset(f.ctx(), store.Preset{Project: "none", Kind: store.PresetPolicy, Name: "x"}, actor)))
	if all, err := f.AllPresets(f.ctx(), "other"); err != nil || len(all) != 0 {
		f.Errorf("another project's: %v, %+v", err, all)
	}
	f.wantAudit("preset.delete policy/a", "preset.put policy/b", "preset.put success_rule/a", "preset.put policy/a", "preset.put policy/b")
}

func testKeys(f *fixture) {
	f.ok(errOf(f.CreateProject(f.ctx(), store.Project{ID: "shop", CreatedAt: f.now}, actor)))
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
	got, err := f.KeyByHash(f.ctx(), other.Hash)
	if diff := cmp.Diff(other, got); err != nil || diff != "" {
		f.Errorf("by hash: %v (-want +got):\n%s", err, diff)
	}
	f.fails(store.ErrNotFound, "by an unknown hash", errOf(f.KeyByHash(f.ctx(), []byte{9})))
	for _, at := range []int64{f.now + 5, f.now + 3} {
		f.ok(f.TouchKeys(f.ctx(), map[string]int64{first.ID: at, f.id(): at}))
	}
	first.LastUsedAt = f.now + 5
	for range 2 {
		if err := f.RevokeKey(f.ctx(), project, second.ID, f.now, actor); err != nil {
			f.Errorf("revoke: %v", err)
		}
		f.now++
	}
	second.RevokedAt = f.now - 2
	f.fails(store.ErrNotFound, "revoke another project's", f.RevokeKey(f.ctx(), project, other.ID, f.now, actor))
	all, err := f.Keys(f.ctx(), project)
	if diff := cmp.Diff([]store.Key{second, first}, all); err != nil || diff != "" {
		f.Errorf("keys: %v (-want +got):\n%s", err, diff)
	}
	if got := all[0]; got.Valid(f.now) || !all[1].Valid(f.now) || !slices.Contains(got.Scopes, store.ScopeRead) {
		f.Errorf("validity: %+v", all)
	}
	f.wantAudit("key.revoke "+second.ID, "key.create "+second.ID, "key.create "+first.ID)
}
