package outbound

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sink"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

var robots = []string{sink.DingTalk, sink.WeCom, sink.Feishu, sink.Slack, sink.Teams}

// sinkRequest returns the request that the engine makes for a message of a sink.
func sinkRequest(t *testing.T, c sink.Config, m sink.Message) Request {
	t.Helper()
	if wrong := c.Validate(); wrong != nil {
		t.Fatal(wrong)
	}
	d := c.Delivery()
	key, err := sign.ParseSecretFor(d.Use, d.Secret)
	if err != nil {
		t.Fatal(err)
	}
	body, contentType := c.Render(m)
	return Request{
		ID: "cb_01JD0000000000000000000001", Number: 1, URL: d.URL, Method: d.Method, Body: body,
		ContentType: contentType, Timeout: 5 * time.Second, Success: d.Success, Signer: d.Signer,
		Secrets: []sign.Secret{{Key: key}},
	}
}

func robotConfig(r *testserver.Robot, kind string) sink.Config {
	return sink.Config{Type: kind, URL: r.URL, Secret: r.Secret}
}

func alert(lines ...string) sink.Message {
	return sink.Message{State: sink.Firing, Title: "7 orders are overdue", Lines: lines, At: time.Now(),
		Link: "https://pages.example/ui/callbacks?overdue=1"}
}

// TestRobots sends messages to stand-ins that check the platform's format, signature and limits: short ones,
// very long ones, and those in Chinese with mentions.
func TestRobots(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, Options{})
	for _, kind := range robots {
		robot := testserver.NewRobot(t, kind)
		robot.SetKeyword("overdue")
		config := robotConfig(robot, kind)
		long, full := make([]string, 1000), make([]string, 1000)
		for i := range long {
			long[i] = strings.Repeat("订单 <b>&\"x\" ", 20)
			full[i] = strings.Repeat("x", 45) // fills a message to the last line
		}
		robot.SetRate(100)
		messages := []sink.Message{alert("endpoint Shop 7"), alert(long...), alert(full...), alert()}
		for i, m := range messages {
			if i == 1 {
				config.Language = sink.Chinese
				if kind != sink.Teams {
					config.Mentions = []string{"13800000000", "user-1", "all"}
				}
			}
			resp := c.Send(t.Context(), sinkRequest(t, config, m))
			if resp.Class != store.ClassOK || resp.Outcome != store.AttemptSucceeded {
				t.Errorf("%s: message %d: %s %s", kind, i, resp.Class, resp.ResponseBody)
			}
		}
		if n := len(robot.Accepted()); n != len(messages) {
			t.Errorf("%s: %d messages were accepted: %q", kind, n, robot.Refused())
		}
	}
}

// TestRobotsRefuse is each documented refusal: its class, and whether it is for good.
func TestRobotsRefuse(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, Options{})
	keyword := func(r *testserver.Robot) { r.SetKeyword("pay") }
	nothing := func(*testserver.Robot) {}
	wrongURL := func(r *testserver.Robot) { r.URL = strings.TrimSuffix(r.URL, "3") + "4" }
	tooFast := func(r *testserver.Robot) { r.SetRate(1) }
	down := func(r *testserver.Robot) { r.Force(testserver.Answer{Status: 502}) }
	for _, x := range []struct {
		kind, what string
		arrange    func(*testserver.Robot)
		class      store.Class
		saw        string
	}{
		{sink.DingTalk, "signature", nothing, store.ClassRejected, "310000"},
		{sink.DingTalk, "keyword", keyword, store.ClassRejected, "310000"},
		{sink.DingTalk, "token", wrongURL, store.ClassRuleMismatch, "300005"},
		{sink.DingTalk, "too fast", tooFast, store.ClassReceiverBusy, "130101"},
		{sink.DingTalk, "down", down, store.ClassHTTP5xx, ""},
		{sink.WeCom, "key", wrongURL, store.ClassRejected, "93000"},
		{sink.WeCom, "too fast", tooFast, store.ClassReceiverBusy, "45009"},
		{sink.WeCom, "down", down, store.ClassHTTP5xx, ""},
		{sink.Feishu, "signature", nothing, store.ClassRejected, "19021"},
		{sink.Feishu, "keyword", keyword, store.ClassRejected, "19024"},
		{sink.Feishu, "too fast", tooFast, store.ClassReceiverBusy, "11232"},
		{sink.Feishu, "too fast with 400", func(r *testserver.Robot) {
			r.Force(testserver.Answer{Status: 400, Body: `{"code":9499,"msg":"too many request"}`})
		}, store.ClassReceiverBusy, "9499"},
		{sink.Slack, "token", wrongURL, store.ClassRejected, ""},
		{sink.Slack, "too fast", tooFast, store.ClassThrottled, ""},
		{sink.Slack, "archived", func(r *testserver.Robot) {
			r.Force(testserver.Answer{Status: 410, Body: "channel_is_archived"})
		}, store.ClassRejected, ""},
		{sink.Slack, "down", down, store.ClassHTTP5xx, ""},
		{sink.Teams, "sig", wrongURL, store.ClassRejected, ""},
		{sink.Teams, "too fast", tooFast, store.ClassThrottled, ""},
		{sink.Teams, "too large", func(r *testserver.Robot) {
			r.Force(testserver.Answer{Status: 413})
		}, store.ClassRejected, ""},
	} {
		robot := testserver.NewRobot(t, x.kind)
		x.arrange(robot)
		var resp Response
		for range 2 { // of two messages the second is too fast
			config := robotConfig(robot, x.kind)
			if x.what == "signature" {
				config.Secret = "another-signing-secret"
			}
			resp = c.Send(t.Context(), sinkRequest(t, config, alert()))
			if x.what != "too fast" {
				break
			}
		}
		if resp.Class != x.class || !strings.Contains(resp.ResponseBody, x.saw) ||
			resp.Permanent != (x.class == store.ClassRejected) {
			t.Errorf("%s, %s: %s %d %s", x.kind, x.what, resp.Class, resp.Status, resp.ResponseBody)
		}
	}
}

