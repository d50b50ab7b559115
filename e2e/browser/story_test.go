package browser

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// What an operator does on a bad day: finds an order, sees why it hangs, mends that and watches; pauses a merchant and resumes them; redrives what
// has died; makes a schedule, changes it and runs it; leaves. The same with a mouse, by keys alone, and without scripts.
func TestBrowserOperatorsDay(t *testing.T) {
	harness.BlackBox(t)
	for _, c := range []struct {
		name        string
		on          harness.Combination
		keys, plain bool
	}{
		{"mouse on postgres+redis", harness.PostgresRedis, false, false},
		{"mouse on sqlite+embedded", harness.SQLiteEmbedded, false, false},
		{"keys", harness.SQLiteEmbedded, true, false},
		{"without scripts", harness.SQLiteEmbedded, false, true},
	} {
		if c.name != "mouse on postgres+redis" && !testserver.Full() {
			continue // make test tells the story once
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := &day{T: t}
			d.r = harness.NewReceiver(t, func(a *harness.Arrival) harness.Reply {
				if d.closed.Load() && strings.HasPrefix(a.Path, "/shop") {
					return harness.Reply{Status: 503, Body: "closed for maintenance"}
				}
				return harness.Reply{Status: 200, Body: "success"}
			})
			d.closed.Store(true)
			d.p = harness.Serve(t, harness.Launch{On: harness.NewBackend(t, c.on)})
			d.fill()
			d.h = hands{newTab(t, d.p.Base), c.keys, c.plain}
			if c.plain {
				d.h.scripts(false)
			}
			d.comesIn()
			d.findsWhatHangs()
			d.pausesAndResumes()
			d.redrives()
			d.schedules()
			d.leaves()
		})
	}
}

// A day is one such run.
type day struct {
	*testing.T
	p        *harness.Process
	r        *harness.Receiver
	h        hands
	closed   atomic.Bool // the shop answers 503
	endpoint string
	hung     string
}

// dayDead is how many callbacks have died of the shop.
const dayDead = 3

// fill makes an order whose lane is paused, one that waits an hour for its second attempt, and some that have died.
func (d *day) fill() {
	do := d.p.Make
	d.endpoint = do("/v1/endpoints", harness.Submission{"external_id": "merchant-7", "name": "Tea shop", "url": d.r.URL + "/shop"}, http.StatusCreated)
	do("/v1/lanes/moving/pause", harness.Submission{"reason": "the merchant moves house"}, http.StatusOK)
	d.hung = do("/v1/callbacks", harness.Submission{"url": d.r.URL + "/moved", "lane": "moving", "ref": "order-0815", "topic": "payment.succeeded", "payload": harness.Submission{"paid": 1}}, http.StatusAccepted)
	do("/v1/callbacks", harness.Submission{"endpoint": "merchant-7", "ref": "order-4711", "payload": harness.Submission{"paid": 1}, "policy": harness.AskAfter("1h", "2h")}, http.StatusAccepted)
	for i := range dayDead {
		do("/v1/callbacks", harness.Submission{"endpoint": "merchant-7", "ref": fmt.Sprint("dead-", i), "payload": harness.Submission{"paid": i}, "policy": harness.AskAfter("20ms")}, http.StatusAccepted)
	}
	harness.AtLeast(d, time.Minute, "what can die has died", dayDead, func() int {
		dead, err := d.p.ListAll(client.Filter{State: []client.State{"dead"}})
		if err != nil {
			d.Fatal(err)
		}
		return len(dead)
	})
}

// comesIn tries a wrong key before the right one, and lands where they wanted to go.
func (d *day) comesIn() {
	h := d.h
	h.forgive(`status of 401`)
	h.open("/ui/callbacks?state=scheduled")
	h.arrive("/ui/sign-in")
	h.write("#key", "not a key at all")
	h.use("button", "Sign in")
	h.see("[role=alert]", "not valid")
	h.write("#key", harness.AdminKey)
	h.press("Enter")
	h.arrive("/ui/callbacks?state=scheduled")
	h.see("h1", "Callbacks")
}

