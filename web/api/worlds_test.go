package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	bareID       = "01JD6QZ0000000000000000001"
	olderID      = "01JD6QZ0000000000000000000"
	bareEndpoint = "01JD6QZ0000000000000000007"
	bareKey      = "01JD6QZ0000000000000000009"
	bareEntry    = "01JD6QZ000000000000000000A"
	bareRedrive  = "01JD6QZ000000000000000000R"
	bareSchedule = "01JD6QZ000000000000000000S"
	oneID        = "cb_" + bareID
	oneEndpoint  = "ep_" + bareEndpoint
	oneLane      = "https://shop.example:443"
)

// world is a stub that has one of everything, in a state of that name.
func world(t testing.TB, name string) *engine {
	e := fullEngine()
	if name == "full" {
		return e
	}
	change := worlds[name]
	if change == nil {
		t.Fatalf("there is no world %q", name)
	}
	change(e)
	return e
}

// fullEngine has one of everything.
func fullEngine() *engine {
	return &engine{
		callback: sample(), attempts: someAttempts(), endpoint: someEndpoint(), presets: somePresets(),
		lanes: someLanes(), outcomes: someOutcomes(), schedule: someSchedule(), poll: somePoll(), audit: someEntries(),
		event:    accept.EventReceipt{ID: bareEntry, Callbacks: []string{bareID, olderID}},
		evidence: "callback: " + oneID + "\n<script>", payload: store.Payload{Body: []byte(`{ "a":1 }<script>`)},
		explanation: control.Explanation{Summary: "Its lane is paused.", NextAt: nowMS + 1, Blocking: []control.Block{
			{
				Code: control.BlockLanePaused, Until: store.Forever, Detail: "The lane is paused.",
				Cure: "POST /v1/lanes/m-1/resume",
			},
			{Code: control.BlockBreakerOpen, Since: nowMS - 1, Until: nowMS + 1, Detail: "No answer."},
		}},
		drift: index.Drift{
			Rows: 9, Items: 8, Beyond: 4, Missing: 1, Extra: 2, Unknown: 1, Ended: 1, MissingIDs: []string{oneID},
			ExtraIDs: []string{oneID, oneID}, UnknownIDs: []string{oneID}, EndedIDs: []string{oneID},
			Generation: 3, IndexGeneration: 4,
		},
		auditCheck: control.AuditCheck{
			Checked: 11, Broken: &store.AuditBreak{Fault: store.AuditChanged, Seq: 12, ID: bareEntry},
			Head: store.AuditHead{
				Link: store.AuditLink{Seq: 40, Hash: strings.Repeat("0b", 32)}, Last: 40, Unchained: 2,
			},
		},
	}
}

