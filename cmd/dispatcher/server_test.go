package main

import (
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

func TestServeThatCannotStartSaysSoInOneLine(t *testing.T) {
	t.Parallel()
	r := startServer(t, testSettings(t))
	for want, args := range map[string][]string{
		"another dispatcher runs with the embedded index": {"--listen=127.0.0.1:0", "--data-dir", r.s.DataDir},
		"address already in use":                          {"--listen", r.web.Addr().String(), "--data-dir", t.TempDir(), "--log-level=error"},
	} {
		term := newTerminal()
		code := term.invoke(append([]string{"serve", "--ops-listen=127.0.0.1:0"}, args...)...)
		if lines := term.lines(); code != exitFailed || len(lines) != 1 || !strings.Contains(lines[0], want) {
			t.Errorf("exit code %d, said %q, want %q", code, lines, want)
		}
	}
	testserver.Until(t, "the first one is ready", func() bool { return r.readyz(t) == http.StatusOK })
}

// Case 40: a start with master keys that do not decrypt what is stored is refused with exit code 2, also on a
// database that has nothing stored yet but what the first start made.
func TestCase40ServeRefusesAWrongMasterKey(t *testing.T) {
	t.Parallel()
	s := testSettings(t)
	r := startServer(t, s)
	r.end(t)
	serve := func(keys string) (int, []string) {
		term := newTerminal()
		code := term.invoke("serve", "--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0", "--data-dir", s.DataDir, "--log-level=error", "--master-key="+keys)
		return code, term.lines()
	}
	code, lines := serve(someKey('w'))
	if code != exitUsage || len(lines) != 2 || !strings.Contains(lines[0], "which is not given") || strings.Contains(lines[0], someKey('w')) {
		t.Errorf("exit code %d, said %q", code, lines)
	}
	made, err := readSecretFile(filepath.Join(s.DataDir, masterKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	both := *s
	both.MasterKey = []string{someKey('w'), made}
	r = startServer(t, &both)
	term := newTerminal()
	if code := term.invoke("secrets", "reencrypt", "--server", r.cl.base, "--key", s.AdminKey); code != exitOK {
		t.Errorf("secrets reencrypt: exit code %d, %q", code, term.lines())
	}
	r.end(t)
	both.MasterKey = both.MasterKey[:1]
	startServer(t, &both)
}

// TestServeNeverSendsToItself: not by address and not by name, though egress_allow has the address.
func TestServeNeverSendsToItself(t *testing.T) {
	t.Parallel()
	r := startServer(t, testSettings(t))
	for name, listener := range map[string]net.Addr{"public": r.web.Addr(), "ops": r.web.OpsAddr()} {
		url := "http://" + listener.String() + "/readyz"
		submission := map[string]any{"url": url, "payload": 1, "policy": "none"}
		_, err := r.cl.call(t.Context(), http.MethodPost, "/v1/callbacks", submission, nil)
		refused, ok := errors.AsType[*apiError](err)
		if !ok || refused.Status != 422 || !strings.Contains(err.Error(), "never sends to itself") {
			t.Errorf("%s: the address is answered with %v", name, err)
		}
		submission["url"] = strings.Replace(url, "127.0.0.1", "localhost", 1)
		var cb shownCallback
		r.call(t, http.MethodPost, "/v1/callbacks", submission, &cb)
		testserver.Until(t, "the attempt by name ends", func() bool { return r.state(t, cb.ID) == "dead" })
		if class := r.callback(t, cb.ID).LastClass; class != "blocked" {
			t.Errorf("%s: the attempt by name is %s", name, class)
		}
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
		term.ends(t, step.code, append(step.args, "--data-dir", dir)...)
		says(t, term.stdout.String()+term.stderr.String(), step.want)
	}
}

func TestADatabaseOfAnotherSchemaIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	newTerminal().ends(t, exitOK, "migrate", "--data-dir", dir)
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
	receiver := answering(t, http.StatusServiceUnavailable, "")
	s := testSettings(t)
	r := startServer(t, s)
	do := func(want string, args ...string) string {
		t.Helper()
		term := newTerminal()
		// The key is found in the data directory.
		term.ends(t, exitOK, append(args, "--server", r.cl.base, "--data-dir", s.DataDir)...)
		says(t, term.stdout.String(), want)
		return term.stdout.String()
	}
	sent := do("accepted", "callback", "send", "--url", receiver, "--data", `{"paid": 1}`, "--ref", "order-7", "--tiers", "1h,2h",
		"-H", "X-Shop: 7", "--label", "a=b")
	id, _, _ := strings.Cut(sent, " ")
	testserver.Until(t, "the first attempt has failed", func() bool {
		cb := r.callback(t, id)
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
}

func TestTheHeapMayGrowMoreWhileItIsSmall(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{0: 1000, 1 << 20: 1000, 16 << 20: 400, 64 << 20: 100, 1 << 30: 100} {
		if got := collectorPercent(live); got != want {
			t.Errorf("with %d bytes alive the heap may grow by %d %%, want %d", live, got, want)
		}
	}
}

// The API and the sign-in count wrong keys together: else a guesser would have both.
func TestBothFacesCountWrongKeysTogether(t *testing.T) {
	t.Parallel()
	r := startServer(t, testSettings(t))
	base := "http://" + r.web.Addr().String()
	signIn := func(key string) int {
		t.Helper()
		client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
		res, err := client.PostForm(base+"/ui/sign-in", url.Values{"key": {key}})
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
		return res.StatusCode
	}
	for i := range 100 {
		req, err := http.NewRequest(http.MethodGet, base+"/v1/callbacks", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", fmt.Sprint("Bearer dk_", i, "_guess"))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	// One of them may be told on a slow machine.
	statuses := []int{signIn("guess"), signIn("guess"), signIn("guess")}
	if !slices.Contains(statuses, http.StatusTooManyRequests) {
		t.Errorf("wrong keys at the sign-in after those at the API: %d", statuses)
	}
	if status := signIn(r.s.AdminKey); status != http.StatusSeeOther {
		t.Errorf("the right key: %d", status)
	}
	r.counters(t) // and the API takes it
}

// TestClearTextIsWarnedOf: keys and sessions that cross a network without https.
func TestClearTextIsWarnedOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want int
	}{
		"loopback":              {nil, 0},
		"all addresses":         {[]string{"--listen=0.0.0.0:0"}, 1},
		"all, with http":        {[]string{"--listen=0.0.0.0:0", "--public-url=http://pay.example"}, 1},
		"all, behind a proxy":   {[]string{"--listen=0.0.0.0:0", "--public-url=https://pay.example"}, 0},
		"loopback, with a name": {[]string{"--public-url=http://pay.example"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			term := newTerminal()
			s := testSettings(t, append(c.args, "--log-level=warn", "--log-format=json")...)
			srv, err := openServer(t.Context(), &term.console, s, newLogger(&term.console, s))
			if err != nil {
				t.Fatal(err)
			}
			srv.announce()
			if err := errors.Join(srv.web.ClosePublic(), srv.close()); err != nil {
				t.Error(err)
			}
			if got := strings.Count(term.stderr.String(), "in clear"); got != c.want {
				t.Errorf("%d warnings, want %d: %s", got, c.want, term.stderr.String())
			}
			if c.want > 0 && !strings.Contains(term.stderr.String(), "public_url") {
				t.Errorf("it does not say what to do: %s", term.stderr.String())
			}
		})
	}
}
