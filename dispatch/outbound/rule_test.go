package outbound

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/text/encoding/simplifiedchinese"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// judged is how an attempt ends that is judged by a rule.
func judged(t *testing.T, rule string, status int, h http.Header, body string) Response {
	t.Helper()
	return sendTo(t, answerWith(status, h, body), func(r *Request) { r.Success = store.Success{Rule: store.JSONText(rule)} })
}

func TestCustomRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule   string
		status int
		body   string
		class  store.Class
	}{
		{`{"status":[200,404]}`, 404, "", store.ClassOK},
		{`{"status":[200,404]}`, 201, "", store.ClassRuleMismatch},
		{`{"status":[404]}`, 200, "", store.ClassRuleMismatch},
		{`{"status":[404]}`, 410, "", store.ClassGone},
		{`{"body":{"equals":"OK"}}`, 204, "", store.ClassRuleMismatch},
		{`{"body":{"equals":"OK"}}`, 200, "OK", store.ClassOK},
		{`{"body":{"equals":"OK"}}`, 300, "OK", store.ClassRedirect},
		{`{"body":{"equals":"OK"}}`, 200, "OK\n", store.ClassRuleMismatch},
		{`{"body":{"equals":"OK","trim":true}}`, 200, " OK\r\n", store.ClassOK},
		{`{"body":{"iequals":"oK"}}`, 200, "Ok", store.ClassOK},
		{`{"body":{"iequals":"é"}}`, 200, "É", store.ClassRuleMismatch},
		{`{"body":{"iequals":"success"}}`, 200, "ſucceſſ", store.ClassRuleMismatch},
		{`{"body":{"contains":"paid"}}`, 200, "it is paid.", store.ClassOK},
		{`{"body":{"prefix":"0,"}}`, 200, "0,ok", store.ClassOK},
		{`{"body":{"prefix":"0,"}}`, 200, " 0,ok", store.ClassRuleMismatch},
		{`{"body":{"regex":"^(ok|OK)$"}}`, 200, "OK", store.ClassOK},
		{`{"body":{"regex":"^(ok|OK)$"}}`, 200, "OK!", store.ClassRuleMismatch},
		{`{"body":{"regex":".*"}}`, 200, "", store.ClassRuleMismatch},
		{`{"body":{"equals":"成功"}}`, 200, "\xef\xbb\xbf成功", store.ClassOK},
		{`{"body":{"json":[{"pointer":"/ret","eq":0},{"pointer":"/code","eq":"OK"}]}}`, 200, `{"code":"OK"}`, store.ClassOK},
		{`{"body":{"json":[{"pointer":"/ret","eq":0},{"pointer":"/code","eq":"OK"}]}}`, 200, `{"code":"NO"}`, store.ClassRuleMismatch},
		{`{"body":{"json":[{"pointer":"/missing","exists":false}]}}`, 200, ``, store.ClassRuleMismatch},
		// A body that fails its test has the class of its status, where that is no success by itself: Retry-After counts.
		{`{"status":["200-299","400-599"],"body":{"equals":"OK"}}`, 503, "no", store.ClassHTTP5xx},
		{`{"status":["200-299","400-599"],"body":{"equals":"OK"}}`, 429, "no", store.ClassThrottled},
		{`{"status":["200-299","400-599"],"body":{"equals":"OK"}}`, 503, "OK", store.ClassOK},
	} {
		r := judged(t, c.rule, c.status, nil, c.body)
		if r.Class != c.class || (r.Outcome == store.AttemptSucceeded) != (c.class == store.ClassOK) || !r.Charged || r.Permanent || r.MaxDefers != 0 {
			t.Errorf("%s on %d %q: %s, %s, want %s", c.rule, c.status, c.body, r.Class, r.Outcome, c.class)
		}
		if c.class != store.ClassOK && (r.Rule == nil || r.Rule.Name != "custom" || r.Rule.Expected == "" || r.Rule.Saw == "") {
			t.Errorf("%s on %d %q: not explained: %+v", c.rule, c.status, c.body, r.Rule)
		}
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	const (
		both = `{"status":["200-299"],"body":{"iequals":"ok"},
			"permanent_if": {"body":{"json":[{"pointer":"/code","in":["ORDER_NOT_FOUND"]}]}},
			"defer_if":{"status":[423,200],"body":{"contains":"locked"}},"defer_after":"5s","max_defers":7}`
		statuses = `{"permanent_if":{"status":["400-403",200]},"defer_if":{"status":[409]}}`
		narrow   = `{"permanent_if":{"status":[404],"body":{"equals":"never"}}}`
		nothing  = `{"defer_after":"9s","max_defers":2}`
	)
	wait := http.Header{"Retry-After": {"20"}}
	for _, c := range []struct {
		rule   string
		status int
		h      http.Header
		body   string
		class  store.Class
		after  time.Duration
		defers int
		retry  time.Duration
	}{
		{both, 200, nil, "ok", store.ClassOK, 0, 0, 0},
		{both, 423, nil, "locked", store.ClassReceiverBusy, 5 * time.Second, 7, 0},
		{both, 423, wait, "order locked", store.ClassReceiverBusy, 5 * time.Second, 7, 20 * time.Second},
		{both, 200, wait, "locked", store.ClassReceiverBusy, 5 * time.Second, 7, 0},
		{both, 423, nil, "free", store.ClassHTTP4xx, 0, 0, 0},
		{both, 423, wait, "free", store.ClassReceiverBusy, 5 * time.Second, 7, 20 * time.Second},
		{both, 500, nil, "locked", store.ClassHTTP5xx, 0, 0, 0},
		{both, 500, nil, `{"code":"ORDER_NOT_FOUND"}`, store.ClassRejected, 0, 0, 0},
		{both, 200, nil, `{"code":"ORDER_NOT_FOUND"}`, store.ClassRejected, 0, 0, 0},
		{both, 200, nil, `{"code":"OTHER"}`, store.ClassRuleMismatch, 0, 0, 0},
		{both, 200, nil, `{"code":"ORDER_NOT_FOUND","x":"locked"}`, store.ClassReceiverBusy, 5 * time.Second, 7, 0},
		{statuses, 400, nil, "", store.ClassRejected, 0, 0, 0},
		{statuses, 200, nil, "ok", store.ClassRejected, 0, 0, 0},
		{statuses, 201, nil, "ok", store.ClassOK, 0, 0, 0},
		{statuses, 404, nil, "", store.ClassHTTP4xx, 0, 0, 0},
		{statuses, 409, nil, "", store.ClassReceiverBusy, rule.DefaultDeferAfter, rule.DefaultMaxDefers, 0},
		{statuses, 423, wait, "", store.ClassReceiverBusy, rule.DefaultDeferAfter, rule.DefaultMaxDefers, 20 * time.Second},
		{statuses, 423, nil, "", store.ClassHTTP4xx, 0, 0, 0},
		{narrow, 404, nil, "never", store.ClassRejected, 0, 0, 0},
		{narrow, 404, nil, "later", store.ClassHTTP4xx, 0, 0, 0},
		{narrow, 200, nil, "never", store.ClassOK, 0, 0, 0},
		{nothing, 423, wait, "", store.ClassReceiverBusy, 9 * time.Second, 2, 20 * time.Second},
		{nothing, 429, wait, "", store.ClassThrottled, 0, 0, 20 * time.Second},
		{`{"permanent_if":{"status":[429]}}`, 429, wait, "", store.ClassRejected, 0, 0, 20 * time.Second},
		// A body that is not whole proves nothing, for good or for ill.
		{`{"permanent_if":{"body":{"prefix":"x"}}}`, 500, nil, strings.Repeat("x", MaxResponseBytes+1), store.ClassHTTP5xx, 0, 0, 0},
		{`{"permanent_if":{"body":{"prefix":"x"}}}`, 500, nil, strings.Repeat("x", MaxResponseBytes), store.ClassRejected, 0, 0, 0},
		{`{"defer_if":{"body":{"prefix":"x"}}}`, 500, http.Header{"Content-Encoding": {"gzip"}}, "x", store.ClassHTTP5xx, 0, 0, 0},
		{`{"defer_if":{"status":[500]}}`, 500, http.Header{"Content-Encoding": {"gzip"}}, "x", store.ClassReceiverBusy, rule.DefaultDeferAfter, rule.DefaultMaxDefers, 0},
	} {
		r := judged(t, c.rule, c.status, c.h, c.body)
		name := fmt.Sprintf("%s on %d %q", c.rule, c.status, parse.Cut(c.body, 40))
		if r.Class != c.class || r.DeferAfter != c.after || r.MaxDefers != c.defers || r.RetryAfter != c.retry {
			t.Errorf("%s: %s after %v, %d times, retry after %v; want %+v", name, r.Class, r.DeferAfter, r.MaxDefers, r.RetryAfter, c)
		}
		if r.Permanent != (c.class == store.ClassRejected) || r.Charged == (c.class == store.ClassReceiverBusy) || !r.Answered {
			t.Errorf("%s: permanent %v, charged %v", name, r.Permanent, r.Charged)
		}
		if c.class != store.ClassOK && (r.Rule == nil || r.Rule.Expected == "" || r.Rule.Saw == "") {
			t.Errorf("%s: not explained: %+v", name, r.Rule)
		}
	}
}

