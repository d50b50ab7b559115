package outbound

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

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