// worlds are the states that a stub can be in.
var worlds = map[string]func(e *engine){
	"empty": func(e *engine) {
		*e = engine{endpoint: someEndpoint(), explanation: control.Explanation{Summary: "It was delivered."}}
	},
	"replays":        func(e *engine) { e.replayed, e.event.Replayed, e.event.Callbacks = true, true, []string{} },
	"on fire":        func(e *engine) { e.err = errors.New("disk on fire") },
	"given up":       func(e *engine) { e.err = context.DeadlineExceeded },
	"exists":         func(e *engine) { e.err = store.ErrExists },
	"terminal":       func(e *engine) { e.err = fmt.Errorf("redrive: %w", store.ErrTerminal) },
	"other request":  func(e *engine) { e.err = store.ErrIdempotencyMismatch },
	"without index":  func(e *engine) { e.statsErr = store.ErrUnavailable },
	"of one's own":   func(e *engine) { e.created = true },
	"binary payload": func(e *engine) { e.payload.Body = []byte("\x00\xff\xfe") },
	"masked payload": func(e *engine) { e.payload = store.Payload{Body: []byte("4***1"), Masked: true} },
	"refuses": func(e *engine) {
		e.err = &store.InvalidError{Fields: []store.FieldError{
			{Field: "policy.tiers", Message: "m"}, {Field: "name", Message: "m"}, {Field: "", Message: "m"},
		}}
	},
	"attempting": func(e *engine) { e.callback.ClaimUntil = nowMS + 1 },
	"dead": func(e *engine) {
		e.callback.State, e.callback.Reason = store.Dead, store.Exhausted
		e.callback.DueAt, e.callback.FinishedAt = nowMS, nowMS
	},
	"bare": bare,
	"strict": func(e *engine) {
		cb := &e.callback
		cb.EndpointID, cb.Lane, cb.Strict, cb.Signer = bareEndpoint, oneEndpoint, true, ""
		cb.Success = store.Success{Name: "our-own", Rule: `{"status":[200]}`}
	},
	"pages": func(e *engine) {
		formula, done := sample(), sample()
		formula.Ref, formula.Topic, formula.LockKey, formula.Lane = `=cmd()`, "+1", "-1", "@x\n\""
		done.State, done.DueAt, done.Policy.RepeatLast = store.Succeeded, nowMS, true
		e.page = store.Page{
			Callbacks: []store.Callback{formula, done}, Next: &store.Cursor{DueAt: 7, ID: bareID},
		}
	},
	"paused endpoint": func(e *engine) {
		given := store.Policy{
			Name: "alipay", Tiers: []time.Duration{4 * time.Minute}, Timeout: 5 * time.Second, RetryAfterCap: time.Hour,
		}
		ep := &e.endpoint
		ep.Policy, ep.Success = store.PolicyChoice{Given: &given}, store.Success{Rule: `{"status":[200]}`}
		ep.PausedUntil, ep.FailingSince, ep.LastSuccessAt, ep.LastFailureAt = nowMS+dayMS, nowMS-5, nowMS-9, nowMS-1
	},
	"resumed endpoint": func(e *engine) { e.endpoint.PausedUntil, e.endpoint.PauseReason = nowMS, "long over" },
	"resolved poll": func(e *engine) {
		cb, d := &e.poll.Callback, &e.poll.Detail
		cb.State, cb.Reason, cb.FinishedAt = store.Succeeded, store.ResolvedOutside, nowMS
		d.Outcome, d.ResultID, d.Data = store.PollResolved, bareEndpoint, `[1,"<b>"]`
	},
	// It had been told as unresolved before it was retried, and is open.
	"poll again":     func(e *engine) { e.poll.Detail.Outcome, e.poll.Detail.ResultID = store.PollUnresolved, bareEndpoint },
	"damaged poll 1": damaged(""), "damaged poll 2": damaged("{"), "damaged poll 3": damaged(`["until"]`),
	"damaged poll 4": damaged(`null`), "damaged poll 5": damaged(`{"until":{}`),
	"template 1": template(`{}`),
	"template 2": template(` { "payload" : { "a" : [ 1.0 , "\u0041" ] } } `),
	"template 3": template(`{"headers":{"X-A":"b","Authorization":"Basic x","X-Token":"t"},` +
		`"url":"https://shop.example/?token=x"}`),
	"template 4": template(`{"headers":{"authorizatio\u006e":"Basic x"}}`),
	"template 5": template(`{"\u0068eaders":{"COOKIE":"a=b","Authorization":""}}`),
	"template 6": template(`{"headers":null,"payload":{"headers":{"Authorization":"Basic x"}}}`),
	// What only a damaged row can have.
	"template 7": template(``), "template 8": template(`{"headers":{"Authorization":"Basic x"}`),
	"template 9": template(`["Basic x"]`),
}

