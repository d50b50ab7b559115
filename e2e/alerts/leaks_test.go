package alerts

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A leakLab has one alert for each type of sink. Every credential is a marker, and receivers echo what they
// get. markers are the credentials, and in which form they are sent.
type leakLab struct {
	*harness.Trial
	p         *harness.Process
	collector *testserver.Collector
	markers   []string
	// alerts and callbacks are paths of the API by the name of their sink.
	alerts, callbacks map[string]string
	// hook is the address of the webhook.
	hook string
}

// TestSinksLeakNothing sends a message to each type of sink, with failures before. The tokens in URLs, the
// signing secrets, the path of the webhook and the password of the mail server appear in no log, span,
// metric, page, evidence and audit entry, in no response of the API and in no file of the database.
func TestSinksLeakNothing(t *testing.T) {
	l := &leakLab{Trial: harness.NewTrial(t, "leaks"), collector: testserver.NewCollector(t),
		alerts: map[string]string{}, callbacks: map[string]string{}}
	l.UseBackend(harness.NewBackend(l, harness.SQLiteEmbedded))
	own := testserver.NewRobot(l, testserver.RobotSlack)
	mails := testserver.NewMailServer(l, true)
	l.p = l.Launch(harness.Launch{
		Under: []string{"env", "SSL_CERT_FILE=" + mails.Certificate},
		Args: []string{"--log-level", "debug", "--otlp-endpoint", l.collector.URL,
			"--trace-sample-ratio", "1",
			"--alert-sink", fmt.Sprintf(`[{"type":"slack","url":%q}]`, own.URL)},
	})
	sent := l.sendAll(mails)
	l.refuseAll()
	l.Eventually(2*time.Minute, "each sink has got its message", sent)
	for name, want := range map[string]string{
		"dingtalk": "http_5xx 500, ok 200", "wecom": "http_5xx 500, ok 200", "feishu": "http_5xx 500, ok 200",
		"slack": "http_5xx 500, ok 200", "teams": "http_5xx 500, ok 202", "webhook": "http_5xx 502, ok 200",
		"email": "http_4xx 451, ok 250", "wrong password": "rejected 535",
	} {
		l.Eventually(time.Minute, name, func() error { return l.attempted(name, want) })
	}
	l.change()
	l.loseKeys(own)
	all := l.surfaces()
	for place, host := range map[string]string{
		"the log": own.URL, "spans": l.hook, "GET /v1/audit": l.hook, "GET /v1/endpoints": l.hook,
		"GET /v1/callbacks": l.hook, "page /ui/audit": l.hook, "page /ui/alerts": l.hook,
	} {
		u, err := url.Parse(host)
		l.Check(err)
		if !strings.Contains(all[place], u.Host) { // else a marker could not be there either
			l.Errorf("%s does not show the host of a sink, %s", place, u.Host)
		}
	}
	l.search(all)
}

// mark adds markers, and their base64, which is how SMTP sends them.
func (l *leakLab) mark(secrets ...string) {
	for _, s := range secrets {
		l.markers = append(l.markers, s, base64.StdEncoding.EncodeToString([]byte(s)))
	}
}

// create creates an alert with a sink, and sends a test message.
func (l *leakLab) create(name string, sink harness.Submission) {
	l.Helper()
	id := l.p.Create("/v1/alerts", harness.Submission{
		"name": name, "when": harness.Submission{"kind": "dead_rate"}, "sink": sink,
	})
	l.alerts[name] = "/v1/alerts/" + id
	var cb client.Callback
	l.p.Post(l.alerts[name]+"/test", harness.Submission{}, &cb)
	l.callbacks[name] = "/v1/callbacks/" + cb.ID
}

// attempted compares the attempts of a message, as their classes with the statuses.
func (l *leakLab) attempted(name, want string) error {
	id := strings.TrimPrefix(l.callbacks[name], "/v1/callbacks/")
	attempts, err := harness.Collect(l.p.Attempts(id))
	if err != nil {
		return err
	}
	slices.Reverse(attempts)
	var got []string
	for i := range attempts {
		got = append(got, fmt.Sprint(attempts[i].Class, " ", attempts[i].StatusCode))
	}
	if text := strings.Join(got, ", "); text != want {
		return fmt.Errorf("the attempts are %q, want %q", text, want)
	}
	return nil
}

