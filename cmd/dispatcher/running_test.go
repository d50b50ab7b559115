package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// loadWith reads the settings as "serve" would with these arguments.
func loadWith(t *testing.T, env []string, args ...string) (*loaded, error) {
	t.Helper()
	term := newTerminal(env...)
	var grammar commands
	parser, err := newParser(&term.console, &grammar)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(append([]string{"serve"}, args...)); err != nil {
		t.Fatal(err)
	}
	l, problems := loadSettings(&term.console, &grammar.Serve.settingFlags)
	return l, l.judge(problems, l.check())
}

// testSettings are the defaults on free ports in a directory of the test's own, allowed to send to this machine.
func testSettings(t *testing.T, args ...string) *Settings {
	t.Helper()
	l, err := loadWith(t, nil, append([]string{
		"--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0", "--data-dir=" + t.TempDir(), "--egress-allow=127.0.0.1",
		"--log-level=error",
	}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return &l.Settings
}

// bothKeys are what a server on PostgreSQL must be given.
func bothKeys() []string {
	return []string{"--admin-key=0123456789abcdef01234567", "--master-key=" + someKey('m')}
}

// migrated is the URL of a database of the test's own that a server can use as it is.
func migrated(t *testing.T) string {
	t.Helper()
	return testserver.SharedPostgres(t).Copy(t, "migrated", func(url string) error {
		term := newTerminal()
		if code := term.invoke("migrate", "--database-url", url); code != exitOK {
			return fmt.Errorf("migrate: exit code %d: %s", code, term.stderr.String())
		}
		return nil
	})
}

var prefixes atomic.Int64

// ownIndex are flags of an index of the test's own on the shared Redis.
func ownIndex(t *testing.T) []string {
	t.Helper()
	return []string{"--redis-url=" + testserver.SharedRedis(t), fmt.Sprint("--redis-prefix=test-", prefixes.Add(1))}
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// A running server of a test.
type running struct {
	*server
	cl *client
	// stop asks for the end; ended is closed after it, and failed is run's error then.
	stop   context.CancelFunc
	ended  chan struct{}
	failed error
}

// startServer starts a server. It ends with the test, if not before, and must end without an error.
func startServer(t *testing.T, s *Settings) *running {
	t.Helper()
	term := newTerminal()
	srv, err := openServer(t.Context(), &term.console, s, newLogger(&term.console, s))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{server: srv, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.failed = errors.Join(srv.run(ctx), srv.close())
	}()
	t.Cleanup(func() {
		if r.end(t); t.Failed() {
			t.Logf("the server has logged:\n%s", term.stderr.String())
		}
	})
	if srv.web.Addr() != nil {
		r.cl, err = newClient(&term.console, clientFlags{Server: "http://" + srv.web.Addr().String(), Key: s.AdminKey})
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// end stops the server.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	select {
	case <-r.ended:
		if r.failed != nil {
			t.Error(r.failed)
		}
	case <-time.After(time.Minute):
		t.Error("the server does not end")
	}
}

// readyz returns the status of the readiness probe, 0 when nothing answers.
func (r *running) readyz(t *testing.T) int {
	t.Helper()
	res, err := http.Get("http://" + r.web.OpsAddr().String() + "/readyz")
	if err != nil {
		return 0
	}
	if err := res.Body.Close(); err != nil {
		t.Error(err)
	}
	return res.StatusCode
}

// call makes a request that must succeed.
func (r *running) call(t *testing.T, method, path string, in, out any) []byte {
	t.Helper()
	answer, err := r.cl.call(context.WithoutCancel(t.Context()), method, path, in, out)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer
}

// send hands a callback over and returns its id.
func (r *running) send(t *testing.T, url string) string {
	t.Helper()
	var cb shownCallback
	r.call(t, http.MethodPost, "/v1/callbacks", map[string]any{"url": url, "payload": map[string]any{"paid": 1}}, &cb)
	return cb.ID
}

func (r *running) callback(t *testing.T, id string) (cb shownCallback) {
	t.Helper()
	r.call(t, http.MethodGet, callbackPath(id), nil, &cb)
	return cb
}

func (r *running) state(t *testing.T, id string) string {
	t.Helper()
	return r.callback(t, id).State
}

// counters are the parts of GET /v1/stats that tests look at.
type counters struct {
	Index  struct{ Delayed, Ready, Leased int }
	States struct{ Scheduled, Succeeded, Dead, Canceled int }
}

func (c counters) items() int { return c.Index.Delayed + c.Index.Ready + c.Index.Leased }

func (r *running) counters(t *testing.T) (c counters) {
	t.Helper()
	r.call(t, http.MethodGet, "/v1/stats", nil, &c)
	return c
}
