package accept

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A PolicyPreset is a built-in policy.
type PolicyPreset struct {
	store.Policy
	// About describes in one sentence which platform uses it.
	About string
}

const (
	policyTimeout = 15 * time.Second
	policyCap     = time.Hour
	// DefaultPolicyName is the policy of callbacks without one, in projects without a default.
	DefaultPolicyName = "payment"
)

// policyTexts are the presets, with the tiers of the platforms' documents; a test checks the sums. Payment
// policies never stop on 410: a merchant's server that is gone today is back tomorrow, and the payment still
// has to be reported.
var policyTexts = [...]struct {
	name, tiers string
	change      func(*store.Policy)
	about       string
}{
	{DefaultPolicyName, "15s 3m 10m 30m 30m 1h 2h 6h 15h", payments,
		"Ten attempts within 25 h 13 m 15 s, for payment notifications."},
	{"wechat-v3", "15s 15s 30s 3m 10m 20m 30m 30m 30m 60m 3h 3h 3h 6h 6h", payments,
		"As WeChat Pay, API version 3, notifies merchants."},
	{"wechat-v2", "15s 15s 30s 3m 30m 30m 30m 30m 60m", payments,
		"As WeChat Pay, API version 2, notifies merchants."},
	{"alipay", "4m 10m 10m 1h 2h 6h 15h", payments, "As Alipay in China notifies merchants."},
	{"antom", "2m 10m 10m 1h 2h 6h 15h", payments, "As Antom, Alipay outside of China, notifies merchants."},
	{"cmb", "10s 30s 1m 3m 10m 30m 1h 6h 20h", nil, "As China Merchants Bank notifies merchants."},
	{"allpay", "15s 15s 30s 3m 30m 1h 2h 4h 4h", nil, "As AllPay notifies merchants."},
	{"standard-webhooks", "5s 5m 30m 2h 5h 10h 14h 20h 24h", jittered(0.1),
		"The schedule that the Standard Webhooks specification recommends."},
	{"svix", "5s 5m 30m 2h 5h 10h 10h", func(p *store.Policy) {
		p.Jitter, p.OverloadFloor = 0.2, time.Minute
	},
		"As Svix retries, with a wait of at least a minute after a 429 or a timeout."},
	{"adyen", "9s 18s 27s 2m 5m 10m 15m 30m 1h 2h 4h 8h", repeated(30 * 24 * time.Hour),
		"As Adyen retries: slower and slower, then every 8 h, for 30 days."},
	{"square-72h", "1m 2m 4m 8m 16m 32m 60m", repeated(72 * time.Hour),
		"As Square retries: doubling up to an hour, for 72 hours."},
	{"juspay-24h", "60s 5m 5m 10m 10m 10m 10m 10m 1h 1h 1h 1h 1h 6h 6h 6h", nil,
		"As Juspay retries: 17 attempts within 24 h 1 m."},
	{"short", "30s 60s 90s 120s 150s", nil, "Six attempts within 7 m 30 s, as Jeepay notifies."},
	{"slack", "0s 1m 5m", nil, "As Slack's Events API retries: at once, then after 1 m and 5 m."},
	{"none", "", nil, "A single attempt."},
}

// payments makes every attempt of the policy, whatever the receiver responds.
func payments(p *store.Policy) { p.StopOn = nil }

func jittered(by float64) func(*store.Policy) { return func(p *store.Policy) { p.Jitter = by } }

func repeated(until time.Duration) func(*store.Policy) {
	return func(p *store.Policy) { p.RepeatLast, p.Deadline = true, until }
}

// PolicyPresets returns the built-in policies, the default first. The caller may change the result.
func PolicyPresets() []PolicyPreset {
	presets := make([]PolicyPreset, len(policyTexts))
	for i, t := range policyTexts {
		tiers, err := schedule.ParseTiers(t.tiers)
		if err != nil {
			// a mistake in policyTexts, found by a test
			panic(fmt.Sprintf("preset policy %s: %v", t.name, err))
		}
		p := DefaultPolicy()
		p.Name, p.Tiers = t.name, tiers
		if t.change != nil {
			t.change(&p)
		}
		presets[i] = PolicyPreset{Policy: p, About: t.about}
	}
	return presets
}

// PaymentPolicy is the default policy.
func PaymentPolicy() store.Policy {
	return store.Policy{
		Name: DefaultPolicyName, Tiers: schedule.Payment(), Timeout: policyTimeout, RetryAfterCap: policyCap,
	}
}

