package main

import (
	"net/http"
	"testing"
	"time"
)

const (
	scheduleID  = "sc_01JD7Q2Z3K4M5N6P7R8S9TABCD"
	oneSchedule = `{"id":"` + scheduleID + `","name":"books \u001b","cron":"30 1 * * *","timezone":"Asia/Shanghai",
 "callback":{"url":"https://books.example/","payload":{"a":  "<b>"}},"missed":"once","enabled":true,
 "next_at":"2098-12-31T17:30:00.000Z","last_at":"2026-11-20T17:30:00.000Z","last_callback_id":"` + oneID + `",
 "last_error":null,"created_at":"2026-11-01T10:00:00.000Z","updated_at":"2026-11-01T10:00:00.000Z"}`
)

func TestScheduleCreateAndSet(t *testing.T) {
	t.Parallel()
	const all, one = "POST /v1/schedules", "PATCH /v1/schedules/" + scheduleID
	const named = scheduleID + `  books \x1b  `
	file := writeFile(t, "callback.json", `{"url": "https://h/", "payload": {"a":  1.50}}`+"\n")
	exchanges(t, map[string]string{all: oneSchedule, one: with(t, oneSchedule, `{"enabled":false,"next_at":null}`)},
		exchange{
			line: "schedule create --name n --timezone Asia/Shanghai --missed skip --url https://h/ --reason r",
			args: []string{"--cron", "30 1 * * *", "--payload", `{"a": 1}`},
			says: []string{named, "made; next 2098-12-31"}, call: all,
			body: `{"callback":{"payload":{"a":1},"url":"https://h/"},"cron":"30 1 * * *","missed":"skip","name":"n",` +
				`"reason":"r","timezone":"Asia/Shanghai"}`,
		}, exchange{
			line: "schedule create --name n --cron @daily --endpoint merchant-7 --disabled --payload @" + file,
			says: []string{named, "made"}, call: all,
			body: `{"callback":{"endpoint":"merchant-7","payload":{"payload":{"a":1.5},"url":"https://h/"}},"cron":"@daily",` +
				`"enabled":false,"name":"n"}`,
		}, exchange{
			line: "schedule create --name n --cron @daily --callback-file " + file, says: []string{named, "made"}, call: all,
			body: `{"callback":{"payload":{"a":1.5},"url":"https://h/"},"cron":"@daily","name":"n"}`,
		}, exchange{
			line: "schedule set " + scheduleID + " --callback-file -", stdin: `{"url":"https://stdin/"}`,
			says: []string{named, "changed; it is disabled"}, call: one, body: `{"callback":{"url":"https://stdin/"}}`,
		}, exchange{
			line: "schedule set " + scheduleID + " --enabled --name m --callback @" + file, says: []string{"changed"}, call: one,
			body: `{"callback":{"payload":{"a":1.5},"url":"https://h/"},"enabled":true,"name":"m"}`,
		}, exchange{
			line: "schedule set " + scheduleID + " --disable", says: []string{"changed"}, call: one, body: `{"enabled":false}`,
		})
}

func TestScheduleCommands(t *testing.T) {
	t.Parallel()
	const one = "/v1/schedules/" + scheduleID
	disabled := with(t, oneSchedule, `{"enabled":false,"next_at":null,"last_at":null}`)
	exchanges(t, map[string]string{
		"GET /v1/schedules": listOf(with(t, oneSchedule, `{"last_error":"no endpoint"}`), disabled),
		"GET " + one:        oneSchedule, "DELETE " + one: "", "POST " + one + "/run": oneCallback,
		"GET " + one + "/runs": listOf(`{"callback_id":"` + oneID + `","due_at":"2026-11-20T17:30:00.000Z",
 "fired_at":"2026-11-20T17:30:00.001Z","trigger":"manual"}`),
	}, exchange{
		line: "schedule list --search b", call: "GET /v1/schedules?limit=50&search=b",
		says: []string{`books \x1b`, "Asia/Shanghai", "without a callback: no endpoint", "disabled", "never"},
	},
		exchange{line: "schedule list --disabled", call: "GET /v1/schedules?enabled=false&limit=50"},
		exchange{
			line: "schedule list --enabled --json", says: []string{`"next_cursor": null`},
			call: "GET /v1/schedules?enabled=true&limit=50",
		}, exchange{
			line: "schedule get " + scheduleID, call: "GET " + one,
			says: []string{
				"cron       30 1 * * *, in Asia/Shanghai\n", "once: one callback", "next       2098-12-31 ",
				`callback   {"url":"https://books.example/","payload":{"a":  "<b>"}}` + "\n", oneID,
			},
		},
		exchange{line: "schedule get " + scheduleID + " --json", says: []string{`"cron": "30 1 * * *"`}, call: "GET " + one},
		exchange{
			line: "schedule run " + scheduleID + " --reason r", says: []string{oneID + "  accepted"},
			call: "POST " + one + "/run", body: `{"reason":"r"}`,
		},
		exchange{line: "schedule runs " + scheduleID, says: []string{oneID, "manual"}, call: "GET " + one + "/runs"},
		exchange{
			line: "schedule delete " + scheduleID + " --reason r", says: []string{"is removed"},
			call: "DELETE " + one, body: `{"reason":"r"}`,
		},
		exchange{
			line: "schedule run sc_1", code: exitFailed,
			warns: []string{`dispatcher: no schedule has the id "sc_1" (404 not_found)` + "\n"},
		}, exchange{
			line: "schedule run books", code: exitFailed,
			warns: []string{`dispatcher: a schedule is named by its id, and "books" is none; ` +
				`"dispatcher schedule list --search NAME" shows ids (404 not_found)` + "\n"},
		})
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

// A server of this program knows schedules: the wiring is whole. The demo shows that it knows polls.
func TestServeKnowsSchedules(t *testing.T) {
	t.Parallel()
	r := startServer(t, testSettings(t))
	var s shownSchedule
	r.call(t, http.MethodPost, "/v1/schedules", map[string]any{
		"name": "n", "cron": "0 3 * * *", "timezone": "America/New_York",
		"callback": verbatim(`{"url":"http://127.0.0.1:1/","payload":{"a":  1}}`),
	}, &s)
	var cb shownCallback
	r.call(t, http.MethodPost, "/v1/schedules/"+s.ID+"/run", nil, &cb)
	if body := r.call(t, http.MethodGet, callbackPath(cb.ID)+"/payload", nil, nil); string(body) != `{"a":  1}` {
		t.Errorf("the payload of the schedule is %s", body)
	}
}
