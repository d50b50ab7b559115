package main

import (
	"strings"
	"testing"
)

const oneLane = `{"lane":"https://shop.example:443","endpoint_id":null,"rate":"50/s","concurrency":8,"paused":true,"paused_until":null,
 "pause_reason":"the merchant moves house","open":12,"oldest_due_at":"2026-11-21T10:00:00.000Z","age_ms":90000,"in_flight":2,"concurrency_now":4,
 "concurrency_limit":8,"health":"timing_out","held":"lane_paused","held_until":null,"breaker":null}`

func TestLanes(t *testing.T) {
	t.Parallel()
	goesOn := `{"lane":"https://shop.example:443","paused":false,"paused_until":null,"rate":null,"concurrency":null}`
	held := `{"lane":"https://shop.example:443","paused":true,"paused_until":"2099-01-01T00:00:00.000Z","pause_reason":"holiday"}`
	const path = "/v1/lanes/https://shop.example:443/"
	address, requests := fakeServer(t, map[string]string{
		"GET /v1/lanes":          `{"data":[` + oneLane + `,{"lane":"l2","open":0,"in_flight":null,"concurrency":8,"held":"breaker_open","held_until":"2099-01-01T00:00:00.000Z"}],"next_cursor":"n"}`,
		"POST " + path + "pause": held, "PUT " + path + "limits": goesOn,
		"POST " + path + "resume":  held,
		"POST /v1/lanes/l2/resume": goesOn,
		"GET /v1/secret":           `{"lane":"l","use":"hmac","id":null,"label":null,"secret":"whsec_abc","public":null}`,
	})
	for _, tc := range []struct {
		args []string
		want []string
		uri  string
		body string
	}{
		{[]string{"list", "--held", "--search", "shop", "--limit", "2"},
			[]string{"due 1m", "2 of 4, limit 8", "50/s", "times out", "lane_paused until it is resumed: the merchant moves house", "? of 8", "breaker_open until 2099", "--cursor n"},
			"/v1/lanes?held=true&limit=2&search=shop", "null"},
		{[]string{"pause", "https://shop.example:443", "--for", "1h", "--reason", "r"}, []string{"nothing of the lane https://shop.example:443 is sent until 2099", ": holiday"},
			"/v1/lanes/https:%2F%2Fshop.example:443/pause", `{"for":"1h","reason":"r"}`},
		{[]string{"pause", "https://shop.example:443"}, nil, "/v1/lanes/https:%2F%2Fshop.example:443/pause", "null"},
		{[]string{"resume", "https://shop.example:443"}, []string{"no longer paused by itself, but with its endpoint or the project until 2099"}, "/v1/lanes/https:%2F%2Fshop.example:443/resume", "null"},
		{[]string{"resume", "l2"}, []string{"goes on"}, "/v1/lanes/l2/resume", "null"},
		{[]string{"limit", "https://shop.example:443", "--rate", "5/m", "--clear", "concurrency"}, []string{"rate any, in flight at most the setting"},
			"/v1/lanes/https:%2F%2Fshop.example:443/limits", `{"concurrency":null,"rate":"5/m"}`},
		{[]string{"secret", "l", "--use", "text"}, []string{"whsec_abc\n"}, "/v1/secret?lane=l&use=text", "null"},
	} {
		term := newTerminal()
		if code := term.invoke(append(append([]string{"lane"}, tc.args...), "--server", address, "--key", "k")...); code != exitOK {
			t.Fatalf("%v: exit code %d: %s", tc.args, code, term.stderr.String())
		}
		for _, want := range tc.want {
			if !strings.Contains(term.stdout.String(), want) {
				t.Errorf("%v does not say %q:\n%s", tc.args, want, term.stdout.String())
			}
		}
		got := requests()
		if len(got) != 1 || got[0].uri != tc.uri || bodyOfRequest(t, got[0]) != tc.body {
			t.Errorf("%v made %+v", tc.args, got)
		}
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	address, requests := fakeServer(t, map[string]string{
		"POST /v1/pause":  `{"project":"default","paused":true,"paused_until":null,"pause_reason":"bank \u001b holiday"}`,
		"POST /v1/resume": `{"project":"default","paused":false,"paused_until":null,"pause_reason":null}`,
	})
	term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
	for _, args := range [][]string{{"pause", "--until", "2027-01-01T00:00:00Z", "--reason", "bank holiday"}, {"resume"}, {"resume", "--json"}} {
		if code := term.invoke(args...); code != exitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, term.stderr.String())
		}
	}
	for _, want := range []string{`nothing of the project default is sent until it is resumed: bank \x1b holiday`, "the project default goes on", `"paused": false`} {
		if !strings.Contains(term.stdout.String(), want) {
			t.Errorf("does not say %q:\n%s", want, term.stdout.String())
		}
	}
	if got := requests(); bodyOfRequest(t, got[0]) != `{"reason":"bank holiday","until":"2027-01-01T00:00:00Z"}` || got[1].body != nil {
		t.Errorf("made %+v", got)
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	address, requests := fakeServer(t, map[string]string{"GET /v1/policies": `{"data":[
 {"name":"mine","about":null,"own":true,"tiers":["1m","5m","5m","5m"],"repeat_last":true,"deadline":"3d","timeout":"5s","attempts":null,"sum":"16m"},
 {"name":"short","about":"Three attempts.","own":false,"tiers":["30s","1m"],"repeat_last":false,"deadline":null,"timeout":"15s","attempts":3,"sum":"1m30s",
  "times":["2026-11-21T00:00:00.000Z","2026-11-21T00:00:30.000Z","2026-11-21T00:01:30.000Z"]}],"next_cursor":null}`})
	for _, tc := range []struct {
		args     []string
		code     int
		has, not []string
	}{
		{[]string{}, exitOK, []string{"until 3d", "1m 3×5m …", "the project's own", "1m30s", "30s 1m", "Three attempts."}, nil},
		{[]string{"short"}, exitOK, []string{"short"}, []string{"mine"}},
		{[]string{"short", "--json"}, exitOK, []string{`"short"`, `"next_cursor": null`}, []string{"mine"}},
		{[]string{"--json"}, exitOK, []string{`"short"`, `"mine"`}, nil},
		{[]string{"short", "--from", "2026-11-21T00:00:00Z"}, exitOK, []string{"short: 3 attempts within 1m30s, each at most 15s", "#3", "1m30s"}, []string{"mine"}},
		{[]string{"shorter"}, exitFailed, nil, nil},
	} {
		term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
		if code := term.invoke(append([]string{"policy", "list"}, tc.args...)...); code != tc.code {
			t.Fatalf("%v: exit code %d: %s", tc.args, code, term.stderr.String())
		}
		for _, want := range tc.has {
			if !strings.Contains(term.stdout.String(), want) {
				t.Errorf("%v does not say %q:\n%s", tc.args, want, term.stdout.String())
			}
		}
		for _, unwanted := range tc.not {
			if strings.Contains(term.stdout.String(), unwanted) {
				t.Errorf("%v says %q:\n%s", tc.args, unwanted, term.stdout.String())
			}
		}
	}
	if got := requests(); got[4].uri != "/v1/policies?from=2026-11-21T00%3A00%3A00Z&limit=500" {
		t.Errorf("asked for %s", got[4].uri)
	}
}

func TestSignersAreExplained(t *testing.T) {
	t.Parallel()
	term := newTerminal()
	if code := term.invoke("signer", "list"); code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	for _, want := range []string{"standard-v1", "wechat-v3-rsa", "key_suffix", "X-Signature-256", "user:password", "private RSA key"} {
		if !strings.Contains(term.stdout.String(), want) {
			t.Errorf("does not say %q", want)
		}
	}
	term = newTerminal()
	if code := term.invoke("signer", "list", "sorted-kv", "--json"); code != exitOK || strings.Contains(term.stdout.String(), "bearer") || !strings.Contains(term.stdout.String(), `"default": "&key="`) {
		t.Errorf("exit code %d: %s", code, term.stdout.String())
	}
}
