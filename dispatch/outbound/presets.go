package outbound

import (
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The names of the success rules.
const (
	RuleHTTP2xx       = "http-2xx"
	RuleHTTP200       = "http-200"
	RuleBodySuccess   = "body-success"
	RuleBodyOK        = "body-ok"
	RuleAlipay        = "alipay"
	RuleWeChatV2      = "wechat-v2-xml"
	RuleWeChatV3      = "wechat-v3"
	RuleAdyenAccepted = "adyen-accepted"
	RuleJSONCode      = "json-code"
)

// DefaultRule is what a callback without a success rule is judged by.
const DefaultRule = RuleHTTP2xx

// customRule is what attempts call a rule that was given whole and has no name of its own.
const customRule = "custom"

// A RulePreset is a success rule with a name.
type RulePreset struct {
	Name string
	// Description says in one sentence what it wants, and for whom it was made.
	Description string
	// Rule is the same as a rule given whole, which ParseRule reads. For wechat-v3 it lacks what the language has no words for: the body,
	// which Description tells.
	Rule store.JSONText
}

// RulePresets returns every preset, the default one first.
func RulePresets() []RulePreset {
	return []RulePreset{
		{RuleHTTP2xx, "A status from 200 to 299, whatever the body: Standard Webhooks, Stripe, Adyen, Shopify, GitHub.",
			`{"status":["200-299"]}`},
		{RuleHTTP200, "The status 200, whatever the body: Wix, CMB.",
			`{"status":[200]}`},
		{RuleBodySuccess, "A status from 200 to 299 and the word success as the whole body, in any case: most payment aggregators in China.",
			`{"status":["200-299"],"body":{"iequals":"success","trim":true}}`},
		{RuleBodyOK, "A status from 200 to 299 and the word OK as the whole body, in any case: AllPay.",
			`{"status":["200-299"],"body":{"iequals":"OK","trim":true}}`},
		{RuleAlipay, "A status from 200 to 299 and a body of exactly the seven letters success, without white space: Alipay.",
			`{"status":["200-299"],"body":{"equals":"success"}}`},
		{RuleWeChatV2, "The status 200 and an XML body whose return_code is SUCCESS: WeChat Pay v2.",
			`{"status":[200],"body":{"json":[{"xml":"/xml/return_code","eq":"SUCCESS"}]}}`},
		{RuleWeChatV3, `The status 200 or 204; a JSON body with a "code" other than "SUCCESS" is a failure, any other body does not matter: WeChat Pay v3.`,
			`{"status":[200,204]}`},
		{RuleAdyenAccepted, "A status from 200 to 299 and a body that contains [accepted]: Adyen's older notifications.",
			`{"status":["200-299"],"body":{"contains":"[accepted]"}}`},
		{RuleJSONCode, `A status from 200 to 299 and a JSON body whose "code" is 0, 200, "0", "200", "SUCCESS" or "success".`,
			`{"status":["200-299"],"body":{"json":[{"pointer":"/code","in":[0,"0",200,"200","SUCCESS","success"]}]}}`},
	}
}

// SuccessRules returns the names of the success rules, the default one first. It is cheap: every accept asks for them.
func SuccessRules() []string {
	return []string{
		RuleHTTP2xx, RuleHTTP200, RuleBodySuccess, RuleBodyOK, RuleAlipay, RuleWeChatV2, RuleWeChatV3, RuleAdyenAccepted, RuleJSONCode,
	}
}

// compilePresets returns the presets by name; "" is the default.
func compilePresets() (map[string]*rule, error) {
	rules := make(map[string]*rule)
	for _, p := range RulePresets() {
		r, wrong := compileRule([]byte(p.Rule))
		if len(wrong) > 0 {
			return nil, fmt.Errorf("outbound: success rule %s: %s %s", p.Name, wrong[0].Field, wrong[0].Message)
		}
		switch p.Name {
		case RuleBodySuccess:
			r.expectedBody = "the body to be the word success"
		case RuleWeChatV3:
			code, _ := parsePointer("/code")
			r.body = bodyTest{op: bodyWeChatV3, predicates: Predicates{{look: lookPointer, pointer: code}}}
			r.readsBody = true
			r.expectedBody = `/code of a JSON body, if there is one, to be "SUCCESS"`
		}
		rules[p.Name] = r
	}
	rules[""] = rules[DefaultRule]
	return rules, nil
}
