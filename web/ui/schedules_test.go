package ui

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// scheduleRows has schedules, newest first.
type scheduleRows struct {
	all   []store.Schedule
	runs  []store.ScheduleRun
	err   error
	asked *store.ScheduleFilter
}

func (s scheduleRows) Schedule(_ context.Context, _, id string) (store.Schedule, error) {
	return rowOf(s.all, s.err, func(one store.Schedule) bool { return one.ID == id })
}

func (s scheduleRows) Schedules(_ context.Context, _ string, f store.ScheduleFilter) ([]store.Schedule, error) {
	if s.asked != nil {
		*s.asked = f
	}
	all := slices.DeleteFunc(slices.Clone(s.all), func(one store.Schedule) bool {
		return f.After != "" && one.ID >= f.After || !strings.Contains(one.Name, f.Search) || f.Enabled != nil && one.Enabled != *f.Enabled
	})
	return all[:min(len(all), f.Limit)], s.err
}

func (s scheduleRows) ScheduleRuns(context.Context, string, string) ([]store.ScheduleRun, error) {
	return s.runs, s.err
}

// scheduleEngine remembers what was asked for.
type scheduleEngine struct {
	diary
	err error
}

func (e scheduleEngine) changed(verb, id string, ch control.ScheduleChange, by store.Actor) {
	parts := []string{verb, id}
	for _, s := range []*string{ch.Name, ch.Cron, ch.Timezone, ch.Missed} {
		if s != nil {
			parts = append(parts, *s)
		}
	}
	if ch.Enabled != nil {
		parts = append(parts, fmt.Sprint(*ch.Enabled))
	}
	e.note("%s", strings.Join(append(parts, string(ch.Template), by.Reason), "|"))
}

func (e scheduleEngine) CreateSchedule(_ context.Context, _ string, ch control.ScheduleChange, by store.Actor) (store.Schedule, error) {
	e.changed("create", "", ch, by)
	return store.Schedule{ID: testID(3)}, e.err
}

func (e scheduleEngine) PatchSchedule(_ context.Context, _, id string, ch control.ScheduleChange, by store.Actor) (store.Schedule, error) {
	e.changed("patch", id, ch, by)
	return store.Schedule{}, e.err
}

func (e scheduleEngine) DeleteSchedule(_ context.Context, _, id string, by store.Actor) error {
	e.changed("delete", id, control.ScheduleChange{}, by)
	return e.err
}

func (e scheduleEngine) RunSchedule(_ context.Context, _, id string, by store.Actor) (store.Callback, error) {
	e.changed("run", id, control.ScheduleChange{}, by)
	return store.Callback{ID: testID(4)}, e.err
}

const secretTemplate = `{"url":"https://bob:hunter2@shop.example/settle?token=hunter2","headers":{"X-Shop":"7","Authorization":"Bearer hunter2"},"topic":"settlement.daily","payload":{"a":  1}}`

func sampleSchedule(n int) store.Schedule {
	return store.Schedule{
		ID: testID(n), Project: store.DefaultProject, Name: fmt.Sprintf("settlement-%03d", n), Cron: "30 2 * * *", Timezone: "Asia/Shanghai", Template: secretTemplate,
		Missed: store.MissedOnce, Enabled: true, NextAt: testNow + 3_600_000, LastAt: testNow - 82_800_000, LastID: testID(7), CreatedAt: testNow - 9e9, UpdatedAt: testNow - 8e9,
	}
}

