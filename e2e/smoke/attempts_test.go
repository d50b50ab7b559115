package smoke

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
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

// The main job: three attempts under tiers of one and two seconds, then success, on every combination.
func TestThreeAttemptsUnderTiersWithTheSameIDAndBytes(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.AllFour, func(t *testing.T, b harness.Backend) {
		const n = 20
		tiers := []time.Duration{time.Second, 2 * time.Second}
		r := harness.NewReceiver(t, func(a *harness.Arrival) harness.Reply {
			if a.Nth < 3 {
				return harness.Reply{Status: 500, Body: "not yet"}
			}
			return harness.Reply{Status: 200, Body: "success"}
		})
		p := harness.Serve(t, harness.Launch{On: b})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		var ids []string
		var lane string
		for i := range n {
			body := fmt.Sprintf(`{"url": %q, "topic": "payment.succeeded", "ref": "order-%d", "payload": %s,
				"policy": {"tiers": ["1s", "2s"]}, "success": "body-success"}`, r.URL+"/notify", i, oddPayload)
			got, err := p.Raw(ctx, http.MethodPost, "/v1/callbacks", []byte(body), nil)
			if err != nil {
				t.Fatal(err)
			}
			var cb client.Callback
			if err := got.Decode(&cb); err != nil || got.Status != http.StatusAccepted {
				t.Fatalf("accept answered %d: %s %v", got.Status, got.Body, err)
			}
			if cb.MaxAttempts == nil || *cb.MaxAttempts != 3 || cb.State != "scheduled" && cb.State != "attempting" {
				t.Fatalf("accepted as %+v", cb)
			}
			ids, lane = append(ids, cb.ID), cb.Lane
		}
		harness.Await(t, p.Client, 30*time.Second)

		var lateAtReceiver, lateInSQL []time.Duration
		for _, id := range ids {
			cb, err := p.Callback(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			if cb.State != "succeeded" || cb.AttemptCount != 3 || !cb.DueAt.IsZero() || cb.FinishedAt.IsZero() {
				t.Errorf("%s ended as %+v", id, cb)
			}
			got := r.Of(id)
			if len(got) != 3 {
				t.Fatalf("%s arrived %d times, want 3", id, len(got))
			}
			checkSends(t, got)
			for i, tier := range tiers {
				gap := got[i+1].At.Sub(got[i].End)
				if gap < tier {
					t.Errorf("%s: attempt %d came %s after attempt %d ended, before its tier of %s", id, i+2, gap, i+1, tier)
				}
				lateAtReceiver = append(lateAtReceiver, gap-tier)
			}
			attempts, err := p.AttemptsOf(id)
			if err != nil {
				t.Fatal(err)
			}
			lateInSQL = append(lateInSQL, checkRows(t, id, attempts)...)
		}
		quarter, late := judge.Quantile(lateAtReceiver, 0.25), judge.QuantilesOf(lateAtReceiver)
		t.Logf("%s: %d retries; late at the receiver: p25 %s, %s; late in SQL: %s", b.Name, len(lateAtReceiver),
			quarter, late, judge.QuantilesOf(lateInSQL))
		// None may be early. How late they are depends on the machine: half of them can wait for one slow fsync.
		// A retry that was lost, and found by the sweep, is later than five seconds.
		if quarter > 250*time.Millisecond || late.Most > 5*time.Second {
			t.Errorf("three quarters are late by more than %s, and one by %s", quarter, late.Most)
		}
		checkSignatures(t, p, lane, r)
	})
}

// checkSends looks at the headers and bytes of the sends of one callback.
func checkSends(t *testing.T, got []harness.Arrival) {
	t.Helper()
	for i, a := range got {
		if !bytes.Equal(a.Body, []byte(oddPayload)) {
			t.Errorf("%s attempt %d arrived with other bytes:\n%q, want\n%q", a.ID, i+1, a.Body, oddPayload)
		}
		if a.Number != i+1 {
			t.Errorf("%s: arrival %d says webhook-attempt %d", a.ID, i+1, a.Number)
		}
		if ct := a.Header.Get("Content-Type"); ct != "application/json" {
			t.Errorf("%s: content type %q", a.ID, ct)
		}
		if ua := a.Header.Get("User-Agent"); !strings.HasPrefix(ua, "dispatcher/") {
			t.Errorf("%s: user agent %q", a.ID, ua)
		}
	}
}

// checkRows looks at the attempts of one callback in SQL, and returns their lateness.
func checkRows(t *testing.T, id string, attempts []client.Attempt) []time.Duration {
	t.Helper()
	var classes []string
	var late []time.Duration
	for i, a := range attempts {
		classes = append(classes, string(a.Class))
		late = append(late, time.Duration(a.LatenessMs*float64(time.Millisecond)))
		if a.Number != i+1 || !a.Charged || a.Trigger != "schedule" {
			t.Errorf("%s: attempt %d is %+v", id, i+1, a)
		}
	}
	if want := []string{"http_5xx", "http_5xx", "ok"}; !slices.Equal(classes, want) {
		t.Errorf("%s: classes %q, want %q", id, classes, want)
	}
	return late
}

// checkSignatures verifies every arrival with the lane's secret and an independent library.
func checkSignatures(t *testing.T, p *harness.Process, lane string, r *harness.Receiver) {
	t.Helper()
	var secret struct {
		Lane   string `json:"lane"`
		Secret string `json:"secret"`
	}
	if err := p.Read(t.Context(), "/v1/secret?lane="+url.QueryEscape(lane), &secret); err != nil {
		t.Fatal(err)
	}
	verifier, err := standardwebhooks.NewWebhook(secret.Secret)
	if err != nil {
		t.Fatalf("secret of lane %q: %v", secret.Lane, err)
	}
	for _, a := range r.All() {
		if err := verifier.Verify(a.Body, a.Header); err != nil {
			t.Errorf("%s attempt %d: signature: %v", a.ID, a.Number, err)
		}
	}
}
