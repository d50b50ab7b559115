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

func testProjects(f *fixture) {
	c := f.accept()
	for _, where := range [][2]string{{"other", c.ID}, {project, f.id()}, {"", c.ID}, {project, ""}} {
		project, id := where[0], where[1]
		f.missing("callback", errOf(f.Get(f.ctx(), project, id)))
		f.missing("attempts", errOf(f.Attempts(f.ctx(), project, id, 0, 10)))
		f.missing("attempt", errOf(f.Attempt(f.ctx(), project, id, 1)))
		f.missing("payload", errOf(f.Payload(f.ctx(), project, id)))
	}
	none(f, "another project's list", must(f.List(f.ctx(), "other",
		store.Filter{Limit: 10, Now: f.now})).Callbacks)
	counts := must(f.Counts(f.ctx(), "other"))
	f.check(len(counts.States) == 0 && len(counts.Lanes) == 0, "another project's counts: %+v", counts)
	none(f, "attempts of a fresh one", f.attempts(c.ID))
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
