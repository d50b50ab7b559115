package api_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

func TestGoldenSchedules(t *testing.T) {
	t.Parallel()
	bare := store.Schedule{ID: bareSchedule, Name: "b", Cron: "@every 10m", Template: `{"url":"https://shop.example/"}`, LastError: "callback.url: is blocked", CreatedAt: nowMS, UpdatedAt: nowMS}
	for name, s := range map[string]store.Schedule{"schedule.json": someSchedule(), "schedule_bare.json": bare} {
		golden(t, newFace(t, &engine{schedule: s}), name, "GET", "/v1/schedules/"+oneSchedule, "")
	}
	golden(t, newFace(t, &engine{}), "schedule_runs.json", "GET", "/v1/schedules/"+oneSchedule+"/runs", "")
}

// TestTemplatesAreShownAsTheyStand, without the credentials in their headers.
func TestTemplatesAreShownAsTheyStand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ template, want string }{
		{`{}`, `{}`},
		{` { "payload" : { "a" : [ 1.0 , "\u0041" ] } } `, `{"payload":{ "a" : [ 1.0 , "\u0041" ] }}`},
		{`{"headers":{"X-A":"b","Authorization":"Basic x","X-Token":"t"},"url":"https://shop.example/?token=x"}`, `{"headers":{"X-A":"b","Authorization":"***","X-Token":"***"},"url":"https://shop.example/?token=x"}`},
		{`{"headers":{"authorizatio\u006e":"Basic x"}}`, `{"headers":{"authorization":"***"}}`},
		{`{"\u0068eaders":{"COOKIE":"a=b","Authorization":""}}`, `{"headers":{"COOKIE":"***","Authorization":""}}`},
		{`{"headers":null,"payload":{"headers":{"Authorization":"Basic x"}}}`, `{"headers":null,"payload":{"headers":{"Authorization":"Basic x"}}}`},
		// What only a damaged row can have.
		{``, `null`}, {`{"headers":{"Authorization":"Basic x"}`, `null`}, {`["Basic x"]`, `null`}, {`{"headers":["x"]}`, `{"headers":["x"]}`},
	} {
		s := someSchedule()
		s.Template = store.JSONText(c.template)
		rec := newFace(t, &engine{schedule: s}).do("GET", "/v1/schedules/"+oneSchedule, "")
		if !strings.Contains(rec.Body.String(), `"callback":`+c.want+`,"missed":`) {
			t.Errorf("%s is shown as %s", c.template, rec.Body)
		}
	}
}

func TestEveryFieldOfAScheduleArrives(t *testing.T) {
	t.Parallel()
	const body = `{"name":"daily","cron":"30 1 * * *","timezone":"Asia/Shanghai","callback": { "url" : "u" , "payload":{ "a" : 1.0 } } ,"missed":"skip","enabled":false,"reason":"new"}`
	want := control.ScheduleChange{
		Name: new("daily"), Cron: new("30 1 * * *"), Timezone: new("Asia/Shanghai"), Missed: new("skip"), Enabled: new(false), Template: []byte(`{ "url" : "u" , "payload":{ "a" : 1.0 } }`),
	}
	const nulls = `{"name":null,"cron":null,"timezone":null,"callback":null,"missed":null,"enabled":null,"reason":null}`
	for _, c := range []struct {
		method, path, call string
		status             int
		ofNulls            control.ScheduleChange
	}{
		{"POST", "/v1/schedules", "CreateSchedule", 201, control.ScheduleChange{}},
		{"PATCH", "/v1/schedules/" + oneSchedule, "PatchSchedule", 200, control.ScheduleChange{Timezone: new("")}},
	} {
		e := &engine{schedule: someSchedule()}
		f := newFace(t, e)
		if got := f.ask(t, c.status, c.method, c.path, body); got["id"] != oneSchedule || e.given.call != c.call || e.given.project != store.DefaultProject || e.actor.Reason != "new" {
			t.Errorf("%s: %v, %+v by %+v", c.method, got, e.given, e.actor)
		}
		if diff := cmp.Diff(want, e.given.what); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.method, diff)
		}
		f.arrives(t, e, c.status, c.method, c.path, nulls, c.ofNulls)
		f.arrives(t, e, c.status, c.method, c.path, `{}`, control.ScheduleChange{})
	}
}

func TestSchedulesRefuse(t *testing.T) {
	t.Parallel()
	for _, r := range [][2]string{{"POST", "/v1/schedules"}, {"PATCH", "/v1/schedules/" + oneSchedule}} {
		refuses(t, r[0], r[1], map[string]string{
			`{"name":"a\u0000"}`: "name", `{"cron":["* * * * *"]}`: "cron", `{"cron":"* * * * *\n"}`: "cron", `{"callback":[]}`: "callback",
			`{"callback":"{}"}`: "callback", "{\"callback\":{\"payload\":\"\xff\"}}": "callback", `{"next_at":null}`: "next_at",
			`{"reason":"` + strings.Repeat("r", 1025) + `"}`: "reason",
		})
	}
	refuses(t, "POST", "/v1/schedules/"+oneSchedule+"/run", map[string]string{`{"due_at":null}`: "due_at"})
	refuses(t, "DELETE", "/v1/schedules/"+oneSchedule, map[string]string{`{"force":true}`: "force"})
	f := newFace(t, fullEngine())
	wantProblem(t, f.do("POST", "/v1/schedules", ""), 400, "bad_json")
	for _, path := range []string{"", "/runs"} {
		wantProblem(t, f.do("GET", "/v1/schedules/sc_01JD6QZ0000000000000000008"+path, ""), 404, "not_found")
	}
}

