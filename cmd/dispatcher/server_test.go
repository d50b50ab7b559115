package main

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// testSettings are the defaults on free ports in a directory of the test's own, allowed to send to this machine.
func testSettings(t *testing.T, args ...string) *Settings {
	t.Helper()
	l, err := loadWith(t, nil, append([]string{
		"--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0", "--data-dir=" + t.TempDir(), "--egress-allow=127.0.0.1", "--log-level=error",
	}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return &l.Settings
}

// A running server of a test.
type running struct {
	*server
	cl *client
	// stop asks for the end; ended gives run's error.
	stop  context.CancelFunc
	ended chan error
}

func startServer(t *testing.T, s *Settings) *running {
	t.Helper()
	term := newTerminal()
	srv, err := openServer(t.Context(), &term.console, s, newLogger(&term.console, s))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{server: srv, stop: stop, ended: make(chan error, 1)}
	go func() { r.ended <- errors.Join(srv.run(ctx), srv.close()) }()
	if srv.web.Addr() != nil {
		r.cl, err = newClient(&term.console, clientFlags{Server: "http://" + srv.web.Addr().String(), Key: s.AdminKey})
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// end stops the server and returns run's error.
func (r *running) end(t *testing.T) error {
	t.Helper()
	r.stop()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("the server does not end")
		return nil
	}
}

// until polls a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// readyz returns the status of the readiness probe, 0 when nobody answers.
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

func (r *running) send(t *testing.T, url string) string {
	t.Helper()
	var cb shownCallback
	if _, err := r.cl.call(t.Context(), http.MethodPost, "/v1/callbacks", map[string]any{"url": url, "payload": map[string]any{"paid": 1}}, &cb); err != nil {
		t.Fatal(err)
	}
	return cb.ID
}

func (r *running) state(t *testing.T, id string) string {
	t.Helper()
	var cb shownCallback
	if _, err := r.cl.call(t.Context(), http.MethodGet, callbackPath(id), nil, &cb); err != nil {
		t.Fatal(err)
	}
	return cb.State
}

func TestServeDrainsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}, 10), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	}))
	defer receiver.Close()
	s := testSettings(t, "--shutdown-delay=500ms")
	r := startServer(t, s)
	until(t, "ready", func() bool { return r.readyz(t) == http.StatusOK })
	id := r.send(t, receiver.URL)
	<-entered

	r.stop()
	until(t, "readyz says that it drains", func() bool { return r.readyz(t) == http.StatusServiceUnavailable })
	// Within shutdown_delay the API still answers and accepts, but nothing new is claimed.
	late := r.send(t, receiver.URL)
	if got := r.state(t, id); got != "attempting" {
		t.Errorf("what is in flight is %s", got)
	}
	time.AfterFunc(700*time.Millisecond, func() { close(release) })
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
	if len(entered) > 0 {
		t.Error("something was claimed after the end was asked for")
	}

	again := startServer(t, s)
	if got := again.state(t, id); got != "succeeded" {
		t.Errorf("what was in flight is %s after the restart", got)
	}
	until(t, "what was accepted late succeeds", func() bool { return again.state(t, late) == "succeeded" })
	if err := again.end(t); err != nil {
		t.Fatal(err)
	}
}

func TestServeHandsBackWhatOutlastsTheDrain(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{}, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A server notices that its client has gone only when the body has been read.
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		entered <- struct{}{}
		if r.Header.Get("webhook-attempt") == "1" {
			<-r.Context().Done()
		}
	}))
	defer receiver.Close()
	s := testSettings(t, "--drain-timeout=50ms")
	r := startServer(t, s)
	id := r.send(t, receiver.URL)
	<-entered
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
	again := startServer(t, s)
	until(t, "what was handed back succeeds", func() bool { return again.state(t, id) == "succeeded" })
	var cb shownCallback
	if _, err := again.cl.call(t.Context(), http.MethodGet, callbackPath(id), nil, &cb); err != nil {
		t.Fatal(err)
	}
	if cb.AttemptCount != 1 {
		t.Errorf("%d attempts were charged, not 1", cb.AttemptCount)
	}
	if err := again.end(t); err != nil {
		t.Fatal(err)
	}
}

func TestHoldAcceptsAndSendsNothing(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{}, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { entered <- struct{}{} }))
	defer receiver.Close()
	s := testSettings(t, "--hold")
	r := startServer(t, s)
	id := r.send(t, receiver.URL)
	until(t, "ready", func() bool { return r.readyz(t) == http.StatusOK })
	if got := r.state(t, id); got != "scheduled" {
		t.Errorf("it is %s", got)
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
	if len(entered) > 0 {
		t.Error("something was sent")
	}
	s.Hold = false
	again := startServer(t, s)
	until(t, "it is sent once sending is allowed", func() bool { return again.state(t, id) == "succeeded" })
	if err := again.end(t); err != nil {
		t.Fatal(err)
	}
}

