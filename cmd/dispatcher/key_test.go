package main

import (
	"encoding/json"
	"strings"
	"testing"
)

const oneKey = `{"id":"key_01JD7Q2Z3K4M5N6P7R8S9TABCD","project":"shop","name":"check\u001bout","scopes":["send","read"],"hint":"Qk3w",
 "created_at":"2026-11-21T10:00:00.000Z","expires_at":"2099-02-19T10:00:00.000Z","revoked_at":null,"last_used_at":null}`

// bodyOfRequest is a recorded body as JSON with sorted names.
func bodyOfRequest(t *testing.T, r recordedRequest) string {
	t.Helper()
	text, err := json.Marshal(r.body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The key alone goes to the standard output, so that a variable can keep it.
func TestKeyCreate(t *testing.T) {
	t.Parallel()
	address, requests := fakeServer(t, map[string]string{"POST /v1/keys": strings.TrimSuffix(oneKey, "}") + `,"key":"dk_abc"}`})
	args := []string{"key", "create", "checkout", "--scope", "send", "--scope", "read", "--expires-in", "90d", "--server", address, "--key", "admin", "--project", "shop"}
	term := newTerminal("DISPATCHER_PROJECT=other")
	if code := term.invoke(args...); code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	if got := term.stdout.String(); got != "dk_abc\n" {
		t.Errorf("prints %q", got)
	}
	for _, want := range []string{"key_01JD7Q2Z3K4M5N6P7R8S9TABCD", `check\x1bout`, "project shop", "send, read", "ends 2099-02-19", "the only time that the key is shown"} {
		if !strings.Contains(term.stderr.String(), want) {
			t.Errorf("does not say %q: %s", want, term.stderr.String())
		}
	}
	got := requests()
	if len(got) != 1 || got[0].project != "shop" || bodyOfRequest(t, got[0]) != `{"expires_in":"90d","name":"checkout","scopes":["send","read"]}` {
		t.Errorf("made %+v", got)
	}
	term = newTerminal()
	if code := term.invoke(append(args, "--json")...); code != exitOK || !json.Valid(term.stdout.Bytes()) || !strings.Contains(term.stdout.String(), `"dk_abc"`) {
		t.Errorf("exit code %d: %s", code, term.stdout.String())
	}
}

func TestKeyListAndRevoke(t *testing.T) {
	t.Parallel()
	ended := strings.Replace(oneKey, `"2099-02-19T10:00:00.000Z"`, `"2026-11-21T11:00:00.000Z"`, 1)
	revoked := strings.Replace(oneKey, `"revoked_at":null`, `"revoked_at":"2026-11-21T12:00:00.000Z"`, 1)
	lasting := strings.Replace(oneKey, `"2099-02-19T10:00:00.000Z"`, `null`, 1)
	address, requests := fakeServer(t, map[string]string{
		"GET /v1/keys": `{"data":[` + strings.Join([]string{oneKey, ended, revoked, lasting}, ",") + `],"next_cursor":null}`,
		"DELETE /v1/keys/key_01JD7Q2Z3K4M5N6P7R8S9TABCD": revoked,
	})
	term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=admin", "DISPATCHER_PROJECT=shop")
	if code := term.invoke("key", "list"); code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	lines := strings.Split(strings.TrimSpace(term.stdout.String()), "\n")
	for i, want := range []string{"valid until 2099", "ended ", "revoked ", "valid"} {
		if line := lines[len(lines)-4+i]; !strings.Contains(line, want) || !strings.Contains(line, "…Qk3w") || !strings.Contains(line, "never") {
			t.Errorf("line %d is %q, without %q", i, line, want)
		}
	}
	if code := term.invoke("key", "revoke", "key_01JD7Q2Z3K4M5N6P7R8S9TABCD", "--reason", "left"); code != exitOK || !strings.Contains(term.stdout.String(), "is revoked") {
		t.Errorf("exit code %d: %s", code, term.stdout.String())
	}
	if code := term.invoke("key", "revoke", "key_1"); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	want := `dispatcher: no key of the project has the id "key_1" (404 not_found); it was looked for in the project "shop", which may not exist, or not for this key`
	if lines := term.lines(); len(lines) != 1 || lines[0] != want {
		t.Errorf("said %q", lines)
	}
	got := requests()
	if len(got) != 3 || got[0].uri != "/v1/keys?limit=50" || got[0].project != "shop" || bodyOfRequest(t, got[1]) != `{"reason":"left"}` || got[2].body != nil {
		t.Errorf("made %+v", got)
	}
}

// A key that the server does not know is told by where it is from: mostly it is another server's.
func TestAKeyThatIsNotKnown(t *testing.T) {
	t.Parallel()
	srv := answering(t, 401, `{"title":"Unauthorized","status":401,"detail":"the request needs a valid key","code":"unauthorized"}`)
	file := writeFile(t, "key", "k\n")
	for origin, term := range map[string]*terminal{"DISPATCHER_KEY": newTerminal("DISPATCHER_KEY=k"), file: newTerminal("DISPATCHER_KEY_FILE=" + file)} {
		code := term.invoke("key", "list", "--server", srv)
		want := "dispatcher: " + srv + " does not know this key, or it has ended; it is from " + origin + " (401 unauthorized)"
		if lines := term.lines(); code != exitFailed || len(lines) != 1 || lines[0] != want {
			t.Errorf("exit code %d, said %q, want %q", code, lines, want)
		}
	}
}