// bare has of everything that has little as little as it can have.
func bare(e *engine) {
	seven := int64(7)
	e.callback = store.Callback{
		ID: bareID, Project: store.DefaultProject, Kind: store.Notify, URL: "http://shop.example/", Method: "GET",
		Lane: "m\"1\n", Policy: store.Policy{
			Tiers: []time.Duration{time.Second}, RepeatLast: true, Deadline: 72 * time.Hour,
			Timeout: 2500 * time.Millisecond, Jitter: 0.1, RetryAfterCap: time.Hour, StopOn: []int{410, 404},
		},
		Success: store.Success{Rule: `{"status":["200-299"],"body":{"contains":"<ok>"}}`},
		Signer:  `{"type":"sorted-kv","alg":"md5"}`, State: store.Scheduled, DueAt: nowMS, CreatedAt: nowMS,
		UpdatedAt: nowMS, ExpiresAt: nowMS + dayMS, Version: &seven,
	}
	e.endpoint = store.Endpoint{
		ID: bareEndpoint, URL: "https://shop.example/", DisabledReason: "gone", PausedUntil: store.Forever,
		PauseReason: "moving", CreatedAt: nowMS, UpdatedAt: nowMS,
	}
	e.poll = control.PollView{
		Callback: sample(), Rule: `{"until":{"success":[{"exists":true,"pointer":""}]},"hold_if":null}`,
	}
	e.poll.Callback.Kind = store.Poll
	e.schedule = store.Schedule{
		ID: bareSchedule, Name: "b", Cron: "@every 10m", Template: `{"url":"https://shop.example/"}`,
		LastError: "callback.url: is blocked", CreatedAt: nowMS, UpdatedAt: nowMS,
	}
}

// damaged is a poll of which that is kept for its rule.
func damaged(rule store.JSONText) func(e *engine) {
	return func(e *engine) {
		e.poll.Rule, e.poll.Detail.Context, e.poll.Detail.Data = rule, `{"a`, "\xff"
	}
}

// template is a schedule with that template.
func template(text store.JSONText) func(e *engine) {
	return func(e *engine) { e.schedule.Template = text }
}

func sample() store.Callback {
	return store.Callback{
		ID: bareID, Project: store.DefaultProject, Kind: store.Notify,
		URL: "https://shop.example/notify?token=a&b=<c>", Method: "POST", Topic: "payment.succeeded",
		Ref: "order-20261121-0001", LockKey: "order-20261121-0001", Lane: oneLane, LaneID: 1,
		Labels: map[string]string{"shop": "7", "channel": "alipay"},
		Policy: store.Policy{
			Name: "payment", Tiers: []time.Duration{15 * time.Second, 3 * time.Minute, 26 * time.Hour},
		},
		Success: store.Success{Name: "body-success"}, Signer: "standard-v1",
		State: store.Scheduled, DueAt: nowMS + 1500, FirstDueAt: nowMS, AttemptCount: 1, DivertCount: 2,
		LastStatus: 500, LastClass: store.ClassHTTP5xx, CreatedAt: nowMS - 1, UpdatedAt: nowMS,
	}
}

func someAttempts() []store.Attempt {
	return []store.Attempt{
		{
			Number: 2, Trigger: store.Manual, Outcome: store.AttemptUnknown, Class: store.ClassCrashed,
			Error: "the dispatcher ended", StartedAt: nowMS + 15_010, DueAt: nowMS + 15_009, Lateness: 1,
		},
		{
			Number: 1, Trigger: store.BySchedule, Outcome: store.AttemptFailed, Charged: true,
			Class: store.ClassRuleMismatch, Status: 200, StartedAt: nowMS + 1, EndedAt: nowMS + 9, DueAt: nowMS,
			Lateness: 0.8125, Timings: store.Timings{DNS: 0.1, Connect: 1.25, FirstByte: 7.5, Total: 8.00049},
			RequestHeaders: []store.Header{{Name: "webhook-id", Value: oneID}, {Name: "Authorization", Value: "***"}},
			ResponseHeaders: []store.Header{
				{Name: "Content-Type", Value: "text/plain"}, {Name: "Retry-After", Value: "1"},
				{Name: "retry-after", Value: "2"},
			},
			ResponseBody: "<b>fail</b>\n\"\x1b[31m", ResponseTruncated: true,
			Rule:      &store.Rule{Name: "body-success", Expected: "success", Saw: "fail"},
			NextDueAt: nowMS + 15_009,
		},
	}
}