// TestRulesExplainThemselves: what was expected and what was seen, without what must not be shown.
func TestRulesExplainThemselves(t *testing.T) {
	t.Parallel()
	const credential = "hunter2-api-key"
	for _, c := range []struct {
		rule, body    string
		status        int
		expected, saw string
	}{
		{`{"body":{"equals":"OK"}}`, "no", 200, `the body to be "OK"`, `"no"`},
		{`{"body":{"iequals":"OK"}}`, "no", 200, `the body to be "OK" in any case`, `"no"`},
		{`{"body":{"contains":"OK"}}`, "", 200, `the body to contain "OK"`, "an empty body"},
		{`{"body":{"prefix":"OK"}}`, "no", 200, `the body to begin with "OK"`, `"no"`},
		{`{"body":{"equals":"OK"}}`, "中文" + strings.Repeat("长", 30), 200, `the body to be "OK"`,
			`"` + "中文" + strings.Repeat("长", 19) + `"…`},
		{`{"body":{"regex":"^\\d$"}}`, credential, 200, `the body to match "^\\d$"`, `"***"`},
		{`{"body":{"json":[{"pointer":"/trade_state","in":["SUCCESS"]}]}}`, `{"trade_state":"` + credential + `"}`, 200,
			`/trade_state to be one of "SUCCESS"`, `/trade_state is "***"`},
		{`{"body":{"json":[{"pointer":"/a","eq":1}]}}`, "<html>sorry</html>", 200, "/a to be 1", `the body is not JSON: "<html>sorry</html>"`},
		{`{"body":{"json":[{"pointer":"/a","eq":1}]}}`, strings.Repeat("x", MaxResponseBytes+1), 200, "/a to be 1", "too_large: more than 64 KiB of body"},
		{`{"status":[201]}`, "", 500, "status 201", "status 500"},
		{`{"permanent_if":{"status":["400-499"]}}`, "no", 404, "permanent_if not to be true: status 400-499", "status 404"},
		{`{"permanent_if":{"status":[404],"body":{"json":[{"pointer":"/code","eq":"` + credential + `"}]}}}`, `{"code":"` + credential + `"}`, 404,
			`permanent_if not to be true: status 404 and /code to be "` + credential + `"`, `status 404, /code is "***"`},
		{`{"defer_if":{"body":{"contains":"locked"}}}`, "it is locked", 200, `defer_if not to be true: the body to contain "locked"`, `"it is locked"`},
	} {
		r := sendTo(t, answerWith(c.status, nil, c.body), func(r *Request) {
			r.Success = store.Success{Name: "mine", Rule: store.JSONText(c.rule)}
			r.Headers = []store.Header{{Name: "X-Api-Key", Value: credential}}
		})
		if r.Rule == nil || *r.Rule != (store.Rule{Name: "mine", Expected: c.expected, Saw: c.saw}) {
			t.Errorf("%s:\n got %+v\nwant %s | %s", c.rule, r.Rule, c.expected, c.saw)
		}
	}
}