// TestSealedURLsLeakNothing checks that no response contains the URL of a robot or the login of a mail
// server, however the attempt ends, and though the receiver echoes the whole request.
func TestSealedURLsLeakNothing(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, Options{})
	secrets := []string{"path-secret-1", "query-secret-2", "signing-secret-3", "mail-password-4"}
	urls := append(leakyURLs(t, new(atomic.Value)), "http://unknown.invalid/")
	for _, kind := range append(robots, sink.Email) {
		for _, u := range urls {
			u := strings.TrimSuffix(u, "/") + "/path-secret-1?token=query-secret-2"
			config := sink.Config{Type: kind, URL: u}
			switch kind {
			case sink.DingTalk, sink.Feishu:
				config.Secret = "signing-secret-3"
			case sink.Email:
				target, err := url.Parse(u)
				if err != nil {
					t.Fatal(err)
				}
				config = sink.Config{
					Type: kind, From: "a@shop.example", To: []string{"b@shop.example"}, Username: "user-0000",
					Password: "mail-password-4", Server: "smtps://" + target.Host,
				}
			}
			r := sinkRequest(t, config, alert())
			r.Timeout = 300 * time.Millisecond
			resp := c.Send(t.Context(), r)
			checkNoLeak(t, kind, u, resp, secrets)
		}
	}
}

