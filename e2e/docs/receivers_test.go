package docs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/docpage"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// The programs of docs/guide/receivers.md run as they stand there, on another port. The built binary sends
// them callbacks through a proxy, which may change a request on its way.

// programsPage is the page with the programs, and starts has the command of each.
const programsPage = "docs/guide/receivers.md"

var starts = map[string]string{
	"receiver.go":   "exec go run receiver.go",
	"Receiver.java": "exec java Receiver.java",
	"receiver.mjs":  "exec node receiver.mjs",
	"receiver.py":   "exec python3 receiver.py",
	"receiver.php":  "PHP_CLI_SERVER_WORKERS=4 exec php -S 127.0.0.1:9090 receiver.php",
}

// body has bytes that a program changes when it parses and writes JSON or text.
const body = "{ \"paid\":1.00,\t\"name\": \"\\u8336 \u00e9\", \"big\": 12345678901234567890123 }\r\n"

// A change alters a request between the dispatcher and the receiver. secret is the receiver's.
type change func(r *http.Request, body []byte, secret *standardwebhooks.Webhook) []byte

// signedAt signs the request again, at another time.
func signedAt(age time.Duration) change {
	return func(r *http.Request, body []byte, secret *standardwebhooks.Webhook) []byte {
		at := time.Now().Add(-age)
		signature, err := secret.Sign(r.Header.Get("webhook-id"), at, body)
		if err != nil {
			panic(err) // the proxy answers 502
		}
		r.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
		r.Header.Set("webhook-signature", signature)
		return body
	}
}

// header replaces a header; without a value it removes it.
func header(name string, value ...string) change {
	return func(r *http.Request, body []byte, _ *standardwebhooks.Webhook) []byte {
		r.Header[http.CanonicalHeaderKey(name)] = value
		return body
	}
}

// cases are the requests that a receiver gets, and its answers.
var cases = []struct {
	name   string
	change change
	status int
}{
	{"as it was sent", nil, 200},
	{"signed four minutes ago", signedAt(4 * time.Minute), 200},
	{"signed four minutes ahead", signedAt(-4 * time.Minute), 200},
	{"a second signature", func(r *http.Request, b []byte, _ *standardwebhooks.Webhook) []byte {
		r.Header.Set("webhook-signature", "v2,x v1,AAAA "+r.Header.Get("webhook-signature"))
		return b
	}, 200},
	{"a changed body", func(_ *http.Request, b []byte, _ *standardwebhooks.Webhook) []byte {
		return bytes.Replace(b, []byte("1.00"), []byte("9.00"), 1)
	}, 401},
	{"a body without its white space", func(_ *http.Request, b []byte, _ *standardwebhooks.Webhook) []byte {
		return bytes.TrimSpace(b)
	}, 401},
	{"signed six minutes ago", signedAt(6 * time.Minute), 401},
	{"signed six minutes ahead", signedAt(-6 * time.Minute), 401},
	{"another timestamp", header("webhook-timestamp", fmt.Sprint(time.Now().Unix()-7)), 401},
	{"no timestamp", header("webhook-timestamp"), 401},
	{"a timestamp that is no number", header("webhook-timestamp", "0x6"), 401},
	{"another id", header("webhook-id", "cb_other"), 401},
	{"no id", header("webhook-id"), 401},
	{"no signature", header("webhook-signature"), 401},
	{"a short signature", header("webhook-signature", "v1,"), 401},
	{"an empty signature", header("webhook-signature", ""), 401},
	{"an id that is a path", func(r *http.Request, b []byte, s *standardwebhooks.Webhook) []byte {
		r.Header.Set("webhook-id", "../cb_escaped")
		return signedAt(0)(r, b, s)
	}, 400},
	{"two megabytes", func(_ *http.Request, b []byte, _ *standardwebhooks.Webhook) []byte {
		return append(b, make([]byte, 2<<20)...)
	}, 413},
}

// between is a proxy that changes the next requests.
type between struct {
	mu     sync.Mutex
	change change
	secret *standardwebhooks.Webhook
	to     *url.URL
}

// atOnce is how many copies of one request ServeHTTP sends.
const atOnce = 8

