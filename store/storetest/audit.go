package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// audit reads all pages of the audit that the filter picks.
func (f *fixture) audit(filter store.AuditFilter) []store.AuditEntry {
	f.Helper()
	var all []store.AuditEntry
	for pages := 0; ; pages++ {
		page, err := f.Audit(f.ctx(), project, filter)
		if err != nil || pages > 1000 || len(page.Entries) > max(filter.Limit, 1) {
			f.Fatalf("audit: %v, page %d has %d entries", err, pages, len(page.Entries))
		}
		all = append(all, page.Entries...)
		if filter.After = page.Next; page.Next == "" {
			return all
		}
	}
}

func testAuditFilters(f *fixture) {
	var all []store.AuditEntry
	add := func(e store.AuditEntry) {
		f.Helper()
		f.ok(f.AppendAudit(f.ctx(), e))
	}
	actions := []string{"callback.cancel", "callback.retry", "callbacks.cancel", "lane.pause", "callback"}
	for i := range 40 {
		e := store.AuditEntry{
			ID: f.id(), Project: project, At: f.now + int64(i*7%40), Actor: []string{"key_Ops", "key_admin", `%_"`}[i%3], Action: actions[i%5],
			Object: fmt.Sprint("object-", i%4), Reason: "asked", Detail: `{"n":1}`,
		}
		add(e)
		all = append([]store.AuditEntry{e}, all...)
	}
	add(store.AuditEntry{ID: f.id(), Project: "other", At: f.now, Actor: "key_Ops", Action: "callback.cancel", Object: "object-1"})
	is := func(what ...string) func(store.AuditEntry) bool {
		return func(e store.AuditEntry) bool { return slices.Contains(what, e.Action) }
	}
	for name, c := range map[string]struct {
		filter store.AuditFilter
		picks  func(e store.AuditEntry) bool
	}{
		"all":               {store.AuditFilter{}, func(store.AuditEntry) bool { return true }},
		"object":            {store.AuditFilter{Object: "object-1"}, func(e store.AuditEntry) bool { return e.Object == "object-1" }},
		"part of an object": {store.AuditFilter{Object: "object-"}, func(store.AuditEntry) bool { return false }},
		"action":            {store.AuditFilter{Action: "callback.retry"}, is("callback.retry")},
		"an action alone":   {store.AuditFilter{Action: "callback"}, is("callback")},
		"actions":           {store.AuditFilter{Action: "callback."}, is("callback.retry", "callback.cancel")},
		"actor":             {store.AuditFilter{Actor: "KEY_o"}, func(e store.AuditEntry) bool { return e.Actor == "key_Ops" }},
		"actor wildcard":    {store.AuditFilter{Actor: "%"}, func(e store.AuditEntry) bool { return e.Actor == `%_"` }},
		"times": {store.AuditFilter{From: f.now + 5, To: f.now + 20}, func(e store.AuditEntry) bool {
			return f.now+5 <= e.At && e.At < f.now+20
		}},
		"several": {store.AuditFilter{Object: "object-2", Action: "callback.", Actor: "ops", To: f.now + 30}, func(e store.AuditEntry) bool {
			return e.Object == "object-2" && strings.HasPrefix(e.Action, "callback.") && e.Actor == "key_Ops" && e.At < f.now+30
		}},
	} {
		var want []store.AuditEntry
		for _, e := range all {
			if c.picks(e) {
				want = append(want, e)
			}
		}
		for _, limit := range []int{1, 3, 40, 500, 0} {
			c.filter.Limit = limit
			if got := f.audit(c.filter); !slices.Equal(got, want) {
				f.Errorf("%s, in pages of %d: %d entries, want %d", name, limit, len(got), len(want))
			}
		}
	}
	if got, err := f.Audit(f.ctx(), "other", store.AuditFilter{Limit: 10}); err != nil || len(got.Entries) != 1 || got.Next != "" {
		f.Errorf("of another project: %v, %+v", err, got)
	}
}

// testAuditObjects: what was done to an object is found by the name that is said in store.AuditFilter.
func testAuditObjects(f *fixture) {
	want := func(object string, actions ...string) {
		f.Helper()
		var got []string
		for _, e := range f.audit(store.AuditFilter{Object: object, Limit: 50}) {
			got = append(got, e.Action)
		}
		slices.Reverse(got)
		if !slices.Equal(got, actions) {
			f.Errorf("done to %q: %v, want %v", object, got, actions)
		}
	}
	c := f.accept(nil)
	f.cancel(c.ID)
	f.retry(c.ID, store.Once)
	want(c.ID, "callback.cancel", "callback.retry")
	want(store.CallbackPrefix + c.ID)
	poll := f.accept(polling("p"))
	must(f.ResolvePoll(f.ctx(), project, poll.ID, "", f.now, actor))
	want(poll.ID, "poll.resolve")
	e := f.endpoint(nil)
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.Name = "another" })
	want(e.ID, "endpoint.create", "endpoint.update")
	for _, key := range []string{"merchant-7", e.LaneKey()} {
		must(f.PauseLane(f.ctx(), project, key, f.now+hour, "", f.now, actor))
		want(key, "lane.pause")
	}
	s := f.schedule("nightly", nil)
	f.ok(f.DeleteSchedule(f.ctx(), project, s.ID, f.now, actor))
	want(s.ID, "schedule.create", "schedule.delete")
	r := must(f.CreateRedrive(f.ctx(), store.Redrive{
		ID: f.id(), Project: project, Action: store.RedriveRetry, CreatedAt: f.now,
	}, actor))
	must(f.SetRedrive(f.ctx(), project, r.ID, store.RedriveCanceled, f.now, actor))
	want(r.ID, "redrive.create", "redrive.cancel")
	k := store.Key{ID: f.id(), Project: project, Name: "n", Hash: []byte{1}, CreatedAt: f.now}
	f.ok(f.AddKey(f.ctx(), k, actor))
	f.ok(f.RevokeKey(f.ctx(), project, k.ID, f.now, actor))
	want(k.ID, "key.create", "key.revoke")
	secret := store.Secret{ID: f.id(), Project: project, KeyID: "k", Ciphertext: []byte{1}, CreatedAt: f.now}
	f.ok(f.AddSecret(f.ctx(), secret, 0, false, actor))
	want(secret.ID, "secret.add")
	must(f.PutPreset(f.ctx(), store.Preset{
		Project: project, Kind: store.PresetPolicy, Name: "mine", Value: `{}`, UpdatedAt: f.now,
	}, actor))
	want("policy/mine", "preset.put")
	f.pauseProject(f.now+hour, "stop")
	want(project, "project.pause")
}