func TestASecondServeIsRefusedWithOneLine(t *testing.T) {
	t.Parallel()
	s := testSettings(t)
	r := startServer(t, s)
	term := newTerminal()
	code := term.invoke("serve", "--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0", "--data-dir", s.DataDir)
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if lines := term.lines(); len(lines) != 1 || !strings.Contains(lines[0], "another dispatcher runs with the embedded index") {
		t.Errorf("said %q", lines)
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
}

func TestAnAddressInUseEndsTheStart(t *testing.T) {
	t.Parallel()
	r := startServer(t, testSettings(t))
	term := newTerminal()
	code := term.invoke("serve", "--listen", r.web.Addr().String(), "--ops-listen=127.0.0.1:0", "--data-dir", t.TempDir(), "--log-level=error")
	if code != exitFailed || len(term.lines()) != 1 || !strings.Contains(term.stderr.String(), "address already in use") {
		t.Errorf("exit code %d, said %q", code, term.lines())
	}
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, step := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"migrate", "--status"}, exitFailed, "no"},
		{[]string{"serve", "--migrate=false", "--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0"}, exitFailed, "is not applied"},
		{[]string{"migrate"}, exitOK, "applied"},
		{[]string{"migrate"}, exitOK, "were applied already"},
		{[]string{"migrate", "--status"}, exitOK, "0001"},
	} {
		term := newTerminal()
		code := term.invoke(append(step.args, "--data-dir", dir)...)
		if code != step.code || !strings.Contains(term.stdout.String()+term.stderr.String(), step.want) {
			t.Errorf("%v: exit code %d, said %s%s", step.args, code, term.stdout.String(), term.stderr.String())
		}
	}
}

func TestADatabaseOfAnotherSchemaIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if code := newTerminal().invoke("migrate", "--data-dir", dir); code != exitOK {
		t.Fatalf("migrate: exit code %d", code)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, databaseFileName))
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), `UPDATE schema_migrations SET hash = 'of another text' WHERE version_id = 1`)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	const line = "the database was made by another version of dispatcher, whose schema differs; " +
		"run that version, or start this one on an empty database"
	serve := []string{"serve", "--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0", "--log-level=error"}
	for _, args := range [][]string{
		serve, append(slices.Clone(serve), "--migrate=false"), {"migrate"}, {"migrate", "--status"},
	} {
		term := newTerminal()
		code := term.invoke(append(args, "--data-dir", dir)...)
		if code != exitFailed || len(term.lines()) != 1 || !strings.Contains(term.lines()[0], line) {
			t.Errorf("%v: exit code %d, said %q", args, code, term.lines())
		}
	}
	want(t, examine(t, "--data-dir="+dir), "migrations", statusError, "another version", "empty database")
}

func TestCommandsAgainstAServer(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer receiver.Close()
	s := testSettings(t)
	r := startServer(t, s)
	// The key is found in the data directory.
	server := []string{"--server", r.cl.base, "--data-dir", s.DataDir}
	do := func(want string, args ...string) string {
		t.Helper()
		term := newTerminal()
		if code := term.invoke(append(args, server...)...); code != exitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, term.stderr.String())
		}
		if !strings.Contains(term.stdout.String(), want) {
			t.Errorf("%v does not show %q:\n%s", args, want, term.stdout.String())
		}
		return term.stdout.String()
	}
	sent := do("accepted", "callback", "send", "--url", receiver.URL, "--data", `{"paid": 1}`, "--ref", "order-7", "--tiers", "1h,2h", "-H", "X-Shop: 7", "--label", "a=b")
	id, _, _ := strings.Cut(sent, " ")
	until(t, "the first attempt has failed", func() bool {
		var cb shownCallback
		if _, err := r.cl.call(t.Context(), http.MethodGet, callbackPath(id), nil, &cb); err != nil {
			t.Fatal(err)
		}
		return cb.AttemptCount == 1 && cb.State == "scheduled"
	})
	do("503 http_5xx", "callback", "get", id)
	do(`"attempts": [`, "callback", "get", id, "--json")
	do(id, "callback", "list", "--ref", "order-7", "--label", "a=b", "--state", "scheduled")
	do("no callbacks match", "callback", "list", "--ref", "order-8")
	do("will be attempted now", "callback", "retry", id, "--reason", "test")
	do("they agree", "verify")
	do("nothing was changed", "rebuild", "--dry-run")
	do("the index was rebuilt", "rebuild", "--reason", "test")
	do(id, "callback", "cancel", "--ref", "order-7")
	if err := r.end(t); err != nil {
		t.Fatal(err)
	}
}
