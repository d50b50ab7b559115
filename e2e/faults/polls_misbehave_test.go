package faults

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// What an answer comes to for a poll.
const (
	endsSuccess = "success"
	endsFailure = "failure"
	nextTier    = "next tier" // it was an answer, and not a final one
	sameTier    = "same tier" // it was an error
	held        = "held"
)

// A pollAnswer is one way in which an upstream answers, and what is to come of it.
type pollAnswer struct {
	name string
	do   exchange
	// set are fields of the poll beside the usual ones.
	set harness.Submission
	// class is the attempt's, and saw is in what it says that was seen.
	class, saw string
	comes      string
	// wait is that until the next request; zero: an hour, the first tier.
	wait time.Duration
}

func zipped(tb testing.TB, text string) string {
	tb.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

func pollAnswers(t *testing.T) []pollAnswer {
	xml := harness.Submission{"until": harness.Submission{
		"success": []harness.Submission{{"xml": "/xml/trade_state", "eq": "SUCCESS"}}, "failure": []harness.Submission{{"xml": "/xml/trade_state", "eq": "CLOSED"}},
	}}
	missing := harness.Submission{"evaluate": []any{"200-299", 404}, "until": harness.Submission{
		"success": []harness.Submission{{"pointer": "/trade_state", "eq": "SUCCESS"}},
		"failure": []harness.Submission{{"all": []harness.Submission{{"status": []int{404}}, {"pointer": "/code", "eq": "ORDER_NOT_EXIST"}}}},
	}}
	// A float64 has neither of these amounts, and cannot tell them apart.
	amount := harness.Submission{"until": harness.Submission{"success": []harness.Submission{{"pointer": "/amount/paid", "ge": json.RawMessage("90071992547409931.02")}}}}
	both := harness.Submission{"until": harness.Submission{"success": []harness.Submission{{"pointer": "/paid", "gt": 0}}, "failure": []harness.Submission{{"pointer": "/refunded", "gt": 0}}}}
	holds := harness.Submission{"hold_if": []harness.Submission{{"status": []int{429}}, {"pointer": "/code", "eq": "FREQUENCY_LIMITED"}}}
	filler := `{"trade_state":"SUCCESS","x":"` + strings.Repeat("x", 70_000) + `"}`
	ok := "HTTP/1.1 200 OK\r\n"
	return []pollAnswer{
		{name: "final", do: answersWith(200, succeeded), class: "ok", comes: endsSuccess},
		{name: "final the other way", do: answersWith(200, `{"trade_state":"CLOSED"}`), class: "ok", comes: endsFailure},
		{name: "not final", do: answersWith(200, processing), class: "rule_mismatch", saw: "PROCESSING", comes: nextTier},
		{name: "a key in other letters", do: answersWith(200, `{"Trade_State":"SUCCESS"}`), class: "rule_mismatch", comes: nextTier},
		{name: "a key twice", do: answersWith(200, `{"trade_state":"SUCCESS","trade_state":"SUCCESS"}`), class: "rule_mismatch", saw: "twice", comes: nextTier},
		{name: "another key twice", do: answersWith(200, `{"trade_state":"SUCCESS","amount":{"paid":1,"paid":2}}`), class: "rule_mismatch", saw: "twice", comes: nextTier},
		{name: "a key twice, once with an escape", do: answersWith(200, `{"trade_state":"SUCCESS","trade\u005fstate":"CLOSED"}`), class: "rule_mismatch", saw: "twice", comes: nextTier},
		{name: "no JSON", do: answersWith(200, "<html>SUCCESS</html>"), class: "rule_mismatch", comes: nextTier},
		{name: "nothing", do: answersWith(204, ""), class: "rule_mismatch", comes: nextTier},
		{name: "more than 64 KiB that begin with SUCCESS", do: answersWith(200, filler), class: "rule_mismatch", saw: "too_large", comes: sameTier},
		{name: "more than 64 KiB when unpacked", do: answersWith(200, zipped(t, filler), "Content-Encoding: gzip"), class: "rule_mismatch", saw: "too_large", comes: sameTier},
		{name: "a gzip bomb", do: answersWith(200, bomb(t), "Content-Encoding: gzip"), class: "rule_mismatch", saw: "too_large", comes: sameTier},
		{name: "gzip", do: answersWith(200, zipped(t, succeeded), "Content-Encoding: gzip"), class: "ok", comes: endsSuccess},
		{name: "bad gzip", do: answersWith(200, succeeded, "Content-Encoding: gzip"), class: "decode", comes: sameTier},
		{name: "XML", do: answersWith(200, "<xml><trade_state><![CDATA[SUCCESS]]></trade_state></xml>"), set: xml, class: "ok", comes: endsSuccess},
		{name: "XML that fails", do: answersWith(200, "<?xml version=\"1.0\"?><xml><trade_state>CLOSED</trade_state></xml>"), set: xml, class: "ok", comes: endsFailure},
		{name: "XML with an element twice", do: answersWith(200, "<xml><trade_state>SUCCESS</trade_state><trade_state>CLOSED</trade_state></xml>"), set: xml, class: "rule_mismatch", comes: nextTier},
		{name: "XML that does not end", do: answersWith(200, "<xml><trade_state>SUCCESS</trade_state>"), set: xml, class: "rule_mismatch", comes: nextTier},
		{name: "XML with an entity", do: answersWith(200, `<!DOCTYPE x [<!ENTITY s "SUCCESS">]><xml><trade_state>&s;</trade_state></xml>`), set: xml, class: "rule_mismatch", comes: nextTier},
		{name: "404 that is evaluated", do: answersWith(404, `{"code":"ORDER_NOT_EXIST"}`), set: missing, class: "ok", comes: endsFailure},
		{name: "404 of a proxy, that is evaluated", do: answersWith(404, "<html>not found</html>"), set: missing, class: "rule_mismatch", comes: nextTier},
		{name: "404 that is not", do: answersWith(404, `{"trade_state":"SUCCESS"}`), class: "http_4xx", saw: "404", comes: sameTier},
		{name: "410", do: answersWith(410, ""), class: "gone", comes: sameTier},
		{name: "an amount with more digits than a float64 has", do: answersWith(200, `{"amount":{"paid":90071992547409931.02}}`), set: amount, class: "ok", comes: endsSuccess},
		{name: "an amount that is too low by a cent", do: answersWith(200, `{"amount":{"paid":90071992547409931.01}}`), set: amount, class: "rule_mismatch", saw: "90071992547409931.01", comes: nextTier},
		{name: "an amount as text", do: answersWith(200, `{"amount":{"paid":"90071992547409931.020"}}`), set: amount, class: "ok", comes: endsSuccess},
		{name: "a success and a failure", do: answersWith(200, `{"paid":1,"refunded":1}`), set: both, class: "rule_mismatch", saw: "both", comes: nextTier},
		{name: "a redirect to a success", do: answersWith(302, succeeded, "Location: http://127.0.0.1:1/elsewhere"), class: "redirect", comes: sameTier},
		{name: "500 that says SUCCESS", do: answersWith(500, succeeded), class: "http_5xx", saw: "500", comes: sameTier},
		{name: "429 that asks for half an hour", do: answersWith(429, "", "Retry-After: 1800"), class: "throttled", comes: sameTier},
		{name: "429 that asks for two hours, with a cap of three", do: answersWith(429, "", "Retry-After: 7200"), set: harness.Submission{
			"policy": harness.Submission{"tiers": []string{"1h", "2h"}, "timeout": "1s", "retry_after_cap": "3h"}}, class: "throttled", comes: sameTier, wait: 2 * time.Hour},
		{name: "429 that holds", do: answersWith(429, "", "Retry-After: 90"), set: holds, class: "receiver_busy", comes: held, wait: 90 * time.Second},
		{name: "a word that holds", do: answersWith(200, `{"code":"FREQUENCY_LIMITED"}`), set: holds, class: "receiver_busy", saw: "FREQUENCY_LIMITED", comes: held, wait: time.Minute},
		{name: "closed before the answer", do: says(""), class: "conn_reset", comes: sameTier},
		{name: "closed within the answer", do: says(ok + "Content-Length: 100\r\n\r\n" + succeeded), class: "rule_mismatch", saw: "truncated", comes: sameTier},
		{name: "no answer", do: silent, class: "timeout_headers", comes: sameTier},
		{name: "an answer that drips", do: drips(ok+"Content-Length: 100000\r\n\r\n"+succeeded, " "), class: "timeout_body", comes: sameTier},
	}
}

// Whatever an upstream answers, the attempt says what it was, and the poll ends, goes on to its next tier, waits for the same one again or
// holds its lane, as the contract says. No wrong answer ends it.
func TestUpstreamsThatMisbehave(t *testing.T) {
	harness.BlackBox(t)
	merchant := harness.NewReceiver(t, harness.Always(200, ""))
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
	for i, c := range pollAnswers(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := misbehave(t, nil, c.do)
			ref := fmt.Sprint("order-", i)
			s := harness.Submission{
				"ref": ref, "request": harness.Submission{"url": m.url + "/ask"}, "policy": harness.AskAfter("1h", "2h"), "until": harness.Finals(), "on_result": harness.Submission{"url": merchant.URL + "/told"},
			}
			for k, v := range c.set {
				s[k] = v
			}
			c.judge(t, p, merchant, s)
			if n := m.requests.Load(); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func (c *pollAnswer) judge(t *testing.T, p *harness.Process, merchant *harness.Receiver, s harness.Submission) {
	cb, err := p.AcceptPoll(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	var made []harness.Attempt
	harness.Eventually(t, 30*time.Second, "it is asked", func() error {
		if made, err = p.Attempts(t.Context(), cb.ID); err == nil && len(made) == 0 {
			err = errors.New("no attempt")
		}
		return err
	})
	shown, err := p.Poll(t.Context(), cb.ID)
	if err != nil {
		t.Fatal(err)
	}
	a := &made[0]
	final := c.comes == endsSuccess || c.comes == endsFailure
	if len(made) != 1 || a.Class != c.class || (a.Outcome == "succeeded") != final || a.Charged != (c.comes != held) || !strings.Contains(a.Rule.Saw, c.saw) {
		t.Errorf("%d attempts, %s, %s, charged %t, saw %q (%s); want %s that saw %q", len(made), a.Class, a.Outcome, a.Charged, a.Rule.Saw, a.Error, c.class, c.saw)
	}
	if final {
		if shown.State != "succeeded" || shown.Reason != c.comes || shown.Poll.Outcome != c.comes || a.NextDueAt != nil {
			t.Errorf("it is %s %s, with the outcome %q; want %s", shown.State, shown.Reason, shown.Poll.Outcome, c.comes)
		}
		if told, _ := hears(t, merchant, s["ref"].(string)); told.Outcome != c.comes || told.Polls != 1 || told.Last == nil || told.Last.StatusCode != a.StatusCode {
			t.Errorf("the merchant heard %+v", told)
		}
		return
	}
	wrong := 0
	if c.comes == sameTier {
		wrong = 1
	}
	if shown.State != "scheduled" || shown.Poll.Outcome != "" || shown.Poll.ResultID != "" || shown.Poll.Errors != wrong || shown.AttemptCount != len(made) && c.comes != held {
		t.Errorf("it is %s %s, %d errors, attempt_count %d, told by %q; want %s", shown.State, shown.Reason, shown.Poll.Errors, shown.AttemptCount, shown.Poll.ResultID, c.comes)
	}
	want := c.wait
	if want == 0 {
		want = time.Hour
	}
	if a.NextDueAt == nil {
		t.Fatal("it is not asked again")
	}
	// Whole milliseconds, rounded up, from the end of the attempt, which is shown rounded down.
	if wait := a.NextDueAt.Sub(a.EndedAt); wait < want || wait > want+2*time.Millisecond {
		t.Errorf("asked again after %s; want %s", wait, want)
	}
}

// An upstream that asks to wait is left alone by its whole lane for as long as it says; nothing of that is charged, and then all of it goes
// on.
func TestAnUpstreamThatAsksToWaitHoldsItsLane(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel() // it mostly waits
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		const wait = 2 * time.Second
		m := harness.NewReceiver(t, func(a *harness.Arrival) harness.Reply {
			if strings.HasSuffix(a.Path, "/first") && a.Nth == 1 {
				return harness.Reply{Stream: func(w http.ResponseWriter) {
					w.Header().Set("Retry-After", fmt.Sprint(int(wait.Seconds())))
					w.WriteHeader(http.StatusTooManyRequests)
				}}
			}
			return harness.Reply{Status: 200, Body: succeeded}
		})
		merchant := harness.NewReceiver(t, harness.Always(200, ""))
		p := harness.Serve(t, harness.Launch{On: b})
		ask := func(ref, lane string) string {
			t.Helper()
			cb, err := p.AcceptPoll(t.Context(), harness.Submission{
				"ref": ref, "request": harness.Submission{"url": m.URL + "/ask/" + ref}, "lane": lane, "policy": harness.AskAfter("1h"), "until": harness.Finals(),
				"hold_if": []harness.Submission{{"status": []int{429}}}, "on_result": harness.Submission{"url": merchant.URL + "/told"},
			})
			if err != nil {
				t.Fatal(err)
			}
			return cb.ID
		}
		first := ask("first", "bank")
		var made []harness.Attempt
		harness.Eventually(t, 20*time.Second, "the upstream has asked to wait", func() (err error) {
			if made, err = p.Attempts(t.Context(), first); err == nil && len(made) == 0 {
				err = errors.New("it was not asked")
			}
			return err
		})
		second, other := ask("second", "bank"), ask("other", "another-bank")
		hears(t, merchant, "other")
		hears(t, merchant, "second")
		hears(t, merchant, "first")
		until := m.Of(first)[0].End.Add(wait)
		for ref, id := range map[string]string{"first": first, "second": second} {
			got := m.Of(id)
			if last := got[len(got)-1]; last.At.Before(until) {
				t.Errorf("%s was asked %s before the upstream's time was over", ref, until.Sub(last.At))
			}
		}
		if n := len(m.Of(second)); n != 1 {
			t.Errorf("the second was asked %d times", n)
		}
		if at := m.Of(other)[0].At; at.After(until) {
			t.Errorf("another lane was held, too, for %s", at.Sub(until.Add(-wait)))
		}
		shown, err := p.Poll(t.Context(), first)
		if err != nil || shown.AttemptCount != 1 || shown.DivertCount != 1 || shown.Poll.Errors != 0 || made[0].Charged {
			t.Errorf("the first is %+v, %v", shown, err)
		}
		all, err := p.List(t.Context(), url.Values{"kind": {"poll"}, "state": {"succeeded"}})
		if err != nil || len(all) != 3 {
			t.Errorf("%d polls have succeeded, %v", len(all), err)
		}
	})
}
