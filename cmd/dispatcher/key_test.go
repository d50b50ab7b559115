package main

import (
	"encoding/json"
	"strings"
	"testing"
)

const oneKey = `{"id":"key_01JD7Q2Z3K4M5N6P7R8S9TABCD","project":"shop","name":"check\u001bout","scopes":["send","read"],
 "hint":"Qk3w","created_at":"2026-11-21T10:00:00.000Z","expires_at":"2099-02-19T10:00:00.000Z","revoked_at":null,
 "last_used_at":null}`

// The key alone goes to the standard output, so that a variable can keep it.
func TestKeyCreate(t *testing.T) {
	t.Parallel()
	address, requests := fakeServer(t, map[string]string{"POST /v1/keys": with(t, oneKey, `{"key":"dk_abc"}`)})
	args := strings.Fields("key create checkout --scope send --scope read --expires-in 90d --project shop")
	term := at(address, "DISPATCHER_PROJECT=other")
	if code := term.invoke(args...); code != exitOK || term.stdout.String() != "dk_abc\n" {
		t.Fatalf("exit code %d, prints %q: %s", code, term.stdout.String(), term.stderr.String())
	}
	says(t, term.stderr.String(), "key_01JD7Q2Z3K4M5N6P7R8S9TABCD", `check\x1bout`, "project shop", "send, read", "ends 2099-02-19",
		"the only time that the key is shown")
	got, want := requests(), `{"expires_in":"90d","name":"checkout","scopes":["send","read"]}`
	if len(got) != 1 || got[0].project != "shop" || got[0].bodyText(t) != want {
		t.Errorf("made %+v", got)
	}
	term = at(address)
	if code := term.invoke(append(args, "--json")...); code != exitOK || !json.Valid(term.stdout.Bytes()) {
		t.Errorf("exit code %d: %s", code, term.stdout.String())
	}
	says(t, term.stdout.String(), `"dk_abc"`)
}

func TestKeyListAndRevoke(t *testing.T) {
	t.Parallel()
	revoked := with(t, oneKey, `{"revoked_at":"2026-11-21T12:00:00.000Z"}`)
	address, requests := fakeServer(t, map[string]string{
		"GET /v1/keys": listOf(oneKey, with(t, oneKey, `{"expires_at":"2026-11-21T11:00:00.000Z"}`), revoked,
			with(t, oneKey, `{"expires_at":null}`)),
		"DELETE /v1/keys/key_01JD7Q2Z3K4M5N6P7R8S9TABCD": revoked,
	})
	term := at(address, "DISPATCHER_PROJECT=shop")
	term.ends(t, exitOK, "key", "list")
	lines := strings.Split(strings.TrimSpace(term.stdout.String()), "\n")
	for i, want := range []string{"valid until 2099", "ended ", "revoked ", "valid"} {
		says(t, lines[len(lines)-4+i], want, "…Qk3w", "never")
	}
	code := term.invoke("key", "revoke", "key_01JD7Q2Z3K4M5N6P7R8S9TABCD", "--reason", "left")
	if code != exitOK || !strings.Contains(term.stdout.String(), "is revoked") {
		t.Errorf("exit code %d: %s", code, term.stdout.String())
	}
	code = term.invoke("key", "revoke", "key_1")
	want := `dispatcher: no key of the project has the id "key_1" (404 not_found); it was looked for in the project "shop", ` +
		`which may not exist, or not for this key`
	if lines := term.lines(); code != exitFailed || len(lines) != 1 || lines[0] != want {
		t.Errorf("exit code %d, said %q", code, lines)
	}
	got := requests()
	if len(got) != 3 || got[0].uri != "/v1/keys?limit=50" || got[0].project != "shop" ||
		got[1].bodyText(t) != `{"reason":"left"}` || got[2].body != nil {
		t.Errorf("made %+v", got)
	}
}

func TestProjectCommands(t *testing.T) {
	t.Parallel()
	const one = `{"id":"shop-cn","name":"Shops","policy":"payment","success":{"status":[200]},"signer":null,"headers":{},
 "quotas":{"open_callbacks":1000,"lanes":null},
 "paused":true,"paused_until":null,"pause_reason":"holiday","created_at":"2026-11-21T10:00:00.000Z",
 "updated_at":"2026-11-21T10:00:00.000Z"}`
	exchanges(t, map[string]string{
		"POST /v1/projects": one, "GET /v1/projects": listOf(one), "PATCH /v1/projects/shop-cn": one,
	}, exchange{
		line: `project create shop-cn --name Shops --policy payment --success {"status":[200]} --reason r -H`, args: []string{"X-A: b"},
		says: []string{"shop-cn  made", "--project shop-cn"}, call: "POST /v1/projects",
		body: `{"headers":{"X-A":"b"},"id":"shop-cn","name":"Shops","policy":"payment","reason":"r","success":{"status":[200]}}`,
	}, exchange{
		line: "project list", says: []string{"shop-cn", "paused until it is resumed: holiday", `{"status":[200]}`,
			"1000 open callbacks"},
		call: "GET /v1/projects?limit=50",
	}, exchange{
		line: "project set shop-cn --signer none --clear policy,header", says: []string{"changed"},
		call: "PATCH /v1/projects/shop-cn", body: `{"headers":null,"policy":null,"signer":"none"}`,
	}, exchange{
		line: "project set shop-cn --max-open 1000 --max-lanes 0", says: []string{"changed"},
		call: "PATCH /v1/projects/shop-cn", body: `{"quotas":{"lanes":0,"open_callbacks":1000}}`,
	}, exchange{
		line: "project set nope --name n", code: exitFailed,
		warns: []string{"dispatcher: there is no project \"nope\" (404 not_found)\n"},
	})
}