// ServeHTTP sends a request atOnce times, all at the same time, and answers with the worst
// answer of the receiver; one without the word success is a 502. So the receiver sees what a retry after a
// timeout looks like.
func (b *between) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	type answer struct {
		status int
		body   []byte
	}
	answers := make(chan answer, atOnce)
	for range atOnce {
		go func() {
			copied := r.Clone(context.WithoutCancel(r.Context()))
			copied.URL, copied.RequestURI = &url.URL{Scheme: "http", Host: b.to.Host, Path: "/notify"}, ""
			copied.Body, copied.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
			resp, err := http.DefaultClient.Do(copied)
			if err != nil {
				answers <- answer{status: http.StatusBadGateway}
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
			if err != nil || string(text) != "success" {
				answers <- answer{http.StatusBadGateway, text}
				return
			}
			answers <- answer{resp.StatusCode, text}
		}()
	}
	var worst answer
	for range atOnce {
		if a := <-answers; a.status > worst.status {
			worst = a
		}
	}
	w.WriteHeader(worst.status)
	w.Write(worst.body) // fails if the dispatcher ended the request
}

func (b *between) set(c change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.change = c
}

func (b *between) rewrite(p *httputil.ProxyRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.SetURL(b.to)
	p.Out.Header["X-Forwarded-For"] = nil
	if b.change == nil {
		return
	}
	text, err := io.ReadAll(p.In.Body)
	if err != nil {
		panic(err) // the dispatcher ended the request
	}
	text = b.change(p.Out, text, b.secret)
	p.Out.Body, p.Out.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
}

// TestTheExampleOfTheRequestIsSigned checks the signature that the page shows.
func TestTheExampleOfTheRequestIsSigned(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, programsPage))
	harness.Check(t, err)
	found := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindSubmatch(text)
		if m == nil {
			t.Fatalf("the page has no %s", pattern)
		}
		return string(m[1])
	}
	secret, err := standardwebhooks.NewWebhook(found("with the secret `(whsec_.*?)`"))
	harness.Check(t, err)
	seconds, err := strconv.ParseInt(found(`webhook-timestamp: (\d+)`), 10, 64)
	harness.Check(t, err)
	want, err := secret.Sign(found(`webhook-id: (\w+)`), time.Unix(seconds, 0),
		[]byte(found(`\n\n(\{"paid".*?\})\n`)))
	harness.Check(t, err)
	if got := found(`webhook-signature: (\S+)`); got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
}

func TestReceivers(t *testing.T) {
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
	found := 0
	for _, b := range blocksOf(t, programsPage) {
		if b.Kind == docpage.File {
			found++
			t.Run(b.Name, func(t *testing.T) { newTrial(t, p, b).play() })
		}
	}
	if found != len(starts) {
		t.Errorf("the page has %d programs, want %d", found, len(starts))
	}
}

// A trial is one program behind a proxy.
type trial struct {
	*testing.T
	p       *harness.Process
	program *window
	dir     string
	between *between
	made    client.EndpointWithSecret
}

// newTrial creates an endpoint and starts a program with its secret.
func newTrial(t *testing.T, p *harness.Process, b docpage.Block) *trial {
	if starts[b.Name] == "" {
		t.Fatalf("no command starts %s", b.Name)
	}
	port := testserver.FreePort(t)
	tr := &trial{T: t, p: p, dir: t.TempDir(), between: &between{}}
	var err error
	tr.between.to, err = url.Parse("http://127.0.0.1:" + port)
	harness.Check(t, err)
	routes := http.NewServeMux()
	routes.Handle("/notify", &httputil.ReverseProxy{Rewrite: tr.between.rewrite})
	routes.Handle("/at-once", tr.between)
	front := &http.Server{ReadHeaderTimeout: time.Minute, Handler: routes}
	listening, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Check(t, err)
	go front.Serve(listening) // returns when the server is closed
	t.Cleanup(func() { front.Close() })
	p.Post("/v1/endpoints", harness.Submission{
		"url": "http://" + listening.Addr().String() + "/notify", "external_id": b.Name,
		"url_override": "same_host", "success": "body-success",
	}, &tr.made)
	tr.between.secret, err = standardwebhooks.NewWebhook(tr.made.Secret)
	harness.Check(t, err)
	moved := strings.NewReplacer("9090", port)
	harness.Check(t, os.WriteFile(filepath.Join(tr.dir, b.Name), []byte(moved.Replace(b.Text)+"\n"), 0o644))
	tr.program = openWindow(t, tr.dir, moved.Replace(starts[b.Name]), "WEBHOOK_SECRET="+tr.made.Secret)
	return tr
}

