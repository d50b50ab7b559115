package dispatch_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	rules "github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sink"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Tests of sinks through the engine: the message of an alert is claimed, sent to a stand-in that checks what
// the platform documents, settled, and sent again after a refusal. Mail is tested in e2e/alerts.

// A standIn serves requests without a connection, in virtual time.
type standIn struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (s standIn) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

// sendTo makes the engine send to a stand-in.
func sendTo(h http.Handler) tweak {
	return func(o *options) {
		o.Sender = must(outbound.New(outbound.Options{Transport: standIn{h}, Version: "test"}))
	}
}

// alertTo creates an alert with a sink.
func (b *fixture) alertTo(c sink.Config) rules.View {
	b.Helper()
	return must(b.engine.CreateAlert(b.Context(), project, rules.Change{Name: new("orders"),
		When: &rules.When{Kind: "dead_rate"}, Sink: &c}, operator))
}

// history returns the classes of a callback's attempts, with their times since the first one.
func (b *fixture) history(id string) string {
	b.Helper()
	var all []string
	attempts := b.attempts(id)
	for i := range attempts {
		since := time.Duration(attempts[i].StartedAt-attempts[0].StartedAt) * time.Millisecond
		all = append(all, fmt.Sprint(attempts[i].Class, " ", since.Round(time.Second)))
	}
	return strings.Join(all, ", ")
}

// shownOf returns what a person sees of why an attempt failed.
func shownOf(a *store.Attempt) string {
	text := fmt.Sprintf("status %d %s %s", a.Status, a.Error, a.ResponseBody)
	if a.Rule != nil {
		text += " expected " + a.Rule.Expected + ", got " + a.Rule.Saw
	}
	return text
}

// A delivery is what happens to the last message of an alert.
type delivery struct {
	kind, what string
	arrange    func(*testserver.Robot)
	// secret replaces the signing secret.
	secret string
	// end is the callback's state with the number of charged attempts, history its attempts, and shown a part
	// of what the first attempt shows.
	end, history, shown string
}

func answers200(body string) func(*testserver.Robot) {
	return func(r *testserver.Robot) { r.Force(testserver.Answer{Status: 200, Body: body}) }
}

func answersWith(status int, body string) func(*testserver.Robot) {
	return func(r *testserver.Robot) { r.Force(testserver.Answer{Status: status, Body: body}) }
}

func tooFast(r *testserver.Robot) { r.SetRate(1) }

func wrongClock(r *testserver.Robot) { r.SetClock(2 * time.Hour) }

func otherURL(r *testserver.Robot) { r.URL += "x" }

const (
	again  = "rule_mismatch 0s, ok 30s"
	atOnce = "ok 0s"
	never  = "rejected 0s"
	forged = "another-signing-secret"
)

var deliveries = []delivery{
	{sink.DingTalk, "accepted", nil, "", "succeeded 1", atOnce, `"errcode":0`},
	{sink.DingTalk, "busy", answers200(`{"errcode":-1,"errmsg":"system busy"}`), "", "succeeded 2", again,
		"expected /errcode to be 0, got /errcode is -1"},
	{sink.DingTalk, "too fast", tooFast, "", "succeeded 1", "receiver_busy 0s, ok 11m0s", "send too fast"},
	{sink.DingTalk, "signature", nil, forged, "dead rejected 1", never, "sign not match"},
	{sink.DingTalk, "clock", wrongClock, "", "dead rejected 1", never, "invalid timestamp"},

	{sink.WeCom, "accepted", nil, "", "succeeded 1", atOnce, `"errcode":0`},
	{sink.WeCom, "busy", answers200(`{"errcode":-1,"errmsg":"system busy"}`), "", "succeeded 2", again,
		"expected /errcode to be 0, got /errcode is -1"},
	{sink.WeCom, "too fast", tooFast, "", "succeeded 1", "receiver_busy 0s, ok 1m5s", "freq out of limit"},
	{sink.WeCom, "key", otherURL, "", "dead rejected 1", never, "invalid webhook url"},

	{sink.Feishu, "accepted", nil, "", "succeeded 1", atOnce, `"code":0`},
	{sink.Feishu, "busy", answers200(`{"code":1,"msg":"internal error"}`), "", "succeeded 2", again,
		"expected /code to be 0, got /code is 1"},
	{sink.Feishu, "too fast", tooFast, "", "succeeded 1", "receiver_busy 0s, ok 1m5s", "frequency limited"},
	{sink.Feishu, "signature", nil, forged, "dead rejected 1", never, "sign match fail"},
	{sink.Feishu, "clock", wrongClock, "", "dead rejected 1", never, "timestamp is not within one hour"},

	{sink.Slack, "accepted", nil, "", "succeeded 1", atOnce, "ok"},
	{sink.Slack, "refused", answers200("no_text"), "", "succeeded 2", again,
		`expected the body to be "ok", got "no_text"`},
	{sink.Slack, "too fast", func(r *testserver.Robot) {
		r.Force(testserver.Answer{Status: 429, Body: "rate_limited", RetryAfter: "90"})
	}, "", "succeeded 2", "throttled 0s, ok 1m30s", "rate_limited"},
	{sink.Slack, "token", otherURL, "", "dead rejected 1", never, "invalid_token"},

	{sink.Teams, "accepted", nil, "", "succeeded 1", atOnce, "status 202"},
	{sink.Teams, "down", answersWith(502, "bad gateway"), "", "succeeded 2", "http_5xx 0s, ok 30s",
		"status 502"},
	{sink.Teams, "too fast", func(r *testserver.Robot) {
		r.Force(testserver.Answer{Status: 429, RetryAfter: "90"})
	}, "", "succeeded 2", "throttled 0s, ok 1m30s", "status 429"},
	{sink.Teams, "sig", otherURL, "", "dead rejected 1", never, "DirectApiAuthorizationRequired"},
}