func scheduleCases() []pageCase {
	give := func(rows scheduleRows) func(o *fakes) {
		return func(o *fakes) {
			o.scheduleRows, o.auditRows = rows, auditRows{page: store.AuditPage{Entries: []store.AuditEntry{{At: testNow - 60_000, Actor: hostile, Action: "schedule.update", Reason: hostile}}}}
		}
	}
	with := func(change func(s *store.Schedule)) scheduleRows {
		s := sampleSchedule(1)
		change(&s)
		return scheduleRows{all: []store.Schedule{s}}
	}
	one := scheduleRows{all: []store.Schedule{sampleSchedule(1)}, runs: []store.ScheduleRun{
		{CallbackID: testID(7), DueAt: testNow - 5000, FiredAt: testNow - 4900, Trigger: store.BySchedule}, {CallbackID: testID(6), DueAt: testNow - 50_000, FiredAt: testNow - 50_000, Trigger: store.Manual},
	}}
	var many scheduleRows
	for n := 120; n > 0; n-- {
		s := sampleSchedule(n)
		s.Enabled = n%3 != 0
		many.all = append(many.all, s)
	}
	many.runs = slices.Repeat(one.runs, store.KeptRuns/2)
	evil := with(func(s *store.Schedule) {
		s.Name, s.Cron, s.Timezone, s.LastError, s.Missed = hostile, hostile, hostile, hostile, hostile
		s.Template = store.JSONText(`{"` + "<script>" + `":` + jsonText(hostile) + `,"url":` + jsonText(hostile) + `}`)
	})
	failed := with(func(s *store.Schedule) {
		s.LastError, s.LastID = "callback.endpoint: there is no endpoint with that id", ""
	})
	off := with(func(s *store.Schedule) { s.Enabled, s.NextAt, s.LastAt, s.LastID = false, 0, 0, "" })
	late := with(func(s *store.Schedule) { s.NextAt, s.Timezone = testNow-60_000, "" })
	broken := scheduleRows{all: one.all, err: errBroken}
	id := "/ui/schedules/sc_" + testID(1)
	cases := []pageCase{
		{name: "schedules/empty", set: give(scheduleRows{}), want: wants{{".empty", "No schedules yet"}, {".head a", "New schedule"}}},
		{name: "schedules/one", set: give(one), want: wants{{"td a", "settlement-001"}, {"td .badge.good", "enabled"}, {"td code", "30 2 * * *"}, {"td", "Asia/Shanghai"}, {"td a[href=/ui/callbacks/cb_" + testID(7) + "]", "ago"}}},
		{name: "schedules/many", set: give(many), want: wants{{".pager a", "Next page"}}},
		{name: "schedules/second", path: "/ui/schedules?enabled=false&search=settle&cursor=" + query.Place(store.Cursor{ID: testID(100)}), set: give(many), want: wants{{"main p a", "To the newest"}}, unwanted: []string{".pager", ".badge.good"}},
		{name: "schedules/nomatch", path: "/ui/schedules?search=none", set: give(one), want: wants{{".empty", "Nothing matches"}}},
		{name: "schedules/failed", set: give(failed), want: wants{{"td .badge.bad", "no callback"}, {"td", "there is no endpoint"}}},
		{name: "schedules/late", set: give(late), want: wants{{"td .badge.warn", "late"}, {"td", "UTC"}}},
		{name: "schedules/hostile", path: "/ui/schedules?search=" + queryEscape("<script>"), set: give(evil)},
		{name: "schedules/error", set: give(broken)},
		{name: "schedule/one", path: id, set: give(one), want: wants{
			{"h1", "settlement-001"}, {".why.good", "each due time"}, {"td a", "cb_" + testID(7)}, {"td", "by hand"}, {"td", "100ms"}, {"th", "Asia/Shanghai"}, {"pre", `"Authorization": "***"`}, {"pre", `"X-Shop": "7"`},
			{"button#run", "Run now"}, {"button#disable", "Disable"}, {".timeline", "Changed"},
		}, unwanted: []string{"#enable"}},
		{name: "schedule/many", path: id + "?runs=all", set: give(many), want: wants{{"td a", "cb_"}}},
		{name: "schedule/older", path: id, set: give(many), want: wants{{"section a", "80 older runs"}}},
		{name: "schedule/failed", path: id, set: give(failed), want: wants{{".why.bad", "made no callback"}}},
		{name: "schedule/disabled", path: id, set: give(off), want: wants{{"button#enable", "Enable"}, {"p", "nothing is due"}, {".empty", "It has made no callback yet"}}, unwanted: []string{"#disable"}},
		{name: "schedule/late", path: id, set: give(late), want: wants{{".why.warn", "It is late"}}},
		{name: "schedule/damaged", path: id, set: give(with(func(s *store.Schedule) { s.Template = `["hunter2"` })), want: wants{{"pre", "***"}}},
		{name: "schedule/hostile", path: id, set: give(evil)},
		{name: "schedule/error", path: id, set: give(broken)},
		{name: "schedule/none", path: "/ui/schedules/sc_" + testID(9), set: give(one), status: http.StatusNotFound},
		{name: "form-schedule-new/one", path: "/ui/schedules/new", set: give(scheduleRows{}), want: wants{{"textarea", "https://shop.example"}, {"button[name=preview]", "Preview the times"}, {"option", "one callback for all of them"}}},
		{name: "form-schedule-new/hostile", path: "/ui/schedules/new?back=" + queryEscape("https://evil.example/"), set: give(evil)},
		{name: "form-schedule-new/error", path: "/ui/schedules/new", set: func(o *fakes) { o.projectRows = projectRows{err: errBroken} }},
	}
	for _, name := range []string{"edit", "enable", "disable", "run", "delete"} {
		cases = append(cases, threeStates("form-schedule-"+name, id+"/"+name, give(one), give(evil), give(broken), [2]string{".act .buttons button", ""})...)
	}
	return cases
}