// DefaultPolicy is the start value of a policy that a request gives whole: no name, one attempt, and the
// defaults of all fields.
func DefaultPolicy() store.Policy {
	return store.Policy{Timeout: policyTimeout, RetryAfterCap: policyCap, StopOn: []int{410}}
}

// PresetPolicy returns the preset of that name, or the policy of a formula such as "exp(1s,2,1h,10)".
func PresetPolicy(name string) (store.Policy, error) {
	if name == DefaultPolicyName {
		return PaymentPolicy(), nil
	}
	if strings.HasPrefix(name, "exp(") {
		return exponential(name)
	}
	presets := PolicyPresets()
	for i := range presets {
		if presets[i].Name == name {
			return presets[i].Policy, nil
		}
	}
	names := make([]string, len(presets))
	for i := range presets {
		names[i] = presets[i].Name
	}
	return store.Policy{}, fmt.Errorf("%q is not a policy; use %s, a policy of the project, "+
		"exp(base,factor,max,count), or an object with tiers",
		name, strings.Join(names, ", "))
}

// exponential returns the policy of "exp(base,factor,max,count)" or "exp(base,factor,max,count,deadline)". It
// has count tiers: the first is base, each next one is factor times longer, none is longer than max.
func exponential(name string) (store.Policy, error) {
	refuse := func(why string) (store.Policy, error) {
		return store.Policy{}, fmt.Errorf("%q: %s; write exp(base,factor,max,count) or "+
			"exp(base,factor,max,count,deadline), such as exp(5s,2,1h,12)", name, why)
	}
	inner, ok := strings.CutSuffix(strings.TrimPrefix(name, "exp("), ")")
	parts := strings.Split(inner, ",")
	if !ok || len(parts) < 4 || len(parts) > 5 {
		return refuse("must have four or five parts")
	}
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	base, err := schedule.ParseDuration(parts[0])
	if err != nil || base <= 0 || base > schedule.MaxTier {
		return refuse("base must be a duration from 1ms to 400d")
	}
	factor, err := strconv.ParseFloat(parts[1], 64)
	if err != nil || !(factor >= 1 && factor <= 100) {
		return refuse("factor must be a number from 1 to 100")
	}
	most, err := schedule.ParseDuration(parts[2])
	if err != nil || most < base || most > schedule.MaxTier {
		return refuse("max must be a duration from base to 400d")
	}
	count, err := strconv.Atoi(parts[3])
	if err != nil || count < 1 || count > schedule.MaxTiers {
		return refuse(fmt.Sprintf("count must be a whole number from 1 to %d", schedule.MaxTiers))
	}
	p := DefaultPolicy()
	p.Name = name
	if len(parts) == 5 {
		p.Deadline, err = schedule.ParseDuration(parts[4])
		if err != nil || p.Deadline <= 0 || p.Deadline > MaxDelay {
			return refuse("deadline must be a duration up to 400d")
		}
	}
	wait := float64(base)
	for range count {
		p.Tiers = append(p.Tiers, time.Duration(math.Min(wait, float64(most))).Round(time.Millisecond))
		wait *= factor
	}
	return p, nil
}

// CheckPolicy adds what is wrong with a policy that was given whole. Field names begin with prefix.
func CheckPolicy(p *store.Policy, prefix string, f *Findings) {
	add := func(field, format string, args ...any) { f.Add(prefix+"."+field, format, args...) }
	if err := schedule.Tiers(p.Tiers).Validate(); err != nil {
		add("tiers", "%s", err)
	}
	if p.Timeout < MinTimeout || p.Timeout > MaxTimeout {
		add("timeout", "must be 100ms to 60s")
	}
	if p.RepeatLast && p.Deadline == 0 {
		add("repeat_last", "requires a deadline, or it would never end")
	}
	if p.RepeatLast && len(p.Tiers) == 0 {
		add("repeat_last", "requires at least one tier")
	}
	if p.RepeatLast && len(p.Tiers) > 0 && p.Tiers[len(p.Tiers)-1] < minRepeat {
		add("repeat_last", "requires a last tier of at least %s, because it repeats until the deadline",
			schedule.FormatDuration(minRepeat))
	}
	if p.Deadline < 0 || p.Deadline > MaxDelay {
		add("deadline", "must be 0s to 400d")
	}
	if !(p.Jitter >= 0 && p.Jitter <= 1) {
		add("jitter", "must be 0 to 1")
	}
	if p.RetryAfterCap < 0 || p.RetryAfterCap > MaxDelay {
		add("retry_after_cap", "must be 0s to 400d")
	}
	if p.OverloadFloor < 0 || p.OverloadFloor > MaxDelay {
		add("overload_floor", "must be 0s to 400d")
	}
	if len(p.StopOn) > 50 {
		add("stop_on", "has %d statuses; at most 50 are allowed", len(p.StopOn))
	}
	for i, status := range p.StopOn {
		if status < 300 || status > 599 {
			f.Add(fmt.Sprintf("%s.stop_on[%d]", prefix, i), "must be an HTTP status from 300 to 599")
		}
	}
}

