package sink

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"mime"
	"net/mail"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// example returns a valid sink of a type with every credential that the type has.
func example(kind string) Config {
	c := Config{Type: kind, URL: "https://robot.example/path-secret-1?access_token=query-secret-2"}
	switch kind {
	case DingTalk, Feishu:
		c.Secret = "signing-secret-3"
	case Webhook:
		c.Secret = sign.FormatSecret([]byte("signing-secret-3-24bytes"))
	case Email:
		return Config{
			Type: kind, Server: "smtps://mail.example:465", Username: "alerts@shop.example",
			Password: "password-4", From: "alerts@shop.example",
			To: []string{"a@shop.example", "b@shop.example"},
		}
	}
	return c
}

var at = time.Date(2026, 11, 28, 3, 4, 5, 0, time.FixedZone("", 8*3600))

// hostile has what must not get a meaning in any format.
const hostile = "[pay](http://evil.example) <@all> <at id=all></at> <!channel> ![x](http://evil.example/x)" +
	" *b* `c` &lt; \"q\"\r\nBcc: x@evil.example\u2028\x00"

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, kind := range Types() {
		if wrong := example(kind).Validate(); wrong != nil {
			t.Errorf("%s: %v", kind, wrong)
		}
	}
	for _, c := range []struct{ raw, want string }{
		{`{"type":"irc"}`, "type must be one of"},
		{`{"type":"slack"}`, "url is required"},
		{`{"type":"slack","url":"https://hooks.example/***"}`, "url is masked"},
		{`{"type":"slack","url":"ftp://hooks.example/x"}`, "url must begin with http:// or https://"},
		{`{"type":"slack","url":"https://u:p@hooks.example/x"}`, "url must have no user"},
		{`{"type":"slack","url":"https://hooks.example/x\n"}`, "url must be printable ASCII"},
		{`{"type":"slack","url":"https://hooks.example/x","secret":"12345678"}`,
			"secret is not used by slack"},
		{`{"type":"dingtalk","url":"https://x.example/x","secret":"***"}`, "secret is masked"},
		{`{"type":"dingtalk","url":"https://x.example/x","secret":"short"}`, "secret must be 8 to"},
		{`{"type":"feishu","url":"https://x.example/x","mentions":["<at>"]}`, "mentions[0] must be a phone"},
		{`{"type":"teams","url":"https://x.example/x","mentions":["all"]}`, "mentions cannot be used"},
		{`{"type":"wecom","url":"https://x.example/x","lang":"fr"}`, "lang must be en or zh-CN"},
		{`{"type":"wecom","url":"https://x.example/x","to":["a@b.example"]}`, "to can only be used with"},
		{`{"type":"webhook","url":"https://x.example/x","secret":"nope"}`, "secret secret does not begin"},
		{`{"type":"email"}`, "server is required"},
		{`{"type":"email","server":"http://mail.example"}`, "server must begin with smtps://"},
		{`{"type":"email","server":"mail.example:465","username":"a"}`, "password username and password"},
		{`{"type":"email","server":"mail.example:465","from":"A <a@b.example>"}`, "from must be one"},
		{`{"type":"email","server":"mail.example:465","from":"a@b.example\r\nBcc: x@y.example"}`,
			"from must be one"},
		{`{"type":"email","server":"mail.example:465","from":"a@b.example",` +
			`"to":["c@d.example, e@f.example"]}`,
			"to[0] must be one"},
		{`{"type":"slack","colour":1}`, ` has the unknown member "colour"`},
		{`{"type":"slack"} {}`, " has text after its end"},
		{`[`, " is not JSON"},
	} {
		_, wrong := Parse([]byte(c.raw))
		var got []string
		for _, e := range wrong {
			got = append(got, e.Field+" "+e.Message)
		}
		if !strings.Contains(strings.Join(got, "\n"), c.want) {
			t.Errorf("%s: %q, want %q", c.raw, got, c.want)
		}
	}
}

