package storetest

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// audit returns all entries that the filter picks, page by page.
func (f *fixture) audit(filter store.AuditFilter) []store.AuditEntry {
	var all []store.AuditEntry
	for range 1000 {
		page := must(f.Audit(f.ctx(), project, filter))
		f.require(len(page.Entries) <= max(filter.Limit, 1), "a page has %d entries", len(page.Entries))
		all = append(all, page.Entries...)
		filter.After = page.Next
		if page.Next == "" {
			return all
		}
	}
	panic("the audit has no last page")
}

// chainKey returns the key of the tests' chains.
func chainKey(context.Context) ([]byte, error) {
	return []byte("a key of thirty-two bytes or more"), nil
}

// noKey stands for a key that cannot be read.
func noKey(context.Context) ([]byte, error) { return nil, errRefused }

// chain chains the waiting entries, and checks their number.
func (f *fixture) chain(want int) store.AuditLink {
	head, n := must2(f.ChainAudit(f.ctx(), chainKey))
	f.require(n == want, "chained %d, want %d", n, want)
	return head
}

// checked reads the whole chain in pages, checks it, and returns its entries.
func (f *fixture) checked(page int) (all []store.AuditEntry) {
	key := must(chainKey(f.ctx()))
	head := must(f.AuditHead(f.ctx()))
	var at store.AuditLink
	for at.Seq < head.Link.Seq {
		entries := must(f.ChainedAudit(f.ctx(), at.Seq, head.Link.Seq, page))
		f.require(len(entries) > 0 && len(entries) <= page, "a page of %d entries after %d", len(entries),
			at.Seq)
		next, broken := store.CheckAudit(key, at, entries)
		f.require(broken == nil, "broken: %+v", broken)
		at = next
		all = append(all, entries...)
	}
	f.check(at == head.Link && head.Last == at.Seq, "the chain ends with %v, its head is %+v", at, head)
	return all
}

// testAuditChain checks that entries get their places in the chain after their commit, in the order of their
// ids over all projects. Their fields must be read as they were hashed.
func testAuditChain(f *fixture) {
	same(f, "head of an empty chain", store.AuditHead{}, must(f.AuditHead(f.ctx())))
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
	same(f, "head before chaining", store.AuditHead{Unchained: 3}, must(f.AuditHead(f.ctx())))
	_, _, err := f.ChainAudit(f.ctx(), noKey)
	f.fails(errRefused, "chain without a key", err)
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
	same(f, "link in the list", all[3].Link, newest())
	part := must(f.ChainedAudit(f.ctx(), 1, 3, 10))
	f.check(len(part) == 2 && part[0].Link.Seq == 2, "entries 2 and 3: %+v", part)
}

// testAuditChainCrowd checks that with concurrent writers and chainers each entry gets one place, and that
// the chain does not fork.
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
