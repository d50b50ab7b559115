package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// audit reads all pages of the audit that the filter picks.
func (f *fixture) audit(filter store.AuditFilter) []store.AuditEntry {
	var all []store.AuditEntry
	for range 1000 {
		page := must(f.Audit(f.ctx(), project, filter))
		f.require(len(page.Entries) <= max(filter.Limit, 1), "a page has %d entries", len(page.Entries))
		all = append(all, page.Entries...)
		if filter.After = page.Next; page.Next == "" {
			return all
		}
	}
	panic("the audit does not end")
}

func testAuditFilters(f *fixture) {
	var all []store.AuditEntry
	actions := []string{"callback.cancel", "callback.retry", "callbacks.cancel", "lane.pause", "callback"}
	for i := range 40 {
		e := store.AuditEntry{
			ID: f.id(), Project: project, At: f.now + int64(i*7%40),
			Actor:  []string{"key_Ops", "key_admin", `%_"`}[i%3],
			Action: actions[i%5], Object: fmt.Sprint("object-", i%4), Reason: "asked", Detail: `{"n":1}`,
		}
		f.appendAudit(e)
		all = slices.Insert(all, 0, e)
	}
	f.appendAudit(store.AuditEntry{
		ID: f.id(), Project: "other", At: f.now, Actor: "key_Ops", Action: "callback.cancel", Object: "object-1",
	})
	is := func(what ...string) func(store.AuditEntry) bool {
		return func(e store.AuditEntry) bool { return slices.Contains(what, e.Action) }
	}
	for name, c := range map[string]struct {
		filter store.AuditFilter
		picks  func(e store.AuditEntry) bool
	}{
		"all": {store.AuditFilter{}, func(store.AuditEntry) bool { return true }},
		"object": {store.AuditFilter{Object: "object-1"},
			func(e store.AuditEntry) bool { return e.Object == "object-1" }},
		"part of an object": {store.AuditFilter{Object: "object-"}, is()},
		"action":            {store.AuditFilter{Action: "callback.retry"}, is("callback.retry")},
		"an action alone":   {store.AuditFilter{Action: "callback"}, is("callback")},
		"actions":           {store.AuditFilter{Action: "callback."}, is("callback.retry", "callback.cancel")},
		"actor": {store.AuditFilter{Actor: "KEY_o"},
			func(e store.AuditEntry) bool { return e.Actor == "key_Ops" }},
		"actor wildcard": {store.AuditFilter{Actor: "%"},
			func(e store.AuditEntry) bool { return e.Actor == `%_"` }},
		"times": {store.AuditFilter{From: f.now + 5, To: f.now + 20}, func(e store.AuditEntry) bool {
			return f.now+5 <= e.At && e.At < f.now+20
		}},
		"several": {
			store.AuditFilter{Object: "object-2", Action: "callback.", Actor: "ops", To: f.now + 30},
			func(e store.AuditEntry) bool {
				return e.Object == "object-2" && strings.HasPrefix(e.Action, "callback.") && e.Actor == "key_Ops" &&
					e.At < f.now+30
			},
		},
	} {
		var want []store.AuditEntry
		for _, e := range all {
			if c.picks(e) {
				want = append(want, e)
			}
		}
		for _, c.filter.Limit = range []int{1, 3, 40, 500, 0} {
			same(f, fmt.Sprintf("%s, in pages of %d", name, c.filter.Limit), want, f.audit(c.filter))
		}
	}
	theirs := must(f.Audit(f.ctx(), "other", store.AuditFilter{Limit: 10}))
	f.check(len(theirs.Entries) == 1 && theirs.Next == "", "of another project: %+v", theirs)
}

