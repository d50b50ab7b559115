package rule

import (
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The names of the success rules.
const (
	HTTP2xx       = "http-2xx"
	HTTP200       = "http-200"
	BodySuccess   = "body-success"
	BodyOK        = "body-ok"
	Alipay        = "alipay"
	WeChatV2      = "wechat-v2-xml"
	WeChatV3      = "wechat-v3"
	AdyenAccepted = "adyen-accepted"
	JSONCode      = "json-code"
)

// DefaultRule is what a callback without a success rule is judged by.
const Default = HTTP2xx

// CustomName is what attempts call a rule that was given whole and has no name of its own.
const CustomName = "custom"

// A RulePreset is a success rule with a name.
type Preset struct {
	Name string
	// Description says in one sentence what it wants, and for whom it was made.
	Description string
	// Rule is the same as a rule given whole, which ParseRule reads. For wechat-v3 it lacks what the language
	// has no words for: the body, which Description tells.
	Rule store.JSONText
}

// presets are every preset, the default one first.
var presets = [...]Preset{
	{HTTP2xx, "A status from 200 to 299, whatever the body: Standard Webhooks, Stripe, Adyen, Shopify, " +
		"GitHub.",
		`{"status":["200-299"]}`},
	{HTTP200, "The status 200, whatever the body: Wix, CMB.",
		`{"status":[200]}`},
	{BodySuccess, "A status from 200 to 299 and the word success as the whole body, in any case: most " +
		"payment aggregators in China.",
		`{"status":["200-299"],"body":{"iequals":"success","trim":true}}`},
	{BodyOK, "A status from 200 to 299 and the word OK as the whole body, in any case: AllPay.",
		`{"status":["200-299"],"body":{"iequals":"OK","trim":true}}`},
	{Alipay, "A status from 200 to 299 and a body of exactly the seven letters success, without white " +
		"space: Alipay.",
		`{"status":["200-299"],"body":{"equals":"success"}}`},
	{WeChatV2, "The status 200 and an XML body whose return_code is SUCCESS: WeChat Pay v2.",
		`{"status":[200],"body":{"json":[{"xml":"/xml/return_code","eq":"SUCCESS"}]}}`},
	{WeChatV3,
		`The status 200 or 204; a JSON body with a "code" other than "SUCCESS" is a failure, any other body does not matter: WeChat Pay v3.`,
		`{"status":[200,204]}`},
	{AdyenAccepted, "A status from 200 to 299 and a body that contains [accepted]: Adyen's older " +
		"notifications.",
		`{"status":["200-299"],"body":{"contains":"[accepted]"}}`},
	{JSONCode,
		`A status from 200 to 299 and a JSON body whose "code" is 0, 200, "0", "200", "SUCCESS" or "success".`,
		`{"status":["200-299"],"body":{"json":[{"pointer":"/code","in":[0,"0",200,"200","SUCCESS","success"]}]}}`},
}

// Presets returns every preset, the default one first.
func Presets() []Preset { return slices.Clone(presets[:]) }

// Names returns the names of the success rules, the default one first. It is cheap: every accept asks for
// them.
func Names() []string {
	names := make([]string, len(presets))
	for i := range presets {
		names[i] = presets[i].Name
	}
	return names
}

// CompilePresets returns the presets by name; "" is the default.
func CompilePresets() (map[string]*Rule, error) {
	rules := make(map[string]*Rule)
	for _, p := range presets {
		r, wrong := Compile([]byte(p.Rule))
		if len(wrong) > 0 {
			return nil, fmt.Errorf("outbound: success rule %s: %s %s", p.Name, wrong[0].Field,
				wrong[0].Message)
		}
		switch p.Name {
		case BodySuccess:
			r.expectedBody = "the body to be the word success"
		case WeChatV3:
			code, _ := parsePointer("/code")
			r.Body = &bodyTest{weChatV3: true, JSON: Predicates{{Pointer: &pointer{code}}}}
			r.expectedBody = `/code of a JSON body, if there is one, to be "SUCCESS"`
		}
		rules[p.Name] = r
	}
	rules[""] = rules[Default]
	return rules, nil
}