func someEndpoint() store.Endpoint {
	return store.Endpoint{
		ID: bareEndpoint, Project: store.DefaultProject, ExternalID: "merchant-7", Name: "Tea shop",
		URL: "https://shop.example/notify", URLOverride: store.OverrideSameHost,
		Topics: []string{"payment.*"}, Policy: store.PolicyChoice{Name: "payment"},
		Success: store.Success{Name: "body-success"}, Signer: `{"type":"sorted-kv","alg":"md5"}`,
		Headers: []store.Header{{Name: "X-Shop", Value: "7"}, {Name: "Authorization", Value: "Basic cGFzcw=="}},
		Rate:    store.Rate{Count: 50, Per: time.Second}, Concurrency: 8, Enabled: true,
		CreatedAt: nowMS - 1, UpdatedAt: nowMS,
	}
}

func someLanes() []control.LaneView {
	return []control.LaneView{
		{
			LaneBacklog: store.LaneBacklog{
				Lane: store.Lane{Key: oneLane, Limit: 8, Rate: store.Rate{Count: 50, Per: time.Second}},
				Open: 12, OldestDue: nowMS - 5000,
			},
			State: &schedule.LaneState{
				InFlight: 2, Concurrency: 4, Limit: 8, Health: schedule.TimingOut, Breaker: schedule.BreakerOpen,
				Unanswered: 20, UnansweredSince: nowMS - 30_000, OpenedAt: nowMS - 9000, ProbeAt: nowMS + 4000,
			},
		},
		{
			LaneBacklog: store.LaneBacklog{
				Lane: store.Lane{
					Key: oneEndpoint, EndpointID: bareEndpoint, PausedUntil: store.Forever,
					EndpointPause: store.Forever, EndpointPausedAt: nowMS - 70_000, PauseReason: "gone",
				},
				Open: 1, OldestDue: nowMS + 1,
			},
		},
		{
			LaneBacklog: store.LaneBacklog{Lane: store.Lane{Key: "m-1"}},
			State: &schedule.LaneState{
				HeldSince: nowMS - 5000, HeldUntil: nowMS + 60_000, Health: schedule.Answering,
			},
		},
	}
}

// somePresets are those that every project knows, and some of its own of each kind.
func somePresets() control.Presets {
	own := accept.DefaultPolicy()
	own.Name, own.Tiers = "own", []time.Duration{time.Second, time.Minute}
	own.RepeatLast, own.Deadline = true, 4*time.Minute
	return control.Presets{
		Policies: accept.PolicyPresets(), Rules: rule.Presets(), Profiles: accept.ProfilePresets(),
		OwnPolicies: []store.Policy{own},
		OwnRules:    []store.Success{{Name: "own", Rule: `{"status":[200]}`}},
		OwnProfiles: []accept.Profile{
			{Name: "bare", About: "chooses nothing"},
			{
				Name: "own", Policy: store.PolicyChoice{Given: &store.Policy{Tiers: own.Tiers, Timeout: time.Second}},
				Success: store.Success{Name: "own"}, Signer: `{"type":"sorted-kv","alg":"md5"}`,
				Timeout: 5 * time.Second,
			},
		},
	}
}