func TestRulesReadTheDeclaredCharset(t *testing.T) {
	t.Parallel()
	encode := func(s string) string {
		out, err := simplifiedchinese.GB18030.NewEncoder().String(s)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, c := range []struct {
		rule, contentType, body string
		ok                      bool
		kept                    string
	}{
		{`{"body":{"equals":"成功"}}`, "text/plain; charset=GBK", encode("成功"), true, "成功"},
		{`{"body":{"equals":"成功"}}`, `text/plain;Charset="gb2312"`, encode("成功"), true, "成功"},
		{`{"body":{"equals":"成功"}}`, "text/plain; charset=gb18030", encode("成功"), true, "成功"},
		{`{"body":{"equals":"😀"}}`, "text/plain; charset=gb18030", encode("😀"), true, "😀"},
		{`{"body":{"equals":"成功"}}`, "text/plain", encode("成功"), false, "\uFFFDɹ\uFFFD"},
		{`{"body":{"equals":"成功"}}`, "text/plain; charset=utf-8", "成功", true, "成功"},
		{`{"body":{"equals":"成功"}}`, "text/plain; charset=gbk", "\xef\xbb\xbf成功", true, "成功"},
		// Declared as the one and written as the other, which happens.
		{`{"body":{"json":[{"pointer":"/msg","eq":"付"}]}}`, "application/json;charset=gbk", `{"msg":"付"}`, true, `{"msg":"付"}`},
		{`{"body":{"contains":"success"}}`, "text/plain; charset=gbk", "success\xff", false, "success\uFFFD"},
		{`{"body":{"equals":"success"}}`, "text/plain; charset=utf-16", "success", true, "success"},
		{`{"body":{"json":[{"pointer":"/msg","eq":"支付成功"}]}}`, "application/json;charset=gbk", encode(`{"msg":"支付成功"}`), true, `{"msg":"支付成功"}`},
		{`{"body":{"json":[{"xml":"/r/m","eq":"成功"}]}}`, "text/xml", encode(`<?xml version="1.0" encoding="GB2312"?><r><m>成功</m></r>`), true,
			`<?xml version="1.0" encoding="GB2312"?><r><m>成功</m></r>`},
	} {
		r := judged(t, c.rule, 200, http.Header{"Content-Type": {c.contentType}}, c.body)
		if (r.Class == store.ClassOK) != c.ok || r.ResponseBody != c.kept {
			t.Errorf("%s as %s: %s, kept %q, want ok %v, %q", c.rule, c.contentType, r.Class, r.ResponseBody, c.ok, c.kept)
		}
	}
}

func TestSuccessRules(t *testing.T) {
	t.Parallel()
	names := rule.Names()
	if len(names) == 0 || names[0] != rule.Default {
		t.Fatalf("SuccessRules() = %v; the default comes first", names)
	}
	for _, c := range []struct {
		rule   string
		status int
		body   string
		ok     bool
	}{
		{"http-2xx", 200, "", true}, {"http-2xx", 204, "", true}, {"http-2xx", 299, "fail", true},
		{"http-2xx", 199, "", false}, {"http-2xx", 300, "", false}, {"http-2xx", 500, "success", false},
		{"http-200", 200, "anything", true}, {"http-200", 201, "", false}, {"http-200", 204, "", false},
		{"body-success", 200, "success", true}, {"body-success", 202, "SUCCESS", true},
		{"body-success", 200, " \r\n\tSuccess\n", true}, {"body-success", 200, "\xef\xbb\xbfsuccess", true},
		{"body-success", 200, "", false}, {"body-success", 200, "fail", false}, {"body-success", 200, `"success"`, false},
		{"body-success", 200, "success!", false}, {"body-success", 200, "s u c c e s s", false},
		{"body-success", 200, "<html><body>success</body></html>", false}, {"body-success", 200, "ſucceſſ", false},
		{"body-success", 500, "success", false}, {"body-success", 302, "success", false},
		{"body-success", 200, `{"code":"success"}`, false}, {"body-success", 200, "success\x00", false},
		{"body-ok", 200, "OK", true}, {"body-ok", 202, " ok\n", true}, {"body-ok", 200, "success", false}, {"body-ok", 200, "", false},
		{"body-ok", 200, "O K", false}, {"body-ok", 500, "OK", false}, {"body-ok", 200, "<p>OK</p>", false},
		{"alipay", 200, "success", true}, {"alipay", 201, "success", true}, {"alipay", 200, "\xef\xbb\xbfsuccess", true},
		{"alipay", 200, "SUCCESS", false}, {"alipay", 200, "success\n", false}, {"alipay", 200, " success", false}, {"alipay", 200, "", false},
		{"alipay", 200, "fail", false}, {"alipay", 302, "success", false}, {"alipay", 200, "<html>success</html>", false},
		{"wechat-v2-xml", 200, "<xml><return_code><![CDATA[SUCCESS]]></return_code><return_msg><![CDATA[OK]]></return_msg></xml>", true},
		{"wechat-v2-xml", 200, "<xml>\n  <return_code>SUCCESS</return_code>\n</xml>\n", true},
		{"wechat-v2-xml", 200, "<?xml version=\"1.0\" encoding=\"UTF-8\"?><xml><return_code>\n<![CDATA[SUCCESS]]>\n</return_code></xml>", true},
		{"wechat-v2-xml", 200, "<xml><return_code><![CDATA[FAIL]]></return_code></xml>", false},
		{"wechat-v2-xml", 200, "<xml><return_code>success</return_code></xml>", false},
		{"wechat-v2-xml", 200, "<xml><return_code>SUCCESS</return_code></xml> ok", false},
		{"wechat-v2-xml", 200, "<xml><return_code>SUCCESS</return_code><return_code>FAIL</return_code></xml>", false},
		{"wechat-v2-xml", 200, "<xml><return_code>SUCCESS</return_code>", false},
		{"wechat-v2-xml", 200, "<html><xml><return_code>SUCCESS</return_code></xml></html>", false},
		{"wechat-v2-xml", 200, `{"return_code":"SUCCESS"}`, false}, {"wechat-v2-xml", 200, "SUCCESS", false}, {"wechat-v2-xml", 200, "", false},
		{"wechat-v2-xml", 204, "", false}, {"wechat-v2-xml", 201, "<xml><return_code>SUCCESS</return_code></xml>", false},
		{"wechat-v3", 200, "", true}, {"wechat-v3", 204, "", true}, {"wechat-v3", 200, "anything", true}, {"wechat-v3", 200, `{"code":"SUCCESS"}`, true},
		{"wechat-v3", 200, `{"code":"SUCCESS","message":"成功"}`, true}, {"wechat-v3", 200, `{"message":"no code"}`, true}, {"wechat-v3", 200, `[1]`, true},
		{"wechat-v3", 200, `{"code":"FAIL","message":"失败"}`, false}, {"wechat-v3", 200, `{"code":"success"}`, false}, {"wechat-v3", 200, `{"code":0}`, false},
		{"wechat-v3", 200, `{"code":null}`, false}, {"wechat-v3", 200, `{"c\u006fde":"FAIL"}`, false}, {"wechat-v3", 200, `{"code":"SUCCESS","code":"FAIL"}`, false},
		{"wechat-v3", 200, strings.Repeat("x", MaxResponseBytes+1), true}, {"wechat-v3", 201, "", false}, {"wechat-v3", 500, `{"code":"SUCCESS"}`, false},
		{"adyen-accepted", 200, "[accepted]", true}, {"adyen-accepted", 202, "<html>[accepted]</html>", true}, {"adyen-accepted", 200, "accepted", false},
		{"adyen-accepted", 200, "", false}, {"adyen-accepted", 200, "[ACCEPTED]", false}, {"adyen-accepted", 500, "[accepted]", false},
		{"json-code", 200, `{"code":0}`, true}, {"json-code", 200, `{"code":"0"}`, true}, {"json-code", 200, `{"code":200}`, true},
		{"json-code", 200, `{"code":"200"}`, true}, {"json-code", 201, `{"code":"SUCCESS"}`, true}, {"json-code", 200, `{"code":"success"}`, true},
		{"json-code", 200, "\xef\xbb\xbf{\"code\": 0.0}", true}, {"json-code", 200, `{"code":1}`, false}, {"json-code", 200, `{"code":"Success"}`, false},
		{"json-code", 200, `{"Code":0}`, false}, {"json-code", 200, `{"code":false}`, false}, {"json-code", 200, `{"data":{"code":0}}`, false},
		{"json-code", 200, `{"code":0,"code":1}`, false}, {"json-code", 200, "", false}, {"json-code", 200, "0", false}, {"json-code", 500, `{"code":0}`, false},
	} {
		r := sendTo(t, roundTrip(func(*http.Request) (*http.Response, error) {
			return stubResponse(c.status, nil, c.body), nil
		}), func(r *Request) { r.Success = store.Success{Name: c.rule} })
		if got := r.Outcome == store.AttemptSucceeded; got != c.ok || got != (r.Class == store.ClassOK) {
			t.Errorf("%s on %d %q: class %s, outcome %s, want ok %v", c.rule, c.status, c.body, r.Class, r.Outcome, c.ok)
		}
		if !c.ok && (r.Rule == nil || r.Rule.Name != c.rule || r.Rule.Expected == "" || r.Rule.Saw == "") {
			t.Errorf("%s on %d %q: the failure is not explained: %+v", c.rule, c.status, parse.Cut(c.body, 60), r.Rule)
		}
	}
}

// TestPresetsAreRules: each preset is, in the language of rules, what its own text says; but for the body of wechat-v3, which that has no
// words for.
func TestPresetsAreRules(t *testing.T) {
	t.Parallel()
	presets, names := rule.Presets(), rule.Names()
	bodies := []string{"", "success", "SUCCESS\n", "ok", "[accepted]", `{"code":"0"}`, "<xml><return_code>SUCCESS</return_code></xml>", "<html>success</html>"}
	if len(presets) != len(names) {
		t.Fatalf("%d presets, %d names", len(presets), len(names))
	}
	for i, p := range presets {
		if p.Name != names[i] || p.Description == "" {
			t.Errorf("preset %d: %+v", i, p)
		}
		text, wrong := rule.Parse([]byte(p.Rule))
		if wrong != nil || text != p.Rule {
			t.Errorf("%s: %s, %v", p.Name, text, wrong)
		}
		for _, status := range []int{200, 201, 204, 302, 404, 500} {
			for _, body := range bodies {
				var got [2]store.Class
				for k, s := range []store.Success{{Name: p.Name}, {Rule: p.Rule}} {
					got[k] = sendTo(t, answerWith(status, nil, body), func(r *Request) { r.Success = s }).Class
				}
				if got[0] != got[1] && !(p.Name == rule.WeChatV3 && strings.Contains(body, "code")) {
					t.Errorf("%s on %d %q: %s by name, %s by its rule", p.Name, status, body, got[0], got[1])
				}
			}
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	date := func(d time.Duration, layout string) string { return now.Add(d).Format(layout) }
	const ansiC, rfc850 = time.ANSIC, "Monday, 02-Jan-06 15:04:05 GMT"
	for _, c := range []struct {
		value, date string
		want        time.Duration
		ok          bool
	}{
		{"120", "", 2 * time.Minute, true}, {" 7 ", "", 7 * time.Second, true}, {"0", "", 0, true},
		{date(time.Minute, http.TimeFormat), "", time.Minute, true},
		{date(time.Minute, rfc850), "", time.Minute, true}, {date(time.Minute, ansiC), "", time.Minute, true},
		{date(-time.Minute, http.TimeFormat), "", 0, true},
		{date(time.Hour, http.TimeFormat), date(59*time.Minute, http.TimeFormat), time.Minute, true},
		{date(-time.Hour, http.TimeFormat), date(-2*time.Hour, http.TimeFormat), time.Hour, true},
		{date(time.Minute, http.TimeFormat), "yesterday", time.Minute, true},
		{"99999999999", "", maxRetryAfter, true}, {"9223372037", "", maxRetryAfter, true},
		{strconv.FormatUint(math.MaxUint64, 10) + "0", "", maxRetryAfter, true},
		{"Fri, 31 Dec 9999 23:59:59 GMT", "", maxRetryAfter, true},
		{"", "", 0, false}, {"-5", "", 0, false}, {"+5", "", 0, false}, {"1.5", "", 0, false}, {"soon", "", 0, false},
		{"1e3", "", 0, false}, {"5 seconds", "", 0, false}, {"٣", "", 0, false},
	} {
		h := http.Header{}
		h.Set("Retry-After", c.value)
		h.Set("Date", c.date)
		got, ok := retryAfter(h, now)
		if got != c.want || ok != c.ok {
			t.Errorf("Retry-After %q (Date %q) = %v, %v; want %v, %v", c.value, c.date, got, ok, c.want, c.ok)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("120", "Fri, 31 Dec 9999 23:59:59 GMT")
	f.Add("Fri, 31 Dec 9999 23:59:59 GMT", "")
	f.Fuzz(func(t *testing.T, value, date string) {
		got, ok := retryAfter(http.Header{"Retry-After": {value}, "Date": {date}}, time.Unix(1763700000, 0))
		if got < 0 || got > maxRetryAfter || !ok && got != 0 {
			t.Fatalf("%q %q: %v, %v", value, date, got, ok)
		}
	})
}
