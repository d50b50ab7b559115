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
