package cli

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

const (
	scheduleID  = "sc_01JD7Q2Z3K4M5N6P7R8S9TABCD"
	oneSchedule = `{"id":"` + scheduleID + `","name":"books \u001b","cron":"30 1 * * *","timezone":"Asia/Shanghai",
 "callback":{"url":"https://books.example/","payload":{"a":  "<b>"}},"missed":"once","enabled":true,
 "next_at":"2098-12-31T17:30:00.000Z","last_at":"2026-11-20T17:30:00.000Z","last_callback_id":"` + cmdtest.OneID + `",
 "last_error":null,"created_at":"2026-11-01T10:00:00.000Z","updated_at":"2026-11-01T10:00:00.000Z"}`
)

func TestScheduleCreateAndSet(t *testing.T) {
	t.Parallel()
	const all, one = "POST /v1/schedules", "PATCH /v1/schedules/" + scheduleID
	const named = scheduleID + `  books \x1b  `
	file := cmdtest.WriteFile(t, "callback.json", `{"url": "https://h/", "payload": {"a":  1.50}}`+"\n")
	program.Exchanges(t, map[string]string{all: oneSchedule, one: cmdtest.With(t, oneSchedule, `{"enabled":false,"next_at":null}`)},
		cmdtest.Exchange{
			Line: "schedule create --name n --timezone Asia/Shanghai --missed skip --url https://h/ --reason r",
			Args: []string{"--cron", "30 1 * * *", "--payload", `{"a": 1}`},
			Says: []string{named, "made; next 2098-12-31"}, Call: all,
			Body: `{"callback":{"payload":{"a":1},"url":"https://h/"},"cron":"30 1 * * *","missed":"skip","name":"n",` +
				`"reason":"r","timezone":"Asia/Shanghai"}`,
		}, cmdtest.Exchange{
			Line: "schedule create --name n --cron @daily --endpoint merchant-7 --disabled --payload @" + file,
			Says: []string{named, "made"}, Call: all,
			Body: `{"callback":{"endpoint":"merchant-7","payload":{"payload":{"a":1.5},"url":"https://h/"}},"cron":"@daily",` +
				`"enabled":false,"name":"n"}`,
		}, cmdtest.Exchange{
			Line: "schedule create --name n --cron @daily --callback-file " + file, Says: []string{named, "made"}, Call: all,
			Body: `{"callback":{"payload":{"a":1.5},"url":"https://h/"},"cron":"@daily","name":"n"}`,
		}, cmdtest.Exchange{
			Line: "schedule set " + scheduleID + " --callback-file -", Stdin: `{"url":"https://stdin/"}`,
			Says: []string{named, "changed; it is disabled"}, Call: one, Body: `{"callback":{"url":"https://stdin/"}}`,
		}, cmdtest.Exchange{
			Line: "schedule set " + scheduleID + " --enabled --name m --callback @" + file, Says: []string{"changed"}, Call: one,
			Body: `{"callback":{"payload":{"a":1.5},"url":"https://h/"},"enabled":true,"name":"m"}`,
		}, cmdtest.Exchange{
			Line: "schedule set " + scheduleID + " --disable", Says: []string{"changed"}, Call: one, Body: `{"enabled":false}`,
		})
}

func TestScheduleCommands(t *testing.T) {
	t.Parallel()
	const one = "/v1/schedules/" + scheduleID
	disabled := cmdtest.With(t, oneSchedule, `{"enabled":false,"next_at":null,"last_at":null}`)
	program.Exchanges(t, map[string]string{
		"GET /v1/schedules": cmdtest.ListOf(cmdtest.With(t, oneSchedule, `{"last_error":"no endpoint"}`), disabled),
		"GET " + one:        oneSchedule, "DELETE " + one: "", "POST " + one + "/run": cmdtest.OneCallback,
		"GET " + one + "/runs": cmdtest.ListOf(`{"callback_id":"` + cmdtest.OneID + `","due_at":"2026-11-20T17:30:00.000Z",
 "fired_at":"2026-11-20T17:30:00.001Z","trigger":"manual"}`),
	}, cmdtest.Exchange{
		Line: "schedule list --search b", Call: "GET /v1/schedules?limit=50&search=b",
		Says: []string{`books \x1b`, "Asia/Shanghai", "without a callback: no endpoint", "disabled", "never"},
	},
		cmdtest.Exchange{Line: "schedule list --disabled", Call: "GET /v1/schedules?enabled=false&limit=50"},
		cmdtest.Exchange{
			Line: "schedule list --enabled --json", Says: []string{`"next_cursor": null`},
			Call: "GET /v1/schedules?enabled=true&limit=50",
		}, cmdtest.Exchange{
			Line: "schedule get " + scheduleID, Call: "GET " + one,
			Says: []string{
				"cron       30 1 * * *, in Asia/Shanghai\n", "once: one callback", "next       2098-12-31 ",
				`callback   {"url":"https://books.example/","payload":{"a":  "<b>"}}` + "\n", cmdtest.OneID,
			},
		},
		cmdtest.Exchange{Line: "schedule get " + scheduleID + " --json", Says: []string{`"cron": "30 1 * * *"`}, Call: "GET " + one},
		cmdtest.Exchange{
			Line: "schedule run " + scheduleID + " --reason r", Says: []string{cmdtest.OneID + "  accepted"},
			Call: "POST " + one + "/run", Body: `{"reason":"r"}`,
		},
		cmdtest.Exchange{Line: "schedule runs " + scheduleID, Says: []string{cmdtest.OneID, "manual"}, Call: "GET " + one + "/runs"},
		cmdtest.Exchange{
			Line: "schedule delete " + scheduleID + " --reason r", Says: []string{"is removed"},
			Call: "DELETE " + one, Body: `{"reason":"r"}`,
		},
		cmdtest.Exchange{
			Line: "schedule run sc_1", Code: console.ExitFailed,
			Warns: []string{`dispatcher: no schedule has the id "sc_1" (404 not_found)` + "\n"},
		}, cmdtest.Exchange{
			Line: "schedule run books", Code: console.ExitFailed,
			Warns: []string{`dispatcher: a schedule is named by its id, and "books" is none; ` +
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
	if got := wallTime(at, far); got != want {
		t.Errorf("%s: %q", far, got)
	}
	for _, zone := range []string{"Local", "Mars/Olympus", "x\x1b"} {
		if got := wallTime(at, zone); got != "" {
			t.Errorf("%s: %q", zone, got)
		}
	}
}

// A server of this program knows schedules: the wiring is whole. The demo shows that it knows polls.
func TestServeKnowsSchedules(t *testing.T) {
	t.Parallel()
	r := apptest.Start(t, apptest.Settings(t))
	var s client.Schedule
	r.Call(t, http.MethodPost, "/v1/schedules", map[string]any{
		"name": "n", "cron": "0 3 * * *", "timezone": "America/New_York",
		"callback": json.RawMessage(`{"url":"http://127.0.0.1:1/","payload":{"a":  1}}`),
	}, &s)
	var cb client.Callback
	r.Call(t, http.MethodPost, "/v1/schedules/"+s.ID+"/run", nil, &cb)
	if body := r.Call(t, http.MethodGet, remote.CallbackPath(cb.ID)+"/payload", nil, nil); string(body) != `{"a":  1}` {
		t.Errorf("the payload of the schedule is %s", body)
	}
}