// testAuditObjects: what was done to an object is found by the name that is said in store.AuditFilter.
func testAuditObjects(f *fixture) {
	want := func(object string, actions ...string) {
		got := each(f.audit(store.AuditFilter{Object: object, Limit: 50}),
			func(e store.AuditEntry) string { return e.Action })
		slices.Reverse(got)
		same(f, "done to "+object, actions, got)
	}
	c := f.accept()
	f.cancel(c.ID)
	f.retry(c.ID, store.Once)
	want(c.ID, "callback.cancel", "callback.retry")
	want(store.CallbackPrefix + c.ID)
	poll := f.accept(polling("p"))
	f.resolve(poll.ID, "")
	want(poll.ID, "poll.resolve")
	e := f.endpoint()
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.Name = "another" })
	want(e.ID, "endpoint.create", "endpoint.update")
	for _, key := range []string{"merchant-7", e.LaneKey()} {
		f.pauseLane(key, f.now+hour, "")
		want(key, "lane.pause")
	}
	s := f.schedule("nightly")
	f.ok(f.DeleteSchedule(f.ctx(), project, s.ID, f.now, actor))
	want(s.ID, "schedule.create", "schedule.delete")
	r := f.newRedrive(restartDead, f.now, "{}")
	f.setRedrive(r.ID, store.RedriveCanceled)
	want(r.ID, "redrive.create", "redrive.cancel")
	k := store.Key{ID: f.id(), Project: project, Name: "n", Hash: []byte{1}, CreatedAt: f.now}
	f.ok(f.AddKey(f.ctx(), k, actor))
	f.ok(f.RevokeKey(f.ctx(), project, k.ID, f.now, actor))
	want(k.ID, "key.create", "key.revoke")
	want(f.addSecret("", "", 0).ID, "secret.add")
	must(f.PutPreset(f.ctx(), store.Preset{
		Project: project, Kind: store.PresetPolicy, Name: "mine", Value: `{}`, UpdatedAt: f.now,
	}, actor))
	want("policy/mine", "preset.put")
	f.pauseProject(f.now+hour, "stop")
	want(project, "project.pause")
}

// chainKey is the key of the tests' chains.
func chainKey(context.Context) ([]byte, error) {
	return []byte("a key of thirty-two bytes or more"), nil
}

// noKey is a key that cannot be had.
func noKey(context.Context) ([]byte, error) { return nil, errRefused }

// chain chains what waits, and expects that it is so much.
func (f *fixture) chain(want int) store.AuditLink {
	head, n := must2(f.ChainAudit(f.ctx(), chainKey))
	f.require(n == want, "chained %d, want %d", n, want)
	return head
}

// checked reads the whole chain in pages, checks it and returns its entries.
func (f *fixture) checked(page int) (all []store.AuditEntry) {
	key := must(chainKey(f.ctx()))
	head := must(f.AuditHead(f.ctx()))
	var at store.AuditLink
	for at.Seq < head.Link.Seq {
		entries := must(f.ChainedAudit(f.ctx(), at.Seq, head.Link.Seq, page))
		f.require(len(entries) > 0 && len(entries) <= page, "a page of %d entries after %d", len(entries), at.Seq)
		next, broken := store.CheckAudit(key, at, entries)
		f.require(broken == nil, "broken: %+v", broken)
		at = next
		all = append(all, entries...)
	}
	f.check(at == head.Link && head.Last == at.Seq, "the chain ends with %v, its head is %+v", at, head)
	return all
}

// testAuditChain: entries are committed without a place and get one in the order of their ids, of all
// projects together. Their fields come back as they were hashed.
func testAuditChain(f *fixture) {
	same(f, "the head of no chain", store.AuditHead{}, must(f.AuditHead(f.ctx())))
	_, n := must2(f.ChainAudit(f.ctx(), noKey))
	same(f, "chained without entries", 0, n)
	var added []store.AuditEntry
	for _, of := range []string{project, "other", ""} {
		e := store.AuditEntry{
			ID: f.id(), Project: of, At: f.now, Actor: "客户 (key_1)", Address: "2001:db8::1",
			Action: "x", Object: "o", Reason: "r\n\t", Before: `{"a":1}`, After: `{"a": 2}`, Detail: `{}`,
		}
		added = append(added, e)
		f.appendAudit(e)
	}
	same(f, "before it is chained", store.AuditHead{Unchained: 3}, must(f.AuditHead(f.ctx())))
	f.fails(errRefused, "without its key", errOf2(f.ChainAudit(f.ctx(), noKey)))
	head := f.chain(3)
	f.chain(0)
	c := f.accept()
	f.cancel(c.ID)
	newest := func() store.AuditLink { return f.newest(1)[0].Link }
	same(f, "not chained yet", store.AuditLink{}, newest())
	f.chain(1)
	all := f.checked(3)
	f.require(len(all) == 4 && all[3].Object == c.ID && all[2].Link == head && all[3].Link.Seq == 4,
		"chained: %+v", all)
	for i, want := range added {
		want.Link = all[i].Link
		same(f, "a chained entry", want, all[i])
	}
	same(f, "as the list shows it", all[3].Link, newest())
	part := must(f.ChainedAudit(f.ctx(), 1, 3, 10))
	f.check(len(part) == 2 && part[0].Link.Seq == 2, "a part: %+v", part)
}