// findsWhatHangs looks for an order, reads that its lane is paused, resumes it, and sees it succeed. Another one is retried by hand.
func (d *day) findsWhatHangs() {
	h := d.h
	if h.keys {
		h.press("/") // the shortcut of the search
		if at := h.focused(); at != "#q" {
			d.Errorf("“/” leads to %q", at)
		}
	}
	h.write("#q", "order-0815")
	h.press("Enter")
	h.arrive("/ui/orders?ref=order-0815")
	h.use("tbody a", "payment.succeeded")
	h.arrive("/ui/callbacks/" + d.hung)
	h.see(".why", "Its lane is paused")
	h.see(".why", "the merchant moves house")
	stays := h.stays("a lane is resumed elsewhere")
	// Somebody else resumes the lane; who looks at the order sees it go.
	o := hands{h.another(), h.keys, h.plain}
	if h.plain {
		o.scripts(false)
	}
	o.open("/ui/lanes?held=true")
	o.use("td.act a", "Resume")
	o.see("[data-act]", "What was held is sent now")
	o.use("[data-act] button", "Resume it")
	o.see(".flash, .toast", "The lane is resumed")
	h.becomes(".why", "succeeded")
	h.becomes(".timeline", "Attempt 1")
	stays()

	h.open("/ui/callbacks?ref=order-4711")
	h.use("tbody a", "order-4711")
	h.see(".why", "It waits for its due time")
	h.see(".timeline", "503")
	d.closed.Store(false)
	stays = h.stays("a callback is retried")
	h.use("#retry", "")
	h.see(".flash, .toast", "attempted at once")
	h.becomes(".why", "succeeded")
	h.becomes(".timeline", "by hand")
	stays()
}

// pausesAndResumes holds a merchant and lets them go.
func (d *day) pausesAndResumes() {
	h := d.h
	h.open("/ui/endpoints/" + d.endpoint)
	stays := h.stays("an endpoint is paused and resumed")
	h.use(".head a", "Pause")
	if h.keys { // changes their mind first
		h.see("dialog h1", "Pause the endpoint")
		h.press("Escape")
		h.seeNot("dialog", "")
		h.press("Enter")
	}
	h.see("[data-act]", "Nothing more is sent to it")
	h.write("#f-reason", "they move house")
	h.use("[data-act] button", "Pause it")
	h.see(".flash, .toast", "Paused.")
	if h.keys && h.focused() == "" {
		d.Error("the dialog has done what it was for, and the focus is nowhere: the next Tab begins at the top")
	}
	h.see("main", "they move house")
	cb, err := d.p.Accept(d.Context(), harness.Submission{"endpoint": "merchant-7", "ref": "held-1", "payload": harness.Submission{"paid": 1}})
	if err != nil {
		d.Fatal(err)
	}
	h.becomes("main tbody a", "held-1")
	h.use(".head a", "Resume")
	h.use("[data-act] button", "Resume it")
	h.see(".flash, .toast", "Resumed")
	h.becomes("tr[data-id="+cb.ID+"]", "succeeded")
	stays()
}

// redrives retries all that died of one cause, having seen how many that is.
func (d *day) redrives() {
	h := d.h
	h.open("/ui/dead")
	h.see(".causes tbody tr", "503")
	stays := h.stays("a group of the dead is redriven")
	h.use(".causes a", "Redrive")
	h.see("[data-act] .say", fmt.Sprint(dayDead, " callbacks will be attempted again"))
	h.write("#f-reason", "the shop is open again")
	h.use("[data-act] button", "Count again")
	h.see("[data-act] .preview", fmt.Sprint(dayDead, " callbacks"))
	h.use("[data-act] button", "Retry them")
	h.arrive("/ui/redrives/rd_")
	h.becomes("#progress-title", "All of it was done")
	h.see(".facts div", fmt.Sprint("Done ", dayDead))
	stays()
	h.open("/ui/dead")
	h.becomes("main", "Nothing is dead")
}

// schedules makes a schedule, looks when it would be due, changes it, and runs it.
func (d *day) schedules() {
	h := d.h
	h.open("/ui/schedules")
	h.use(".head a", "New schedule")
	h.arrive("/ui/schedules/new")
	h.write("#f-name", "daily-books")
	h.write("#f-cron", "61 * * * *")
	h.write("#f-callback", `{"url": "`+d.r.URL+`/books", "ref": "books-of-the-day", "payload": {"kind": "daily"}}`)
	h.forgive(`status of 422`)
	h.use("main button", "Create it")
	h.see(".field.wrong", "When")
	h.write("#f-cron", "30 1 * * *")
	h.use("main button", "Preview the times")
	h.see(".preview", "01:30:00")
	h.use("main button", "Create it")
	h.arrive("/ui/schedules/sc_")
	h.see("main", "30 1 * * *")
	h.use(".head a", "Edit")
	h.write("#f-cron", "45 2 * * *")
	h.use("main button", "Save")
	h.arrive("/ui/schedules/sc_")
	h.see("main", "45 2 * * *")
	at := h.where()
	h.use("#run", "")
	h.arrive("/ui/callbacks/cb_")
	h.becomes(".why", "succeeded")
	h.see("h1", "books-of-the-day")
	h.open(at)
	h.see("main", "by hand")
}

// leaves signs out: no page can be seen any more, and one that stood open is left too.
func (d *day) leaves() {
	h := d.h
	h.open("/ui/")
	h.use("summary", "default")
	h.use(".who button", "Sign out")
	h.arrive("/ui/sign-in")
	h.open("/ui/polls")
	h.arrive("/ui/sign-in")
}
