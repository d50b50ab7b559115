package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

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

// chainKey is the key of the tests' chains.
func chainKey(context.Context) ([]byte, error) {
	return []byte("a key of thirty-two bytes or more"), nil
}

// chain chains what waits, and expects that it is so much.
func (f *fixture) chain(want int) store.AuditLink {
	f.Helper()
	head, n, err := f.ChainAudit(f.ctx(), chainKey)
	if err != nil || n != want {
		f.Fatalf("chained %d, %v, want %d", n, err, want)
	}
	return head
}

// checked reads the whole chain in pages, checks it and returns its entries.
func (f *fixture) checked(page int) []store.AuditEntry {
	f.Helper()
	key := must(chainKey(f.ctx()))
	head := must(f.AuditHead(f.ctx()))
	var all []store.AuditEntry
	var at store.AuditLink
	for at.Seq < head.Link.Seq {
		entries := must(f.ChainedAudit(f.ctx(), at.Seq, head.Link.Seq, page))
		if len(entries) == 0 || len(entries) > page {
			f.Fatalf("a page of %d entries after %d", len(entries), at.Seq)
		}
		next, broken := store.CheckAudit(key, at, entries)
		if broken != nil {
			f.Fatalf("broken: %+v", broken)
		}
		at = next
		all = append(all, entries...)
	}
	if at != head.Link || head.Last != at.Seq {
		f.Errorf("the chain ends with %v, its head is %+v", at, head)
	}
	return all
}

// testAuditChain: entries are committed without a place and get one in the order of their ids, of all
// projects together. Their fields come back as they were hashed.
func testAuditChain(f *fixture) {
	same(f, "the head of no chain", store.AuditHead{}, must(f.AuditHead(f.ctx())))
	refused := errors.New("no key")
	if _, n, err := f.ChainAudit(f.ctx(), func(context.Context) ([]byte, error) {
		return nil, refused
	}); n != 0 || err != nil {
		f.Errorf("without entries the key is asked for: %d, %v", n, err)
	}
	var ids []string
	add := func(project string) {
		e := store.AuditEntry{
			ID: f.id(), Project: project, At: f.now, Actor: "客户 (key_1)", Address: "2001:db8::1",
			Action: "x", Object: "o", Reason: "r\n\t", Before: `{"a":1}`, After: `{"a": 2}`, Detail: `{}`,
		}
		ids = append(ids, e.ID)
		f.ok(f.AppendAudit(f.ctx(), e))
	}
	for _, of := range []string{project, "other", ""} {
		add(of)
	}
	same(f, "before it is chained", store.AuditHead{Unchained: 3}, must(f.AuditHead(f.ctx())))
	f.fails(refused, "without its key", errOf3(f.ChainAudit(f.ctx(), func(context.Context) ([]byte, error) {
		return nil, refused
	})))
	head := f.chain(3)
	f.chain(0)
	c := f.accept(nil)
	f.cancel(c.ID)
	if e := must(f.AuditEntries(f.ctx(), project, "", 1))[0]; e.Link != (store.AuditLink{}) {
		f.Errorf("not chained yet: %+v", e)
	}
	f.chain(1)
	all := f.checked(3)
	if len(all) != 4 || all[3].Object != c.ID || all[2].Link != head || all[3].Link.Seq != 4 {
		f.Errorf("chained: %+v", all)
	}
	for i, id := range ids {
		if all[i].ID != id || all[i].Actor != "客户 (key_1)" || all[i].Reason != "r\n\t" ||
			all[i].After != `{"a": 2}` {
			f.Errorf("entry %d: %+v", i+1, all[i])
		}
	}
	same(f, "as the list shows it", all[3].Link, must(f.AuditEntries(f.ctx(), project, "", 1))[0].Link)
	if part := must(f.ChainedAudit(f.ctx(), 1, 3, 10)); len(part) != 2 || part[0].Link.Seq != 2 {
		f.Errorf("a part: %+v", part)
	}
}

func errOf3[A, B any](_ A, _ B, err error) error { return err }

