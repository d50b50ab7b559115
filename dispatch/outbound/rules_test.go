package outbound

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestSuccessRules(t *testing.T) {
	t.Parallel()
	names := SuccessRules()
	if len(names) == 0 || names[0] != DefaultRule {
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
	} {
		r := sendTo(t, roundTrip(func(*http.Request) (*http.Response, error) {
			return stubResponse(c.status, nil, c.body), nil
		}), func(r *Request) { r.Success = store.Success{Name: c.rule} })
		if got := r.Outcome == store.AttemptSucceeded; got != c.ok || got != (r.Class == store.ClassOK) {
			t.Errorf("%s on %d %q: class %s, outcome %s, want ok %v", c.rule, c.status, c.body, r.Class, r.Outcome, c.ok)
		}
		if !c.ok && (r.Rule == nil || r.Rule.Name != c.rule || r.Rule.Expected == "" || r.Rule.Saw == "") {
			t.Errorf("%s on %d %q: the failure is not explained: %+v", c.rule, c.status, c.body, r.Rule)
		}
	}
}

func TestRuleSaysWhatItSaw(t *testing.T) {
	t.Parallel()
	for body, saw := range map[string]string{
		"":                                      "an empty body",
		"fail":                                  `"fail"`,
		"中文" + strings.Repeat("长", 30):          `"` + "中文" + strings.Repeat("长", 19) + `"…`,
		strings.Repeat("x", MaxResponseBytes+1): "too_large: more than 64 KiB of body",
	} {
		r := sendTo(t, roundTrip(func(*http.Request) (*http.Response, error) { return stubResponse(200, nil, body), nil }),
			func(r *Request) { r.Success = store.Success{Name: RuleBodySuccess} })
		want{class: store.ClassRuleMismatch, answered: true, status: 200}.check(t, r)
		if r.Rule == nil || r.Rule.Saw != saw {
			t.Errorf("rule %+v, want saw %s", r.Rule, saw)
		}
	}
}

// stubResponse is an answer from a transport that is not ours.
func stubResponse(status int, h http.Header, body string) *http.Response {
	if h == nil {
		h = make(http.Header)
	}
	return &http.Response{
		StatusCode: status, Header: h, Body: readCloser{strings.NewReader(body)}, ContentLength: int64(len(body)),
	}
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// sendTo sends one request over a transport.
func sendTo(t *testing.T, rt http.RoundTripper, change func(*Request)) Response {
	t.Helper()
	c := newTestClient(t, Options{Transport: rt})
	r := newRequest("https://shop.example/notify")
	change(&r)
	return c.Send(t.Context(), r)
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
		{"120", "", 2 * time.Minute, true},
		{" 7 ", "", 7 * time.Second, true},
		{"0", "", 0, true},
		{date(time.Minute, http.TimeFormat), "", time.Minute, true},
		{date(time.Minute, rfc850), "", time.Minute, true},
		{date(time.Minute, ansiC), "", time.Minute, true},
		{date(-time.Minute, http.TimeFormat), "", 0, true},
		{date(time.Hour, http.TimeFormat), date(59*time.Minute, http.TimeFormat), time.Minute, true},
		{date(-time.Hour, http.TimeFormat), date(-2*time.Hour, http.TimeFormat), time.Hour, true},
		{date(time.Minute, http.TimeFormat), "yesterday", time.Minute, true},
		{"99999999999", "", maxRetryAfter, true},
		{"9223372037", "", maxRetryAfter, true},
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
