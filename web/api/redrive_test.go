package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestGoldenRedrives(t *testing.T) {
	t.Parallel()
	f := newFace(t, &engine{})
	golden(t, f, "redrive.json", "GET", "/v1/redrives/"+oneRedrive, "")
	for body, file := range map[string]string{
		`{"action":"retry","filter":{ "state" : "dead" },"dry_run":true}`:                                             "redrive_tried.json",
		`{"action":"set_url","filter":{"ref":"o-1"},"url":"https://shop.example/notify?token=x"}`:                     "redrive_url.json",
		`{"action":"reschedule","filter":{"label":{"shop":"7"},"state":["scheduled"]},"delay":"1h30m","reason":"no"}`: "redrive_move.json",
	} {
		golden(t, f, file, "POST", "/v1/redrives", body)
	}
}

func TestRedrivesArrive(t *testing.T) {
	t.Parallel()
	e := &engine{endpoint: someEndpoint()}
	f := newFace(t, e)
	const filter = `{"state":"dead"}`
	dead := store.Filter{States: []store.State{store.Dead}}
	for body, want := range map[string]control.RedriveRequest{
		`{"action":"retry","filter":{"state":"dead"},"rate":"100/s","dry_run":false,"ladder":"once","reason":"r"}`: {
			Action: "retry", Filter: dead, Shown: filter, Rate: "100/s", Ladder: "once",
		},
		`{"reason":"r","action":"cancel","filter": { "state" : "dead" } ,"rate":null,"ladder":null,"url":null,"due_at":null,"delay":null}`: {Action: "cancel", Filter: dead, Shown: filter},
		`{"reason":"r","action":"set_url","filter":{"state":"dead"},"url":"https://b/"}`:                                                   {Action: "set_url", Filter: dead, Shown: filter, URL: "https://b/"},
		`{"reason":"r","action":"reschedule","filter":{"state":"dead"},"due_at":"2026-11-21T16:00:00+08:00"}`:                              {Action: "reschedule", Filter: dead, Shown: filter, DueAt: new(int64(nowMS))},
		`{"reason":"r","action":"reschedule","filter":{"state":"dead"},"delay":"1d"}`:                                                      {Action: "reschedule", Filter: dead, Shown: filter, Delay: new(24 * time.Hour)},
		// Nothing that narrows is no filter: the engine refuses it.
		`{"reason":"r","action":"retry"}`:                                                     {Action: "retry"},
		`{"reason":"r","action":"retry","filter":null}`:                                       {Action: "retry"},
		`{"reason":"r","action":"retry","filter":{}}`:                                         {Action: "retry"},
		`{"reason":"r","action":"retry","filter":{"topic":null,"label.a":null,"label":null}}`: {Action: "retry"},
		`{"reason":"r","action":"retry","filter":{"overdue":false,"min_attempts":-0}}`:        {Action: "retry"},
		`{"reason":"r","action":"retry","filter":{"label":{},"from":"1970-01-01T00:00:00Z"}}`: {Action: "retry"},
	} {
		f.ask(t, 202, "POST", "/v1/redrives", body)
		if diff := cmp.Diff(want, e.given.what); diff != "" || e.actor.Reason != "r" {
			t.Errorf("%s by %+v (-want +got):\n%s", body, e.actor, diff)
		}
	}
	f.ask(t, 200, "POST", "/v1/redrives", `{"action":"retry","filter":{"state":"dead"},"dry_run":true}`)
	if !e.given.what.(control.RedriveRequest).DryRun {
		t.Error("a dry run arrived as none")
	}
}

// TestRedriveFilters: a filter means what the parameters of the list of the same names mean.
func TestRedriveFilters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ filter, query string }{
		{`{"state":"dead"}`, "state=dead"},
		{`{"state":["dead","canceled"]}`, "state=dead&state=canceled"},
		{`{"kind":"poll","topic":"a.b","ref":"o 1","lane":"https://h:443"}`, "kind=poll&topic=a.b&ref=o%201&lane=https://h:443"},
		{`{"class":"http_5xx","status_code":503}`, "class=http_5xx&status_code=503"},
		{`{"label":{"channel":"alipay","a b":"c","d":null},"label.shop":"7"}`, "label.channel=alipay&label.a%20b=c&label.shop=7"},
		{`{"lock_key":"k","reason":"exhausted"}`, "lock_key=k&reason=exhausted"},
		{`{"min_attempts":3,"overdue":true}`, "min_attempts=3&overdue=true"},
		{`{"overdue":false,"ref":"x"}`, "overdue=false&ref=x"},
		{`{"from":"2026-11-21T08:00:00Z","to":"2026-11-21t16:00:01.5+08:00"}`, "from=2026-11-21T08:00:00Z&to=2026-11-21t16:00:01.5%2B08:00"},
		{`{"endpoint":"merchant-7"}`, "endpoint=merchant-7"},
		{`{"endpoint":"` + oneEndpoint + `"}`, "endpoint=" + oneEndpoint},
	} {
		e := &engine{endpoint: someEndpoint()}
		f := newFace(t, e)
		f.ask(t, 200, "GET", "/v1/callbacks?"+c.query, "")
		want := e.given.what.(store.Filter)
		want.Now, want.Limit = 0, 0
		f.ask(t, 202, "POST", "/v1/redrives", `{"action":"retry","filter":`+c.filter+`}`)
		got := e.given.what.(control.RedriveRequest)
		if diff := cmp.Diff(want, got.Filter); diff != "" || string(got.Shown) != c.filter {
			t.Errorf("%s, shown %s (-want +got):\n%s", c.filter, got.Shown, diff)
		}
	}
}

