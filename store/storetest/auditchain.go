package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

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

// testReseal: rows take another master key a page at a time, and each page is audited.
func testReseal(f *fixture) {
	for _, name := range []string{"a", "b", "c"} {
		must(f.CreateEndpoint(f.ctx(), store.Endpoint{
			Project: project, ID: f.id(), Name: name, URL: "https://a.example/",
			Enabled: true, CreatedAt: f.now,
			Headers: []store.Header{store.SealedHeader("X-Token", store.SealedText("old", name))},
		}, actor))
	}
	count := func(key string) int { return must(f.CountSealed(f.ctx(), store.SealedEndpoints, key, 2)) }
	same(f, "counted up to two", []int{2, 0}, []int{count("old"), count("new")})
	page := must(f.Reseal(f.ctx(), store.SealedEndpoints, "old", "", 10, func(r *store.SealedRow) error {
		_, text, _ := store.CutSealed(r.Headers[0].Sealed())
		if text == "b" {
			return errors.New("it does not open")
		}
		r.KeyID, r.Headers[0] = "new", store.SealedHeader("X-Token", store.SealedText("new", text))
		return nil
	}, f.now, actor))
	if page.Done != 2 || page.Failed != 1 || count("old") != 1 || count("new") != 2 {
		f.Errorf("%+v, old %d, new %d", page, count("old"), count("new"))
	}
	f.wantAudit("secret.reencrypt new")
	f.wantDifference("re-encrypted", `{"key_id":"old"}`, `{"key_id":"new"}`)
}

// wantDifference compares the newest entry.
func (f *fixture) wantDifference(what, before, after string) {
	f.Helper()
	e := must(f.AuditEntries(f.ctx(), project, "", 1))[0]
	same(f, what, [2]string{before, after}, [2]string{e.Before, e.After})
}
