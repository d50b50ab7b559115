package smoke

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// oddPayload has spaces, escapes, key order and numbers that no decode and encode would keep.
const oddPayload = `{ "z":1.0,   "a" :"\u00e9\/\u003c",` + "\t" + `"big": 12345678901234567890123 , "e":1E+2,"list":[ ],"a2":null }`

// trialOn is a trial on a backend, whose processes take up the work of dead ones after seconds.
func trialOn(t *testing.T, b harness.Backend) *harness.Trial {
	t.Helper()
	tr := harness.NewTrial(t, t.Name())
	tr.UseBackend(b)
	tr.Times = harness.QuickTimes
	return tr
}

// The main job: three attempts under tiers of one and two seconds, then success, on every combination. The judge sees
// that none was early, and that the bytes are those that were accepted.
func TestThreeAttemptsUnderTiersWithTheSameIDAndBytes(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.AllFour, func(t *testing.T, b harness.Backend) {
		const n = 20
		tr := trialOn(t, b)
		tr.Receiver.Lean = false
		tr.Receiver.Answer(func(a *harness.Arrival) harness.Reply {
			if a.Nth < 3 {
				return harness.Reply{Status: 500, Body: "not yet"}
			}
			return harness.Reply{Status: 200, Body: "success"}
		})
		p := tr.Serve()
		for i := range n {
			tr.AskAndNote(harness.Submission{
				"url": tr.Receiver.URL + "/notify", "topic": "payment.succeeded", "ref": fmt.Sprint("order-", i), "lane": "shop",
				"payload": json.RawMessage(oddPayload), "policy": harness.Submission{"tiers": []string{"1s", "2s"}},
				"success": "body-success",
			})
		}
		tr.Settle(30 * time.Second)
		v := tr.Verdict(judge.Bounds{})
		if v.Sends != 3*n {
			t.Errorf("%d sends of %d callbacks, want three each", v.Sends, n)
		}
		var late []time.Duration
		for cb, err := range p.Callbacks(client.Filter{}).All(t.Context()) {
			tr.Check(err)
			attempts, err := p.AttemptsOf(cb.ID)
			tr.Check(err)
			var classes []string
			for i, a := range attempts {
				classes = append(classes, string(a.Class))
				late = append(late, time.Duration(a.LatenessMs*float64(time.Millisecond)))
				if a.Number != i+1 || !a.Charged || a.Trigger != "schedule" {
					t.Errorf("%s: attempt %d is %+v", cb.ID, i+1, a)
				}
			}
			if want := []string{"http_5xx", "http_5xx", "ok"}; !slices.Equal(classes, want) {
				t.Errorf("%s: classes %q, want %q", cb.ID, classes, want)
			}
		}
		// How late they are depends on the machine: half of them can wait for one slow fsync. A retry that was lost, and
		// found by the sweep, is later than five seconds.
		if judge.Quantile(late, 0.25) > 250*time.Millisecond || v.Lateness.Most > 5*time.Second {
			t.Errorf("three quarters are late by more than %s; all: %s", judge.Quantile(late, 0.25), v.Lateness)
		}
		secret, err := p.Secret(t.Context(), client.SecretQuery{Lane: "shop"})
		tr.Check(err)
		verifier, err := standardwebhooks.NewWebhook(secret.Secret)
		tr.Check(err)
		for _, a := range tr.Receiver.All() {
			if err := verifier.Verify(a.Body, a.Header); err != nil || a.Header.Get("Content-Type") != "application/json" ||
				!strings.HasPrefix(a.Header.Get("User-Agent"), "dispatcher/") || a.Number != a.Nth {
				t.Errorf("%s, arrival %d: signature %v, headers %v", a.ID, a.Nth, err, a.Header)
			}
		}
	})
}

