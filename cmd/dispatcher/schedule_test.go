package main

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

const (
	scheduleID  = "sc_01JD7Q2Z3K4M5N6P7R8S9TABCD"
	oneSchedule = `{"id":"` + scheduleID + `","name":"books \u001b","cron":"30 1 * * *","timezone":"Asia/Shanghai","callback":{"url":"https://books.example/","payload":{"a":  "<b>"}},
 "missed":"once","enabled":true,"next_at":"2098-12-31T17:30:00.000Z","last_at":"2026-11-20T17:30:00.000Z","last_callback_id":"` + oneID + `","last_error":null,
 "created_at":"2026-11-01T10:00:00.000Z","updated_at":"2026-11-01T10:00:00.000Z"}`
)

func TestScheduleCreateAndSet(t *testing.T) {
	t.Parallel()
	const one = "/v1/schedules/" + scheduleID
	file := writeFile(t, "callback.json", `{"url": "https://h/", "payload": {"a":  1.50}}`+"\n")
	address, requests := fakeServer(t, map[string]string{"POST /v1/schedules": oneSchedule, "PATCH " + one: with(t, oneSchedule, `{"enabled":false,"next_at":null}`)})
	for _, tc := range []struct {
		args       []string
		says       string
		call, body string
	}{
		{[]string{"create", "--name", "n", "--cron", "30 1 * * *", "--timezone", "Asia/Shanghai", "--missed", "skip", "--url", "https://h/", "--payload", `{"a": 1}`, "--reason", "r"},
			"made; next 2098-12-31", "POST /v1/schedules",
			`{"callback":{"payload":{"a":1},"url":"https://h/"},"cron":"30 1 * * *","missed":"skip","name":"n","reason":"r","timezone":"Asia/Shanghai"}`},
		{[]string{"create", "--name", "n", "--cron", "@daily", "--endpoint", "merchant-7", "--payload", "@" + file, "--disabled"}, "made", "POST /v1/schedules",
			`{"callback":{"endpoint":"merchant-7","payload":{"payload":{"a":1.5},"url":"https://h/"}},"cron":"@daily","enabled":false,"name":"n"}`},
		{[]string{"create", "--name", "n", "--cron", "@daily", "--callback-file", file}, "made", "POST /v1/schedules",
			`{"callback":{"payload":{"a":1.5},"url":"https://h/"},"cron":"@daily","name":"n"}`},
		{[]string{"set", scheduleID, "--callback-file", "-"}, "changed; it is disabled", "PATCH " + one, `{"callback":{"url":"https://stdin/"}}`},
		{[]string{"set", scheduleID, "--callback", "@" + file, "--enabled", "--name", "m"}, "changed", "PATCH " + one, `{"callback":{"payload":{"a":1.5},"url":"https://h/"},"enabled":true,"name":"m"}`},
		{[]string{"set", scheduleID, "--disable"}, "changed", "PATCH " + one, `{"enabled":false}`},
	} {
		term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
		term.in = strings.NewReader(`{"url":"https://stdin/"}`)
		if code := term.invoke(append([]string{"schedule"}, tc.args...)...); code != exitOK {
			t.Fatalf("%v: exit code %d: %s", tc.args, code, term.stderr.String())
		}
		if got := term.stdout.String(); !strings.HasPrefix(got, scheduleID+`  books \x1b  `) || !strings.Contains(got, tc.says) {
			t.Errorf("%v says %q", tc.args, got)
		}
		got := requests()[0]
		if got.method+" "+got.uri != tc.call || bodyOfRequest(t, got) != tc.body {
			t.Errorf("%v made %s %s with %s", tc.args, got.method, got.uri, bodyOfRequest(t, got))
		}
	}
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	const one = "/v1/schedules/" + scheduleID
	failing := with(t, oneSchedule, `{"last_error":"no endpoint"}`)
	address, requests := fakeServer(t, map[string]string{
		"GET /v1/schedules": `{"data":[` + failing + `,` + with(t, oneSchedule, `{"enabled":false,"next_at":null,"last_at":null}`) + `],"next_cursor":null}`,
		"GET " + one:        oneSchedule, "DELETE " + one: "", "POST " + one + "/run": oneCallback,
		"GET " + one + "/runs": `{"data":[{"callback_id":"` + oneID + `","due_at":"2026-11-20T17:30:00.000Z","fired_at":"2026-11-20T17:30:00.001Z","trigger":"manual"}]}`,
	})
	for _, tc := range []struct {
		args       []string
		says       []string
		call, body string
	}{
		{[]string{"list", "--search", "b"}, []string{`books \x1b`, "Asia/Shanghai", "without a callback: no endpoint", "disabled", "never"}, "GET /v1/schedules?limit=50&search=b", "null"},
		{[]string{"list", "--disabled"}, nil, "GET /v1/schedules?enabled=false&limit=50", "null"},
		{[]string{"list", "--enabled", "--json"}, []string{`"next_cursor": null`}, "GET /v1/schedules?enabled=true&limit=50", "null"},
		{[]string{"get", scheduleID}, []string{"cron       30 1 * * *, in Asia/Shanghai\n", "once: one callback", "next       2098-12-31 ", `callback   {"url":"https://books.example/","payload":{"a":  "<b>"}}` + "\n", oneID}, "GET " + one, "null"},
		{[]string{"get", scheduleID, "--json"}, []string{`"cron": "30 1 * * *"`}, "GET " + one, "null"},
		{[]string{"run", scheduleID, "--reason", "r"}, []string{oneID + "  accepted"}, "POST " + one + "/run", `{"reason":"r"}`},
		{[]string{"runs", scheduleID}, []string{oneID, "manual"}, "GET " + one + "/runs", "null"},
		{[]string{"delete", scheduleID, "--reason", "r"}, []string{"is removed"}, "DELETE " + one, `{"reason":"r"}`},
	} {
		term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
		if code := term.invoke(append([]string{"schedule"}, tc.args...)...); code != exitOK {
			t.Fatalf("%v: exit code %d: %s", tc.args, code, term.stderr.String())
		}
		for _, want := range tc.says {
			if !strings.Contains(term.stdout.String(), want) {
				t.Errorf("%v does not say %q:\n%s", tc.args, want, term.stdout.String())
			}
		}
		got := requests()[0]
		if got.method+" "+got.uri != tc.call || bodyOfRequest(t, got) != tc.body {
			t.Errorf("%v made %s %s with %s", tc.args, got.method, got.uri, bodyOfRequest(t, got))
		}
	}
	for id, want := range map[string]string{"sc_1": `no schedule has the id "sc_1" (404 not_found)`, "books": `a schedule is named by its id, and "books" is none; "dispatcher schedule list --search NAME" shows ids (404 not_found)`} {
		term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
		if code := term.invoke("schedule", "run", id); code != exitFailed || term.stderr.String() != "dispatcher: "+want+"\n" {
			t.Errorf("exit code %d: %s", code, term.stderr.String())
		}
	}
}

