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

// One process accepts, another one sends.
func TestRolesOnPostgresAndRedis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real Redis")
	}
	receiver := cmdtest.Answering(t, http.StatusOK, "")
	args := slices.Concat(cmdtest.BothKeys(), apptest.OwnIndex(t),
		[]string{"--database-url=" + apptest.Migrated(t)})
	face := apptest.Start(t, apptest.Settings(t, append(args, "--roles=api")...))
	worker := apptest.Start(t, apptest.Settings(t, append(args, "--roles=worker")...))
	if worker.Web.Addr() != nil {
		t.Error("a process without the role api listens for it")
	}
	id := face.Send(t, receiver)
	testserver.Until(t, "it is sent by the other process", func() bool {
		return face.State(t, id) == "succeeded"
	})
	var drift struct {
		Clean bool `json:"clean"`
	}
	face.Call(t, http.MethodPost, "/v1/index/verify", nil, &drift)
	if !drift.Clean {
		t.Errorf("verify says %+v", drift)
	}
}

func TestServeThatCannotStartSaysSoInOneLine(t *testing.T) {
	t.Parallel()
	r := apptest.Start(t, apptest.Settings(t))
	for want, args := range map[string][]string{
		"another dispatcher runs with the embedded index": {"--listen=127.0.0.1:0", "--data-dir",
			r.Settings.DataDir},
		"address already in use": {"--listen", r.Web.Addr().String(), "--data-dir", t.TempDir(),
			"--log-level=error"},
	} {
		term := program.Terminal()
		code := term.Invoke(append([]string{"serve", "--ops-listen=127.0.0.1:0"}, args...)...)
		if lines := term.Lines(); code != console.ExitFailed || len(lines) != 1 ||
			!strings.Contains(lines[0], want) {
			t.Errorf("exit code %d, said %q, want %q", code, lines, want)
		}
	}
	testserver.Until(t, "the first one is ready", func() bool { return r.Readyz(t) == http.StatusOK })
}

// TestServeNeverSendsToItself: not by address and not by name, though egress_allow has the address.
func TestServeNeverSendsToItself(t *testing.T) {
	t.Parallel()
	r := apptest.Start(t, apptest.Settings(t))
	for name, listener := range map[string]net.Addr{"public": r.Web.Addr(), "ops": r.Web.OpsAddr()} {
		url := "http://" + listener.String() + "/readyz"
		submission := map[string]any{"url": url, "payload": 1, "policy": "none"}
		_, err := r.Client.Call(t.Context(), http.MethodPost, "/v1/callbacks", submission, nil)
		refused, ok := errors.AsType[*client.Error](err)
		if !ok || refused.Status != 422 || !strings.Contains(err.Error(), "never sends to itself") {
			t.Errorf("%s: the address is answered with %v", name, err)
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

// The API and the sign-in count wrong keys together: else a guesser would have both.
func TestBothFacesCountWrongKeysTogether(t *testing.T) {
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
		guesser, err := client.New(client.Options{URL: r.Client.Base, Key: fmt.Sprint("dk_", i, "_guess")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := guesser.Stats(t.Context()); err == nil {
			t.Fatal("a guessed key is taken")
		}
	}
	// One of them may be told on a slow machine.
	statuses := []int{signIn("guess"), signIn("guess"), signIn("guess")}
	if !slices.Contains(statuses, http.StatusTooManyRequests) {
		t.Errorf("wrong keys at the sign-in after those at the API: %d", statuses)
	}
	if status := signIn(r.Settings.AdminKey); status != http.StatusSeeOther {
		t.Errorf("the right key: %d", status)
	}
	r.Counters(t) // and the API takes it
}

// TestClearTextIsWarnedOf: keys and sessions that cross a network without https.
func TestClearTextIsWarnedOf(t *testing.T) {
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
			if got := strings.Count(term.Stderr.String(), "in clear"); got != c.Want {
				t.Errorf("%d warnings, want %d: %s", got, c.Want, term.Stderr.String())
			}
			if c.Want > 0 && !strings.Contains(term.Stderr.String(), "public_url") {
				t.Errorf("it does not say what to do: %s", term.Stderr.String())
			}
		})
	}
}