// TestNothingShowsACredential checks what is stored and shown of a sink in plain: the masked sink, the URL of
// its endpoint, the body of its messages and its fingerprint.
func TestNothingShowsACredential(t *testing.T) {
	t.Parallel()
	for _, kind := range Types() {
		c := example(kind)
		d := c.Delivery()
		body, _ := c.Render(Message{Title: "t", State: Firing, At: at})
		shown := fmt.Sprintf("%+v %s %s %s", c.Masked(), body, c.Fingerprint(nil), d.URL)
		for _, secret := range []string{"secret-1", "secret-2", "secret-3", "password-4", c.Secret} {
			if secret != "" && strings.Contains(shown, secret) {
				t.Errorf("%s shows %s: %s", kind, secret, shown)
			}
		}
		if wrong := c.Masked().Validate(); wrong == nil {
			t.Errorf("%s: the masked sink is valid", kind)
		}
		if kept := c.Masked().Keep(c); fmt.Sprint(kept) != fmt.Sprint(c) {
			t.Errorf("%s: the masked sink keeps %+v", kind, kept)
		}
		other := c.Masked()
		other.URL, other.Server = "https://other.example/x", "smtps://other.example:465"
		if kept := other.Keep(c); kept.Secret == c.Secret && c.Secret != "" ||
			kept.Password == c.Password && c.Password != "" {
			t.Errorf("%s: another host keeps the credential", kind)
		}
		if d.Use == sign.UseURL && !store.SameHost(d.URL, strings.Split(d.Secret, "\n")[0]) {
			t.Errorf("%s: %s is not the host of the secret", kind, d.URL)
		}
		if d.Secret != "" {
			if _, err := sign.ParseSecretFor(d.Use, d.Secret); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, kind := range Types() {
		c := example(kind)
		key := []byte("key")
		f := c.Fingerprint(key)
		if seen[f] != "" || len(f) != 32 {
			t.Errorf("%s: fingerprint %q, also of %q", kind, f, seen[f])
		}
		seen[f] = kind
		c.Language, c.Mentions = Chinese, []string{"all"}
		if c.Fingerprint(key) != f {
			t.Errorf("%s: language or mentions change the fingerprint", kind)
		}
		if c.Fingerprint([]byte("another key")) == f {
			t.Errorf("%s: the fingerprint does not need the key", kind)
		}
		for what, field := range map[string]*string{
			"address": &c.URL, "secret": &c.Secret, "password": &c.Password, "sender": &c.From,
		} {
			if *field == "" {
				continue
			}
			before := *field
			*field += "x"
			if c.Fingerprint(key) == f {
				t.Errorf("%s: another %s has the same fingerprint", kind, what)
			}
			*field = before
		}
	}
}

// TestPresets checks that each success rule is in its canonical form, and what it concludes from the answers
// that the platforms document.
func TestPresets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind   string
		status int
		body   string
		want   rule.Conclusion
	}{
		{DingTalk, 200, `{"errcode":0,"errmsg":"ok"}`, rule.Successful},
		{DingTalk, 200, `{"errcode":310000,"errmsg":"sign not match"}`, rule.Permanent},
		{DingTalk, 200, `{"errcode":130101,"errmsg":"send too fast"}`, rule.Deferred},
		{DingTalk, 200, `{"errcode":-1,"errmsg":"system busy"}`, rule.WrongBody},
		{DingTalk, 502, ``, rule.WrongStatus},
		{WeCom, 200, `{"errcode":0,"errmsg":"ok"}`, rule.Successful},
		{WeCom, 200, `{"errcode":45009}`, rule.Deferred},
		{WeCom, 200, `{"errcode":40058}`, rule.Permanent},
		{WeCom, 200, `{"errcode":93000}`, rule.Permanent},
		{Feishu, 200, `{"code":0,"data":{},"msg":"success"}`, rule.Successful},
		{Feishu, 200, `{"code":19021}`, rule.Permanent},
		{Feishu, 200, `{"code":19024}`, rule.Permanent},
		{Feishu, 200, `{"code":11232}`, rule.Deferred},
		{Feishu, 400, `{"code":9499,"msg":"too many request"}`, rule.Deferred},
		{Feishu, 200, `{"code":9499,"msg":"Bad Request"}`, rule.Permanent},
		{Slack, 200, "ok", rule.Successful},
		{Slack, 200, "no_text", rule.WrongBody},
		{Slack, 404, "channel_not_found", rule.Permanent},
		{Slack, 410, "channel_is_archived", rule.Permanent},
		{Slack, 429, "", rule.WrongStatus},
		{Teams, 202, "", rule.Successful},
		{Teams, 413, "", rule.Permanent},
		{Teams, 429, "", rule.WrongStatus},
		{Email, 250, "queued", rule.Successful},
		{Email, 451, "", rule.WrongStatus},
		{Email, 550, "", rule.Permanent},
	} {
		text := PresetOf(c.kind).Success
		if canonical, wrong := rule.Parse([]byte(text)); wrong != nil || canonical != text {
			t.Fatalf("%s: the rule is %s in its canonical form (%v)", c.kind, canonical, wrong)
		}
		r, _ := rule.Compile([]byte(text))
		got, _ := r.Conclude(c.kind, &rule.Document{Status: c.status, Text: []byte(c.body)}, nil)
		if got != c.want {
			t.Errorf("%s: %d %s gives %d, want %d", c.kind, c.status, c.body, got, c.want)
		}
	}
}