// The clocks that a cron is read by are shown beside those of the reader, unless they are the same.
func TestWallTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 17, 30, 0, 0, time.UTC)
	far, want := "Asia/Shanghai", " (2026-11-21 01:30 Asia/Shanghai)"
	if _, offset := at.Local().Zone(); offset == 8*60*60 {
		far, want = "UTC", " (2026-11-20 17:30 UTC)"
	}
	if got := wallTime(&at, far); got != want {
		t.Errorf("%s: %q", far, got)
	}
	for _, zone := range []string{"Local", "Mars/Olympus", "x\x1b"} {
		if got := wallTime(&at, zone); got != "" {
			t.Errorf("%s: %q", zone, got)
		}
	}
}

// A server of this program knows polls and schedules: the wiring is whole.
func TestServeKnowsPollsAndSchedules(t *testing.T) {
	t.Parallel()
	r := startServer(t, testSettings(t))
	var s shownSchedule
	_, err := r.cl.call(t.Context(), http.MethodPost, "/v1/schedules", map[string]any{
		"name": "n", "cron": "0 3 * * *", "timezone": "America/New_York", "callback": verbatim(`{"url":"http://127.0.0.1:1/","payload":{"a":  1}}`),
	}, &s)
	if err != nil {
		t.Fatal(err)
	}
	var cb shownCallback
	if _, err := callSchedule(t.Context(), r.cl, http.MethodPost, s.ID, "/run", nil, &cb); err != nil {
		t.Fatal(err)
	}
	body, err := r.cl.call(t.Context(), http.MethodGet, callbackPath(cb.ID)+"/payload", nil, nil)
	if err != nil || string(body) != `{"a":  1}` {
		t.Errorf("the payload of the schedule is %s (%v)", body, err)
	}
	var p shownPoll
	_, err = r.cl.call(t.Context(), http.MethodPost, "/v1/polls", map[string]any{
		"ref": "r", "delay": "1h", "request": map[string]any{"url": "http://127.0.0.1:1/"}, "until": map[string]any{"success": []any{map[string]any{"status": []int{200}}}},
	}, &p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.cl.call(t.Context(), http.MethodPost, pollPath(p.ID)+"/resolve", nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.cl.call(t.Context(), http.MethodGet, pollPath(p.ID), nil, &p); err != nil || p.Poll.Outcome != "resolved" {
		t.Errorf("the poll has ended as %q (%v)", p.Poll.Outcome, err)
	}
	if err := r.end(t); err != nil {
		t.Error(err)
	}
}