// newMailClient returns a client that trusts a mail server.
func newMailClient(t *testing.T, s *testserver.MailServer) *Client {
	t.Helper()
	c := newTestClient(t, Options{})
	text, err := os.ReadFile(s.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	c.transport.tls.RootCAs = x509.NewCertPool()
	if !c.transport.tls.RootCAs.AppendCertsFromPEM(text) {
		t.Fatal("no certificate")
	}
	return c
}

func mailConfig(s *testserver.MailServer) sink.Config {
	return sink.Config{
		Type: sink.Email, Server: s.URL, Username: testserver.MailUser, Password: testserver.MailPassword,
		From: testserver.MailUser, To: []string{"night@shop.example", "day@shop.example"},
	}
}

func TestMail(t *testing.T) {
	t.Parallel()
	for _, startTLS := range []bool{false, true} {
		for _, mechanism := range []string{"PLAIN LOGIN", "LOGIN"} {
			s := testserver.NewMailServer(t, startTLS)
			s.OfferAuth(mechanism)
			c := newMailClient(t, s)
			config := mailConfig(s)
			config.Language = sink.Chinese
			m := alert("Endpoint 订单", ".", "line")
			m.Title = "积压 7 笔"
			resp := c.Send(t.Context(), sinkRequest(t, config, m))
			if resp.Class != store.ClassOK || resp.Status != 250 || resp.Timings.TLS == 0 && !startTLS {
				t.Fatalf("%s %s: %d %s %s", s.URL, mechanism, resp.Status, resp.Error, resp.ResponseBody)
			}
			got := s.Received()[0]
			if got.From != config.From || fmt.Sprint(got.To) != fmt.Sprint(config.To) {
				t.Errorf("envelope %s %s", got.From, got.To)
			}
			id := got.Message.Header.Get("Message-Id")
			if id != "<cb_01JD0000000000000000000001@shop.example>" {
				t.Errorf("Message-ID %s", id)
			}
			if !strings.Contains(got.Body, "积压 7 笔") || !strings.Contains(got.Body, "\r\n.\r\nline") {
				t.Errorf("body %q", got.Body)
			}
			for _, name := range []string{"Webhook-Id", "Traceparent", "Bcc"} {
				if got.Message.Header.Get(name) != "" {
					t.Errorf("the mail has the header %s", name)
				}
			}
		}
	}
}

// TestMailFails is each way in which a mail server fails or refuses.
func TestMailFails(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		what     string
		startTLS bool
		arrange  func(*testserver.MailServer, *sink.Config)
		class    store.Class
		status   int
	}{
		{"password", false, func(_ *testserver.MailServer, c *sink.Config) { c.Password = "wrong-password" },
			store.ClassRejected, 535},
		{"no AUTH", false, func(s *testserver.MailServer, _ *sink.Config) { s.OfferAuth("") },
			store.ClassProtocol, 0},
		{"no STARTTLS", true, func(s *testserver.MailServer, _ *sink.Config) { s.HideTLS() },
			store.ClassTLSProto, 0},
		{"greeting", false, func(s *testserver.MailServer, _ *sink.Config) {
			s.Reply("greeting", "421 busy")
		}, store.ClassHTTP4xx, 421},
		{"banner", false, func(s *testserver.MailServer, _ *sink.Config) {
			s.Reply("greeting", "200 OK HTTP")
		}, store.ClassProtocol, 0},
		{"sender", false, func(s *testserver.MailServer, _ *sink.Config) { s.Reply("MAIL", "553 no") },
			store.ClassRejected, 553},
		{"recipients", false, func(_ *testserver.MailServer, c *sink.Config) {
			c.To = []string{"unknown@x.example"}
		}, store.ClassRejected, 550},
		{"one recipient", false, func(_ *testserver.MailServer, c *sink.Config) {
			c.To = append(c.To, "unknown@x.example")
		}, store.ClassOK, 250},
		{"later", false, func(s *testserver.MailServer, _ *sink.Config) { s.Reply(".", "451 4.3.0 later") },
			store.ClassHTTP4xx, 451},
		{"spam", false, func(s *testserver.MailServer, _ *sink.Config) { s.Reply(".", "554 5.7.1 spam") },
			store.ClassRejected, 554},
		{"data", false, func(s *testserver.MailServer, _ *sink.Config) { s.Reply("DATA", "452 full") },
			store.ClassHTTP4xx, 452},
		{"garbage", false, func(s *testserver.MailServer, _ *sink.Config) { s.Reply("MAIL", "hello") },
			store.ClassProtocol, 0},
		{"endless", false, func(s *testserver.MailServer, _ *sink.Config) {
			s.Reply("MAIL", strings.Repeat("250-x\r\n", 100_000)+"250 x")
		}, store.ClassHeadersTooLarge, 0},
	} {
		s := testserver.NewMailServer(t, x.startTLS)
		config := mailConfig(s)
		x.arrange(s, &config)
		resp := newMailClient(t, s).Send(t.Context(), sinkRequest(t, config, alert()))
		if resp.Class != x.class || resp.Status != x.status || !resp.Charged {
			t.Errorf("%s: %s %d, %q %q", x.what, resp.Class, resp.Status, resp.Error, resp.ResponseBody)
		}
		checkNoLeak(t, x.what, s.URL, resp, []string{testserver.MailPassword, "wrong-password"})
		const named = "1 of 3 recipients were refused"
		if x.what == "one recipient" && !strings.Contains(resp.ResponseBody, named) {
			t.Errorf("a refused recipient is not named: %q", resp.ResponseBody)
		}
	}
}

// TestMailNeedsTrust checks that a mail server is dialed through the guard, and its certificate checked.
func TestMailNeedsTrust(t *testing.T) {
	t.Parallel()
	for _, startTLS := range []bool{false, true} {
		s := testserver.NewMailServer(t, startTLS)
		r := sinkRequest(t, mailConfig(s), alert())
		if resp := newTestClient(t, Options{}).Send(t.Context(), r); resp.Class != store.ClassTLSCert {
			t.Errorf("an unknown certificate: %s %s", resp.Class, resp.Error)
		}
		guarded := newTestClient(t, Options{Guard: mustGuard(t)})
		if resp := guarded.Send(t.Context(), r); resp.Class != store.ClassBlocked {
			t.Errorf("a loopback address: %s %s", resp.Class, resp.Error)
		}
		if len(s.Received()) != 0 {
			t.Error("a mail was sent")
		}
	}
}

// TestOnlySinksSendMail checks that callers cannot send to mail servers: their URLs are refused, and their
// signers do not send mail.
func TestOnlySinksSendMail(t *testing.T) {
	t.Parallel()
	g := mustGuard(t, "127.0.0.1")
	s := testserver.NewMailServer(t, false)
	if err := g.CheckURL(s.URL + "/"); err == nil {
		t.Error("CheckURL accepts a mail server")
	}
	for _, signer := range []string{"", sign.None, sign.Standard, sign.DingTalk} {
		r := sinkRequest(t, mailConfig(s), alert())
		r.Signer = signer
		if resp := newMailClient(t, s).Send(t.Context(), r); resp.Class != store.ClassInvalidRequest {
			t.Errorf("%q: %s", signer, resp.Class)
		}
	}
	public := mustGuard(t).decide
	mails := mustGuard(t).decideMail
	for port, want := range map[uint16]decision{465: 1, 587: 1, 25: refused, 22: refused, 2525: 1} {
		addr := netip.MustParseAddr("93.184.215.14")
		if got := mails(addr, port); got != want {
			t.Errorf("port %d of a mail server: %d", port, got)
		}
		if port < 1000 && public(addr, port) != refused {
			t.Errorf("port %d is open to HTTP", port)
		}
	}
}