func someOutcomes() []store.TerminalEvent {
	return []store.TerminalEvent{
		{
			Cursor: store.OutcomeCursor{Tx: nowMS, Group: 7, Item: 1}, ID: bareID, Project: store.DefaultProject,
			Kind: store.Notify, EndpointID: bareEndpoint, Topic: "payment.succeeded", Ref: "order-20261121-0001",
			Labels: map[string]string{"shop": "7", "channel": "alipay"}, State: store.Dead, Reason: store.Exhausted,
			At: nowMS - 5, AttemptCount: 10, LastStatus: 503, LastClass: store.ClassHTTP5xx,
		},
		{
			Cursor: store.OutcomeCursor{Tx: nowMS + 1, Group: 8, Item: 300}, ID: bareID, State: store.Succeeded,
			At: nowMS, Labels: map[string]string{"shop": "7"}, AttemptCount: 11, LastStatus: 200,
			LastClass: store.ClassOK,
		},
		{
			Cursor: store.OutcomeCursor{Tx: nowMS + 2, Group: 8, Item: 301}, ID: bareID, Kind: store.Poll,
			State: store.Canceled, Reason: store.Requested, At: nowMS,
		},
	}
}

// somePoll is an open one with all that a poll can have.
func somePoll() control.PollView {
	cb := sample()
	cb.Kind, cb.Method, cb.URL = store.Poll, "GET", "https://upstream.example/query?out_trade_no=7&mchid=9"
	const rule = `{"until":{"success":[{"pointer":"/trade_state","in":["SUCCESS"]}],` +
		`"failure":[{"status":[404]}]},"hold_if":[{"pointer":"/code","eq":"BUSY"}],` +
		`"evaluate":["200-299",404],"error_budget":20}`
	cb.Success = store.Success{Rule: rule}
	return control.PollView{
		Callback: cb, Rule: rule,
		Detail: store.PollDetail{
			Context: `{"channel": "alipay"}`, Errors: 3,
			OnResult: &store.ResultDraft{Callback: store.Callback{
				URL: "https://shop.example/notify?token=a", EndpointID: bareEndpoint, Topic: "payment.result",
				Ref: "o-1",
			}},
		},
	}
}

func someRedrive() store.Redrive {
	return store.Redrive{
		ID: bareRedrive, Project: store.DefaultProject, Action: store.RedriveRetry,
		Shown: `{"state":"dead","topic":"payment.succeeded"}`, Ladder: store.Restart,
		Rate: store.Rate{Count: 100, Per: 1e9}, Actor: "admin key", Reason: "the merchant is back",
		State: store.RedriveRunning, Matched: 1500, Done: 700, Failed: 3,
		CreatedAt: nowMS, UpdatedAt: nowMS + 7000,
	}
}

func someSchedule() store.Schedule {
	return store.Schedule{
		ID: bareSchedule, Project: store.DefaultProject, Name: "daily-books", Cron: "30 1 * * *",
		Timezone: "Asia/Shanghai",
		Template: `{"url":"https://books.example/close",` +
			`"headers":{"X-Shop":"7","authorization":"Basic cGFzcw==","X-Api-Key":""},` +
			`"payload":{ "kind" : "daily", "n": 1.0 }}`,
		Missed: store.MissedSkip, Enabled: true, NextAt: nowMS + dayMS, LastAt: nowMS, LastID: bareID,
		Version: 3, CreatedAt: nowMS - 1, UpdatedAt: nowMS,
	}
}

func someEntries() []store.AuditEntry {
	return []store.AuditEntry{
		{
			ID: bareEntry, At: nowMS, Actor: "admin key", Action: "callback.cancel", Object: oneID,
			Reason: "asked", Detail: `{"was":"scheduled"}`, Address: "192.0.2.7",
			Before: `{"state":"scheduled"}`, After: `{"state":"canceled"}`,
			Link: store.AuditLink{Seq: 12, Hash: strings.Repeat("0a", 32)},
		},
		{ID: bareEndpoint, At: nowMS - 1, Actor: "admin key", Action: "secret.rotate", Detail: "not JSON"},
		{ID: bareID, At: nowMS - 2, Actor: "dispatcher", Action: "secret.create"},
	}
}
