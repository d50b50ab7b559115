package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// program is a program with the commands of this package.
var program = cmdtest.Program(func() any {
	c := &struct {
		Commands
		Relay RelayCommands `cmd:""`
	}{}
	c.Healthcheck.Flags = config.OpsFlags()
	return c
})

func TestMain(m *testing.M) { program.RunTests(m) }

func TestTranscripts(t *testing.T) { program.Transcripts(t, "DISPATCHER_KEY=k") }

// TestEndpointCreateShowsThePublicKey checks that the private key of a key pair is not printed.
func TestEndpointCreateShowsThePublicKey(t *testing.T) {
	t.Parallel()
	for _, use := range []string{sign.UseEd25519, sign.UseRSA} {
		key := signtest.Secret(t, use, 0)
		answer, err := json.Marshal(map[string]string{"id": "ep_1", "secret": sign.FormatSecretFor(use, key)})
		if err != nil {
			t.Fatal(err)
		}
		term := program.At(cmdtest.ServeResponse(t, http.StatusOK, string(answer)))
		term.Ends(t, console.ExitOK, "endpoint", "create", "https://shop.example/")
		got := strings.TrimSpace(term.Stdout.String())
		public := strings.TrimSpace(cmdtest.ReceiverKey(t, use, key))
		if !strings.HasSuffix(got, public) || strings.Contains(got, "PRIVATE") ||
			strings.Contains(got, "whsk_") {
			t.Errorf("%s: printed %s", use, got)
		}
	}
}

// TestHealthcheckTimesOut checks that a server that does not respond fails the check after three seconds.
func TestHealthcheckTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		term := program.Terminal()
		term.Transport = silent{}
		code := term.InvokeUntil(t.Context(), "healthcheck")
		want := "dispatcher: healthcheck: http://127.0.0.1:8081/healthz: no response within 3s\n"
		got := term.Stderr.String()
		if code != console.ExitFailed || got != want || time.Since(began) != 3*time.Second {
			t.Errorf("exit code %d, printed %q after %s", code, got, time.Since(began))
		}
	})
}

// silent is a transport that never gets a response.
type silent struct{}

// RoundTrip implements http.RoundTripper.
func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestRebuildShowsProgress checks the lines and the bar of a long rebuild: the bar has a total, which the
// command counts by a dry run.
func TestRebuildShowsProgress(t *testing.T) {
	t.Parallel()
	for _, drawn := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			term := program.Terminal("DISPATCHER_KEY=k")
			term.ErrTerminal = drawn
			began := time.Now()
			term.Transport = testserver.InProcess{Handler: http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					var in client.RebuildRequest
					switch {
					case r.URL.Path == "/v1/stats":
						cmdtest.Respond(t, w, fmt.Sprintf(`{"index":{"delayed":%d,"ready":1,"leased":2}}`,
							int(time.Since(began).Seconds())))
					case json.NewDecoder(r.Body).Decode(&in) == nil && in.DryRun:
						cmdtest.Respond(t, w, `{"dry_run":true,"open":50,"took":"1s"}`)
					default:
						time.Sleep(25 * time.Second) // virtual
						cmdtest.Respond(t, w, `{"open":50,"took":"25s","generation":3}`)
					}
				})}
			if code := term.InvokeUntil(t.Context(), "rebuild", "--json"); code != console.ExitOK {
				t.Fatalf("exit code %d: %s", code, term.Stderr.String())
			}
			if !json.Valid(term.Stdout.Bytes()) {
				t.Errorf("the output is not JSON: %s", term.Stdout.String())
			}
			got := term.Stderr.String()
			if !drawn && got != "13 callbacks after 10s\n23 callbacks after 20s\n" {
				t.Errorf("printed %q", got)
			}
			if drawn && (!strings.Contains(got, "46.00%") || !strings.Contains(got, "done!")) {
				t.Errorf("drew %q", got)
			}
		})
	}
}

// TestRelayDDL checks that each flag of the command reaches the statements.
func TestRelayDDL(t *testing.T) {
	t.Parallel()
	for dialect, options := range map[source.Dialect]source.DDLOptions{
		source.Postgres: {Table: "pay.outbox", Keep: true, Grant: "relay"},
		source.MySQL:    {Table: source.DefaultTable},
	} {
		args := []string{"relay", "ddl", "--dialect", string(dialect)}
		if options.Keep {
			args = append(args, "--table", options.Table, "--keep", "--grant", options.Grant)
		}
		want, err := source.DDL(dialect, options)
		if err != nil {
			t.Fatal(err)
		}
		term := program.Terminal()
		term.Ends(t, console.ExitOK, args...)
		if got := term.Stdout.String(); got != want || got == "" {
			t.Errorf("%s: printed %s, want %s", dialect, got, want)
		}
	}
}

