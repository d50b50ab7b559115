package app_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// TestRolesOnPostgresAndRedis accepts with one process and sends with another.
func TestRolesOnPostgresAndRedis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real Redis")
	}
	receiver := cmdtest.ServeResponse(t, http.StatusOK, "")
	args := slices.Concat(cmdtest.BothKeys(), apptest.OwnIndex(t),
		[]string{"--database-url=" + apptest.Migrated(t)})
	front := apptest.Start(t, apptest.Settings(t, append(args, "--roles=api")...))
	worker := apptest.Start(t, apptest.Settings(t, append(args, "--roles=worker")...))
	if worker.Web.Addr() != nil {
		t.Error("a process without the role api listens on its address")
	}
	id := front.Send(t, receiver)
	testserver.Until(t, "it is sent by the other process", func() bool {
		return front.State(t, id) == "succeeded"
	})
	var drift struct {
		Clean bool `json:"clean"`
	}
	front.Call(t, http.MethodPost, "/v1/index/verify", nil, &drift)
	if !drift.Clean {
		t.Errorf("verify reports %+v", drift)
	}
}

func TestStartErrorsHaveOneLine(t *testing.T) {
	t.Parallel()
	r := apptest.Start(t, apptest.Settings(t))
	for want, args := range map[string][]string{
		"another dispatcher runs with the embedded index": {"--listen=127.0.0.1:0", "--data-dir",
			r.Settings.DataDir},
		"is in use; stop the program that listens there": {"--listen", r.Web.Addr().String(), "--data-dir",
			t.TempDir(),
			"--log-level=error"},
	} {
		term := program.Terminal()
		code := term.Invoke(append([]string{"serve", "--ops-listen=127.0.0.1:0"}, args...)...)
		if lines := term.Lines(); code != console.ExitFailed || len(lines) != 1 ||
			!strings.Contains(lines[0], want) {
			t.Errorf("exit code %d, printed %q, want %q", code, lines, want)
		}
	}
	testserver.Until(t, "the first one is ready", func() bool { return r.Readyz(t) == http.StatusOK })
}

// TestServeNeverSendsToItself sends to the dispatcher's own listeners by address and by name, although
// egress_allow has the address.
func TestServeNeverSendsToItself(t *testing.T) {
	t.Parallel()
	r := apptest.Start(t, apptest.Settings(t))
	for name, listener := range map[string]net.Addr{"public": r.Web.Addr(), "ops": r.Web.OpsAddr()} {
		url := "http://" + listener.String() + "/readyz"
		submission := map[string]any{"url": url, "payload": 1, "policy": "none"}
		_, err := r.Client.Call(t.Context(), http.MethodPost, "/v1/callbacks", submission, nil)
		refused, ok := errors.AsType[*client.Error](err)
		if !ok || refused.Status != 422 || !strings.Contains(err.Error(), "never sends to itself") {
			t.Errorf("%s: the request with the address got %v", name, err)
		}
		submission["url"] = strings.Replace(url, "127.0.0.1", "localhost", 1)
		var cb client.Callback
		r.Call(t, http.MethodPost, "/v1/callbacks", submission, &cb)
		testserver.Until(t, "the attempt by name ends", func() bool { return r.State(t, cb.ID) == "dead" })
		if class := r.Callback(t, cb.ID).LastClass; class != "blocked" {
			t.Errorf("%s: the attempt by name is %s", name, class)
		}
	}
}

// TestAPIAndSignInCountWrongKeysTogether prevents that a guesser gets both limits.
func TestAPIAndSignInCountWrongKeysTogether(t *testing.T) {
	t.Parallel()
	r := apptest.Start(t, apptest.Settings(t))
	signIn := func(key string) int {
		t.Helper()
		client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
		res, err := client.PostForm(r.Client.Base+"/ui/sign-in", url.Values{"key": {key}})
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
		return res.StatusCode
	}
	for i := range 100 {
		guesser, err := client.New(client.Options{
			URL: r.Client.Base, Key: fmt.Sprint("dk_", i, "_guess"), Retries: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := guesser.Stats(t.Context()); err == nil {
			t.Fatal("a guessed key was accepted")
		}
	}
	// On a slow machine the limit may allow one of these.
	statuses := []int{signIn("guess"), signIn("guess"), signIn("guess")}
	if !slices.Contains(statuses, http.StatusTooManyRequests) {
		t.Errorf("statuses of wrong keys at the sign-in, after wrong keys at the API: %d", statuses)
	}
	if status := signIn(r.Settings.AdminKey); status != http.StatusSeeOther {
		t.Errorf("status of the right key: %d", status)
	}
	r.Counters(t) // the API accepts the right key too
}

// TestUnencryptedListenWarns checks when the start warns that keys cross the network without https.
func TestUnencryptedListenWarns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		Args []string
		Want int
	}{
		"loopback":              {nil, 0},
		"all addresses":         {[]string{"--listen=0.0.0.0:0"}, 1},
		"all, with http":        {[]string{"--listen=0.0.0.0:0", "--public-url=http://pay.example"}, 1},
		"all, behind a proxy":   {[]string{"--listen=0.0.0.0:0", "--public-url=https://pay.example"}, 0},
		"loopback, with a name": {[]string{"--public-url=http://pay.example"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			term := program.Terminal()
			s := apptest.Settings(t, append(c.Args, "--log-level=warn", "--log-format=json")...)
			srv, err := app.New(t.Context(), &term.Console, s, app.NewLogger(&term.Console, s))
			if err != nil {
				t.Fatal(err)
			}
			srv.Announce()
			if err := errors.Join(srv.Web.ClosePublic(), srv.Close()); err != nil {
				t.Error(err)
			}
			if got := strings.Count(term.Stderr.String(), "unencrypted"); got != c.Want {
				t.Errorf("%d warnings, want %d: %s", got, c.Want, term.Stderr.String())
			}
			if c.Want > 0 && !strings.Contains(term.Stderr.String(), "public_url") {
				t.Errorf("the warning does not name public_url: %s", term.Stderr.String())
			}
		})
	}
}