// sendAll creates the sinks. Each refuses a first message and echoes its credentials. The function that is
// returned says which one has not accepted the second attempt.
func (l *leakLab) sendAll(mails *testserver.MailServer) (sent func() error) {
	waiting := map[string]func() int{}
	for _, kind := range []string{testserver.RobotDingTalk, testserver.RobotWeCom, testserver.RobotFeishu,
		testserver.RobotSlack, testserver.RobotTeams} {
		robot := testserver.NewRobot(l, kind)
		l.mark(robot.Secrets()...)
		robot.Force(testserver.Answer{Status: 500,
			Body: fmt.Sprintf(`{"errcode":-1,"code":1,"errmsg":"%s %s"}`, robot.URL, robot.Secret)})
		sink := harness.Submission{"type": kind, "url": robot.URL}
		if robot.Secret != "" {
			sink["secret"] = robot.Secret
		}
		l.create(kind, sink)
		waiting[kind] = func() int { return len(robot.Accepted()) }
	}
	l.mark(testserver.MailPassword)
	l.markers = append(l.markers, base64.StdEncoding.EncodeToString(
		[]byte("\x00"+testserver.MailUser+"\x00"+testserver.MailPassword)))
	mails.Reply(".", "451 4.3.0 "+testserver.MailPassword+" "+l.markers[len(l.markers)-1])
	const wrong = "wrong-password-8284590452"
	l.mark(wrong)
	for name, password := range map[string]string{
		"email": testserver.MailPassword, "wrong password": wrong,
	} {
		l.create(name, harness.Submission{
			"type": "email", "server": mails.URL, "username": testserver.MailUser, "password": password,
			"from": testserver.MailUser, "to": []string{strings.ReplaceAll(name, " ", "-") + "@shop.example"},
		})
	}
	waiting["email"] = func() int { return len(mails.Received()) }

	secret := base64.StdEncoding.EncodeToString([]byte("webhook-signing-secret-57721"))
	l.mark("webhook-path-1414213562", "webhook-query-1732050807")
	l.markers = append(l.markers, secret)
	accepted := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Webhook-Attempt") == "1" {
			http.Error(w, fmt.Sprint(r.RequestURI, r.Header, string(body)), http.StatusBadGateway)
			return
		}
		accepted <- r.RequestURI
	}))
	l.Cleanup(hook.Close)
	l.hook = hook.URL
	l.create("webhook", harness.Submission{"type": "webhook", "secret": "whsec_" + secret,
		"url": hook.URL + "/webhook-path-1414213562?token=webhook-query-1732050807"})
	waiting["webhook"] = func() int { return len(accepted) }

	// These two never answer: nothing listens, and the name does not exist.
	l.mark("unreachable-path-2236067977", "unknown-path-2645751311")
	l.create("unreachable", harness.Submission{"type": "slack",
		"url": "http://127.0.0.1:" + testserver.FreePort(l) + "/unreachable-path-2236067977"})
	l.create("unknown", harness.Submission{"type": "slack",
		"url": "https://robot.invalid/unknown-path-2645751311"})
	return func() error {
		for name, count := range waiting {
			if count() == 0 {
				return fmt.Errorf("%s has not", name)
			}
		}
		return nil
	}
}

// refuseAll sends sinks that are not valid. Their credentials are in no refusal.
func (l *leakLab) refuseAll() {
	const marker = "refused-secret-3141592653"
	l.mark(marker)
	for _, sink := range []string{
		`{"type":"slack","url":"ftp://hooks.example/` + marker + `"}`,
		`{"type":"slack","url":"https://hooks.example/ ` + marker + `"}`,
		`{"type":"slack","url":"https://10.0.0.1/` + marker + `"}`,
		`{"type":"slack","url":"https://hooks.example/x","secret":"` + marker + `"}`,
		`{"type":"feishu","url":"https://hooks.example/x","secret":"` + marker + ` x"}`,
		`{"type":"webhook","url":"https://hooks.example/x","secret":"` + marker + `"}`,
		`{"type":"email","server":"smtp://mail.example","password":"` + marker + `\n"}`,
		`{"type":"slack","url":"` + marker + `"`,
	} {
		req, err := http.NewRequestWithContext(l.Context(), http.MethodPost, l.p.Base+"/v1/alerts",
			strings.NewReader(`{"name":"refused","when":{"kind":"dead_rate"},"sink":`+sink+`}`))
		l.Check(err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+harness.AdminKey)
		resp, err := l.p.HTTP.Do(req)
		l.Check(err)
		text, err := io.ReadAll(resp.Body)
		l.Check(err)
		l.Check(resp.Body.Close())
		if resp.StatusCode < 400 || resp.StatusCode >= 500 {
			l.Errorf("%s is answered %d", sink, resp.StatusCode)
		}
		l.search(map[string]string{"the refusal of " + sink[:20]: string(text)})
	}
}

// change replaces a secret, and deletes an alert, so that the audit has both.
func (l *leakLab) change() {
	const rotated = "SEC-rotated-1618033988"
	l.mark(rotated)
	l.call(http.MethodPatch, l.alerts[testserver.RobotDingTalk], harness.Submission{
		"name": "renamed", "sink": harness.Submission{"type": "dingtalk", "secret": rotated},
	})
	l.call(http.MethodDelete, l.alerts["unknown"], nil)
	delete(l.alerts, "unknown")
}

