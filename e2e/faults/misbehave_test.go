package faults

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A misdeed is one way in which a receiver, or the way to it, misbehaves, and what is to come of it.
type misdeed struct {
	// row of the list of failures that the project was designed by, and what happens.
	row  int
	name string
	// url is where; or do is what is done there, over TLS if there is a configuration.
	url    string
	do     exchange
	config *tls.Config
	// set are fields of the callback beside the usual ones.
	set harness.Submission
	// attempts are the classes of the attempts that are made within a second or so, the last of them being what the rest tells.
	attempts []string
	outcome  string
	charged  bool
	// wait is when it is due again after the last attempt; zero: state and reason are its end.
	wait          time.Duration
	state, reason string
	// requests is how many arrive; zero: as many as there are attempts.
	requests int
	// rule is in what the attempt says that was seen.
	rule string
}

// tier is the one wait of the policy that most of them are sent by.
const tier = time.Hour

func once(more harness.Submission) harness.Submission {
	policy := harness.Submission{"tiers": []string{"1h"}, "timeout": "1s", "retry_after_cap": "3h"}
	for k, v := range more {
		policy[k] = v
	}
	return policy
}

// retried is what a charged failure comes to that walks the ladder.
func retried(row int, name, class string, do exchange) misdeed {
	return misdeed{row: row, name: name, do: do, attempts: []string{class}, outcome: "failed", charged: true, wait: tier}
}

func (d misdeed) with(set harness.Submission) misdeed {
	d.set = set
	return d
}

// unknown says that the receiver may have acted on it.
func (d misdeed) unknown() misdeed {
	d.outcome = "unknown"
	return d
}

func (d misdeed) over(config *tls.Config) misdeed {
	d.config = config
	return d
}

func (d misdeed) at(url string) misdeed {
	d.url = url
	return d
}

func (d misdeed) due(after time.Duration) misdeed {
	d.wait = after
	return d
}

func (d misdeed) saw(text string) misdeed {
	d.rule = text
	return d
}

// arrives says how many requests get so far as to be read.
func (d misdeed) arrives(n int) misdeed {
	d.requests = n
	return d
}

// ends is what comes to an end with its first attempt.
func ends(row int, name, class, outcome, state, reason string, do exchange) misdeed {
	return misdeed{row: row, name: name, do: do, attempts: []string{class}, outcome: outcome, charged: true, state: state, reason: reason}
}

var never = -1

