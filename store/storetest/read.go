package storetest

import (
	"fmt"
	"maps"
	"math"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (f *fixture) list(filter store.Filter) []string {
	f.Helper()
	filter.Now = f.now
	if filter.Limit == 0 {
		filter.Limit = 500
	}
	page := must(f.List(f.ctx(), project, filter))
	var ids []string
	for _, c := range page.Callbacks {
		ids = append(ids, c.ID)
	}
	return ids
}

// testAttempts reads the attempts of a callback page by page, while there are more of them.
func testAttempts(f *fixture) {
	c := f.accept(nil)
	attempt := func() {
		f.now += 1000
		f.win(f.failed(f.claim(c.ID)))
	}
	for range 12 {
		attempt()
	}
	f.accept(nil)
	var read []int
	for before := 0; ; {
		page := must(f.Attempts(f.ctx(), project, c.ID, before, 5))
		for i := range page {
			read = append(read, page[i].Number)
		}
		if len(page) < 5 {
			break
		}
		before = page[4].Number
		attempt()
	}
	same(f, "all pages", []int{12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, read)
	none(f, "before the first", must(f.Attempts(f.ctx(), project, c.ID, 1, 5)))
	same(f, "from beyond the last", 14, must(f.Attempts(f.ctx(), project, c.ID, math.MaxInt, 1))[0].Number)
	same(f, "one", f.attempts(c.ID)[6], must(f.Attempt(f.ctx(), project, c.ID, 7)))
	for _, number := range []int{0, -1, 15, math.MaxInt} {
		f.fails(store.ErrNotFound, fmt.Sprint("attempt ", number),
			errOf(f.Attempt(f.ctx(), project, c.ID, number)))
	}
	f.fails(store.ErrNotFound, "of another project", errOf(f.Attempt(f.ctx(), "other", c.ID, 7)))
}

func testProjects(f *fixture) {
	c := f.accept(nil)
	for _, where := range []struct{ project, id string }{{"other", c.ID}, {project, f.id()}, {"", c.ID}, {project, ""}} {
		f.fails(store.ErrNotFound, "callback", errOf(f.Get(f.ctx(), where.project, where.id)))
		f.fails(store.ErrNotFound, "attempts", errOf(f.Attempts(f.ctx(), where.project, where.id, 0, 10)))
		f.fails(store.ErrNotFound, "attempt", errOf(f.Attempt(f.ctx(), where.project, where.id, 1)))
		f.fails(store.ErrNotFound, "payload", errOf(f.Payload(f.ctx(), where.project, where.id)))
	}
	page := must(f.List(f.ctx(), "other", store.Filter{Limit: 10, Now: f.now}))
	none(f, "another project's list", page.Callbacks)
	counts, err := f.Counts(f.ctx(), "other")
	if err != nil || len(counts.States) != 0 || len(counts.Lanes) != 0 {
		f.Errorf("another project's counts: %v, %+v", err, counts)
	}
	none(f, "attempts of a fresh one", f.attempts(c.ID))
}

func testCounts(f *fixture) {
	lane := func(n int) func(*store.Draft) {
		return func(d *store.Draft) { d.Callback.Lane = fmt.Sprintf("lane-%03d", n) }
	}
	var drafts []store.Draft
	for i := range 130 {
		for range 1 + i%3 {
			drafts = append(drafts, f.draft(lane(i)))
		}
	}
	f.acceptAll(drafts...)
	check := func(when string) {
		f.Helper()
		counts := f.counts()
		if len(counts.Lanes) != 100 {
			f.Fatalf("%s: %d lanes are listed", when, len(counts.Lanes))
		}
		// 86 lanes have two or three; one has four.
		if first, last, two := counts.Lanes[0], counts.Lanes[99], counts.Lanes[86]; first.Open != 4 || first.Lane != "lane-000" ||
			last.Open != 1 || two.Open != 2 || counts.Lanes[87].Open != 1 {
			f.Errorf("%s: lanes %+v", when, counts.Lanes)
		}
		want := map[store.State]int64{store.Scheduled: int64(len(drafts)) + 3, store.Succeeded: 1}
		maps.DeleteFunc(counts.States, func(_ store.State, n int64) bool { return n == 0 })
		if !maps.Equal(counts.States, want) {
			f.Errorf("%s: states %v, want %v", when, counts.States, want)
		}
		if counts.Tiers[1] != 1 || counts.Tiers[3] != 1 || counts.Tiers[0] != int64(len(drafts))+1 || len(counts.Tiers) != 3 {
			f.Errorf("%s: tiers %v", when, counts.Tiers)
		}
	}
	f.fold()
	extra := make([]store.Callback, 4)
	for i := range extra {
		extra[i] = f.accept(func(d *store.Draft) {
			lane(0)(d)
			if i == 2 {
				d.Callback.LadderBase = -3
			}
		})
	}
	f.win(f.failed(f.claim(extra[0].ID)))
	f.win(f.succeeded(f.claim(extra[1].ID)))
	check("half folded")
	f.fold()
	check("folded")
	f.fold()
	check("folded twice")
}

// Open callbacks are counted to the one, folded or not.
func testOpenCallbacks(f *fixture) {
	in := func(project string) func(*store.Draft) {
		return func(d *store.Draft) { d.Callback.Project = project }
	}
	want := func(a, b int64) {
		f.Helper()
		same(f, "open", map[string]int64{"a": a, "b": b}, must(f.OpenCallbacks(f.ctx(), []string{"a", "b"})))
	}
	want(0, 0)
	first := f.accept(in("a"))
	f.accept(in("a"))
	f.accept(in("b"))
	f.accept(in("c"))
	want(2, 1)
	f.fold()
	want(2, 1)
	f.win(f.succeeded(f.claim(first.ID)))
	f.win(f.died(f.claim(f.accept(in("b")).ID)))
	want(1, 1)
	f.fold()
	want(1, 1)
}

// testSearch has searches find text whatever its case, in any script. What a database takes for the lower
// case of a letter depends on the database and its collation, so the database is not asked.
func testSearch(f *fixture) {
	found := func(search string) []store.Endpoint {
		f.Helper()
		return must(f.Endpoints(f.ctx(), project, store.EndpointFilter{Search: search, Limit: 100}))
	}
	for i, c := range []struct{ text, search string }{
		{"Ärzte am Platz", "ÄRZTE"}, {"ÄRZTE am Tor", "ärzte am t"}, {"Große Straße", "GROßE STRAẞE"},
		{"İstanbul", "istanbul"}, {"ISPARTA", "ısparta"}, {"ΟΔΟΣ", "οδος"}, {"οδός", "ΟΔΌΣ"},
		{"Привет", "приВЕТ"}, {"支付宝 Ａ店", "宝 ａ"}, {`100%_\`, `%_\`},
	} {
		f.endpoint(func(e *store.Endpoint) {
			e.ExternalID, e.Name, e.URL = fmt.Sprint("x-", i), c.text, "https://a.example/"
		})
		f.endpoint(func(e *store.Endpoint) { e.ExternalID, e.Name = "in "+c.text, "of another text" })
		f.accept(func(d *store.Draft) { d.Callback.Lane = c.text })
		f.schedule(c.text, nil)
		f.ok(f.AppendAudit(f.ctx(), store.AuditEntry{
			ID: f.id(), Project: project, At: f.now, Actor: c.text, Action: "lane.pause", Object: "object",
			Detail: "{}",
		}))
		var names, lanes, actors []string
		for _, e := range found(c.search) {
			names = append(names, e.Name)
		}
		inLanes := store.LaneFilter{Search: c.search, Limit: 100, Now: f.now}
		for _, l := range must(f.LaneList(f.ctx(), project, inLanes)) {
			lanes = append(lanes, l.Key)
		}
		for _, e := range f.audit(store.AuditFilter{Actor: c.search, Limit: 100}) {
			actors = append(actors, e.Actor)
		}
		same(f, c.search+" in names of endpoints", []string{"of another text", c.text}, names)
		same(f, c.search+" in lanes", []string{c.text}, lanes)
		same(f, c.search+" in schedules", []string{c.text},
			f.scheduleNames(store.ScheduleFilter{Search: c.search, Limit: 100}))
		same(f, c.search+" in actors", []string{c.text}, actors)
	}
	// What is changed is found by what it is now.
	e := found("привет")[0]
	must(f.PatchEndpoint(f.ctx(), project, e.ID, func(e *store.Endpoint) error {
		e.Name, e.ExternalID = "Übung", "ÜBUNG"
		return nil
	}, f.now, actor))
	same(f, "by the name of before", 1, len(found("ПРИВЕТ")))
	same(f, "by the new name", e.ID, found("übung")[0].ID)
}
