package main

import (
	"strings"
	"testing"
)

func TestProjects(t *testing.T) {
	t.Parallel()
	const one = `{"id":"shop-cn","name":"Shops","policy":"payment","success":{"status":[200]},"signer":null,"headers":{},"paused":true,"paused_until":null,
 "pause_reason":"holiday","created_at":"2026-11-21T10:00:00.000Z","updated_at":"2026-11-21T10:00:00.000Z"}`
	address, requests := fakeServer(t, map[string]string{
		"POST /v1/projects": one, "GET /v1/projects": `{"data":[` + one + `],"next_cursor":null}`, "PATCH /v1/projects/shop-cn": one,
	})
	for _, tc := range []struct {
		args []string
		says []string
		body string
	}{
		{[]string{"create", "shop-cn", "--name", "Shops", "--policy", "payment", "--success", `{"status":[200]}`, "-H", "X-A: b", "--reason", "r"}, []string{"shop-cn  made", "--project shop-cn"},
			`{"headers":{"X-A":"b"},"id":"shop-cn","name":"Shops","policy":"payment","reason":"r","success":{"status":[200]}}`},
		{[]string{"list"}, []string{"shop-cn", "paused until it is resumed: holiday", `{"status":[200]}`}, "null"},
		{[]string{"set", "shop-cn", "--signer", "none", "--clear", "policy,header"}, []string{"changed"}, `{"headers":null,"policy":null,"signer":"none"}`},
	} {
		term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
		if code := term.invoke(append([]string{"project"}, tc.args...)...); code != exitOK {
			t.Fatalf("%v: exit code %d: %s", tc.args, code, term.stderr.String())
		}
		for _, want := range tc.says {
			if !strings.Contains(term.stdout.String(), want) {
				t.Errorf("%v does not say %q:\n%s", tc.args, want, term.stdout.String())
			}
		}
		if got := bodyOfRequest(t, requests()[0]); got != tc.body {
			t.Errorf("%v sent %s", tc.args, got)
		}
	}
	term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
	if code := term.invoke("project", "set", "nope", "--name", "n"); code != exitFailed || term.stderr.String() != "dispatcher: there is no project \"nope\" (404 not_found)\n" {
		t.Errorf("exit code %d: %s", code, term.stderr.String())
	}
}
