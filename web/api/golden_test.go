package api_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestGoldenCallbacks(t *testing.T) {
	t.Parallel()
	attempting := sample()
	attempting.ClaimUntil = nowMS + 1
	dead := sample()
	dead.State, dead.Reason, dead.DueAt, dead.FinishedAt = store.Dead, store.Exhausted, nowMS, nowMS
	seven := int64(7)
	bare := store.Callback{
		ID: bareID, Project: store.DefaultProject, Kind: store.Notify, URL: "http://shop.example/", Method: "GET", Lane: "m\"1\n",
		Policy: store.Policy{
			Tiers: []time.Duration{time.Second}, RepeatLast: true, Deadline: 72 * time.Hour, Timeout: 2500 * time.Millisecond,
			Jitter: 0.1, RetryAfterCap: time.Hour, StopOn: []int{410, 404},
		},
		Success: store.Success{Rule: `{"status":["200-299"],"body":{"contains":"<ok>"}}`}, Signer: `{"type":"sorted-kv","alg":"md5"}`,
		State: store.Scheduled, DueAt: nowMS, CreatedAt: nowMS, UpdatedAt: nowMS, ExpiresAt: nowMS + dayMS, Version: &seven,
	}
	strict := sample()
	strict.EndpointID, strict.Lane, strict.Strict, strict.Signer = bareEndpoint, oneEndpoint, true, ""
	strict.Success = store.Success{Name: "our-own", Rule: `{"status":[200]}`}
	for name, cb := range map[string]store.Callback{
		"scheduled": sample(), "attempting": attempting, "dead": dead, "bare": bare, "endpoint": strict,
	} {
		golden(t, newFace(t, &engine{callback: cb}), "callback_"+name+".json", "GET", "/v1/callbacks/"+oneID, "")
	}
}

func TestGoldenAttempts(t *testing.T) {
	t.Parallel()
	e := &engine{attempts: []store.Attempt{
		{
			Number: 1, Trigger: store.BySchedule, Outcome: store.AttemptFailed, Charged: true, Class: store.ClassRuleMismatch, Status: 200,
			StartedAt: nowMS + 1, EndedAt: nowMS + 9, DueAt: nowMS, Lateness: 0.8125,
			Timings:        store.Timings{DNS: 0.1, Connect: 1.25, TLS: 0, FirstByte: 7.5, Total: 8.00049},
			RequestHeaders: []store.Header{{Name: "webhook-id", Value: oneID}, {Name: "Authorization", Value: "***"}},
			ResponseHeaders: []store.Header{
				{Name: "Content-Type", Value: "text/plain"}, {Name: "Retry-After", Value: "1"}, {Name: "retry-after", Value: "2"},
			},
			ResponseBody: "<b>fail</b>\n\"\x1b[31m", ResponseTruncated: true,
			Rule:      &store.Rule{Name: "body-success", Expected: "success", Saw: "fail"},
			NextDueAt: nowMS + 15_009,
		},
		{
			Number: 2, Trigger: store.Manual, Outcome: store.AttemptUnknown, Class: store.ClassCrashed, Error: "the dispatcher ended",
			StartedAt: nowMS + 15_010, DueAt: nowMS + 15_009, Lateness: 1,
		},
	}}
	slices.Reverse(e.attempts) // as the store returns them
	golden(t, newFace(t, e), "attempts.json", "GET", "/v1/callbacks/"+oneID+"/attempts", "")
	rec := newFace(t, &engine{}).do("GET", "/v1/callbacks/"+oneID+"/attempts", "")
	if got := rec.Body.String(); got != `{"data":[],"next_cursor":null}` {
		t.Errorf("no attempts: %s", got)
	}
}

func TestGoldenOperation(t *testing.T) {
	t.Parallel()
	e := &engine{
		audit: []store.AuditEntry{
			{
				ID: bareID[:25] + "2", At: nowMS, Actor: "admin key", Action: "callback.cancel", Object: oneID,
				Reason: "asked", Detail: `{"was":"scheduled"}`, Address: "192.0.2.7",
				Before: `{"state":"scheduled"}`, After: `{"state":"canceled"}`,
				Link: store.AuditLink{Seq: 12, Hash: strings.Repeat("0a", 32)},
			},
			{ID: bareID[:25] + "1", At: nowMS - 1, Actor: "admin key", Action: "secret.rotate", Detail: "not JSON"},
		},
	}
	e.drift.Rows, e.drift.Items, e.drift.Missing, e.drift.MissingIDs = 9, 8, 1, []string{oneID}
	e.driftAll = index.Drift{
		Rows: 9, Items: 8, Beyond: 4, Extra: 2, Unknown: 1, Ended: 1, ExtraIDs: []string{oneID, oneID}, UnknownIDs: []string{oneID}, EndedIDs: []string{oneID},
		Generation: 3, IndexGeneration: 4,
	}
	e.auditCheck = control.AuditCheck{
		Checked: 11, Broken: &store.AuditBreak{Fault: store.AuditChanged, Seq: 12, ID: bareID},
		Head: store.AuditHead{
			Link: store.AuditLink{Seq: 40, Hash: strings.Repeat("0b", 32)}, Last: 40, Unchained: 2,
		},
	}
	f := newFace(t, e)
	for _, c := range []struct{ method, path, body, file string }{
		{"GET", "/v1/stats", "", "stats.json"},
		{"GET", "/v1/secret?lane=https://shop.example:443", "", "secret.json"},
		{"POST", "/v1/secret/rotate", "", "rotate.json"},
		{"POST", "/v1/index/verify", "", "verify.json"},
		{"POST", "/v1/index/verify", `{"all":true}`, "verify_all.json"},
		{"POST", "/v1/index/rebuild", `{"dry_run":true}`, "rebuild.json"},
		{"GET", "/v1/audit", "", "audit.json"},
		{"GET", "/v1/audit/verify?from=11:" + strings.Repeat("0a", 32), "", "audit_verify.json"},
		{"POST", "/v1/callbacks/" + oneID + "/cancel", `{"reason":"asked"}`, "cancel.json"},
	} {
		golden(t, f, c.file, c.method, c.path, c.body)
	}
}
