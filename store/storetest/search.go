package storetest

import (
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

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