// TestRenderIsWithinTheLimits checks bodies of every size. The last line that is shown says how many are
// missing.
func TestRenderIsWithinTheLimits(t *testing.T) {
	t.Parallel()
	for _, kind := range Types() {
		for _, mentions := range [][]string{nil, {"13800000000", "user-1", "all"}} {
			c := example(kind)
			c.Language = Chinese
			if kind != Teams && kind != Webhook && kind != Email {
				c.Mentions = mentions
			}
			limit := 1 << 20
			if kind != Email {
				_, limit, _ = c.format(Message{})
			}
			for _, text := range []string{"x", "订单", hostile, "x.x.", strings.Repeat("订单\"<&[", 400)} {
				for n := 0; n <= 2000; n = n*3 + 1 {
					m := Message{
						ID: "x", State: Firing, Title: strings.Repeat(text, 50), At: at,
						Link: "https://pages.example/ui/" + strings.Repeat("x", 400),
					}
					for range n {
						m.Lines = append(m.Lines, text)
					}
					body, _ := c.Render(m)
					size := len(body)
					if kind == WeCom {
						size = len(contentOf(t, body))
					}
					if size > limit {
						t.Fatalf("%s: %d lines of %.10q take %d bytes, not %d", kind, n, text, size, limit)
					}
					shown := string(body)
					if n > maxLines && kind != Email && !strings.Contains(shown, "另有") {
						t.Fatalf("%s: %d lines: nothing says that some are missing: %.300s", kind, n, shown)
					}
				}
			}
		}
	}
}

// contentOf returns the limited part of WeCom's messages.
func contentOf(t *testing.T, body []byte) string {
	t.Helper()
	var m struct{ Markdown, Text struct{ Content string } }
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	return m.Markdown.Content + m.Text.Content
}

// TestTextHasNoMarkup checks that no text of a message becomes a link, a mention or an image.
func TestTextHasNoMarkup(t *testing.T) {
	t.Parallel()
	for _, kind := range Types() {
		if kind == Email || kind == Webhook || kind == Teams {
			continue // plain text
		}
		m := Message{State: Firing, Title: hostile, Lines: []string{hostile}, At: at}
		body, _ := example(kind).Render(m)
		var parsed map[string]any
		if err := json.Unmarshal(body, &parsed); err != nil {
			t.Fatal(err)
		}
		delete(parsed, "at")
		if m, ok := parsed["markdown"].(map[string]any); ok {
			delete(m, "title") // DingTalk shows it as plain text
		}
		if card, ok := parsed["card"].(map[string]any); ok {
			delete(card, "header")
		}
		text := fmt.Sprint(parsed)
		for _, markup := range []string{"[pay](", "![x", "<@", "<at", "<!", "\n\n\n"} {
			if kind == Slack && strings.HasPrefix(markup, "[") || kind == Slack && markup == "![x" {
				continue // not markup there
			}
			if strings.Contains(text, markup) {
				t.Errorf("%s: %q is in %s", kind, markup, text)
			}
		}
	}
}

