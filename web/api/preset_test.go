package api_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// somePresets are those that every project knows, and one of its own of each kind.
func somePresets() control.Presets {
	own := accept.DefaultPolicy()
	own.Name, own.Tiers, own.RepeatLast, own.Deadline = "own", []time.Duration{time.Second, time.Minute}, true, 4*time.Minute
	return control.Presets{
		Policies: accept.PolicyPresets(), Rules: rule.Presets(), Profiles: accept.ProfilePresets(),
		OwnPolicies: []store.Policy{own},
		OwnRules:    []store.Success{{Name: "own", Rule: `{"status":[200]}`}},
		OwnProfiles: []accept.Profile{
			{Name: "bare", About: "chooses nothing"},
			{
				Name: "own", Policy: store.PolicyChoice{Given: &store.Policy{Tiers: own.Tiers, Timeout: time.Second}}, Success: store.Success{Name: "own"},
				Signer: `{"type":"sorted-kv","alg":"md5"}`, Timeout: 5 * time.Second,
			},
		},
	}
}

func TestGoldenPresets(t *testing.T) {
	t.Parallel()
	f := newFace(t, &engine{presets: somePresets()})
	for path, file := range map[string]string{
		"/v1/policies/payment?from=2026-11-21T08:00:00Z": "policy_payment.json",
		"/v1/policies/own?from=2026-11-21T08:00:00Z":     "policy_own.json",
		"/v1/policies/exp(1s,2,1h,3)":                    "policy_formula.json",
		"/v1/success_rules/own":                          "success_rule.json",
		"/v1/profiles/own":                               "profile.json",
		"/v1/profiles/bare":                              "profile_bare.json",
	} {
		golden(t, f, file, "GET", path, "")
	}
}

func TestPresetsArrive(t *testing.T) {
	t.Parallel()
	policy := accept.DefaultPolicy()
	policy.Tiers, policy.Timeout, policy.StopOn = []time.Duration{time.Second}, 5*time.Second, []int{}
	for _, c := range []struct {
		path, body, call string
		what             any
	}{
		{"policies", `{"tiers":["1s"],"timeout":"5s","stop_on":[],"reason":"r"}`, "PutPolicy", policy},
		{"success_rules", `{ "status": [ 200 ], "reason": "r", "b\u006fdy":{"contains":"a"} }`, "PutSuccessRule", `{"status":[ 200 ],"body":{"contains":"a"}}`},
		{"success_rules", `{"reason":"r"}`, "PutSuccessRule", `{}`},
		{
			"profiles", `{"policy":"payment","success":{"status":[200]},"signer":"none","timeout":"5s","reason":"r"}`, "PutProfile",
			profileChoice{accept.Choice{PolicyName: "payment", SuccessRule: []byte(`{"status":[200]}`), Signer: "none"}, 5 * time.Second},
		},
	} {
		e := &engine{presets: somePresets()}
		f := newFace(t, e)
		if got := f.ask(t, 200, "PUT", "/v1/"+c.path+"/own", c.body); got["name"] != "own" || got["own"] != true {
			t.Errorf("%s: answered %v", c.path, got)
		}
		want := given{c.call, store.DefaultProject, "own", c.what}
		if diff := cmp.Diff(want, e.given, cmp.AllowUnexported(given{}, profileChoice{})); diff != "" || e.actor.Reason != "r" {
			t.Errorf("%s by %+v (-want +got):\n%s", c.path, e.actor, diff)
		}
		if rec := f.do("DELETE", "/v1/"+c.path+"/own", `{"reason":"r"}`); rec.Code != 204 || e.given.call != "DeletePreset" || e.given.id != "own" {
			t.Errorf("DELETE %s: %d %s, %+v", c.path, rec.Code, rec.Body, e.given)
		}
		e.err = store.ErrNotFound
		wantProblem(t, f.do("DELETE", "/v1/"+c.path+"/other", ""), 404, "not_found")
		e.err = &store.InvalidError{Fields: []store.FieldError{{Field: "policy.tiers", Message: "m"}, {Field: "name", Message: "m"}, {Field: "", Message: "m"}}}
		fields := wantProblem(t, f.do("PUT", "/v1/"+c.path+"/own", c.body), 422, "invalid")
		if c.path == "policies" && !slices.Equal(fields, []string{"tiers", "name", "request"}) {
			t.Errorf("%s: refused for %q", c.path, fields)
		}
	}
}

// TestPresetLists: a project's own come first, and times are there only if a moment to count from is given.
func TestPresetLists(t *testing.T) {
	t.Parallel()
	f := newFace(t, fullEngine())
	all := f.ask(t, 200, "GET", "/v1/policies?limit=500", "")["data"].([]any)
	first := all[0].(map[string]any)
	if _, timed := first["times"]; len(all) != 1+len(accept.PolicyPresets()) || first["name"] != "own" || timed {
		t.Errorf("%d policies, the first one is %v", len(all), first)
	}
	for path, query := range map[string][2]string{
		"/v1/policies?": {"from=today", "from"}, "/v1/policies/payment?": {"limit=1", "limit"}, "/v1/success_rules?": {"from=2026-11-21T08:00:00Z", "from"},
		"/v1/profiles/alipay?": {"from=2026-11-21T08:00:00Z", "from"},
	} {
		refuses(t, "GET", path, map[string]string{query[0]: query[1]})
	}
	for _, path := range []string{"/v1/policies/nope", "/v1/success_rules/nope", "/v1/profiles/nope", "/v1/policies/%00"} {
		wantProblem(t, f.do("GET", path, ""), 404, "not_found")
	}
	refuses(t, "PUT", "/v1/policies/own", map[string]string{`{}`: "tiers", `{"tiers":["x"]}`: "tiers[0]", `{"tiers":[],"name":"x"}`: "name"})
	refuses(t, "PUT", "/v1/success_rules/own", map[string]string{`"http-2xx"`: "request", `{"status":[200],"status":[200]}`: "status"})
}
