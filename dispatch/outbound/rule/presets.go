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

// Default is the success rule of a callback that has none.
const Default = HTTP2xx

// CustomName is the name of a complete rule in stored attempts if it has no name of its own.
const CustomName = "custom"

// A Preset is a success rule with a name.
type Preset struct {
	Name string
	// Description describes the rule for people, and for whom it was made.
	Description string
	// Rule is the rule's JSON text, which Parse accepts. For wechat-v3 it lacks the test of the body, which
	// the language cannot express; only Description has it.
	Rule store.JSONText
}

// presets are all presets, the default one first.
var presets = [...]Preset{
	{
		HTTP2xx, "Status 200 to 299, any body. For Standard Webhooks, Stripe, Adyen, Shopify and GitHub.",
		`{"status":["200-299"]}`,
	},
	{
		HTTP200, "Status 200, any body. For Wix and CMB.",
		`{"status":[200]}`,
	},
	{
		BodySuccess, "Status 200 to 299, and the body is the word success in any case. " +
			"For most payment aggregators in China.",
		`{"status":["200-299"],"body":{"iequals":"success","trim":true}}`,
	},
	{
		BodyOK, "Status 200 to 299, and the body is the word OK in any case. For AllPay.",
		`{"status":["200-299"],"body":{"iequals":"OK","trim":true}}`,
	},
	{
		Alipay, "Status 200 to 299, and the body is exactly success in lower case, without white space. " +
			"For Alipay.",
		`{"status":["200-299"],"body":{"equals":"success"}}`,
	},
	{
		WeChatV2, "Status 200, and an XML body with return_code SUCCESS. For WeChat Pay v2.",
		`{"status":[200],"body":{"json":[{"xml":"/xml/return_code","eq":"SUCCESS"}]}}`,
	},
	{
		WeChatV3, `Status 200 or 204. A JSON body with a "code" other than "SUCCESS" is a failure, and any ` +
			"other body is accepted. For WeChat Pay v3.",
		`{"status":[200,204]}`,
	},
	{
		AdyenAccepted, "Status 200 to 299, and a body that contains [accepted]. " +
			"For Adyen's older notifications.",
		`{"status":["200-299"],"body":{"contains":"[accepted]"}}`,
	},
	{
		JSONCode, `Status 200 to 299, and a JSON body with a "code" of 0, 200, "0", "200", "SUCCESS" or ` +
			`"success".`,
		`{"status":["200-299"],` +
			`"body":{"json":[{"pointer":"/code","in":[0,"0",200,"200","SUCCESS","success"]}]}}`,
	},
}

// Presets returns all presets, the default one first.
func Presets() []Preset { return slices.Clone(presets[:]) }

// Names returns the names of the presets in a new slice, the default one first. An accepted callback that
// names its success rule is checked against them, so it copies no rules.
func Names() []string {
	names := make([]string, len(presets))
	for i := range presets {
		names[i] = presets[i].Name
	}
	return names
}

// CompilePresets returns the compiled presets by name. "" is the default.
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
