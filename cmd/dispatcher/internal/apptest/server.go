// Package apptest starts complete servers in the process of a test. Only tests import it.
package apptest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// program migrates databases.
var program = cmdtest.Program(func() any {
	var c struct {
		Migrate app.MigrateCommand `cmd:""`
	}
	c.Migrate.Flags = config.StorageFlags()
	return &c
})

// Settings returns the defaults with free ports, a temporary directory, and egress to this machine.
func Settings(t *testing.T, args ...string) *config.Settings {
	t.Helper()
	l, err := config.LoadArgs(&program.Terminal().Console, append([]string{
		"--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0", "--data-dir=" + t.TempDir(),
		"--egress-allow=127.0.0.1", "--log-level=error",
	}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return &l.Settings
}

// Migrated returns the URL of a new, migrated database of the test.
func Migrated(t *testing.T) string {
	t.Helper()
	return testserver.SharedPostgres(t).Copy(t, "migrated", func(url string) error {
		term := program.Terminal()
		if code := term.Invoke("migrate", "--database-url", url); code != console.ExitOK {
			return fmt.Errorf("migrate: exit code %d: %s", code, term.Stderr.String())
		}
		return nil
	})
}

var prefixes atomic.Int64

// OwnIndex returns the flags of a new index of the test on the shared Redis.
func OwnIndex(t *testing.T) []string {
	t.Helper()
	return []string{"--redis-url=" + testserver.SharedRedis(t),
		fmt.Sprint("--redis-prefix=test-", prefixes.Add(1))}
}

// MustURL parses a URL.
func MustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// Running is a running server of a test.
type Running struct {
	*app.App
	Client *remote.Client
	// stop ends the server. ended is closed after that; then failed is the error of Run.
	stop   context.CancelFunc
	ended  chan struct{}
	failed error
}

// Start starts a server. It ends at the latest with the test, and must end without an error.
func Start(t *testing.T, s *config.Settings) *Running {
	t.Helper()
	term := program.Terminal()
	srv, err := app.New(t.Context(), &term.Console, s, app.NewLogger(&term.Console, s))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &Running{App: srv, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.failed = errors.Join(srv.Run(ctx), srv.Close())
	}()
	t.Cleanup(func() {
		r.End(t)
		if t.Failed() {
			t.Logf("log of the server:\n%s", term.Stderr.String())
		}
	})
	if srv.Web.Addr() != nil {
		r.Client, err = remote.New(&term.Console,
			remote.Flags{Server: "http://" + srv.Web.Addr().String(), Key: s.AdminKey})
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// Flags returns the flags that name the server and its key, followed by more.
func (r *Running) Flags(more ...string) []string {
	return append([]string{"--server", r.Client.Base, "--key", r.Settings.AdminKey}, more...)
}

// End stops the server.
func (r *Running) End(t *testing.T) {
	t.Helper()
	r.stop()
	select {
	case <-r.ended:
		if r.failed != nil {
			t.Error(r.failed)
		}
	case <-time.After(time.Minute):
		t.Error("the server did not end")
	}
}

// Readyz returns the status of the readiness probe, or 0 without a response.
func (r *Running) Readyz(t *testing.T) int {
	t.Helper()
	res, err := http.Get("http://" + r.Web.OpsAddr().String() + "/readyz")
	if err != nil {
		return 0
	}
	if err := res.Body.Close(); err != nil {
		t.Error(err)
	}
	return res.StatusCode
}

// Call makes a request that must succeed.
func (r *Running) Call(t *testing.T, method, path string, in, out any) []byte {
	t.Helper()
	answer, err := r.Client.Call(context.WithoutCancel(t.Context()), method, path, in, out)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer
}

// Send submits a callback and returns its id.
func (r *Running) Send(t *testing.T, url string) string {
	t.Helper()
	var cb client.Callback
	r.Call(t, http.MethodPost, "/v1/callbacks",
		map[string]any{"url": url, "payload": map[string]any{"paid": 1}}, &cb)
	return cb.ID
}

// Callback returns a callback.
func (r *Running) Callback(t *testing.T, id string) (cb client.Callback) {
	t.Helper()
	r.Call(t, http.MethodGet, remote.CallbackPath(id), nil, &cb)
	return cb
}

// State returns the state of a callback.
func (r *Running) State(t *testing.T, id string) client.State {
	t.Helper()
	return r.Callback(t, id).State
}

// counters are the parts of GET /v1/stats that tests use.
type counters struct {
	Index  struct{ Delayed, Ready, Leased int }
	States struct{ Scheduled, Succeeded, Dead, Canceled int }
}

// Items returns the number of items in the index.
func (c counters) Items() int { return c.Index.Delayed + c.Index.Ready + c.Index.Leased }

// Counters returns the server's counters.
func (r *Running) Counters(t *testing.T) (c counters) {
	t.Helper()
	r.Call(t, http.MethodGet, "/v1/stats", nil, &c)
	return c
}

// Callbacks returns up to 500 callbacks.
func (r *Running) Callbacks(t *testing.T, query string) []client.Callback {
	t.Helper()
	var page client.Page[client.Callback]
	r.Call(t, http.MethodGet, "/v1/callbacks?"+query, nil, &page)
	return page.Data
}

// Page signs in and returns an admin page.
func (r *Running) Page(t *testing.T, path string) string {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client, base := http.Client{Jar: jar}, "http://"+r.Web.Addr().String()+"/ui"
	get := func(res *http.Response, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", res.Request.URL, res.Status, err)
		}
		return string(text)
	}
	get(client.PostForm(base+"/sign-in", url.Values{"key": {r.Settings.AdminKey}}))
	return get(client.Get(base + path))
}