func (l *leakLab) call(method, path string, in any) {
	l.Helper()
	_, err := l.p.Call(l.Context(), method, path, in, nil)
	l.Check(err)
}

// loseKeys makes the process alert to its own sink, which refuses the message first and echoes the URL.
func (l *leakLab) loseKeys(own *testserver.Robot) {
	l.mark(own.Secrets()...)
	own.Force(testserver.Answer{Status: 500, Body: own.URL})
	l.Execute(`UPDATE secrets SET key_id = 'unknown' WHERE use = 'url'`)
	l.AtLeast(2*time.Minute, "messages to alert_sink", 1, func() int { return len(own.Accepted()) })
}

// surfaces returns everything that people and programs can read.
func (l *leakLab) surfaces() map[string]string {
	l.Helper()
	log, err := os.ReadFile(l.p.LogFile)
	l.Check(err)
	all := map[string]string{"the log": string(log)}
	l.Eventually(time.Minute, "spans of the attempts", func() error {
		spans := l.collector.Spans()
		for i := range spans {
			all["spans"] += spans[i].Text
		}
		if len(spans) < 20 {
			return fmt.Errorf("%d spans", len(spans))
		}
		return nil
	})
	get := func(c *http.Client, address, key string) string {
		l.Helper()
		req, err := http.NewRequestWithContext(l.Context(), http.MethodGet, address, nil)
		l.Check(err)
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		resp, err := c.Do(req)
		l.Check(err)
		text, err := io.ReadAll(resp.Body)
		l.Check(err)
		l.Check(resp.Body.Close())
		deleted := resp.StatusCode == http.StatusNotFound && key == "" // a page links to a deleted alert
		if resp.StatusCode != http.StatusOK && !deleted || len(text) == 0 {
			l.Errorf("GET %s is answered %d: %.200s", address, resp.StatusCode, text)
		}
		return fmt.Sprint(resp.Header, string(text))
	}
	all["metrics"] = get(l.p.HTTP, "http://"+l.p.OpsAddress()+"/metrics", "")
	paths := []string{"/v1/alerts", "/v1/callbacks", "/v1/callbacks?format=csv", "/v1/endpoints", "/v1/lanes",
		"/v1/audit", "/v1/outcomes", "/v1/stats", "/v1/projects"}
	for _, path := range l.alerts {
		paths = append(paths, path, path+"/firings")
	}
	for _, path := range l.callbacks {
		for _, part := range []string{"", "/attempts", "/payload", "/explain", "/evidence"} {
			paths = append(paths, path+part)
		}
	}
	for _, path := range paths {
		all["GET "+path] = get(l.p.HTTP, l.p.Base+path, harness.AdminKey)
	}
	l.pages(all, get)
	files, err := filepath.Glob(filepath.Join(l.Backend.DataDir, "dispatcher.db*"))
	l.Check(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		l.Check(err)
		all[filepath.Base(file)] = string(text)
	}
	return all
}

// maxPages bounds the pages that pages reads.
const maxPages = 300

var links = regexp.MustCompile(`href="(/ui[^"]*)"`)

// pages adds every page that a link leads to from the first one.
func (l *leakLab) pages(all map[string]string, get func(*http.Client, string, string) string) {
	l.Helper()
	jar, err := cookiejar.New(nil)
	l.Check(err)
	c := &http.Client{Jar: jar, Timeout: time.Minute}
	resp, err := c.PostForm(l.p.Base+"/ui/sign-in", url.Values{"key": {harness.AdminKey}})
	l.Check(err)
	l.Check(resp.Body.Close())
	queue := []string{"/ui/", "/ui/alerts", "/ui/callbacks?topic=dispatcher.alert", "/ui/audit", "/ui/system"}
	seen := map[string]bool{}
	for len(queue) > 0 && len(seen) < maxPages {
		path := queue[0]
		queue = queue[1:]
		if seen[path] || strings.Contains(path, "/static/") {
			continue
		}
		seen[path] = true
		text := get(c, l.p.Base+path, "")
		all["page "+path] = text
		for _, found := range links.FindAllStringSubmatch(text, -1) {
			queue = append(queue, strings.ReplaceAll(found[1], "&amp;", "&"))
		}
	}
	l.Remark("%d pages were read", len(seen))
	if len(seen) < 30 {
		l.Errorf("only %d pages were read", len(seen))
	}
}

// search looks for each marker, as it is and escaped, in all texts.
func (l *leakLab) search(texts map[string]string) {
	l.Helper()
	for place, text := range texts {
		for _, marker := range l.markers {
			if at := strings.Index(text, marker); at >= 0 {
				l.Errorf("%s is in %s: %q", marker, place, text[max(0, at-150):min(len(text), at+100)])
			}
		}
	}
}
