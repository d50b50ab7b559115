package outbound

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// polled is how a poll ends.
func polled(t *testing.T, rule string, rt http.RoundTripper) Response {
	t.Helper()
	return sendTo(t, rt, func(r *Request) { r.Poll, r.Success = true, store.Success{Rule: store.JSONText(rule)} })
}

// tradeRule is the rule of an order's poll.
const tradeRule = `{"until":{"success":[{"pointer":"/trade_state","in":["SUCCESS","REFUND"]}],"failure":[{"pointer":"/trade_state","in":["CLOSED","BOTH"]},` +
	`{"all":[{"status":[404]},{"pointer":"/code","eq":"ORDER_NOT_EXIST"}]}]},"hold_if":[{"pointer":"/code","eq":"FREQUENCY_LIMITED"}],"evaluate":["200-299",404]}`

func TestVerdicts(t *testing.T) {
	t.Parallel()
	const (
		xml     = `{"until":{"success":[{"xml":"/xml/trade_state","eq":"SUCCESS"}],"failure":[{"xml":"/xml/trade_state","eq":"CLOSED"}]}}`
		amount  = `{"until":{"success":[{"pointer":"/paid","ge":12345678901234567890.10}],"failure":[{"pointer":"/paid","lt":0}]}}`
		failing = `{"until":{"failure":[{"pointer":"/state","eq":"FAIL"}]}}`
		both    = `{"until":{"success":[{"pointer":"/a","eq":1}],"failure":[{"pointer":"/b","eq":1}]}}`
		status  = `{"until":{"success":[{"status":[200]}],"failure":[{"status":[404]}]},"evaluate":["200-299",404]}`
		mixed   = `{"until":{"success":[{"status":[200]}],"failure":[{"pointer":"/code","eq":"X"},{"xml":"/a/b","eq":"X"}]}}`
	)
	large := `{"trade_state":"SUCCESS","x":"` + strings.Repeat("x", MaxResponseBytes) + `"}`
	for _, c := range []struct {
		rule    string
		status  int
		body    string
		verdict rule.Verdict
		class   store.Class
	}{
		{tradeRule, 200, `{"trade_state":"SUCCESS"}`, rule.VerdictSuccess, store.ClassOK},
		{tradeRule, 200, `{"trade_state":"CLOSED"}`, rule.VerdictFailure, store.ClassOK},
		{tradeRule, 404, `{"code":"ORDER_NOT_EXIST"}`, rule.VerdictFailure, store.ClassOK},
		{tradeRule, 200, `{"code":"ORDER_NOT_EXIST"}`, rule.VerdictOpen, store.ClassRuleMismatch},
		{tradeRule, 404, `{"code":"OTHER"}`, rule.VerdictOpen, store.ClassRuleMismatch},
		{tradeRule, 200, `{"trade_state":"PROCESSING"}`, rule.VerdictOpen, store.ClassRuleMismatch},
		{tradeRule, 200, `{"trade_state":"success"}`, rule.VerdictOpen, store.ClassRuleMismatch},
		{tradeRule, 200, `{"trade_state":"SUCCESS","trade_state":"CLOSED"}`, rule.VerdictOpen, store.ClassRuleMismatch},
		{tradeRule, 200, `{"trade_state":"SUCCESS","amount":{"total":1,"total":2}}`, rule.VerdictOpen, store.ClassRuleMismatch},
		{tradeRule, 200, ``, rule.VerdictOpen, store.ClassRuleMismatch},
		{tradeRule, 204, ``, rule.VerdictOpen, store.ClassRuleMismatch},
		{tradeRule, 200, `{"trade_state":"SUCCESS"`, rule.VerdictOpen, store.ClassRuleMismatch},
		{tradeRule, 302, `{"trade_state":"SUCCESS"}`, rule.VerdictError, store.ClassRedirect},
		{tradeRule, 400, `{"trade_state":"SUCCESS"}`, rule.VerdictError, store.ClassHTTP4xx},
		{tradeRule, 410, ``, rule.VerdictError, store.ClassGone},
		{tradeRule, 429, ``, rule.VerdictError, store.ClassThrottled},
		{tradeRule, 500, `{"trade_state":"SUCCESS"}`, rule.VerdictError, store.ClassHTTP5xx},
		{tradeRule, 666, ``, rule.VerdictError, store.ClassProtocol},
		{`{"until":{"success":[{"status":[200]}]},"evaluate":[200]}`, 201, ``, rule.VerdictError, store.ClassRuleMismatch},
		// A status that is evaluated is an answer, whatever it is.
		{`{"until":{"success":[{"pointer":"/a","eq":1}]},"evaluate":["400-599"]}`, 429, `{"a":2}`, rule.VerdictOpen, store.ClassRuleMismatch},
		{`{"until":{"success":[{"pointer":"/a","eq":1}]},"evaluate":["400-599"]}`, 503, `{"a":1}`, rule.VerdictSuccess, store.ClassOK},
		{failing, 200, `{"state":"FAIL"}`, rule.VerdictFailure, store.ClassOK},
		{both, 200, `{"a":1}`, rule.VerdictSuccess, store.ClassOK},
		{both, 200, `{"b":1}`, rule.VerdictFailure, store.ClassOK},
		{both, 200, `{"a":1,"b":1}`, rule.VerdictOpen, store.ClassRuleMismatch},
		{amount, 200, `{"paid":12345678901234567890.1}`, rule.VerdictSuccess, store.ClassOK},
		{amount, 200, `{"paid":12345678901234567890.09}`, rule.VerdictOpen, store.ClassRuleMismatch},
		{amount, 200, `{"paid":-0.01}`, rule.VerdictFailure, store.ClassOK},
		{xml, 200, `<xml><trade_state><![CDATA[SUCCESS]]></trade_state></xml>`, rule.VerdictSuccess, store.ClassOK},
		{xml, 200, `<xml><trade_state>CLOSED</trade_state></xml>`, rule.VerdictFailure, store.ClassOK},
		{xml, 200, `<xml><trade_state>SUCCESS</trade_state><trade_state>CLOSED</trade_state></xml>`, rule.VerdictOpen, store.ClassRuleMismatch},
		{xml, 200, `<xml><trade_state>SUCCESS</trade_state>`, rule.VerdictOpen, store.ClassRuleMismatch},
		// Of more than 64 KiB nothing is known but the status.
		{tradeRule, 200, large, rule.VerdictError, store.ClassRuleMismatch},
		{status, 200, large, rule.VerdictSuccess, store.ClassOK},
		{status, 404, large, rule.VerdictFailure, store.ClassOK},
		{status, 204, large, rule.VerdictOpen, store.ClassRuleMismatch},
		{mixed, 200, large, rule.VerdictError, store.ClassRuleMismatch},
		{`{"until":{"success":[{"status":[200]}],"failure":[{"all":[{"status":[404]},{"pointer":"/a","eq":1}]}]}}`, 200, large, rule.VerdictSuccess, store.ClassOK},
		{`{"until":{"success":[{"status":[200]}]},"hold_if":[{"pointer":"/a","eq":1}]}`, 200, large, rule.VerdictError, store.ClassRuleMismatch},
		// What might be a failure is no success; what is not there is none.
		{mixed, 200, `{"code":"Y"}`, rule.VerdictSuccess, store.ClassOK},
		{mixed, 200, `{"code":"X"}`, rule.VerdictOpen, store.ClassRuleMismatch},
		{mixed, 200, `{"code":"Y","code":"X"}`, rule.VerdictOpen, store.ClassRuleMismatch},
		{mixed, 200, `<a><b>Y</b><b>X</b></a>`, rule.VerdictOpen, store.ClassRuleMismatch},
		{mixed, 200, `fine`, rule.VerdictSuccess, store.ClassOK},
	} {
		r := polled(t, c.rule, answerWith(c.status, nil, c.body))
		final := c.verdict == rule.VerdictSuccess || c.verdict == rule.VerdictFailure
		if r.Verdict != c.verdict || r.Class != c.class || (r.Outcome == store.AttemptSucceeded) != final || !r.Charged {
			t.Errorf("%s on %d %q: %q, %s, %s; want %s, %s", c.rule, c.status, parse.Cut(c.body, 60), r.Verdict, r.Class, r.Outcome, c.verdict, c.class)
		}
		if r.Rule == nil || r.Rule.Name != "until" || r.Rule.Expected == "" || r.Rule.Saw == "" || r.MaxErrors != rule.DefaultErrorBudget || r.MaxDefers != 0 {
			t.Errorf("%s on %d %q: %+v, %+v", c.rule, c.status, parse.Cut(c.body, 60), r.Rule, r)
		}
	}
}

