package accept

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The sums and numbers of attempts are the published ones, so a mistyped tier changes one of them.
func TestPolicyPresets(t *testing.T) {
	day := 24 * time.Hour
	want := map[string]struct {
		sum      time.Duration
		attempts int
		deadline time.Duration
	}{
		"payment":           {25*time.Hour + 13*time.Minute + 15*time.Second, 10, 0},
		"wechat-v3":         {24*time.Hour + 4*time.Minute, 16, 0},
		"wechat-v2":         {3*time.Hour + 4*time.Minute, 10, 0},
		"alipay":            {24*time.Hour + 24*time.Minute, 8, 0},
		"antom":             {24*time.Hour + 22*time.Minute, 8, 0},
		"cmb":               {27*time.Hour + 44*time.Minute + 40*time.Second, 10, 0},
		"allpay":            {11*time.Hour + 34*time.Minute, 10, 0},
		"standard-webhooks": {75*time.Hour + 35*time.Minute + 5*time.Second, 10, 0},
		"svix":              {27*time.Hour + 35*time.Minute + 5*time.Second, 8, 0},
		"adyen":             {16*time.Hour + 2*time.Minute + 54*time.Second, 13, 30 * day},
		"square-72h":        {2*time.Hour + 3*time.Minute, 8, 72 * time.Hour},
		"juspay-24h":        {24*time.Hour + time.Minute, 17, 0},
		"short":             {7*time.Minute + 30*time.Second, 6, 0},
		"slack":             {6 * time.Minute, 4, 0},
		"none":              {0, 1, 0},
	}
	presets := PolicyPresets()
	if presets[0].Name != DefaultPolicyName {
		t.Errorf("the first preset is %q; the default one comes first", presets[0].Name)
	}
	for _, p := range presets {
		w, ok := want[p.Name]
		if !ok {
			t.Errorf("%s is not expected", p.Name)
			continue
		}
		delete(want, p.Name)
		if sum := schedule.Tiers(p.Tiers).Sum(); sum != w.sum || len(p.Tiers)+1 != w.attempts ||
			p.Deadline != w.deadline {
			t.Errorf("%s: %s in %d attempts, deadline %s; want %s, %d, %s", p.Name, sum, len(p.Tiers)+1,
				p.Deadline, w.sum, w.attempts, w.deadline)
		}
		if p.RepeatLast != (w.deadline > 0) {
			t.Errorf("%s: repeat_last %v", p.Name, p.RepeatLast)
		}
		pays := p.Name == "payment" || strings.HasPrefix(p.Name, "wechat") || p.Name == "alipay" ||
			p.Name == "antom"
		if pays != (len(p.StopOn) == 0) {
			t.Errorf("%s: stop_on %v", p.Name, p.StopOn)
		}
		var f Findings
		CheckPolicy(&p.Policy, "policy", &f)
		if len(f) > 0 {
			t.Errorf("%s is refused: %v", p.Name, f)
		}
		if p.About == "" {
			t.Errorf("%s has no description", p.Name)
		}
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
}

func TestPresetPolicyByName(t *testing.T) {
	if _, err := PresetPolicy("unionpay"); err == nil || !strings.Contains(err.Error(), "wechat-v3") {
		t.Errorf("an unknown policy: %v; want the known ones named", err)
	}
	p, err := PresetPolicy("exp(1s, 2, 1m, 8, 1h)")
	if err != nil {
		t.Fatal(err)
	}
	if got := schedule.Tiers(p.Tiers).String(); got != "1s 2s 4s 8s 16s 32s 1m 1m" ||
		p.Deadline != time.Hour {
		t.Errorf("tiers %s, deadline %s", got, p.Deadline)
	}
	for _, bad := range []string{
		"exp(", "exp()", "exp(1s,2,1m)", "exp(0s,2,1m,3)", "exp(1s,0.5,1m,3)", "exp(1s,NaN,1m,3)",
		"exp(1m,2,1s,3)", "exp(1s,2,1m,0)",
		"exp(1s,2,1m,101)", "exp(1s,2,1m,3,0s)", "exp(1s,2,1m,3,1h,1)", "exp(1s,2,1m,3", "exp(1s,2,401d,3)",
	} {
		if p, err := PresetPolicy(bad); err == nil {
			t.Errorf("%q is accepted as %v", bad, p.Tiers)
		}
	}
}

func TestLadderTimes(t *testing.T) {
	p := PaymentPolicy()
	times := LadderTimes(&p, 1000)
	if len(times) != 10 || times[0] != 1000 || times[1] != 16_000 ||
		times[9] != 1000+(25*time.Hour+13*time.Minute+15*time.Second).Milliseconds() {
		t.Errorf("payment: %v", times)
	}
	square, err := PresetPolicy("square-72h")
	if err != nil {
		t.Fatal(err)
	}
	times = LadderTimes(&square, 0)
	if last := times[len(times)-1]; last > (72*time.Hour).Milliseconds() ||
		last < (71*time.Hour).Milliseconds() {
		t.Errorf("square: the last of %d is %s after the first", len(times),
			time.Duration(last)*time.Millisecond)
	}
	adyen, err := PresetPolicy("adyen")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(LadderTimes(&adyen, 0)); n > schedule.MaxTiers+1 {
		t.Errorf("adyen: %d times", n)
	}
}

func TestProfilePresets(t *testing.T) {
	v := PlainView()
	for _, p := range ProfilePresets() {
		var f Findings
		s := v.CheckChoice(&Choice{Profile: p.Name}, &f)
		if len(f) > 0 {
			t.Errorf("%s: %v", p.Name, f)
			continue
		}
		policy, err := v.PolicyOf(s.Policy)
		if err != nil || policy.Timeout != p.Timeout || policy.Name != p.Policy.Name {
			t.Errorf("%s: policy %s with time-out %s, %v; want %s, %s", p.Name, policy.Name, policy.Timeout,
				err, p.Policy.Name, p.Timeout)
		}
		if _, err := v.successOf(s.Success); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if got := parseSigner(p.Signer, &f); got != p.Signer || len(f) > 0 {
			t.Errorf("%s: signer %s is stored as %s, %v: the preset should be written as it is stored",
				p.Name, p.Signer, got, f)
		}
	}
	var f Findings
	v.CheckChoice(&Choice{Profile: "visa"}, &f)
	if len(f) != 1 || f[0].Field != "profile" {
		t.Errorf("an unknown profile: %v", f)
	}
}

// The submission overrides the endpoint, which overrides the project.
func TestResolve(t *testing.T) {
	own := store.Policy{Name: "mine", Tiers: []time.Duration{time.Second}, Timeout: time.Second}
	v := &acceptView{ProjectView: &ProjectView{
		Project: store.Project{Defaults: store.Defaults{Policy: store.PolicyChoice{Name: "short"},
			Success: store.Success{Name: "body-ok"}, Signer: "none"}},
		Policies: map[string]store.Policy{"mine": own},
		Rules:    map[string]store.Success{"ours": {Name: "ours", Rule: `{"status":["200"]}`}},
	}}
	ep := &store.Endpoint{Policy: store.PolicyChoice{Name: "mine"}, Signer: "standard-v1"}
	for _, c := range []struct {
		name                    string
		sub                     Submission
		ep                      *store.Endpoint
		policy, success, signer string
		wrong                   string
	}{
		{name: "project", policy: "short", success: "body-ok", signer: "none"},
		{name: "own", sub: Submission{Choice: Choice{PolicyName: "payment", Success: "ours",
			Signer: "standard-v1"}}, policy: "payment", success: "ours", signer: "standard-v1"},
		{name: "profile", sub: Submission{Choice: Choice{Profile: "standard"}}, policy: "standard-webhooks",
			success: "http-2xx", signer: "standard-v1"},
		{name: "with a profile", sub: Submission{Choice: Choice{Profile: "standard", Success: "http-200"}},
			policy: "standard-webhooks", success: "http-200", signer: "standard-v1"},
		{name: "endpoint", ep: ep, policy: "mine", success: "body-ok"},
		{name: "own before the endpoint's", ep: ep, sub: Submission{Choice: Choice{PolicyName: "alipay"}},
			policy: "alipay", success: "body-ok"},
		{name: "signer with an endpoint", ep: ep, sub: Submission{Choice: Choice{Signer: "none"}},
			wrong: "signer"},
		{name: "unknown policy", sub: Submission{Choice: Choice{PolicyName: "yours"}}, wrong: "policy"},
		{name: "unknown rule", sub: Submission{Choice: Choice{Success: "yours"}}, wrong: "success"},
		{name: "the endpoint's is gone", ep: &store.Endpoint{Policy: store.PolicyChoice{Name: "gone"}},
			wrong: "policy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f Findings
			var got store.Callback
			v.resolve(&c.sub, c.ep, &got, &f)
			if c.wrong != "" {
				if len(f) != 1 || f[0].Field != c.wrong {
					t.Errorf("wrong: %v; want %s", f, c.wrong)
				}
				return
			}
			if len(f) > 0 || got.Policy.Name != c.policy || got.Success.Name != c.success ||
				got.Signer != c.signer {
				t.Errorf("policy %q, success %q, signer %q, wrong %v; want %q, %q, %q", got.Policy.Name,
					got.Success.Name, got.Signer, f, c.policy, c.success, c.signer)
			}
		})
	}
}