func TestScheduleFilters(t *testing.T) {
	t.Parallel()
	e := &engine{schedule: someSchedule()}
	f := newFace(t, e)
	for query, want := range map[string]store.ScheduleFilter{
		"": {Limit: 51}, "search=books&limit=7": {Search: "books", Limit: 8}, "enabled=true": {Enabled: new(true), Limit: 51}, "enabled=false": {Enabled: new(false), Limit: 51},
	} {
		f.arrives(t, e, 200, "GET", "/v1/schedules?"+query, "", want)
	}
	refuses(t, "GET", "/v1/schedules?", map[string]string{
		"enabled=yes": "enabled", "enabled=": "enabled", "search=": "search", "name=x": "name", "search=a&search=b": "search",
	})
}

func TestScheduleAnswers(t *testing.T) {
	t.Parallel()
	e := &engine{schedule: someSchedule()}
	f := newFace(t, e)
	for body, reason := range map[string]string{"": "", `{"reason":null}`: "", `{"reason":"month's end"}`: "month's end"} {
		if got := f.ask(t, 202, "POST", "/v1/schedules/"+oneSchedule+"/run", body); got["id"] != oneID || e.given.call != "RunSchedule" || e.given.id != bareSchedule || e.actor.Reason != reason {
			t.Errorf("run %s: %v, %+v by %+v", body, got, e.given, e.actor)
		}
		rec := f.do("DELETE", "/v1/schedules/"+oneSchedule, body)
		if rec.Code != 204 || rec.Body.Len() != 0 || e.given.call != "DeleteSchedule" || e.given.id != bareSchedule || e.actor.Reason != reason {
			t.Errorf("DELETE %s: %d %s, %+v by %+v", body, rec.Code, rec.Body, e.given, e.actor)
		}
	}
}

func TestTemplatesAreRead(t *testing.T) {
	t.Parallel()
	const raw = ` {"url":"https://shop.example/","payload": { "a" : 1.0 } ,"policy":"short","delay":"1m","start_attempt":3,"due_at":null,"idempotency_key":null,"headers":{"Authorization":"Basic x","A":"***"}} `
	got, err := api.ReadTemplate([]byte(raw))
	want := accept.Submission{
		URL: "https://shop.example/", Body: []byte(`{ "a" : 1.0 }`), BodyField: "payload", Choice: accept.Choice{PolicyName: "short"}, Delay: new(time.Minute), StartAttempt: 3,
		Headers: []store.Header{{Name: "Authorization", Value: "Basic x"}, {Name: "A", Value: "***"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for raw, field := range map[string]string{
		`{"due_at":"2026-11-21T08:00:00Z"}`: "due_at", `{"due_at":7}`: "due_at", `{"idempotency_key":"k"}`: "idempotency_key", `{"idempotency_key":""}`: "idempotency_key", `{"x":1}`: "x",
		`{"url":7}`: "url", `{"url":"u","url":"u"}`: "url", `{"headers":{"Authorization":"***"}}`: "headers.Authorization", "{\"payload\":\"\xff\"}": "payload", `{"delay":"-1s"}`: "delay",
	} {
		sub, err := api.ReadTemplate([]byte(raw))
		if err != nil || len(sub.Invalid) != 1 || sub.Invalid[0].Field != field || sub.Invalid[0].Message == "" {
			t.Errorf("%s: %v, %v, want %q", raw, sub.Invalid, err, field)
		}
	}
	// Every field of the document, as null, and one more.
	var parts []string
	for name := range at(t, document(t), "components", "schemas", "Template", "properties") {
		parts = append(parts, `"`+name+`":null`)
	}
	nulls, err := api.ReadTemplate([]byte("{" + strings.Join(parts, ",") + "}"))
	if diff := cmp.Diff(accept.Submission{}, nulls); err != nil || diff != "" {
		t.Errorf("of nulls: %v (-want +got):\n%s", err, diff)
	}
	large := strings.Repeat("x", accept.MaxBody-1)
	for raw, field := range map[string]string{
		``: "", ` `: "", `{`: "", `[]`: "", `null`: "", `"{}"`: "", `{}x`: "", `{"payload":"` + large + `"}`: "payload", `{"body":"` + large + `xx"}`: "body",
	} {
		_, err := api.ReadTemplate([]byte(raw))
		var wrong *store.InvalidError
		if !errors.As(err, &wrong) || len(wrong.Fields) != 1 || wrong.Fields[0].Field != field {
			t.Errorf("%.40s: %v, want %q", raw, err, field)
		}
	}
}