// TestStopAsksOnATerminal checks that stop and start change nothing unless a person says yes, and that a
// script is not asked.
func TestStopAsksOnATerminal(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		answer   string
		terminal bool
		flags    []string
		sent     int
	}{
		{"y\n", true, nil, 1},
		{" Yes \n", true, nil, 1},
		{"n\n", true, nil, 0},
		{"\n", true, nil, 0},
		{"", true, nil, 0},
		{"yes, but not now\n", true, nil, 0},
		{"", true, []string{"--yes"}, 1},
		{"", false, nil, 1},
	} {
		for _, command := range []string{"stop", "start"} {
			sent := 0
			term := program.Terminal("DISPATCHER_KEY=k")
			term.In = strings.NewReader(tc.answer)
			term.InTerminal, term.ErrTerminal = tc.terminal, tc.terminal
			term.Transport = testserver.InProcess{Handler: http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) {
					sent++
					cmdtest.Respond(t, w, `{"stopped":false}`)
				})}
			args := append([]string{command, "--reason", "r"}, tc.flags...)
			code := term.InvokeUntil(t.Context(), args...)
			if sent != tc.sent || (code == console.ExitOK) != (tc.sent == 1) {
				t.Errorf("%s, answer %q, terminal %t, flags %v: %d requests, exit code %d: %s", command,
					tc.answer, tc.terminal, tc.flags, sent, code, term.Stderr.String())
			}
		}
	}
}

// TestCSVPages checks that a list of several pages is one CSV with one header.
func TestCSVPages(t *testing.T) {
	t.Parallel()
	address := cmdtest.ServeHandler(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("cursor") {
		case "":
			w.Header().Set("Link", `</v1/callbacks?cursor=a%2Bb&format=csv>; rel="next"`)
			cmdtest.Respond(t, w, "id\ncb_1\ncb_2\n")
		case "a+b":
			w.Header().Set("Link", `</v1/callbacks?cursor=c&format=csv>; rel="next"`)
			cmdtest.Respond(t, w, "id\ncb_3\n")
		default:
			cmdtest.Respond(t, w, "id\ncb_4\n")
		}
	})
	for limit, want := range map[string]struct{ rows, more string }{
		"9": {"id\ncb_1\ncb_2\ncb_3\ncb_4\n", ""},
		"3": {"id\ncb_1\ncb_2\ncb_3\n", "more: --cursor c\n"},
	} {
		term := program.At(address)
		term.Ends(t, console.ExitOK, "callback", "list", "--csv", "--limit", limit)
		if got := term.Stdout.String(); got != want.rows || term.Stderr.String() != want.more {
			t.Errorf("--limit %s: printed %q and %q", limit, got, term.Stderr.String())
		}
	}
}

// TestUnreachableServers checks the errors of the network. A redirect is not followed, because it would carry
// the key to another server.
func TestUnreachableServers(t *testing.T) {
	t.Parallel()
	redirected := cmdtest.ServeHandler(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			t.Error("followed the redirect")
		}
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	})
	refused := cmdtest.ServeResponse(t, 401, `{"title":"Unauthorized","status":401,"code":"unauthorized"}`)
	file := cmdtest.WriteFile(t, "key", "k\n")
	for _, tc := range []struct{ address, env, want string }{
		{"http://127.0.0.1:1", "DISPATCHER_KEY=k",
			`no server listens at http://127.0.0.1:1; is "dispatcher serve" running there?`},
		{redirected, "DISPATCHER_KEY=k", "the response is not from a dispatcher: Found (302)"},
		{refused, "DISPATCHER_KEY_FILE=" + file,
			refused + " refuses the API key from " + file +
				": it is unknown, expired or revoked (401 unauthorized)"},
	} {
		term := program.Terminal(tc.env)
		term.Ends(t, console.ExitFailed, "key", "list", "--server", tc.address)
		if got := term.Stderr.String(); got != "dispatcher: "+tc.want+"\n" {
			t.Errorf("%s: printed %q", tc.address, got)
		}
	}
}