// misdeeds lists them; the dispatcher trusts the authority of the files.
func misdeeds(t *testing.T, files certificateFiles) []misdeed {
	load := func(files certificateFiles) tls.Certificate {
		certificate, err := tls.LoadX509KeyPair(files.certificate, files.key)
		if err != nil {
			t.Fatal(err)
		}
		return certificate
	}
	certificate := load(files)
	unknownCA := &tls.Config{Certificates: []tls.Certificate{load(makeCertificates(t))}}
	old := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	body := harness.Submission{"success": "body-success"}
	ok := "HTTP/1.1 200 OK\r\n"
	list := []misdeed{
		ends(1, "200", "ok", "succeeded", "succeeded", "", answersWith(200, "fail")),
		ends(1, "the word success, in any case, with a line's end", "ok", "succeeded", "succeeded", "", answersWith(200, "Success\n")).with(body),
		retried(2, "200 with a failure in the body", "rule_mismatch", answersWith(200, "fail")).with(body).saw(`"fail"`),
		retried(2, "200 with a page that has the word success", "rule_mismatch", answersWith(200, "<html>success</html>")).with(body),
		retried(2, "200 with nothing", "rule_mismatch", answersWith(200, "")).with(body).saw("empty"),
		retried(2, "alipay's word with a line's end", "rule_mismatch", answersWith(200, "success\n")).with(harness.Submission{"success": "alipay"}),
		retried(2, "wechat's XML says FAIL", "rule_mismatch", answersWith(200, "<xml><return_code><![CDATA[FAIL]]></return_code></xml>")).with(harness.Submission{"success": "wechat-v2-xml"}),
		ends(2, "wechat's XML says SUCCESS", "ok", "succeeded", "succeeded", "", answersWith(200, "<xml><return_code><![CDATA[SUCCESS]]></return_code></xml>")).with(harness.Submission{"success": "wechat-v2-xml"}),
		ends(3, "a failure for good", "rejected", "failed", "dead", "rejected", answersWith(200, `{"code":"ORDER_NOT_FOUND"}`)).with(harness.Submission{
			"success": harness.Submission{"permanent_if": harness.Submission{"body": harness.Submission{"json": []harness.Submission{{"pointer": "/code", "in": []string{"ORDER_NOT_FOUND"}}}}}}}),
		retried(4, "101", "protocol", says("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")),
		retried(13, "status 999", "protocol", answersWith(999, "")),
		retried(13, "status 099", "protocol", answersWith(99, "")),
		retried(9, "413", "http_413", answersWith(413, "")),
		ends(8, "410, which stops", "gone", "failed", "dead", "gone", answersWith(410, "")),
		retried(8, "410, which payments do not stop at", "gone", answersWith(410, "")).with(harness.Submission{"policy": "payment"}).due(15 * time.Second),
		ends(6, "400, which stops by the policy", "http_4xx", "failed", "dead", "rejected", answersWith(400, "")).with(harness.Submission{"policy": once(harness.Submission{"stop_on": []int{400}})}),

		retried(10, "429", "throttled", answersWith(429, "")),
		retried(10, "429 with a floor", "throttled", answersWith(429, "")).with(harness.Submission{"policy": once(harness.Submission{"tiers": []string{"1s"}, "overload_floor": "90s"})}).due(90 * time.Second),
		retried(14, "503 that asks for two hours", "http_5xx", answersWith(503, "", "Retry-After: 7200")).due(2 * time.Hour),
		retried(14, "429 that asks for two hours by a date", "throttled", answersWith(429, "", "Date: Sat, 21 Nov 2026 08:00:00 GMT", "Retry-After: Sat, 21 Nov 2026 10:00:00 GMT")).due(2 * time.Hour),
		retried(14, "503 that asks for less than the tier", "http_5xx", answersWith(503, "", "Retry-After: 5")),
		retried(15, "503 that asks for more than the cap", "http_5xx", answersWith(503, "", "Retry-After: 99999999999999999999")).due(3 * time.Hour),
		retried(15, "503 with a negative wait", "http_5xx", answersWith(503, "", "Retry-After: -7200")),
		retried(15, "503 with a fraction", "http_5xx", answersWith(503, "", "Retry-After: 7200.5")),
		retried(15, "503 with words", "http_5xx", answersWith(503, "", "Retry-After: soon")),
		retried(15, "503 with a date that has passed", "http_5xx", answersWith(503, "", "Retry-After: Sat, 01 Jan 2000 00:00:00 GMT")),
		retried(12, "502 whose Retry-After does not count", "http_5xx", answersWith(502, "", "Retry-After: 7200")),

		retried(18, "nobody listens", "connect_refused", nil).at("http://127.0.0.1:" + harness.FreePorts(t, 1)[0]),
		retried(20, "a certificate of an unknown authority", "tls_cert", says("")).over(unknownCA).arrives(never),
		retried(21, "TLS 1.1", "tls_proto", says("")).over(old).arrives(never),
		retried(22, "a client's certificate is required", "tls_client_cert", says("")).over(&tls.Config{
			Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}).arrives(never),
		retried(23, "closed before the answer", "conn_reset", says("")).unknown(),
		retried(23, "reset before the answer", "conn_reset", resets).unknown(),
		retried(23, "closed within the headers", "conn_reset", says(ok+"Content-Length: 7\r\n")).unknown(),
		retried(25, "no answer", "timeout_headers", silent).unknown(),
		retried(27, "headers that drip", "timeout_headers", drips(ok, "X")).unknown(),
		ends(26, "a body that drips, by a rule of statuses", "ok", "succeeded", "succeeded", "", drips(ok+"Content-Length: 100000\r\n\r\n", "s")),
		retried(26, "a body that drips, by a rule of bodies", "timeout_body", drips(ok+"Content-Length: 100000\r\n\r\n", "s")).with(body),
		retried(28, "headers without end", "headers_too_large", floods(ok, "X-Filler: "+strings.Repeat("x", 1000)+"\r\n")),
		retried(28, "103 without end", "headers_too_large", floods("", "HTTP/1.1 103 Early Hints\r\nLink: <"+strings.Repeat("x", 1000)+">\r\n\r\n")),
		ends(29, "a body without end, by a rule of statuses", "ok", "succeeded", "succeeded", "", floods(ok+"Transfer-Encoding: chunked\r\n\r\n", chunked(4096))),
		retried(29, "a body without end, by a rule of bodies", "rule_mismatch", floods(ok+"Transfer-Encoding: chunked\r\n\r\n", chunked(4096))).with(body).saw("too_large"),
		ends(30, "a gzip bomb, by a rule of statuses", "ok", "succeeded", "succeeded", "", answersWith(200, bomb(t), "Content-Encoding: gzip")),
		retried(30, "a gzip bomb, by a rule of bodies", "rule_mismatch", answersWith(200, bomb(t), "Content-Encoding: gzip")).with(body).saw("too_large"),
		ends(31, "bad gzip, by a rule of statuses", "ok", "succeeded", "succeeded", "", answersWith(200, "success", "Content-Encoding: gzip")),
		retried(31, "bad gzip, by a rule of bodies", "decode", answersWith(200, "success", "Content-Encoding: gzip")).with(body),
		retried(31, "an unknown encoding, by a rule of bodies", "decode", answersWith(200, "success", "Content-Encoding: rot13")).with(body),
		retried(32, "two lengths", "protocol", says(ok+"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy")),
		retried(32, "no status line", "protocol", says("nonsense\r\n\r\n")),
		retried(32, "another protocol", "protocol", says("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")),
		ends(34, "a body that is not UTF-8", "ok", "succeeded", "succeeded", "", answersWith(200, "\xff\x00\xfe")),
		ends(34, "a body in GBK that says so", "ok", "succeeded", "succeeded", "", answersWith(200, "\xb3\xc9\xb9\xa6", "Content-Type: text/plain; charset=gbk")).with(harness.Submission{"success": harness.Submission{"body": harness.Submission{"equals": "成功"}}}),
		retried(35, "413 before the body was read", "http_413", nil).at(early(t, 413)),
	}
	for _, status := range []int{301, 302, 303, 304, 307, 308} {
		list = append(list, retried(5, fmt.Sprint(status), "redirect", answersWith(status, "", "Location: http://127.0.0.1:1/elsewhere")))
	}
	for _, status := range []int{400, 401, 403, 404, 405, 409, 415, 422} {
		list = append(list, retried(6, fmt.Sprint(status), "http_4xx", answersWith(status, "")))
	}
	for _, status := range []int{408, 425} {
		list = append(list, retried(7, fmt.Sprint(status), "http_4xx", answersWith(status, "")))
	}
	for _, status := range []int{500, 501, 505} {
		list = append(list, retried(11, fmt.Sprint(status), "http_5xx", answersWith(status, "")))
	}
	for _, status := range []int{502, 503, 504} {
		list = append(list, retried(12, fmt.Sprint(status), "http_5xx", answersWith(status, "")))
	}
	// The lock conflict on the receiver's side is put back uncharged, after its own wait.
	busy := retried(0, "423 that says when to come back", "receiver_busy", answersWith(423, "", "Retry-After: 60")).due(time.Minute)
	busy.charged = false
	custom := retried(0, "a conflict that the rule takes for one", "receiver_busy", answersWith(409, "")).due(30 * time.Second).with(harness.Submission{
		"success": harness.Submission{"defer_if": harness.Submission{"status": []int{409}}, "defer_after": "30s"}})
	custom.charged = false
	list = append(list, busy, custom, retried(0, "423 that does not", "http_4xx", answersWith(423, "")))
	return list
}