// TestSinksThroughTheEngine sends a message to each stand-in. A refusal in a response with status 200 is a
// failed attempt that shows the platform's reason, and another attempt follows unless the reason is for good.
func TestSinksThroughTheEngine(t *testing.T) {
	for _, x := range deliveries {
		t.Run(x.kind+" "+x.what, func(t *testing.T) {
			robot := testserver.NewRobot(t, x.kind)
			if x.arrange != nil {
				x.arrange(robot)
			}
			with(nil, sendTo(robot)).run(t, func(b *fixture) {
				c := sink.Config{Type: x.kind, URL: robot.URL, Secret: robot.Secret}
				if x.secret != "" {
					c.Secret = x.secret
				}
				a := b.alertTo(c)
				messages := 1
				if strings.HasPrefix(x.history, "receiver_busy") { // the second one is too fast
					messages = 2
				}
				var id string
				for i := range messages {
					if i > 0 { // otherwise either of them may be refused
						b.ends("succeeded 1", time.Minute, id)
					}
					id = must(b.engine.TestAlert(b.Context(), project, a.ID, operator)).ID
				}
				b.ends(x.end, 3*time.Hour, id)
				b.is("attempts", b.history(id), x.history)
				shown := shownOf(&b.attempts(id)[0])
				b.check(strings.Contains(shown, x.shown), "an attempt shows %q without %q", shown, x.shown)
			})
		})
	}
}

// TestSinksKeepTheRate sends more messages at once than each platform takes in a minute. None is refused.
func TestSinksKeepTheRate(t *testing.T) {
	for kind, messages := range map[string]int{
		sink.DingTalk: 25, sink.WeCom: 25, sink.Feishu: 105, sink.Slack: 25, sink.Teams: 65,
	} {
		t.Run(kind, func(t *testing.T) {
			robot := testserver.NewRobot(t, kind)
			with(nil, sendTo(robot)).run(t, func(b *fixture) {
				a := b.alertTo(sink.Config{Type: kind, URL: robot.URL, Secret: robot.Secret})
				var sent []string
				for range messages {
					sent = append(sent, must(b.engine.TestAlert(b.Context(), project, a.ID, operator)).ID)
				}
				for _, id := range sent { // the last one need not be the last to arrive
					b.ends("succeeded 1", time.Hour, id)
				}
				b.is("accepted", len(robot.Accepted()), messages)
				b.is("refused", robot.Refused(), []string(nil))
			})
		})
	}
}

// TestWebhookThroughTheEngine sends to a receiver that verifies signatures, a new one for each attempt.
func TestWebhookThroughTheEngine(t *testing.T) {
	key := []byte("0123456789abcdef0123456789abcdef")
	for _, x := range []struct {
		what, secret string
		first        []int // the first answers
		end, history string
	}{
		{"accepted", sign.FormatSecret(key), nil, "succeeded 1", atOnce},
		{"down", sign.FormatSecret(key), []int{500, 503}, "succeeded 3",
			"http_5xx 0s, http_5xx 30s, ok 2m30s"},
		{"too fast", sign.FormatSecret(key), []int{429}, "succeeded 2", "throttled 0s, ok 1m30s"},
		{"signature", sign.FormatSecret(append(key, "other"...)), nil, "dead exhausted 5",
			"http_4xx 0s, http_4xx 30s, http_4xx 2m30s, http_4xx 12m30s, http_4xx 42m30s"},
		{"unsigned", "", nil, "dead exhausted 5",
			"http_4xx 0s, http_4xx 30s, http_4xx 2m30s, http_4xx 12m30s, http_4xx 42m30s"},
	} {
		t.Run(x.what, func(t *testing.T) {
			rest := x.first
			receiver := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				err := sign.Verify(sign.Standard, []sign.Secret{{Key: key}}, r.Header, r.URL, body, 0)
				switch {
				case r.URL.Path != "/hook/4711" || r.URL.RawQuery != "token=42":
					http.Error(w, "not here", http.StatusNotFound)
				case err != nil:
					http.Error(w, err.Error(), http.StatusUnauthorized)
				case len(rest) > 0:
					w.Header().Set("Retry-After", "90")
					w.WriteHeader(rest[0])
					rest = rest[1:]
				}
			})
			with(nil, sendTo(receiver)).run(t, func(b *fixture) {
				a := b.alertTo(sink.Config{Type: sink.Webhook, Secret: x.secret,
					URL: "https://ops.example/hook/4711?token=42"})
				id := must(b.engine.TestAlert(b.Context(), project, a.ID, operator)).ID
				b.ends(x.end, 3*time.Hour, id)
				b.is("attempts", b.history(id), x.history)
				b.is("the stored URL", b.get(id).URL, "https://ops.example/")
				first := shownOf(&b.attempts(id)[0])
				if strings.HasPrefix(x.history, "http_4xx") {
					b.check(strings.Contains(first, "signature"), "the first attempt shows %q", first)
				}
			})
		})
	}
}
