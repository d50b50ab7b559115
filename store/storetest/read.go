package storetest

import (
	"fmt"
	"math"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// testAttempts reads the attempts of a callback page by page, while there are more of them.
func testAttempts(f *fixture) {
	c := f.accept()
	attempt := func() {
		f.now += 1000
		f.fail(c.ID)
	}
	for range 12 {
		attempt()
	}
	f.accept()
	read := pages(f, 5, func(last *store.Attempt) ([]store.Attempt, error) {
		if last == nil {
			return f.Attempts(f.ctx(), project, c.ID, 0, 5)
		}
		attempt()
		return f.Attempts(f.ctx(), project, c.ID, last.Number, 5)
	})
	same(f, "all pages", []int{12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1},
		each(read, func(a store.Attempt) int { return a.Number }))
	none(f, "before the first", must(f.Attempts(f.ctx(), project, c.ID, 1, 5)))
	same(f, "from beyond the last", 14, must(f.Attempts(f.ctx(), project, c.ID, math.MaxInt, 1))[0].Number)
	same(f, "one", f.attempts(c.ID)[6], must(f.Attempt(f.ctx(), project, c.ID, 7)))
	for _, number := range []int{0, -1, 15, math.MaxInt} {
		f.missing(fmt.Sprint("attempt ", number), errOf(f.Attempt(f.ctx(), project, c.ID, number)))
	}
	f.missing("of another project", errOf(f.Attempt(f.ctx(), "other", c.ID, 7)))
}

// testSearch has searches find text whatever its case, in any script. What a database takes for the lower
// case of a letter depends on the database and its collation, so the database is not asked.
func testSearch(f *fixture) {
	found := func(search string) []store.Endpoint {
		return must(f.Endpoints(f.ctx(), project, store.EndpointFilter{Search: search, Limit: 100}))
	}
	for i, c := range []struct{ text, search string }{
		{"Ärzte am Platz", "ÄRZTE"}, {"ÄRZTE am Tor", "ärzte am t"}, {"Große Straße", "GROßE STRAẞE"},
		{"İstanbul", "istanbul"}, {"ISPARTA", "ısparta"}, {"ΟΔΟΣ", "οδος"}, {"οδός", "ΟΔΌΣ"},
		{"Привет", "приВЕТ"}, {"支付宝 Ａ店", "宝 ａ"}, {`100%_\`, `%_\`},
	} {
		f.endpoint(func(e *store.Endpoint) { e.ExternalID, e.Name = fmt.Sprint("x-", i), c.text })
		f.endpoint(func(e *store.Endpoint) { e.ExternalID, e.Name = "in "+c.text, "of another text" })
		f.accept(inLane(c.text))
		f.schedule(c.text)
		f.appendAudit(store.AuditEntry{
			ID: f.id(), Project: project, At: f.now, Actor: c.text, Action: "lane.pause", Object: "object",
			Detail: "{}",
		})
		lanes := must(f.LaneList(f.ctx(), project, store.LaneFilter{Search: c.search, Limit: 100, Now: f.now}))
		same(f, c.search+" in names of endpoints", []string{"of another text", c.text},
			each(found(c.search), func(e store.Endpoint) string { return e.Name }))
		for in, got := range map[string][]string{
			"lanes":     each(lanes, func(l store.LaneBacklog) string { return l.Key }),
			"schedules": f.scheduleNames(store.ScheduleFilter{Search: c.search, Limit: 100}),
			"actors": each(f.audit(store.AuditFilter{Actor: c.search, Limit: 100}),
				func(e store.AuditEntry) string { return e.Actor }),
		} {
			same(f, c.search+" in "+in, []string{c.text}, got)
		}
	}
	// What is changed is found by what it is now.
	e := found("привет")[0]
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.Name, e.ExternalID = "Übung", "ÜBUNG" })
	same(f, "by the name of before", 1, len(found("ПРИВЕТ")))
	same(f, "by the new name", e.ID, found("übung")[0].ID)
}

// secret makes one of an owner and a use.
func (f *fixture) secret(owner, use string) store.Secret {
	id := f.id()
	s := store.Secret{
		ID: id, Project: project, Owner: owner, Use: use, KeyID: "key-" + id, Ciphertext: []byte("\x00\xff" + id),
		CreatedAt: f.now,
	}
	if use != "" {
		s.Label, s.Hosts = "label of "+use, []string{"shop.example", "*"}
	}
	return s
}

// addSecret adds one, and ends the one before it then.
func (f *fixture) addSecret(owner, use string, retireAt int64) store.Secret {
	s := f.secret(owner, use)
	f.ok(f.AddSecret(f.ctx(), s, retireAt, false, actor))
	return s
}

// testReseal: rows take another master key a page at a time, and each page is audited.
func testReseal(f *fixture) {
	for _, name := range []string{"a", "b", "c"} {
		f.endpoint(func(e *store.Endpoint) {
			e.Headers = []store.Header{store.SealedHeader("X-Token", store.SealedText("old", name))}
		})
	}
	counted := func(what string, old, fresh int) {
		for key, want := range map[string]int{"old": old, "new": fresh} {
			same(f, what+": sealed with "+key, want, must(f.CountSealed(f.ctx(), store.SealedEndpoints, key, 2)))
		}
	}
	counted("up to two", 2, 0)
	page := must(f.Reseal(f.ctx(), store.SealedEndpoints, "old", "", 10, func(r *store.SealedRow) error {
		_, text, _ := store.CutSealed(r.Headers[0].Sealed())
		if text == "b" {
			return errRefused
		}
		r.KeyID, r.Headers[0] = "new", store.SealedHeader("X-Token", store.SealedText("new", text))
		return nil
	}, f.now, actor))
	f.check(page.Done == 2 && page.Failed == 1, "%+v", page)
	counted("after it", 1, 2)
	f.wantAudit("secret.reencrypt new")
	f.wantDifference("re-encrypted", `{"key_id":"old"}`, `{"key_id":"new"}`)
}

// testSecretsCrowd: many that start at once make one first secret.
func testSecretsCrowd(f *fixture) {
	f.winners(4, nil, func(int) error { return f.AddSecret(f.ctx(), f.secret("", ""), 0, true, actor) })
	same(f, "secrets", 1, len(must(f.OwnedSecrets(f.ctx(), project, "", f.now))))
}
