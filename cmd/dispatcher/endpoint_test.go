package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
)

// answering is a server that gives everything the same answer.
func answering(t *testing.T, status int, answer string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		if _, err := io.WriteString(w, answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

const (
	endpointID  = "ep_01JD7Q2Z3K4M5N6P7R8S9TABCD"
	oneEndpoint = `{"id":"` + endpointID + `","external_id":"merchant/7","name":"Tea \u001b shop","url":"https://shop.example/notify","url_override":"deny",
 "topics":["payment.*"],"policy":{"tiers":["1s"]},"success":"body-success","signer":null,"headers":{"X-Shop":"7","X-Key":"***"},"rate":"50/s","concurrency":8,
 "enabled":true,"disabled_reason":null,"paused":false,"paused_until":null,"pause_reason":null,"lane":"` + endpointID + `","failing_since":null,
 "last_success_at":"2026-11-21T10:00:00.000Z","last_failure_at":null,"created_at":"2026-11-21T10:00:00.000Z","updated_at":"2026-11-21T10:00:00.000Z"}`
)

// endpointServer knows one endpoint, by both of its names.
func endpointServer(t *testing.T, more map[string]string) (address string, requests func() []recordedRequest) {
	answers := map[string]string{
		"GET /v1/endpoints/by-external-id/merchant/7": oneEndpoint, "GET /v1/endpoints/" + endpointID: oneEndpoint,
		"PATCH /v1/endpoints/" + endpointID: oneEndpoint, "DELETE /v1/endpoints/" + endpointID: "",
	}
	for call, answer := range more {
		answers[call] = answer
	}
	return fakeServer(t, answers)
}

// with returns a JSON object with members of another one in place of its own.
func with(t *testing.T, object, members string) string {
	t.Helper()
	var m map[string]json.RawMessage
	for _, text := range []string{object, members} {
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEndpointCreate(t *testing.T) {
	t.Parallel()
	secret := writeFile(t, "secret", "user:hunter22\n")
	address, requests := fakeServer(t, map[string]string{"POST /v1/endpoints": with(t, oneEndpoint, `{"secret":"user:hunter22"}`)})
	term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
	code := term.invoke("endpoint", "create", "https://shop.example/notify", "--external-id", "merchant/7", "--name", "Tea shop", "--topic", "payment.*,refund.*", "--topic", "x",
		"--policy", `{"tiers": ["1s"]}`, "--success", "body-success", "--signer", "basic", "--profile", "standard", "--rate", "50/s", "--concurrency", "8",
		"--url-override", "any", "-H", "X-Shop: 7", "-H", "X-Key: a, b", "--secret", "@"+secret, "--secret-label", "l", "--disable", "--reason", "new")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	if got := term.stdout.String(); !strings.HasPrefix(got, endpointID+"  merchant/7  made\n") || !strings.HasSuffix(got, "\nuser:hunter22\n") {
		t.Errorf("said %s", got)
	}
	want := `{"concurrency":8,"enabled":false,"external_id":"merchant/7","headers":{"X-Key":"a, b","X-Shop":"7"},"name":"Tea shop",` +
		`"policy":{"tiers":["1s"]},"profile":"standard","rate":"50/s","reason":"new","secret":"user:hunter22","secret_label":"l","signer":"basic",` +
		`"success":"body-success","topics":["payment.*","refund.*","x"],"url":"https://shop.example/notify","url_override":"any"}`
	if got := bodyOfRequest(t, requests()[0]); got != want {
		t.Errorf("sent %s\nwant %s", got, want)
	}
}

// Of a key pair the receiver's part is the public key; the private one is not printed.
func TestEndpointCreateKeepsThePrivateKey(t *testing.T) {
	t.Parallel()
	for _, use := range []string{outbound.UseEd25519, outbound.UseRSA} {
		key := signingKey(t, use, 0)
		written, err := json.Marshal(outbound.FormatSecretFor(use, key))
		if err != nil {
			t.Fatal(err)
		}
		address, _ := fakeServer(t, map[string]string{"POST /v1/endpoints": with(t, oneEndpoint, `{"secret":`+string(written)+`}`)})
		term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
		if code := term.invoke("endpoint", "create", "https://shop.example/"); code != exitOK {
			t.Fatalf("exit code %d: %s", code, term.stderr.String())
		}
		got := term.stdout.String()
		if !strings.HasSuffix(strings.TrimSpace(got), strings.TrimSpace(receiversForm(t, use, key))) || strings.Contains(got, "PRIVATE") || strings.Contains(got, "whsk_") {
			t.Errorf("%s: said %s", use, got)
		}
	}
}

func TestEndpointList(t *testing.T) {
	t.Parallel()
	states := map[string]string{
		`{"enabled":false,"disabled_reason":"gone"}`: "disabled: gone",
		`{"paused":true}`: "paused ",
		`{"paused":true,"paused_until":"2099-01-01T00:00:00.000Z"}`:                      "paused for ",
		`{"failing_since":"2026-11-21T10:00:00.000Z"}`:                                   "failing since ",
		`{"last_success_at":null}`:                                                       "not sent to yet",
		`{"last_success_at":"2026-11-21T10:00:00.000Z","headers":{},"concurrency":null}`: "ok, ",
	}
	for change, want := range states {
		address, requests := fakeServer(t, map[string]string{"GET /v1/endpoints": `{"data":[` + with(t, oneEndpoint, change) + `],"next_cursor":null}`})
		term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
		if code := term.invoke("endpoint", "list", "--search", "tea", "--topic", "t", "--held", "--failing"); code != exitOK {
			t.Fatalf("exit code %d: %s", code, term.stderr.String())
		}
		if got := term.stdout.String(); !strings.Contains(got, want) || !strings.Contains(got, `Tea \x1b shop`) {
			t.Errorf("does not show %q:\n%s", want, got)
		}
		if got := requests()[0].uri; got != "/v1/endpoints?failing=true&held=true&limit=50&search=tea&topic=t" {
			t.Errorf("asked for %s", got)
		}
	}
}

// Each command takes an endpoint's id, or looks one up by its external id first.
func TestEndpointsAreNamedEitherWay(t *testing.T) {
	t.Parallel()
	const one = "/v1/endpoints/" + endpointID
	paused := with(t, oneEndpoint, `{"paused":true,"paused_until":"2099-01-01T00:00:00.000Z","pause_reason":"r"}`)
	address, requests := endpointServer(t, map[string]string{
		"POST " + one + "/pause": paused, "POST " + one + "/resume": oneEndpoint, "POST " + one + "/test": oneCallback,
		"GET " + one + "/secret":         `{"use":"ed25519","secret":"whsk_private","public":"whpk_public"}`,
		"POST " + one + "/rotate_secret": `{"use":"hmac","secret":"whsec_new","public":null,"previous_signs_until":"2099-01-01T00:00:00.000Z"}`,
	})
	for _, tc := range []struct {
		args           []string
		says, whispers string
		call, body     string
	}{
		{[]string{"get"}, `header       X-Key: ***`, "", "", ""},
		{[]string{"get", "--json"}, `"external_id": "merchant/7"`, "", "", ""},
		{[]string{"set", "--url", "https://h/", "--clear", "policy,topic", "--clear", "external_id", "--enable", "-H", "A: b", "--reason", "r"}, "changed", "", "PATCH " + one,
			`{"enabled":true,"external_id":null,"headers":{"A":"b"},"policy":null,"reason":"r","topics":null,"url":"https://h/"}`},
		{[]string{"delete", "--reason", "r"}, "is removed", "", "DELETE " + one, `{"reason":"r"}`},
		{[]string{"pause", "--for", "1h", "--reason", "r"}, "is paused until 2099-01-01", "", "POST " + one + "/pause", `{"for":"1h","reason":"r"}`},
		{[]string{"resume"}, "goes on", "", "POST " + one + "/resume", "null"},
		{[]string{"test"}, "is attempted once", "", "POST " + one + "/test", "null"},
		{[]string{"secret"}, "whpk_public\n", "", "GET " + one + "/secret", "null"},
		{[]string{"secret", "--private"}, "whsk_private\n", "", "GET " + one + "/secret", "null"},
		{[]string{"rotate-secret", "--secret", "s", "--label", "l", "--overlap", "1h"}, "whsec_new\n", "has a new secret; where the signer has room for two, the old one signs beside it until 2099", "POST " + one + "/rotate_secret",
			`{"label":"l","overlap":"1h","secret":"s"}`},
	} {
		for _, name := range []string{endpointID, "merchant/7"} {
			term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
			args := append([]string{"endpoint", tc.args[0], name}, tc.args[1:]...)
			if code := term.invoke(args...); code != exitOK {
				t.Fatalf("%v: exit code %d: %s", args, code, term.stderr.String())
			}
			if !strings.Contains(term.stdout.String(), tc.says) || !strings.Contains(term.stderr.String(), tc.whispers) {
				t.Errorf("%v says %s\nand %s", args, term.stdout.String(), term.stderr.String())
			}
			got := requests()
			if name != endpointID && got[0].uri != "/v1/endpoints/by-external-id/merchant%2F7" {
				t.Errorf("%v asked for %s", args, got[0].uri)
			}
			last := got[len(got)-1]
			if tc.call != "" && (last.method+" "+last.uri != tc.call || bodyOfRequest(t, last) != tc.body) {
				t.Errorf("%v made %s %s with %s", args, last.method, last.uri, bodyOfRequest(t, last))
			}
		}
		term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
		if code := term.invoke(append([]string{"endpoint", tc.args[0], "merchant/8"}, tc.args[1:]...)...); code != exitFailed {
			t.Errorf("%v of one that is not there: exit code %d", tc.args, code)
		}
		if lines := term.lines(); len(lines) != 1 || lines[0] != `dispatcher: no endpoint has the id or external id "merchant/8" (404 not_found)` {
			t.Errorf("said %q", lines)
		}
		requests()
	}
}

// Resuming does not enable what its receiver has disabled by 410: that is said, with what does.
func TestEndpointResumeSaysThatItIsDisabled(t *testing.T) {
	t.Parallel()
	address, _ := endpointServer(t, map[string]string{"POST /v1/endpoints/" + endpointID + "/resume": with(t, oneEndpoint, `{"enabled":false,"disabled_reason":"gone"}`)})
	term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
	if code := term.invoke("endpoint", "resume", endpointID); code != exitOK || !strings.Contains(term.stdout.String(), "disabled (gone)") || !strings.Contains(term.stdout.String(), "--enable") {
		t.Errorf("exit code %d: %s", code, term.stdout.String())
	}
}