func TestRedrivesRefuse(t *testing.T) {
	t.Parallel()
	filters := make(map[string]string)
	for filter, field := range map[string]string{
		`{"q":"x"}`: "filter.q", `{"State":"dead"}`: "filter.State", `{"state":"failed"}`: "filter.state", `{"state":[]}`: "filter.state",
		`{"state":["dead",7]}`: "filter.state[1]", `{"state":""}`: "filter.state", `{"state":["dead","dead","dead","dead","dead","dead"]}`: "filter.state",
		`{"order":"due"}`: "filter.order", `{"limit":5}`: "filter.limit", `{"format":null}`: "filter.format", `{"cursor":"x"}`: "filter.cursor",
		`{"project":"b"}`: "filter.project", `{"kind":"x"}`: "filter.kind", `{"class":"x"}`: "filter.class", `{"status_code":"503"}`: "filter.status_code",
		`{"status_code":99}`: "filter.status_code", `{"status_code":5e2}`: "filter.status_code", `{"min_attempts":-1}`: "filter.min_attempts",
		`{"min_attempts":1.5}`: "filter.min_attempts", `{"overdue":1}`: "filter.overdue", `{"from":"yesterday"}`: "filter.from",
		`{"from":"2026-11-22T00:00:00Z","to":"2026-11-21T00:00:00Z"}`: "filter.from", `{"to":1795248000}`: "filter.to", `{"ref":"a\u0000"}`: "filter.ref",
		`{"ref":""}`: "filter.ref", `{"label":{"a":1}}`: "filter.label.a", `{"label":{"":"x"}}`: "filter.label.", `{"label.":"x"}`: "filter.label.",
		`{"label.a":""}`: "filter.label.a", `{"label":{"a":"1"},"label.a":"2"}`: "filter.label.a", `{"label":{"a":"1","a":"1"}}`: "filter.label.a",
		`{"endpoint":"nobody"}`: "filter.endpoint", `{"endpoint":""}`: "filter.endpoint", `{"ref":"` + strings.Repeat("x", 16<<10) + `"}`: "filter",
		manyLabels(21): "filter.label",
	} {
		filters[`{"action":"retry","filter":`+filter+`}`] = field
	}
	refuses(t, "POST", "/v1/redrives", filters)
	refuses(t, "POST", "/v1/redrives", map[string]string{
		`{"due_at":"soon","action":"reschedule"}`: "due_at", `{"action":"cancel","ladder":"once"}`: "ladder", `{"action":"retry","url":"https://b/"}`: "url",
		`{"action":"retry","delay":"1h"}`: "delay", `{"action":"set_url","due_at":"2026-11-21T08:00:00Z"}`: "due_at",
	})
}

func manyLabels(n int) string {
	var labels []string
	for i := range n {
		labels = append(labels, fmt.Sprintf(`"l%d":"x"`, i))
	}
	return `{"label":{` + strings.Join(labels, ",") + `}}`
}

func TestRedrivesAreSet(t *testing.T) {
	t.Parallel()
	e := &engine{}
	f := newFace(t, e)
	for action, to := range map[string]store.RedriveState{"pause": store.RedrivePaused, "resume": store.RedriveRunning, "cancel": store.RedriveCanceled} {
		for body, reason := range map[string]string{"": "", `{"reason":null}`: "", `{"reason":"night"}`: "night"} {
			got := f.ask(t, 200, "POST", "/v1/redrives/"+oneRedrive+"/"+action, body)
			if got["state"] != string(to) || e.given.what != to || e.given.id != bareRedrive || e.actor.Reason != reason {
				t.Errorf("%s %s: %v by %+v", action, body, e.given, e.actor)
			}
		}
		wantProblem(t, f.do("POST", "/v1/redrives/"+oneRedrive+"/"+action, `{"rate":"1/s"}`), 422, "invalid")
		ended := newFace(t, &engine{err: fmt.Errorf("redrive: %w", store.ErrTerminal)})
		wantProblem(t, ended.do("POST", "/v1/redrives/"+oneRedrive+"/"+action, ""), 409, "terminal")
	}
}
