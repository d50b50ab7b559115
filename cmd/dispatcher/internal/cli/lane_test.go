package cli

import (
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

func TestLaneCommands(t *testing.T) {
	t.Parallel()
	const (
		name    = "https://shop.example:443"
		path    = "/v1/lanes/" + name + "/"
		uri     = "/v1/lanes/https:%2F%2Fshop.example:443/"
		oneLane = `{"lane":"` + name + `","endpoint_id":null,"rate":"50/s","concurrency":8,"paused":true,"paused_until":null,
 "pause_reason":"the merchant moves house","open":12,"oldest_due_at":"2026-11-21T10:00:00.000Z","age_ms":90000,
 "in_flight":2,"concurrency_now":4,"concurrency_limit":8,"health":"timing_out","held":"lane_paused","held_until":null,
 "breaker":null}`
		other = `{"lane":"l2","open":0,"in_flight":null,"concurrency":8,"held":"breaker_open",
 "held_since":"2026-11-20T00:00:00.000Z","held_until":"2099-01-01T00:00:00.000Z",
 "holds":[{"code":"breaker_open"},{"code":"retry_after"}]}`
		goesOn = `{"lane":"` + name + `","paused":false,"paused_until":null,"rate":null,"concurrency":null}`
		held   = `{"lane":"` + name + `","paused":true,"paused_until":"2099-01-01T00:00:00.000Z","pause_reason":"holiday"}`
	)
	program.Exchanges(t, map[string]string{
		"GET /v1/lanes":          `{"data":[` + oneLane + `,` + other + `],"next_cursor":"n"}`,
		"POST " + path + "pause": held, "PUT " + path + "limits": goesOn,
		"POST " + path + "resume": held, "POST /v1/lanes/l2/resume": goesOn,
		"GET /v1/secret":  `{"lane":"l","use":"hmac","id":null,"label":null,"secret":"whsec_abc","public":null}`,
		"POST /v1/pause":  `{"project":"default","paused":true,"paused_until":null,"pause_reason":"bank \u001b holiday"}`,
		"POST /v1/resume": `{"project":"default","paused":false,"paused_until":null,"pause_reason":null}`,
	}, cmdtest.Exchange{
		Line: "lane list --held --search shop --limit 2", Call: "GET /v1/lanes?held=true&limit=2&search=shop",
		Says: []string{
			"due 1m", "2 of 4, limit 8", "50/s", "times out", "lane_paused until it is resumed: the merchant moves house",
			"? of 8", "breaker_open since 2026-11-20", "until 2099", "; retry_after", "--cursor n",
		},
	}, cmdtest.Exchange{
		Line: "lane pause " + name + " --for 1h --reason r", Call: "POST " + uri + "pause", Body: `{"for":"1h","reason":"r"}`,
		Says: []string{"nothing of the lane " + name + " is sent until 2099", ": holiday"},
	},
		cmdtest.Exchange{Line: "lane pause " + name, Call: "POST " + uri + "pause"},
		cmdtest.Exchange{
			Line: "lane resume " + name, Call: "POST " + uri + "resume",
			Says: []string{"no longer paused by itself, but with its endpoint or the project until 2099"},
		},
		cmdtest.Exchange{Line: "lane resume l2", Call: "POST /v1/lanes/l2/resume", Says: []string{"goes on"}},
		cmdtest.Exchange{
			Line: "lane limit " + name + " --rate 5/m --clear concurrency", Call: "PUT " + uri + "limits",
			Body: `{"concurrency":null,"rate":"5/m"}`, Says: []string{"rate any, in flight at most the setting"},
		},
		cmdtest.Exchange{Line: "lane secret l --signer t-v1", Call: "GET /v1/secret?lane=l&signer=t-v1", Says: []string{"whsec_abc\n"}},
		cmdtest.Exchange{
			Line: "pause --until 2027-01-01T00:00:00Z --reason", Args: []string{"bank holiday"}, Call: "POST /v1/pause",
			Body: `{"reason":"bank holiday","until":"2027-01-01T00:00:00Z"}`,
			Says: []string{`nothing of the project default is sent until it is resumed: bank \x1b holiday`},
		},
		cmdtest.Exchange{Line: "resume", Says: []string{"the project default goes on"}, Call: "POST /v1/resume"},
		cmdtest.Exchange{Line: "resume --json", Says: []string{`"paused": false`}, Call: "POST /v1/resume"})
}

func TestPolicyList(t *testing.T) {
	t.Parallel()
	address, requests := cmdtest.FakeServer(t, map[string]string{"GET /v1/policies": cmdtest.ListOf(
		`{"name":"mine","about":null,"own":true,"tiers":["1m","5m","5m","5m"],"repeat_last":true,"deadline":"3d",
 "timeout":"5s","attempts":null,"sum":"16m"}`,
		`{"name":"short","about":"Three attempts.","own":false,"tiers":["30s","1m"],"repeat_last":false,"deadline":null,
 "timeout":"15s","attempts":3,"sum":"1m30s","times":["2026-11-21T00:00:00.000Z","2026-11-21T00:00:30.000Z",
 "2026-11-21T00:01:30.000Z"]}`)})
	for _, tc := range []struct {
		args string
		code int
		says []string
		mine bool // whether the other policy is shown, too
	}{
		{"", console.ExitOK, []string{"until 3d", "1m 3×5m …", "the project's own", "1m30s", "30s 1m", "Three attempts."}, true},
		{"short", console.ExitOK, []string{"short"}, false},
		{"short --json", console.ExitOK, []string{`"short"`, `"next_cursor": null`}, false},
		{"--json", console.ExitOK, []string{`"short"`}, true},
		{"shorter", console.ExitFailed, nil, false},
		{"short --from 2026-11-21T00:00:00Z", console.ExitOK, []string{"short: 3 attempts within 1m30s, each at most 15s", "#3", "1m30s"}, false},
	} {
		term := program.At(address)
		term.Ends(t, tc.code, strings.Fields("policy list "+tc.args)...)
		cmdtest.Says(t, term.Stdout.String(), tc.says...)
		if strings.Contains(term.Stdout.String(), "mine") != tc.mine {
			t.Errorf("%v says\n%s", tc.args, term.Stdout.String())
		}
	}
	if got := requests(); got[5].URI != "/v1/policies?from=2026-11-21T00%3A00%3A00Z&limit=500" {
		t.Errorf("asked for %s", got[5].URI)
	}
}

func TestSignerList(t *testing.T) {
	t.Parallel()
	term := program.Terminal()
	term.Ends(t, console.ExitOK, "signer", "list")
	cmdtest.Says(t, term.Stdout.String(), "standard-v1", "wechat-v3-rsa", "key_suffix", "X-Signature-256", "user:password",
		"private RSA key", "nonce", "time_format", "mchid")
	term = program.Terminal()
	if code := term.Invoke("signer", "list", "sorted-kv", "--json"); code != console.ExitOK || strings.Contains(term.Stdout.String(), "bearer") {
		t.Errorf("exit code %d: %s", code, term.Stdout.String())
	}
	cmdtest.Says(t, term.Stdout.String(), `"default": "&key="`, `"name": "nonce"`)
}