// minRepeat is the shortest tier that may repeat until a deadline.
const minRepeat = time.Second

// LadderTimes returns the times of a policy's attempts if each fails at once, in Unix milliseconds, the first
// at from. It ignores jitter, floors and Retry-After. If the last tier repeats until a deadline it returns at
// most schedule.MaxTiers+1 times.
func LadderTimes(p *store.Policy, from int64) []int64 {
	times := []int64{from}
	at := time.UnixMilli(from)
	for made := 1; len(times) < schedule.MaxTiers+1; made++ {
		wait, more := schedule.Tiers(p.Tiers).Wait(made, p.RepeatLast)
		if !more {
			break
		}
		at = at.Add(wait)
		if p.Deadline > 0 && at.Sub(time.UnixMilli(from)) > p.Deadline {
			break
		}
		times = append(times, schedule.CeilMillis(at))
	}
	return slices.Clip(times)
}

// A Profile combines a policy, a success rule, a signer and a timeout under one name. Zero fields select
// nothing.
type Profile struct {
	Name    string             `json:"-"`
	About   string             `json:"-"`
	Policy  store.PolicyChoice `json:"policy,omitzero"`
	Success store.Success      `json:"success,omitzero"`
	Signer  string             `json:"signer,omitempty"`
	// Timeout of an attempt; it replaces the policy's unless it is zero.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// platformTimeout is how long the payment platforms of China wait for a merchant's response.
const platformTimeout = 5 * time.Second

// ProfilePresets returns the built-in profiles.
func ProfilePresets() []Profile {
	return []Profile{
		{
			Name: "alipay", About: "Alipay's notifications: the body success, RSA2 over sorted parameters, " +
				"eight attempts in 24 h 24 m.",
			Policy: store.PolicyChoice{Name: "alipay"}, Success: store.Success{Name: "alipay"},
			Signer:  `{"type":"sorted-kv","alg":"rsa2"}`,
			Timeout: platformTimeout,
		},
		{
			Name: "wechat-v2", About: "WeChat Pay's notifications, API version 2: XML with return_code " +
				"SUCCESS, MD5 over sorted elements, ten attempts in 3 h 4 m.",
			Policy: store.PolicyChoice{Name: "wechat-v2"}, Success: store.Success{Name: "wechat-v2-xml"},
			Signer:  `{"type":"sorted-kv","alg":"md5"}`,
			Timeout: platformTimeout,
		},
		{
			Name: "wechat-v3", About: "WeChat Pay's notifications, API version 3: 200 or 204, RSA-SHA256 " +
				"in Wechatpay headers, 16 attempts in 24 h 4 m.",
			Policy: store.PolicyChoice{Name: "wechat-v3"}, Success: store.Success{Name: "wechat-v3"},
			Signer: "wechat-v3-rsa", Timeout: platformTimeout,
		},
		{
			Name:   "standard",
			About:  "Standard Webhooks: any 2xx, HMAC-SHA256, ten attempts in 75 h 35 m 5 s.",
			Policy: store.PolicyChoice{Name: "standard-webhooks"}, Success: store.Success{Name: "http-2xx"},
			Signer: "standard-v1", Timeout: policyTimeout,
		},
	}
}

// profile returns the project's own profile of that name, or the preset.
func (v *ProjectView) profile(name string) (Profile, error) {
	if p, ok := v.Profiles[name]; ok {
		return p, nil
	}
	presets := ProfilePresets()
	names := make([]string, len(presets))
	for i := range presets {
		if presets[i].Name == name {
			return presets[i], nil
		}
		names[i] = presets[i].Name
	}
	return Profile{}, fmt.Errorf("%q is not a profile; use %s, or a profile of the project", name,
		strings.Join(names, ", "))
}