// linkable is what chat clients and mail programs turn into a link: a scheme, a host name or an address.
var linkable = regexp.MustCompile(`(?i)[a-z][a-z0-9+.-]*://|\S[.．｡]\pL|\d+\.\d+\.\d+\.\d+`)

// shownTexts returns what people see of a message: its title and its content, without escapes.
func shownTexts(t *testing.T, kind string, body []byte) (texts []string) {
	t.Helper()
	if kind == Email {
		m, err := mail.ReadMessage(strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, m.Body))
		if err != nil {
			t.Fatal(err)
		}
		return []string{subject, string(content)}
	}
	var parsed any
	if err := json.Unmarshal(body, &parsed); err != nil {
		t.Fatal(err)
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			texts = append(texts, html.UnescapeString(v))
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			for name, x := range v {
				if name != "$schema" && name != "contentType" && name != "type" { // of Teams
					walk(x)
				}
			}
		}
	}
	walk(parsed)
	return texts
}

// TestNoTextBecomesALink checks that no address in a text is a link for a client that looks for addresses.
// The link of the message stays one, and other dots stay as they are.
func TestNoTextBecomesALink(t *testing.T) {
	t.Parallel()
	const link, plain = "https://pages.example/ui/alerts", "99.5% in 1.2 s. Then 0 … (v1.2.3)"
	hosts := []string{
		"http://evil.example/pay?x=1", "HTTPS://evil", "evil.example", "www.pay.evil.example/x",
		"a@evil.example", "10.11.12.13:80/x", "订单.中国", "evil．com", "dingtalk://dingtalkclient/page", "see https://x.y,z.w",
	}
	for _, kind := range Types() {
		c := example(kind)
		for _, mention := range []bool{false, true} {
			if mention && kind == WeCom { // another format
				c.Mentions = []string{"13800000000"}
			}
			m := Message{State: Firing, Title: strings.Join(hosts, " "), At: at, Link: link,
				Lines: append([]string{plain}, hosts...)}
			body, _ := c.Render(m)
			texts := strings.Join(shownTexts(t, kind, body), "\n")
			if !strings.Contains(texts, plain) || !strings.Contains(texts, link) {
				t.Errorf("%s: a text or the link is missing: %s", kind, texts)
			}
			found := linkable.FindString(strings.ReplaceAll(texts, link, ""))
			if kind == Webhook && !strings.Contains(texts, hosts[0]) || kind != Webhook && found != "" {
				t.Errorf("%s: %q can become a link: %s", kind, found, texts)
			}
		}
	}
}

// TestNoHeaderOfAMailIsInjected checks that a mail has the headers and recipients of its sink only.
func TestNoHeaderOfAMailIsInjected(t *testing.T) {
	t.Parallel()
	c := example(Email)
	for _, text := range []string{
		hostile, "\r\n\r\nbody", "a\nBcc: x@evil.example", strings.Repeat("订单", 300),
	} {
		body, contentType := c.Render(Message{State: Firing, Title: text, Lines: []string{text, "."}, At: at})
		if contentType != MailType {
			t.Errorf("content type %s", contentType)
		}
		m, err := mail.ReadMessage(strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Header) != 8 || m.Header.Get("Bcc") != "" {
			t.Errorf("headers %v", m.Header)
		}
		to, err := m.Header.AddressList("To")
		if err != nil || len(to) != len(c.To) {
			t.Errorf("recipients %v, %v", to, err)
		}
		content, _ := io.ReadAll(m.Body)
		if strings.Contains(string(content), "evil") {
			t.Errorf("the text is not encoded: %s", content)
		}
		for line := range strings.SplitSeq(string(body), "\r\n") {
			if len(line) > 998 || strings.ContainsAny(line, "\r\n") {
				t.Errorf("line %q", line)
			}
		}
	}
	u, err := url.Parse(strings.Split(c.Delivery().Secret, "\n")[0])
	if err != nil || u.Query().Get("from") != c.From || len(u.Query()["to"]) != 2 {
		t.Errorf("the envelope is %v, %v", u, err)
	}
}
