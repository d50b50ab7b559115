package sink

import (
	"net/url"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Delivery says how the engine sends the messages of a sink.
type Delivery struct {
	Method string
	// URL has no credential: it is scheme and host. The whole URL is in Secret.
	URL string
	// Signer signs with Secret, a text of the use Use.
	Signer, Secret, Use string
	Success             store.Success
	Policy              store.Policy
	Rate                store.Rate
	Concurrency         int
	// ExpiresIn is how long after its due time a message is still of use.
	ExpiresIn time.Duration
}

// A Preset is what is equal for all sinks of a type.
type Preset struct {
	Signer  string
	Success store.JSONText
	Rate    store.Rate
}

// presets has the success rules as the platforms document their refusals: most of them answer 200. Those that
// say "too fast" are deferred. Those that no attempt can change end the callback. DingTalk blocks a robot
// that is too fast for 10 minutes, and its rate keeps a message from it.
//
// The replies of a mail server are the status: 4yz is tried again, and 5yz is a refusal for good.
var presets = map[string]Preset{
	DingTalk: {
		Signer: sign.DingTalk,
		Success: `{"body":{"json":[{"pointer":"/errcode","eq":0}]},` +
			`"permanent_if":{"body":{"json":[{"pointer":"/errcode","in":[310000,460101]}]}},` +
			`"defer_if":{"body":{"json":[{"pointer":"/errcode","eq":130101}]}},` +
			`"defer_after":"11m","max_defers":5}`,
		Rate: store.Rate{Count: 18, Per: time.Minute},
	},
	WeCom: {
		Signer: sign.SealedURL,
		Success: `{"body":{"json":[{"pointer":"/errcode","eq":0}]},` +
			`"permanent_if":{"body":{"json":[{"pointer":"/errcode","in":[40058,93000]}]}},` +
			`"defer_if":{"body":{"json":[{"pointer":"/errcode","eq":45009}]}},` +
			`"defer_after":"1m5s","max_defers":20}`,
		Rate: store.Rate{Count: 18, Per: time.Minute},
	},
	Feishu: {
		Signer: sign.Feishu,
		Success: `{"body":{"json":[{"pointer":"/code","eq":0}]},` +
			`"permanent_if":{"body":{"json":[{"pointer":"/code","in":[9499,19021,19022,19024]}]}},` +
			`"defer_if":{"body":{"json":[{"pointer":"/code","eq":11232},` +
			`{"all":[{"pointer":"/code","eq":9499},{"pointer":"/msg","matches":"(?i)too many"}]}]}},` +
			`"defer_after":"1m5s","max_defers":20}`,
		Rate: store.Rate{Count: 90, Per: time.Minute},
	},
	Slack: {
		Signer: sign.SealedURL,
		Success: `{"status":[200],"body":{"equals":"ok","trim":true},` +
			`"permanent_if":{"status":[400,403,404,410]}}`,
		Rate: store.Rate{Count: 1, Per: time.Second},
	},
	Teams: {
		Signer:  sign.SealedURL,
		Success: `{"permanent_if":{"status":[400,401,403,404,413]}}`,
		Rate:    store.Rate{Count: 30, Per: time.Minute},
	},
	Email: {
		Signer:  sign.SealedURL,
		Success: `{"permanent_if":{"status":["500-599"]}}`,
		Rate:    store.Rate{Count: 30, Per: time.Minute},
	},
	Webhook: {Signer: sign.SealedURL, Rate: store.Rate{Count: 5, Per: time.Second}},
}

// mailTimeout is longer than that of the others: many mail servers wait before they greet and accept.
const mailTimeout = 45 * time.Second

// ExpiresIn is how long a message is tried.
const ExpiresIn = 2 * time.Hour

// policy has the waits of all sinks. A message that is late says nothing new, so they are short.
func policy() store.Policy {
	return store.Policy{
		Tiers:   []time.Duration{30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute},
		Timeout: 15 * time.Second, RetryAfterCap: time.Hour, StopOn: []int{},
	}
}

// PresetOf returns the preset of a type. It is zero for an unknown type.
func PresetOf(kind string) Preset { return presets[kind] }

// Delivery returns how the engine sends to the sink. The sink must be valid.
func (c Config) Delivery() Delivery {
	p := presets[c.Type]
	d := Delivery{
		Method: "POST", Signer: p.Signer, Use: sign.UseURL, Success: store.Success{Name: rule.HTTP2xx},
		Policy: policy(), Rate: p.Rate, Concurrency: 1, ExpiresIn: ExpiresIn,
	}
	if p.Success != "" {
		d.Success = store.Success{Name: rule.CustomName, Rule: p.Success}
	}
	whole := c.URL
	if c.Type == Email {
		d.Policy.Timeout = mailTimeout
		whole = c.mailURL()
	}
	d.Secret = sign.FormatURLSecret(whole, c.Secret)
	if u, err := url.Parse(whole); err == nil {
		d.URL = u.Scheme + "://" + u.Host + "/"
	}
	return d
}