// TestVerdictsOnBrokenAnswers: what broke off is never final, and what cannot be decoded neither.
func TestVerdictsOnBrokenAnswers(t *testing.T) {
	t.Parallel()
	const (
		body   = `{"until":{"success":[{"pointer":"/a","eq":1}]},"evaluate":[200,423],"error_budget":3}`
		status = `{"until":{"success":[{"status":[200]}]},"hold_if":[{"status":[429]}],"error_budget":3}`
	)
	encoded := string(gzipped(t, []byte(`{"a":1}`)))
	for _, c := range []struct {
		name, rule, answer string
		verdict            rule.Verdict
		class              store.Class
		saw                string
	}{
		{"whole", body, "200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}", rule.VerdictSuccess, store.ClassOK, "/a is 1"},
		{"cut off", body, "200 OK\r\nContent-Length: 100\r\n\r\n{\"a\":1}", rule.VerdictError, store.ClassRuleMismatch, "truncated: the body ended early"},
		{"cut off, evaluated 423", body, "423 Locked\r\nRetry-After: 9\r\nContent-Length: 9\r\n\r\n{\"a\":1}", rule.VerdictError, store.ClassRuleMismatch, "truncated: the body ended early"},
		{"cut off, the status would decide", status, "200 OK\r\nContent-Length: 9\r\n\r\n", rule.VerdictError, store.ClassRuleMismatch, "truncated: the body ended early"},
		{"cut off, not evaluated", status, "500 Oops\r\nContent-Length: 9\r\n\r\n", rule.VerdictError, store.ClassHTTP5xx, "status 500"},
		{"cut off, held", status, "429 Slow\r\nContent-Length: 9\r\n\r\n", rule.VerdictHold, store.ClassReceiverBusy, "status 429"},
		{"gzip", body, "200 OK\r\nContent-Encoding: gzip\r\n\r\n" + encoded, rule.VerdictSuccess, store.ClassOK, "/a is 1"},
		{"not gzip", body, "200 OK\r\nContent-Encoding: gzip\r\n\r\n{\"a\":1}", rule.VerdictError, store.ClassDecode, "the body is not valid gzip"},
		{"half of gzip", body, "200 OK\r\nContent-Encoding: gzip\r\n\r\n" + encoded[:len(encoded)-6], rule.VerdictError, store.ClassDecode, "the body is not valid gzip"},
		{"not gzip, the status would decide", status, "200 OK\r\nContent-Encoding: gzip\r\n\r\n{}", rule.VerdictError, store.ClassDecode, "the body is not valid gzip"},
		{"unknown encoding", body, "200 OK\r\nContent-Encoding: br\r\n\r\n{\"a\":1}", rule.VerdictError, store.ClassDecode, "the body has an encoding that was not asked for"},
		{"another charset", body, "200 OK\r\nContent-Type: text/json; charset=gbk\r\n\r\n{\"a\":1,\"b\":\"\xff\"}", rule.VerdictError, store.ClassRuleMismatch, "the body is not in the encoding that it declares"},
		{"another charset, the status decides", status, "200 OK\r\nContent-Type: text/json; charset=gbk\r\n\r\n\xff", rule.VerdictSuccess, store.ClassOK, "status 200"},
	} {
		r := newRequest(serveAnswer(t, "HTTP/1.1 "+c.answer).URL)
		r.Poll, r.Success.Rule = true, store.JSONText(c.rule)
		got := newTestClient(t, Options{}).Send(t.Context(), r)
		if got.Verdict != c.verdict || got.Class != c.class || got.Charged != (c.verdict != rule.VerdictHold) || got.MaxErrors != 3 || got.Rule == nil || got.Rule.Saw != c.saw {
			t.Errorf("%s: %q, %s, charged %v, %+v; want %s, %s, %s", c.name, got.Verdict, got.Class, got.Charged, got.Rule, c.verdict, c.class, c.saw)
		}
		if got.Answered != true || got.Error != "" {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestPollsHold(t *testing.T) {
	t.Parallel()
	const anyStatus = `{"until":{"success":[{"pointer":"/trade_state","eq":"SUCCESS"}]},"hold_if":[{"status":[429]},{"pointer":"/code","eq":"FREQUENCY_LIMITED"}]}`
	date := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	for _, c := range []struct {
		status      int
		h           http.Header
		body        string
		after, asks time.Duration
	}{
		{200, nil, `{"code":"FREQUENCY_LIMITED"}`, time.Minute, 0},
		{200, http.Header{"Retry-After": {"7"}}, `{"code":"FREQUENCY_LIMITED"}`, 7 * time.Second, 7 * time.Second},
		{403, http.Header{"Retry-After": {"7200"}}, `{"code":"FREQUENCY_LIMITED"}`, 2 * time.Hour, 2 * time.Hour},
		{500, http.Header{"Retry-After": {"soon"}}, `{"code":"FREQUENCY_LIMITED"}`, time.Minute, 0},
		{500, http.Header{"Retry-After": {"0"}}, `{"code":"FREQUENCY_LIMITED"}`, time.Minute, 0},
		{500, http.Header{"Retry-After": {date}}, `{"code":"FREQUENCY_LIMITED"}`, time.Minute, 0},
		{429, nil, ``, time.Minute, 0},
		{429, nil, strings.Repeat("x", MaxResponseBytes+1), time.Minute, 0},
		{302, nil, `{"code":"FREQUENCY_LIMITED"}`, time.Minute, 0},
		// It says to wait, and nothing else.
		{200, nil, `{"code":"FREQUENCY_LIMITED","trade_state":"SUCCESS"}`, time.Minute, 0},
	} {
		r := polled(t, anyStatus, answerWith(c.status, c.h, c.body))
		want{class: store.ClassReceiverBusy, uncharged: true, answered: true, status: c.status}.check(t, r)
		if r.Verdict != rule.VerdictHold || r.DeferAfter != c.after || r.MaxDefers != 10_000 || r.RetryAfter != c.asks || r.MaxErrors != rule.DefaultErrorBudget {
			t.Errorf("%d %v %q: %q for %v (%v), %d times", c.status, c.h, parse.Cut(c.body, 40), r.Verdict, r.DeferAfter, r.RetryAfter, r.MaxDefers)
		}
		if r.Rule == nil || r.Rule.Expected != `hold_if not to be true: status 429 or /code to be "FREQUENCY_LIMITED"` || r.Rule.Saw == "" {
			t.Errorf("%d: %+v", c.status, r.Rule)
		}
	}
}

// TestPollsHeedRetryAfter: what a status means by itself, it means for a poll, too, unless it is evaluated.
func TestPollsHeedRetryAfter(t *testing.T) {
	t.Parallel()
	wait := http.Header{"Retry-After": {"20"}}
	const plain = `{"until":{"success":[{"pointer":"/a","eq":1}]}}`
	for _, c := range []struct {
		rule    string
		status  int
		verdict rule.Verdict
		class   store.Class
		after   time.Duration
		asks    time.Duration
	}{
		{plain, 423, "", store.ClassReceiverBusy, rule.DefaultDeferAfter, 20 * time.Second},
		{plain, 429, rule.VerdictError, store.ClassThrottled, 0, 20 * time.Second},
		{plain, 503, rule.VerdictError, store.ClassHTTP5xx, 0, 20 * time.Second},
		{plain, 500, rule.VerdictError, store.ClassHTTP5xx, 0, 0},
		{plain, 200, rule.VerdictOpen, store.ClassRuleMismatch, 0, 0},
		{`{"until":{"success":[{"pointer":"/a","eq":1}]},"evaluate":[423]}`, 423, rule.VerdictOpen, store.ClassRuleMismatch, 0, 20 * time.Second},
		{`{"until":{"failure":[{"status":[423]}]},"evaluate":[423]}`, 423, rule.VerdictFailure, store.ClassOK, 0, 20 * time.Second},
	} {
		r := polled(t, c.rule, answerWith(c.status, wait, "{}"))
		if r.Verdict != c.verdict || r.Class != c.class || r.DeferAfter != c.after || r.RetryAfter != c.asks || r.Charged == (c.after > 0) || r.Rule == nil {
			t.Errorf("%s on %d: %q, %s after %v, %v, %+v", c.rule, c.status, r.Verdict, r.Class, r.DeferAfter, r.RetryAfter, r.Rule)
		}
	}
}

// TestPollsExplainThemselves: what was expected and what was seen, without what must not be shown.
func TestPollsExplainThemselves(t *testing.T) {
	t.Parallel()
	const (
		credential = "hunter2-api-key"
		usual      = `{"until":{"success":[{"pointer":"/trade_state","in":["SUCCESS"]}],"failure":[{"pointer":"/trade_state","in":["CLOSED"]}]}}`
		expected   = `success: /trade_state to be one of "SUCCESS"; failure: /trade_state to be one of "CLOSED"`
		unsure     = `{"until":{"success":[{"status":[200]}]},"hold_if":[{"pointer":"/code","eq":"LIMIT"}]}`
	)
	var many []string
	for range 20 {
		many = append(many, `{"pointer":"/`+strings.Repeat("p", 100)+`","eq":"`+strings.Repeat("v", 100)+`"}`)
	}
	long := "[" + strings.Join(many, ",") + "]"
	for _, c := range []struct {
		rule, body    string
		status        int
		expected, saw string
	}{
		{usual, `{"trade_state":"PROCESSING"}`, 200, expected, `/trade_state is "PROCESSING"`},
		{usual, `{"trade_state":"SUCCESS"}`, 200, expected, `/trade_state is "SUCCESS"`},
		{usual, `{}`, 200, expected, `/trade_state is not there`},
		{usual, `{"trade_state":"` + credential + `"}`, 200, expected, `/trade_state is "***"`},
		{usual, `echo: ` + credential, 200, expected, `the body is not JSON: "echo: ***"`},
		{usual, `{"trade_state":1,"trade_state":2}`, 200, expected, `the body has the key "trade_state" twice`},
		{usual, `{"` + strings.Repeat("k", 60) + credential + `":1,"` + strings.Repeat("k", 60) + credential + `":2}`, 200, expected,
			`the body has the key "` + strings.Repeat("k", 60) + `***" twice`},
		{usual, strings.Repeat("x", MaxResponseBytes+1), 200, expected, "too_large: more than 64 KiB of body"},
		{usual, "", 500, "status 200-299", "status 500"},
		{unsure, `{"code":1,"code":2}`, 200, "success: status 200", `status 200, the body has the key "code" twice`},
		{`{"until":{"failure":[{"pointer":"/a","eq":1},{"pointer":"/b","eq":1}]},"evaluate":[200,404]}`, `{"a":2,"b":3}`, 404,
			"failure: /a to be 1 or /b to be 1", "/a is 2, /b is 3"},
		{`{"until":{"failure":[{"pointer":"/a","eq":1}]},"evaluate":[200,404]}`, ``, 201, "status 200, 404", "status 201"},
		{`{"until":{"success":[{"pointer":"/a","eq":1}],"failure":[{"pointer":"/b","eq":1}]}}`, `{"a":1,"b":1}`, 200,
			"success: /a to be 1; failure: /b to be 1", "both a success and a failure: /a is 1, /b is 1"},
		{`{"until":{"success":[{"pointer":"/a","eq":1}]},"hold_if":[{"pointer":"/code","ne":"OK"},{"status":[429]}]}`, `{"code":"` + credential + `"}`, 200,
			`hold_if not to be true: /code to be other than "OK" or status 429`, `/code is "***", status 200`},
		{`{"until":{"success":` + long + `}}`, `{}`, 200, parse.Cut("success: "+strings.Repeat(`/`+strings.Repeat("p", 100)+` to be "`+strings.Repeat("v", 64)+`…" or `, 3), 509) + "…",
			"/" + strings.Repeat("p", 100) + " is not there"},
	} {
		r := sendTo(t, answerWith(c.status, nil, c.body), func(r *Request) {
			r.Poll, r.Success = true, store.Success{Name: "mine", Rule: store.JSONText(c.rule)}
			r.Headers = []store.Header{{Name: "X-Api-Key", Value: credential}}
		})
		if r.Rule == nil {
			t.Errorf("%s: not explained", parse.Cut(c.rule, 200))
			continue
		}
		want := store.Rule{Name: "mine", Expected: c.expected, Saw: c.saw}
		if len(r.Rule.Expected) > 512 || len(r.Rule.Saw) > 512 || len(c.rule) < 1000 && *r.Rule != want || r.Rule.Saw != c.saw {
			t.Errorf("%s:\n got %+v\nwant %+v", parse.Cut(c.rule, 200), *r.Rule, want)
		}
	}
}

// TestPollsAreOpenPastTheBudget: a failure that was not looked for to the end may be one.
func TestPollsAreOpenPastTheBudget(t *testing.T) {
	t.Parallel()
	body := `{"a":"` + strings.Repeat(`\n`, 30_000) + `"}`
	many := func(n int) string {
		return "[" + strings.Repeat(`{"pointer":"/a","eq":"x"},`, n-1) + `{"pointer":"/b","eq":1}]`
	}
	for _, c := range []struct {
		rule    string
		verdict rule.Verdict
	}{
		{`{"until":{"success":[{"status":[200]}],"failure":` + many(5) + `}}`, rule.VerdictSuccess},
		{`{"until":{"success":[{"status":[200]}],"failure":` + many(30) + `}}`, rule.VerdictOpen},
		{`{"until":{"success":[{"status":[200]}]},"hold_if":` + many(30) + `}`, rule.VerdictOpen},
	} {
		r := polled(t, c.rule, answerWith(200, nil, body))
		told := strings.HasPrefix(r.Rule.Saw, "the body is too much for the rule: ")
		if r.Verdict != c.verdict || told != (c.verdict == rule.VerdictOpen) {
			t.Errorf("%s: %q, %+v", parse.Cut(c.rule, 80), r.Verdict, r.Rule)
		}
	}
}

// TestPollsWithoutAnswer: nothing is judged, and the budget is told all the same.
func TestPollsWithoutAnswer(t *testing.T) {
	t.Parallel()
	const rule = `{"until":{"success":[{"status":[200]}]},"error_budget":5}`
	check := func(t *testing.T, r Response, w want, budget int) {
		t.Helper()
		w.check(t, r)
		if r.Verdict != "" || r.MaxErrors != budget || r.MaxDefers != 0 || !r.Answered && r.Rule != nil {
			t.Errorf("verdict %q, budget %d, %+v", r.Verdict, r.MaxErrors, r.Rule)
		}
	}
	panics := roundTrip(func(*http.Request) (*http.Response, error) { panic("boom") })
	check(t, polled(t, rule, panics), want{class: store.ClassPanic, outcome: store.AttemptUnknown, uncharged: true}, 5)

	closed := serveRaw(t, func(c *net.TCPConn, _ int) {
		readRequest(c)
		reset(c)
	})
	r := newRequest(closed.URL)
	r.Poll, r.Success.Rule = true, rule
	check(t, newTestClient(t, Options{}).Send(t.Context(), r), want{class: store.ClassConnReset, outcome: store.AttemptUnknown}, 5)
	r.URL = "ftp://shop.example/"
	check(t, newTestClient(t, Options{}).Send(t.Context(), r), want{class: store.ClassInvalidRequest}, 5)

	silent := roundTrip(func(*http.Request) (*http.Response, error) {
		t.Error("a request was sent")
		return stubResponse(200, nil, ""), nil
	})
	for _, unreadable := range []string{"", "http-2xx", `{"status":[200]}`, `{"until":{}}`} {
		check(t, polled(t, unreadable, silent), want{class: store.ClassInvalidRequest}, 0)
	}
	// The rule of a poll is none of a callback.
	got := sendTo(t, silent, func(r *Request) { r.Success.Rule = rule })
	check(t, got, want{class: store.ClassInvalidRequest}, 0)
}

// The answer to a poll says of which order it is: what was asked for is not hidden in it, as credentials are.
func TestPollsKeepWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	const body = `{"out_trade_no":"order-20261121-0001","token":"abcdefgh12345678","auth":"Bearer of-the-bank","state":"DONE"}`
	ask := func(poll bool) Response {
		r := newRequest(serveAnswer(t, "HTTP/1.1 200 OK\r\n\r\n"+body).URL + "?out_trade_no=order-20261121-0001&token=abcdefgh12345678")
		r.Headers = []store.Header{{Name: "Authorization", Value: "Bearer of-the-bank"}}
		if r.Poll = poll; poll {
			r.Success.Rule = `{"until":{"success":[{"pointer":"/state","eq":"DONE"}]}}`
		}
		return newTestClient(t, Options{}).Send(t.Context(), r)
	}
	if got := ask(true).ResponseBody; got != `{"out_trade_no":"order-20261121-0001","token":"***","auth":"***","state":"DONE"}` {
		t.Errorf("a poll keeps %s", got)
	}
	if got := ask(false).ResponseBody; got != `{"out_trade_no":"***","token":"***","auth":"***","state":"DONE"}` {
		t.Errorf("another callback keeps %s", got)
	}
}