// bomb is 8 MiB of zeros in some 8 KiB.
func bomb(tb testing.TB) string {
	tb.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(make([]byte, 8<<20)); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

// Whatever a receiver does, the attempt says what it was, is charged or not as the contract says, and the callback is due again, or
// ends, as its policy says.
func TestReceiversThatMisbehave(t *testing.T) {
	harness.BlackBox(t)
	files := makeCertificates(t)
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded), Under: []string{"env", "SSL_CERT_FILE=" + files.authority}})
	for _, d := range misdeeds(t, files) {
		t.Run(fmt.Sprintf("%d %s", d.row, d.name), func(t *testing.T) {
			t.Parallel()
			d.judge(t, p)
		})
	}
	t.Run("24 a kept-alive connection that dies", func(t *testing.T) { judgeReused(t, p) })
	t.Run("36 an address that may not be sent to", func(t *testing.T) {
		answer, err := p.Raw(t.Context(), http.MethodPost, "/v1/callbacks", []byte(`{"url": "http://10.0.0.1/", "payload": 1}`), nil)
		if err != nil || answer.Status != http.StatusUnprocessableEntity {
			t.Errorf("answered %d, %v: %s", answer.Status, err, answer.Body)
		}
	})
}

func (d *misdeed) judge(t *testing.T, p *harness.Process) {
	var m *misbehaver
	if d.do != nil {
		m = misbehave(t, d.config, d.do)
		d.url = m.url
	}
	s := harness.Submission{"url": d.url + "/notify", "payload": harness.Submission{"paid": 1, "filler": strings.Repeat("x", 2000)}, "policy": once(nil)}
	for k, v := range d.set {
		s[k] = v
	}
	cb, err := p.Accept(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	var made []harness.Attempt
	harness.Eventually(t, 30*time.Second, "it is attempted", func() error {
		if made, err = p.Attempts(t.Context(), cb.ID); err != nil {
			return err
		}
		if len(made) < len(d.attempts) {
			return fmt.Errorf("%d attempts", len(made))
		}
		return nil
	})
	var classes []string
	for i := range made {
		classes = append(classes, made[i].Class)
	}
	last := &made[len(made)-1]
	if !slices.Equal(classes, d.attempts) || last.Outcome != d.outcome || last.Charged != d.charged {
		t.Fatalf("classes %v, outcome %s, charged %v (%s); want %v, %s, %v", classes, last.Outcome, last.Charged, last.Error, d.attempts, d.outcome, d.charged)
	}
	d.judgeNext(t, p, cb.ID, last)
	if d.rule != "" && !strings.Contains(last.Rule.Saw, d.rule) {
		t.Errorf("the rule saw %q; want %q in it", last.Rule.Saw, d.rule)
	}
	want := len(d.attempts)
	if d.requests != 0 {
		want = max(d.requests, 0)
	}
	if m != nil && int(m.requests.Load()) != want {
		t.Errorf("%d requests arrived; want %d", m.requests.Load(), want)
	}
}

// judgeNext judges what follows the last attempt.
func (d *misdeed) judgeNext(t *testing.T, p *harness.Process, id string, last *harness.Attempt) {
	cb, err := p.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if d.charged {
		if cb.AttemptCount != len(d.attempts) {
			t.Errorf("attempt_count %d of %d attempts that are charged", cb.AttemptCount, len(d.attempts))
		}
	} else if cb.AttemptCount != 0 || cb.DivertCount == 0 {
		t.Errorf("attempt_count %d, divert_count %d of one that is not charged", cb.AttemptCount, cb.DivertCount)
	}
	if d.wait == 0 {
		if cb.State != d.state || cb.Reason != d.reason || last.NextDueAt != nil {
			t.Errorf("it is %s, %q, next due %v; want %s, %q", cb.State, cb.Reason, last.NextDueAt, d.state, d.reason)
		}
		return
	}
	if cb.State != "scheduled" || cb.DueAt == nil || last.NextDueAt == nil || !cb.DueAt.Equal(*last.NextDueAt) {
		t.Fatalf("it is %s, due %v, next due by its attempt %v", cb.State, cb.DueAt, last.NextDueAt)
	}
	// Whole milliseconds, rounded up, from the end of the attempt, which is shown rounded down.
	if wait := last.NextDueAt.Sub(last.EndedAt); wait < d.wait || wait > d.wait+2*time.Millisecond {
		t.Errorf("due again %s after the attempt; want %s", wait, d.wait)
	}
}

// A kept-alive connection that dies before the answer's first byte is known to be a risk of its own: once, uncharged, the attempt is
// made again at once on a connection that is new.
func judgeReused(t *testing.T, p *harness.Process) {
	m := misbehave(t, nil, dropsReused())
	send := func() harness.Callback {
		cb, err := p.Accept(t.Context(), harness.Submission{"url": m.url + "/notify", "payload": 1, "policy": once(nil)})
		if err != nil {
			t.Fatal(err)
		}
		var done harness.Callback
		harness.Eventually(t, 30*time.Second, "it is delivered", func() error {
			var err error
			if done, err = p.Get(t.Context(), cb.ID); err == nil && done.State != "succeeded" {
				err = errors.New(done.State)
			}
			return err
		})
		return done
	}
	send()
	second := send()
	made, err := p.Attempts(t.Context(), second.ID)
	if err != nil || len(made) != 2 {
		t.Fatalf("%d attempts, %v", len(made), err)
	}
	if first := made[0]; first.Class != "conn_reset" || first.Outcome != "unknown" || first.Charged || made[1].Class != "ok" || !made[1].Charged {
		t.Errorf("attempts %+v", made)
	}
	if second.AttemptCount != 1 {
		t.Errorf("attempt_count %d; the first was not charged", second.AttemptCount)
	}
}