// testAuditChainCrowd: however many change something and chain at once, each entry gets one place, and the
// chain does not fork.
func testAuditChainCrowd(f *fixture) {
	const writers, each, chainers = 8, 40, 4
	var writing, chaining sync.WaitGroup
	done := make(chan struct{})
	for range chainers {
		chaining.Go(func() {
			for {
				if _, _, err := f.ChainAudit(f.ctx(), chainKey); err != nil {
					f.Errorf("chain: %v", err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				e := store.AuditEntry{Project: fmt.Sprint(w), At: f.now, Action: "x", Object: fmt.Sprint(i)}
				if err := f.AppendAudit(f.ctx(), e); err != nil {
					f.Errorf("append: %v", err)
				}
			}
		})
	}
	writing.Wait()
	close(done)
	chaining.Wait()
	must3(f.ChainAudit(f.ctx(), chainKey))
	seen := make(map[string]bool)
	for _, e := range f.checked(37) {
		seen[e.Project+"/"+e.Object] = true
	}
	if head := must(f.AuditHead(f.ctx())); len(seen) != writers*each || head.Last != writers*each ||
		head.Unchained != 0 {
		f.Errorf("%d different entries, the head is %+v", len(seen), head)
	}
}

func must3[A, B any](a A, _ B, err error) A {
	if err != nil {
		panic(err)
	}
	return a
}

// testAuditDifferences: an entry says what was before and after, and no credential.
func testAuditDifferences(f *fixture) {
	made := must(f.CreateEndpoint(f.ctx(), store.Endpoint{
		Project: project, ID: f.id(), Name: "Tea", URL: "https://u:pw@a.example/?k=v",
		Enabled: true, CreatedAt: f.now,
		Headers: []store.Header{
			{Name: "X-Token", Value: "secret"}, {Name: "X-Note", Value: "seen"},
			store.SealedHeader("X-Else", "id:secret"),
		},
	}, actor))
	f.wantDifference("made", "",
		`{"headers":{"X-Else":["***"],"X-Note":["seen"],"X-Token":["***"]},`+
			`"name":"Tea","url":"https://a.example/?k=***"}`)
	must(f.PatchEndpoint(f.ctx(), project, made.ID, func(e *store.Endpoint) error {
		e.URL, e.Headers, e.PausedUntil = "https://a.example/?k=w", nil, store.Forever
		e.Policy.Given = &store.Policy{Tiers: nil, Timeout: 1_500_000_000}
		return nil
	}, f.now, actor))
	f.wantDifference("changed", `{"headers":{"X-Else":["***"],"X-Note":["seen"],"X-Token":["***"]},`+
		`"pause_reason":"","paused_until":null,"policy":null,"url":"https://a.example/?k=***"}`,
		`{"headers":{},"pause_reason":"","paused_until":"forever",`+
			`"policy":{"retry_after_cap":"0s","tiers":[],"timeout":"1.5s"},`+
			`"url":"https://a.example/?k=***"}`)
	r := must(f.CreateRedrive(f.ctx(), store.Redrive{
		ID: f.id(), Project: project, Action: store.RedriveSetURL,
		URL: "https://b.example/?k=v", CreatedAt: f.now,
		Filter: store.Filter{States: []store.State{store.Scheduled}}, Shown: `{"state":"scheduled"}`,
	}, actor))
	f.wantDifference("ordered", "", `{"action":"set_url","filter":{"state":"scheduled"},`+
		`"state":"gathering","url":"https://b.example/?k=***"}`)
	f.accept(func(d *store.Draft) { d.Callback.URL = "https://a.example/?k=v" })
	for r.State == store.RedriveGathering {
		r = must(f.GatherRedrive(f.ctx(), project, r.ID, f.now))
	}
	must(f.StepRedrive(f.ctx(), r.ID, 10, f.now))
	f.wantDifference("redriven", `{"url":"https://a.example/?k=***"}`, `{"url":"https://b.example/?k=***"}`)
	entries := must(f.AuditEntries(f.ctx(), project, "", 10))
	for _, e := range entries {
		if e.Actor != actor.Name || e.Address != actor.Address || strings.Contains(fmt.Sprint(e), "secret") {
			f.Errorf("entry: %+v", e)
		}
	}
}

// wantDifference compares the newest entry.
func (f *fixture) wantDifference(what, before, after string) {
	f.Helper()
	e := must(f.AuditEntries(f.ctx(), project, "", 1))[0]
	same(f, what, [2]string{before, after}, [2]string{e.Before, e.After})
}