// testAuditChainCrowd: however many change something and chain at once, each entry gets one place, and the
// chain does not fork.
func testAuditChainCrowd(f *fixture) {
	const writers, each = 8, 40
	chain := func() { must2(f.ChainAudit(f.ctx(), chainKey)) }
	f.during(func() {
		crowd(f, writers, func(w int) (_ error) {
			for i := range each {
				f.appendAudit(store.AuditEntry{
					Project: fmt.Sprint(w), At: f.now, Action: "x", Object: fmt.Sprint(i),
				})
			}
			return nil
		})
	}, 4, chain)
	chain()
	seen := make(map[string]bool)
	for _, e := range f.checked(37) {
		seen[e.Project+"/"+e.Object] = true
	}
	head := must(f.AuditHead(f.ctx()))
	f.check(len(seen) == writers*each && head.Last == writers*each && head.Unchained == 0,
		"%d different entries, the head is %+v", len(seen), head)
}

// wantDifference compares the newest entry.
func (f *fixture) wantDifference(what, before, after string) {
	e := f.newest(1)[0]
	same(f, what, [2]string{before, after}, [2]string{e.Before, e.After})
}

// testAuditDifferences: an entry says what was before and after, and no credential.
func testAuditDifferences(f *fixture) {
	const headers = `{"headers":{"X-Else":["***"],"X-Note":["seen"],"X-Token":["***"]},`
	made := f.endpoint(func(e *store.Endpoint) {
		e.Name, e.URL = "Tea", "https://u:pw@a.example/?k=v"
		e.Headers = []store.Header{
			{Name: "X-Token", Value: "secret"}, {Name: "X-Note", Value: "seen"},
			store.SealedHeader("X-Else", "id:secret"),
		}
	})
	f.wantDifference("made", "", headers+`"name":"Tea","url":"https://a.example/?k=***"}`)
	f.patchEndpoint(made.ID, func(e *store.Endpoint) {
		e.URL, e.Headers, e.PausedUntil = "https://a.example/?k=w", nil, store.Forever
		e.Policy.Given = &store.Policy{Tiers: nil, Timeout: 1_500_000_000}
	})
	f.wantDifference("changed",
		headers+`"pause_reason":"","paused_until":null,"policy":null,"url":"https://a.example/?k=***"}`,
		`{"headers":{},"pause_reason":"","paused_until":"forever",`+
			`"policy":{"retry_after_cap":"0s","tiers":[],"timeout":"1.5s"},"url":"https://a.example/?k=***"}`)
	r := f.newRedrive(store.Redrive{
		Action: store.RedriveSetURL, URL: "https://b.example/?k=v", Filter: scheduled,
	}, f.now+1, `{"state":"scheduled"}`)
	f.wantDifference("ordered", "", `{"action":"set_url","filter":{"state":"scheduled"},`+
		`"state":"gathering","url":"https://b.example/?k=***"}`)
	f.accept(withURL("https://a.example/?k=v"))
	f.step(f.gather(r), 10)
	f.wantDifference("redriven", `{"url":"https://a.example/?k=***"}`, `{"url":"https://b.example/?k=***"}`)
	for _, e := range f.newest(10) {
		f.check(e.Actor == actor.Name && e.Address == actor.Address && !strings.Contains(fmt.Sprint(e), "secret"),
			"entry: %+v", e)
	}
}