// send sends a callback to a path of the proxy, which is attempted once. It returns the id and the status of
// the answer.
func (tr *trial) send(path string) (id string, status int) {
	tr.Helper()
	at, err := url.Parse(tr.made.URL)
	harness.Check(tr, err)
	at.Path = path
	id = tr.p.Create("/v1/callbacks", harness.Submission{
		"endpoint": tr.made.ID, "url": at.String(), "body": body, "content_type": "application/json",
		"policy": harness.Tiers("20s"),
	})
	harness.Eventually(tr, time.Minute, "the callback ends", func() error {
		cb, err := tr.p.Callback(tr.Context(), id)
		if err == nil && (cb.State == client.Scheduled || cb.State == client.Attempting) {
			err = fmt.Errorf("it is %s", cb.State)
		}
		return err
	})
	attempts, err := tr.p.AttemptsOf(id)
	harness.Check(tr, err)
	if len(attempts) != 1 {
		tr.Fatalf("%s has %d attempts, want 1", id, len(attempts))
	}
	if got := attempts[0]; (got.StatusCode == http.StatusOK) != (got.Class == "ok") {
		tr.Errorf("%s was answered %d, and its attempt is %s", id, got.StatusCode, got.Class)
	}
	return id, attempts[0].StatusCode
}

// printed waits until the program has printed a line a number of times.
func (tr *trial) printed(line string, times int) {
	tr.Helper()
	harness.Eventually(tr, 30*time.Second, line, func() error {
		if n := strings.Count(tr.program.text(), line); n != times {
			return fmt.Errorf("the program printed it %d times, want %d", n, times)
		}
		return nil
	})
}

// play sends every case, then duplicates, and then rotates the secret.
func (tr *trial) play() {
	var accepted []string
	for _, c := range cases {
		tr.between.set(c.change)
		id, status := tr.send("/notify")
		// A receiver that closes the connection in the middle of a long body may cut off its own answer.
		cut := c.status == http.StatusRequestEntityTooLarge && status == http.StatusBadGateway
		if status != c.status && !cut {
			tr.Errorf("%s: answered %d, want %d", c.name, status, c.status)
		}
		if c.status == http.StatusOK {
			accepted = append(accepted, id)
		}
	}
	tr.between.set(nil)
	first := accepted[0]
	tr.printed("accepted "+first, 1)
	// A manual retry sends the same id again.
	tr.p.Post("/v1/callbacks/"+first+"/retry", harness.Submission{}, nil)
	tr.printed("duplicate "+first, 1)
	tr.printed("accepted "+first, 1)
	id, status := tr.send("/at-once")
	if status != http.StatusOK {
		tr.Errorf("%d copies at once: answered %d", atOnce, status)
	}
	tr.printed("accepted "+id, 1)
	tr.printed("duplicate "+id, atOnce-1)
	tr.inbox(append(accepted, id))

	// Another secret signs: the receiver refuses. During an overlap the old one signs too.
	rotate := func(overlap string) {
		tr.p.Post("/v1/endpoints/"+tr.made.ID+"/rotate_secret", harness.Submission{"overlap": overlap}, nil)
	}
	rotate("1d")
	if id, status := tr.send("/notify"); status != http.StatusOK {
		tr.Errorf("%s, signed by the old secret and the new one: answered %d", id, status)
	}
	rotate("0s")
	if id, status := tr.send("/notify"); status != http.StatusUnauthorized {
		tr.Errorf("%s, signed by another secret: answered %d, want 401", id, status)
	}
}

// inbox checks that the inbox has the accepted callbacks with their bytes, and nothing else.
func (tr *trial) inbox(want []string) {
	tr.Helper()
	entries, err := os.ReadDir(filepath.Join(tr.dir, "inbox"))
	harness.Check(tr, err)
	var got []string
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(tr.dir, "inbox", e.Name()))
		harness.Check(tr, err)
		if string(text) != body {
			tr.Errorf("%s has the bytes %q, want %q", e.Name(), text, body)
		}
		got = append(got, e.Name())
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		tr.Errorf("the inbox has %q, want %q", got, want)
	}
}