func scheduleBench(t *testing.T, err error) (*browser, *[]string) {
	t.Helper()
	o := parts()
	var done []string
	o.scheduleRows, o.scheduleEngine = scheduleRows{all: []store.Schedule{sampleSchedule(1)}}, scheduleEngine{err: err, diary: diary{&done}}
	return signedIn(t, o), &done
}

func TestScheduleIsMade(t *testing.T) {
	t.Parallel()
	b, done := scheduleBench(t, nil)
	pairs := []string{"name", " daily ", "cron", "30 2 * * *", "timezone", "Asia/Shanghai", "missed", "skip", "callback", " {\"url\": \"https://a.example/\"}\r\n", "reason", "new shop"}
	res := b.post("/ui/schedules/new", append(pairs, "preview", "true")...).ok()
	res.has(".preview", "Nothing is saved yet")
	res.has(".preview", "02:30:00\u00a0+08:00 Asia/Shanghai")
	if n := res.count(".preview p"); n != 1+previewTimes {
		t.Errorf("the preview has %d lines", n)
	}
	if box := find(res.doc, "#f-enabled")[0]; hasAttr(box, "checked") {
		t.Error("what was typed is lost")
	}
	b.post("/ui/schedules/new", pairs...).leads("/ui/schedules/sc_" + testID(3))
	if want := []string{`create||daily|30 2 * * *|Asia/Shanghai|skip|false|{"url": "https://a.example/"}|new shop`}; !slices.Equal(*done, want) {
		t.Errorf("done %q, want %q", *done, want)
	}
}

func TestScheduleSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	b, done := scheduleBench(t, nil)
	id := "/ui/schedules/sc_" + testID(1)
	for _, c := range []struct {
		path  string
		pairs []string
		says  string
	}{
		{"/ui/schedules/new", []string{"name", "a", "cron", "* * * * *", "callback", "{"}, "is not JSON"},
		{"/ui/schedules/new", []string{"name", "a", "cron", "often", "callback", "{}", "preview", "true"}, "five fields"},
		{"/ui/schedules/new", []string{"name", "a", "cron", "* * * * *", "timezone", "Mars/Olympus", "callback", "{}", "preview", "true"}, "Mars/Olympus"},
		{id + "/edit", []string{"callback", `{"url": "https://other.example/?token=***"}`}, "write the whole address"},
	} {
		b.refuses(c.path, ".field .error", c.says, c.pairs...)
	}
	if len(*done) > 0 {
		t.Errorf("something was done: %q", *done)
	}
	for _, c := range []struct {
		err         error
		path, where string
		status      int
		says        string
	}{
		{invalid("callback.headers.X-Shop", "is wrong"), "/ui/schedules/new", ".field .error", 422, "callback.headers.X-Shop is wrong"},
		{store.ErrExists, "/ui/schedules/new", ".banner.bad", 409, "one already of that id or name"},
		{&store.InvalidError{Fields: []store.FieldError{{Field: "callback.url", Message: "is wrong"}, {Field: "callback.x", Message: "is unknown"}}}, "/ui/schedules/new", ".field .error", 422, "callback.url is wrong; callback.x is unknown"},
		{invalid("callback.endpoint", "there is none"), id + "/run", ".banner.bad", 422, "callback.endpoint there is none"},
	} {
		b, _ := scheduleBench(t, c.err)
		res := b.post(c.path, "name", "a", "callback", "{}")
		if res.status != c.status {
			t.Errorf("%s: status %d", c.path, res.status)
		}
		res.has(c.where, c.says)
	}
}

