package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

const oneKey = `{"id":"key_01JD7Q2Z3K4M5N6P7R8S9TABCD","project":"shop","name":"check\u001bout","scopes":["send","read"],
 "hint":"Qk3w","created_at":"2026-11-21T10:00:00.000Z","expires_at":"2099-02-19T10:00:00.000Z","revoked_at":null,
 "last_used_at":null}`

// The key alone goes to the standard output, so that a variable can keep it.
func TestKeyCreate(t *testing.T) {
	t.Parallel()
	address, requests := cmdtest.FakeServer(t, map[string]string{"POST /v1/keys": cmdtest.With(t, oneKey, `{"key":"dk_abc"}`)})
	args := strings.Fields("key create checkout --scope send --scope read --expires-in 90d --project shop")
	term := program.At(address, "DISPATCHER_PROJECT=other")
	if code := term.Invoke(args...); code != console.ExitOK || term.Stdout.String() != "dk_abc\n" {
		t.Fatalf("exit code %d, prints %q: %s", code, term.Stdout.String(), term.Stderr.String())
	}
	cmdtest.Says(t, term.Stderr.String(), "key_01JD7Q2Z3K4M5N6P7R8S9TABCD", `check\x1bout`, "project shop", "send, read", "ends 2099-02-19",
		"the only time that the key is shown")
	got, want := requests(), `{"expires_in":"90d","name":"checkout","scopes":["send","read"]}`
	if len(got) != 1 || got[0].Project != "shop" || got[0].BodyText(t) != want {
		t.Errorf("made %+v", got)
	}
	term = program.At(address)
	if code := term.Invoke(append(args, "--json")...); code != console.ExitOK || !json.Valid(term.Stdout.Bytes()) {
		t.Errorf("exit code %d: %s", code, term.Stdout.String())
	}
	cmdtest.Says(t, term.Stdout.String(), `"dk_abc"`)
}

func TestKeyListAndRevoke(t *testing.T) {
	t.Parallel()
	revoked := cmdtest.With(t, oneKey, `{"revoked_at":"2026-11-21T12:00:00.000Z"}`)
	address, requests := cmdtest.FakeServer(t, map[string]string{
		"GET /v1/keys": cmdtest.ListOf(oneKey, cmdtest.With(t, oneKey, `{"expires_at":"2026-11-21T11:00:00.000Z"}`), revoked,
			cmdtest.With(t, oneKey, `{"expires_at":null}`)),
		"DELETE /v1/keys/key_01JD7Q2Z3K4M5N6P7R8S9TABCD": revoked,
	})
	term := program.At(address, "DISPATCHER_PROJECT=shop")
	term.Ends(t, console.ExitOK, "key", "list")
	lines := strings.Split(strings.TrimSpace(term.Stdout.String()), "\n")
	for i, want := range []string{"valid until 2099", "ended ", "revoked ", "valid"} {
		cmdtest.Says(t, lines[len(lines)-4+i], want, "…Qk3w", "never")
	}
	code := term.Invoke("key", "revoke", "key_01JD7Q2Z3K4M5N6P7R8S9TABCD", "--reason", "left")
	if code != console.ExitOK || !strings.Contains(term.Stdout.String(), "is revoked") {
		t.Errorf("exit code %d: %s", code, term.Stdout.String())
	}
	code = term.Invoke("key", "revoke", "key_1")
	want := `dispatcher: no key of the project has the id "key_1" (404 not_found); it was looked for in the project "shop", ` +
		`which may not exist, or not for this key`
	if lines := term.Lines(); code != console.ExitFailed || len(lines) != 1 || lines[0] != want {
		t.Errorf("exit code %d, said %q", code, lines)
	}
	got := requests()
	if len(got) != 3 || got[0].URI != "/v1/keys?limit=50" || got[0].Project != "shop" ||
		got[1].BodyText(t) != `{"reason":"left"}` || got[2].Body != nil {
		t.Errorf("made %+v", got)
	}
}

func TestProjectCommands(t *testing.T) {
	t.Parallel()
	const one = `{"id":"shop-cn","name":"Shops","policy":"payment","success":{"status":[200]},"signer":null,"headers":{},
 "quotas":{"open_callbacks":1000,"lanes":null},
 "paused":true,"paused_until":null,"pause_reason":"holiday","created_at":"2026-11-21T10:00:00.000Z",
 "updated_at":"2026-11-21T10:00:00.000Z"}`
	program.Exchanges(t, map[string]string{
		"POST /v1/projects": one, "GET /v1/projects": cmdtest.ListOf(one), "PATCH /v1/projects/shop-cn": one,
	}, cmdtest.Exchange{
		Line: `project create shop-cn --name Shops --policy payment --success {"status":[200]} --reason r -H`, Args: []string{"X-A: b"},
		Says: []string{"shop-cn  made", "--project shop-cn"}, Call: "POST /v1/projects",
		Body: `{"headers":{"X-A":"b"},"id":"shop-cn","name":"Shops","policy":"payment","reason":"r","success":{"status":[200]}}`,
	}, cmdtest.Exchange{
		Line: "project list", Says: []string{"shop-cn", "paused until it is resumed: holiday", `{"status":[200]}`,
			"1000 open callbacks"},
		Call: "GET /v1/projects?limit=50",
	}, cmdtest.Exchange{
		Line: "project set shop-cn --signer none --clear policy,header", Says: []string{"changed"},
		Call: "PATCH /v1/projects/shop-cn", Body: `{"headers":null,"policy":null,"signer":"none"}`,
	}, cmdtest.Exchange{
		Line: "project set shop-cn --max-open 1000 --max-lanes 0", Says: []string{"changed"},
		Call: "PATCH /v1/projects/shop-cn", Body: `{"quotas":{"lanes":0,"open_callbacks":1000}}`,
	}, cmdtest.Exchange{
		Line: "project set nope --name n", Code: console.ExitFailed,
		Warns: []string{"dispatcher: there is no project \"nope\" (404 not_found)\n"},
	})
}