// Every address that something can be sent to is checked when it is given: case 29 of the security list. A
// test send goes to an endpoint's address.
func TestInternalAddressesAreRefusedWhereverTheyAreGiven(t *testing.T) {
	harness.BlackBox(t)
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
	callback := "/v1/callbacks/" + p.Make("/v1/callbacks", harness.Submission{"url": "http://127.0.0.1:9/", "payload": 1, "delay": "1h"})
	const (
		inside = `"url": "http://169.254.169.254/latest/meta-data/"`
		until  = `"until": {"success": [{"status": [200]}]}`
	)
	for _, c := range []struct{ method, path, body, field string }{
		{"POST", "/v1/callbacks", inside + `, "payload": 1`, "url"},
		{"POST", callback + "/retry", inside, "url"},
		{"PATCH", callback, inside, "url"},
		{"POST", "/v1/redrives", `"action": "set_url", "filter": {}, ` + inside, "url"},
		{"POST", "/v1/endpoints", inside, "url"},
		{"POST", "/v1/polls", `"ref": "a", "request": {` + inside + `}, ` + until, "request"},
		{"POST", "/v1/polls", `"ref": "a", "request": {"url": "https://shop.example/"}, ` + until + `, "on_result": {` + inside + `}`,
			"on_result"},
		{"POST", "/v1/schedules", `"name": "a", "cron": "@every 1h", "callback": {` + inside + `, "payload": 1}`, "callback"},
	} {
		_, err := p.Call(t.Context(), c.method, c.path, json.RawMessage("{"+c.body+"}"), nil)
		refusal := harness.Refusal(err)
		if refusal == nil || refusal.Status != 422 || !slices.ContainsFunc(refusal.Errors, func(e client.FieldError) bool {
			return strings.HasPrefix(e.Field, c.field) && strings.Contains(e.Message, "is not a public address")
		}) {
			t.Errorf("%s %s: %v, want an error of %s", c.method, c.path, err, c.field)
		}
	}
}

// A dispatcher that is killed under load loses nothing, and sends again only what it had in flight.
func TestKilledUnderLoad(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		// One process runs at a time and commits its results before it claims again: it loses no claim in a stall.
		struckUnderLoad(trialOn(t, b), func(tr *harness.Trial) {
			tr.Kill(tr.AnyProcess(), 0)
			tr.Serve()
		})
	})
}

// Redis that is emptied under load is rebuilt without a restart, and nothing is lost or sent twice: what was in flight
// may be adopted.
func TestRedisIsEmptiedUnderLoad(t *testing.T) {
	harness.BlackBox(t)
	struckUnderLoad(trialOn(t, harness.NewBackend(t, harness.PostgresRedis)), func(tr *harness.Trial) {
		tr.Flush()
		tr.MarkFault()
	})
}

// struckUnderLoad has a fault strike between two hundred callbacks.
func struckUnderLoad(tr *harness.Trial, strike func(*harness.Trial)) {
	tr.Serve()
	load := tr.Load(40, tr.Mixed)
	more := func() { tr.AtLeast(time.Minute, "the load is handed over", tr.Count()+100, tr.Count) }
	more()
	strike(tr)
	more()
	load.Finish()
	tr.Conclude(2*time.Minute, 2*time.Minute)
}

// A thousand callbacks with one lock key never overlap, follow each other closely, and keep no worker waiting.
func TestOneLockKeyNeverOverlapsAndDivertsUncharged(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		const n = 1000
		tr := trialOn(t, b)
		tr.Receiver.Answer(harness.Always(harness.Reply{Status: 200, After: time.Millisecond}))
		p := tr.Serve("--workers", "64")
		tr.AcceptMany(n, func(i int) harness.Submission {
			s := tr.Numbered("locked")(i)
			s["lock_key"], s["lane"] = "order-7", fmt.Sprint("merchant-", i%20) // many lanes: none serialises them
			return s
		})
		// A worker that waited for the lock would not be there for the others.
		for i := range 20 {
			id := tr.AskAndNote(tr.Callback("free", fmt.Sprint("free-", i)))
			tr.AtLeast(10*time.Second, "a callback without a lock is sent", 1, func() int { return tr.Receiver.Times(id) })
		}
		tr.Settle(3 * time.Minute)
		tr.Verdict(judge.Bounds{})
		locked := slices.DeleteFunc(tr.Receiver.All(), func(a harness.Arrival) bool { return a.Kind() == "free" })
		slices.SortFunc(locked, func(a, b harness.Arrival) int { return a.At.Compare(b.At) })
		var gaps []time.Duration
		for i := 1; i < len(locked); i++ {
			gaps = append(gaps, locked[i].At.Sub(locked[i-1].End))
		}
		rows, err := p.ListAll(client.Filter{})
		tr.Check(err)
		diverts := 0
		for _, row := range rows {
			if diverts += row.DivertCount; row.AttemptCount != 1 {
				t.Errorf("%s has %d charged attempts, want 1: a divert charges nothing", row.Ref, row.AttemptCount)
			}
		}
		between := judge.QuantilesOf(gaps)
		t.Logf("%s: %d under one lock: gaps %s (goal of p50: 5 ms); %d diverts", b.Name, n, between, diverts)
		// A waiter that is not woken waits for a second and more.
		if diverts == 0 || between.P50 > 500*time.Millisecond {
			t.Errorf("%d diverts, and the median gap is %s", diverts, between.P50)
		}
	})
}