// TestScheduleKeepsItsSecrets: what a form does not show is still there after it was sent, and is never in a page.
func TestScheduleKeepsItsSecrets(t *testing.T) {
	t.Parallel()
	b, done := scheduleBench(t, nil)
	id := "/ui/schedules/sc_" + testID(1)
	res := b.get(id + "/edit").ok()
	if strings.Contains(res.body, "hunter2") {
		t.Fatal("the form shows a credential")
	}
	shown := textOf(find(res.doc, "textarea")[0])
	send := func(template string) string {
		t.Helper()
		*done = nil
		b.post(id+"/edit", "name", "n", "cron", "@daily", "timezone", "", "missed", "once", "enabled", "true", "callback", template).leads(id)
		return (*done)[0]
	}
	if got, want := send(shown), "patch|"+testID(1)+"|n|@daily||once|true||"; got != want {
		t.Errorf("unchanged: %q, want %q", got, want)
	}
	got := send(strings.Replace(shown, `"a": 1`, `"a": 2`, 1))
	for _, part := range []string{`"https://bob:hunter2@shop.example/settle?token=hunter2"`, `"Authorization": "Bearer hunter2"`, `"a": 2`} {
		if !strings.Contains(got, part) {
			t.Errorf("%q lacks %q", got, part)
		}
	}
	if got := send(strings.Replace(shown, `"Authorization": "***"`, `"Authorization": "Bearer new"`, 1)); !strings.Contains(got, "Bearer new") || !strings.Contains(got, "?token=hunter2") {
		t.Errorf("a new one is lost: %q", got)
	}
	// A credential that is not shown does not go along to another receiver, nor does a mask become one.
	for what, template := range map[string]string{
		"another host":  strings.Replace(shown, "https://shop.example/settle?token=***", "https://evil.example/", 1),
		"plain text":    strings.Replace(shown, "https://shop.example/settle?token=***", "http://shop.example/", 1),
		"an endpoint":   strings.Replace(shown, `"a": 1`, `"a": 1}, "endpoint": "ep_x", "labels": {`, 1),
		"a new header":  strings.Replace(shown, `"Authorization": "***"`, `"X-Token": "***"`, 1),
		"a new address": strings.Replace(shown, "/settle?token=***", "/other?token=***", 1),
	} {
		*done = nil
		if res := b.post(id+"/edit", "name", "n", "cron", "@daily", "timezone", "", "missed", "once", "enabled", "true", "callback", template); res.status != 422 {
			t.Errorf("%s: answered with %d, done %q", what, res.status, *done)
		}
	}
}

func TestScheduleActs(t *testing.T) {
	t.Parallel()
	b, done := scheduleBench(t, nil)
	id := "/ui/schedules/sc_" + testID(1)
	b.post(id + "/enable").leads(id)
	b.post(id+"/disable", "back", "/ui/schedules").leads("/ui/schedules")
	b.post(id + "/run").leads("/ui/callbacks/cb_" + testID(4))
	b.post(id+"/delete", "reason", "no more", "back", id).leads("/ui/schedules")
	if want := []string{"patch|" + testID(1) + "|true||", "patch|" + testID(1) + "|false||", "run|" + testID(1) + "||", "delete|" + testID(1) + "||no more"}; !slices.Equal(*done, want) {
		t.Errorf("done %q, want %q", *done, want)
	}
}
