package cli

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

func TestCallbackSend(t *testing.T) {
	t.Parallel()
	body := cmdtest.WriteFile(t, "body.json", "{ \"paid\":  10000 }\n")
	rule := cmdtest.WriteFile(t, "rule.json", "{\"status\": [200],\n \"body\": {\"equals\": \"<ok>\"}}\n")
	sent := base64.StdEncoding.EncodeToString([]byte("{ \"paid\":  10000 }\n"))
	program.Exchanges(t, map[string]string{"POST /v1/callbacks": cmdtest.OneCallback}, cmdtest.Exchange{
		Line: "callback send --url https://shop.example/notify --data @" + body + " --topic payment.succeeded --ref order-1 " +
			"--lock-key order-1 --delay 5s --tiers 1s,2s --repeat-last --deadline 1h --timeout 3s --success body-success " +
			"--label channel=alipay;x --lane m1 --idempotency-key i1 -H",
		Args: []string{"X-Shop: 7, 8"},
		Says: []string{cmdtest.OneID + "  accepted"},
		Call: "POST /v1/callbacks",
		Body: `{"body_base64":"` + sent + `","content_type":"application/json","delay":"5s","headers":{"X-Shop":"7, 8"},` +
			`"idempotency_key":"i1","labels":{"channel":"alipay;x"},"lane":"m1","lock_key":"order-1",` +
			`"policy":{"deadline":"1h","repeat_last":true,"tiers":["1s","2s"],"timeout":"3s"},"ref":"order-1",` +
			`"success":"body-success","topic":"payment.succeeded","url":"https://shop.example/notify"}`,
	}, cmdtest.Exchange{
		// An endpoint takes the address's place; what is an object goes as one.
		Line: "callback send --endpoint merchant-7 --profile alipay --success @" + rule + " --signer none --lock-key k " +
			"--order strict --ref r --topic t --supersede --version 0 --policy",
		Args: []string{`{"tiers": ["1s"], "jitter": 0.10}`},
		Call: "POST /v1/callbacks",
		Body: `{"endpoint":"merchant-7","lock_key":"k","order":"strict","policy":{"jitter":0.1,"tiers":["1s"]},` +
			`"profile":"alipay","ref":"r","signer":"none","success":{"body":{"equals":"\u003cok\u003e"},"status":[200]},` +
			`"supersede":true,"topic":"t","version":0}`,
	})
	for data, want := range map[string]string{
		`{"a":1}`: "application/json", "paid": "text/plain; charset=utf-8", "\xff\x00": "application/octet-stream",
	} {
		if got := guessType([]byte(data)); got != want {
			t.Errorf("%q is %s, not %s", data, got, want)
		}
	}
}

func TestCallbackGet(t *testing.T) {
	t.Parallel()
	address, _ := cmdtest.FakeServer(t, map[string]string{
		"GET /v1/callbacks/" + cmdtest.OneID:               cmdtest.OneCallback,
		"GET /v1/callbacks/" + cmdtest.OneID + "/attempts": cmdtest.ListOf(cmdtest.OneAttempt),
	})
	term := program.At(address)
	term.Ends(t, console.ExitOK, "callback", "get", cmdtest.OneID)
	got := term.Stdout.String()
	cmdtest.Says(t, got, "order-1", "scheduled", "1/3 charged, 2 diverted", "ep_1", "version    7", "policy     payment",
		`success    {"status":[200]}`, "#1", "failed", "500 http_5xx", "1.2ms", "#2", "after 3m", "#3", "to come",
		`\x1b[31mboom\x202e`)
	if strings.ContainsAny(got, "\x1b\u202e") {
		t.Error("control characters of a receiver reach the terminal")
	}

	// JSON is the server's own, with the attempts.
	term = program.At(address)
	var shown struct {
		ID       string                    `json:"id"`
		Labels2  map[string]map[string]any `json:"labels2"`
		Attempts []client.Attempt          `json:"attempts"`
	}
	code := term.Invoke("callback", "get", cmdtest.OneID, "--json")
	if err := json.Unmarshal(term.Stdout.Bytes(), &shown); err != nil || code != console.ExitOK {
		t.Fatalf("exit code %d: %s: %v", code, term.Stdout.String(), err)
	}
	if shown.ID != cmdtest.OneID || len(shown.Attempts) != 1 || shown.Labels2["a"] == nil {
		t.Errorf("got %+v", shown)
	}
}

// The newest attempts are shown in their order, and how many are older; --attempts 0 reads page after page.
func TestCallbackGetReadsAttemptsByPages(t *testing.T) {
	t.Parallel()
	const made = 1203
	address := cmdtest.Handling(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/attempts") {
			cmdtest.Respond(t, w, cmdtest.OneCallback)
			return
		}
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		if err != nil || limit < 1 || limit > 500 {
			t.Errorf("asked for %s", r.URL)
		}
		last := made
		if cursor := r.URL.Query().Get("cursor"); cursor != "" {
			if last, err = strconv.Atoi(cursor); err != nil {
				t.Error(err)
			}
		}
		var page []string
		for n := last; n > 0 && len(page) < limit; n-- {
			page = append(page, cmdtest.With(t, cmdtest.OneAttempt, fmt.Sprintf(`{"number":%d}`, n)))
		}
		next := "null"
		if rest := last - len(page); rest > 0 {
			next = fmt.Sprintf(`"%d"`, rest)
		}
		cmdtest.Respond(t, w, `{"data":[`+strings.Join(page, ",")+`],"next_cursor":`+next+`}`)
	})
	for most, want := range map[string]int{"50": 50, "500": 500, "700": 700, "0": made} {
		term := program.At(address)
		var shown struct {
			Attempts []client.Attempt `json:"attempts"`
		}
		if code := term.Invoke("callback", "get", cmdtest.OneID, "--json", "--attempts", most); code != console.ExitOK {
			t.Fatalf("exit code %d: %s", code, term.Stderr.String())
		}
		if err := json.Unmarshal(term.Stdout.Bytes(), &shown); err != nil || len(shown.Attempts) != want {
			t.Fatalf("--attempts %s: %v, %d attempts", most, err, len(shown.Attempts))
		}
		for i := range shown.Attempts {
			if n := made - want + 1 + i; shown.Attempts[i].Number != n {
				t.Fatalf("--attempts %s: attempt %d in the place of %d", most, shown.Attempts[i].Number, n)
			}
		}
	}
	term := program.At(address)
	term.Ends(t, console.ExitOK, "callback", "get", cmdtest.OneID, "--attempts", "3")
	cmdtest.Says(t, term.Stdout.String(), "#1201", "#1203", "#1204",
		"older attempts: 1200 more, --attempts 0 shows every one")
	term = program.At(address)
	if code := term.Invoke("callback", "get", cmdtest.OneID, "--attempts", "-1"); code != console.ExitUsage {
		t.Errorf("--attempts -1: exit code %d", code)
	}
}

// A rare callback is looked for page by page.
func TestCallbackListGoesOnUntilItIsFull(t *testing.T) {
	t.Parallel()
	pages := map[string]string{
		"": `{"data":[],"next_cursor":"a"}`, "a": `{"data":[` + cmdtest.OneCallback + `],"next_cursor":"b"}`,
		"b": `{"data":[],"next_cursor":"c"}`, "c": cmdtest.ListOf(cmdtest.OneCallback),
	}
	var asked []string
	address := cmdtest.Handling(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked = append(asked, q.Get("cursor")+" "+q.Get("limit")) // one after the other
		cmdtest.Respond(t, w, pages[q.Get("cursor")])
	})
	for limit, want := range map[string]string{"1": " 1,a 1", "2": " 2,a 2,b 1,c 1", "5": " 5,a 5,b 4,c 4"} {
		asked = nil
		term := program.At(address)
		term.Ends(t, console.ExitOK, "callback", "list", "--lane", "l", "--limit", limit)
		if got := strings.Join(asked, ","); got != want {
			t.Errorf("with --limit %s it asked for %q, want %q", limit, got, want)
		}
		if more := strings.Contains(term.Stdout.String(), "there are more: --cursor b"); more != (limit == "1") {
			t.Errorf("with --limit %s it says: %s", limit, term.Stdout.String())
		}
	}
	pages = map[string]string{"": cmdtest.ListOf()}
	term := program.At(address)
	term.Invoke("callback", "list")
	cmdtest.Says(t, term.Stdout.String(), "no callbacks match\n")
}

func TestCallbackCommands(t *testing.T) {
	t.Parallel()
	const one = "/v1/callbacks/" + cmdtest.OneID
	program.Exchanges(t, map[string]string{
		"GET /v1/callbacks":         `{"data":[` + cmdtest.OneCallback + `],"next_cursor":"abc"}`,
		"POST " + one + "/cancel":   `{"result":"too_late","callback":` + cmdtest.OneCallback + `}`,
		"POST /v1/callbacks/cancel": `{"data":[{"result":"canceled","callback":` + cmdtest.OneCallback + `}]}`,
		"POST " + one + "/retry":    cmdtest.OneCallback,
	}, cmdtest.Exchange{
		Line: "callback list --state dead,scheduled --topic t --label a=b --overdue --by-due --status-code 500 --limit 1 " +
			"--endpoint merchant/7 --kind notify",
		Says: []string{cmdtest.OneID, "--cursor abc"},
		Call: "GET /v1/callbacks?endpoint=merchant%2F7&kind=notify&label.a=b&limit=1&order=due&overdue=true&state=dead&" +
			"state=scheduled&status_code=500&topic=t",
	}, cmdtest.Exchange{
		Line: "callback cancel " + cmdtest.OneID + " --reason why",
		Says: []string{"too late"}, Call: "POST " + one + "/cancel", Body: `{"reason":"why"}`,
	}, cmdtest.Exchange{
		Line: "callback cancel --ref r --topic t",
		Says: []string{"canceled"}, Call: "POST /v1/callbacks/cancel", Body: `{"ref":"r","topic":"t"}`,
	}, cmdtest.Exchange{
		Line: "callback cancel --ref r --include-terminal",
		Says: []string{"canceled"}, Call: "POST /v1/callbacks/cancel", Body: `{"include_terminal":true,"ref":"r"}`,
	}, cmdtest.Exchange{
		Line: "callback retry " + cmdtest.OneID,
		Says: []string{"will be attempted now"}, Call: "POST " + one + "/retry", Body: `{"ladder":"once"}`,
	}, cmdtest.Exchange{
		Line: "callback retry " + cmdtest.OneID + " --ladder restart --url http://h/",
		Says: []string{"will be attempted now"}, Call: "POST " + one + "/retry", Body: `{"ladder":"restart","url":"http://h/"}`,
	})
}

func TestCallbackExplain(t *testing.T) {
	t.Parallel()
	block := func(code, detail, cure string) string {
		return `{"code":"` + code + `","since":null,"until":null,"detail":"` + detail + `","cure":` + cure + `}`
	}
	lane := cmdtest.With(t, block("lane_paused", `The lane is paused: \u001b[31mx`, `"POST /v1/lanes/https://shop.example:443/resume"`),
		`{"since":"2026-11-21T10:00:00.000Z","until":"2099-01-01T00:00:00.000Z"}`)
	address, _ := cmdtest.FakeServer(t, map[string]string{
		"GET /v1/callbacks/" + cmdtest.OneID + "/explain": `{"summary":"Its lane is paused.","next_at":"2099-01-01T00:00:00.000Z","blocking":[` +
			strings.Join([]string{
				lane, block("endpoint_disabled", "d", `"PATCH /v1/endpoints/ep_1 {\"enabled\": true}"`),
				block("project_paused", "d", `"POST /v1/resume"`), block("not_due", "d", `"Retry it to have it attempted at once."`),
				block("attempting", "d", "null"),
				block("rate_limited", "d", `"Raise the rate: PUT /v1/lanes/m-1/limits {\"rate\": \"N/s\"}"`),
				block("concurrency", "d", `"Raise it: PUT /v1/lanes/m-1/limits {\"concurrency\": N}"`),
				block("order", "d", `"POST /v1/callbacks/cb_1/retry or POST /v1/callbacks/cb_1/cancel"`),
			}, ",") + `]}`,
	})
	term := program.At(address)
	term.Ends(t, console.ExitOK, "callback", "explain", cmdtest.OneID)
	got := term.Stdout.String()
	cmdtest.Says(t, got, "Its lane is paused.\nit is attempted at the earliest 2099-01-01", "\nlane_paused  since 2026-11-21",
		"until 2099-01-01", `The lane is paused: \x1b[31mx`, "cure: dispatcher lane resume https://shop.example:443\n",
		"cure: dispatcher endpoint set ep_1 --enable\n", "cure: dispatcher resume\n", "cure: Retry it to",
		"cure: Raise the rate: dispatcher lane limit m-1 --rate N/s\n",
		"cure: Raise it: dispatcher lane limit m-1 --concurrency N\n",
		"cure: dispatcher callback retry cb_1 or dispatcher callback cancel cb_1\n")
	if strings.Count(got, "cure:") != 7 {
		t.Errorf("says a cure where there is none:\n%s", got)
	}
}

// Evidence is handed on as it is; only a terminal is kept safe from what receivers wrote.
func TestCallbackEvidence(t *testing.T) {
	t.Parallel()
	const text = "callback: cb_1\n  answer body: \x1b[31mboom\n"
	address := cmdtest.Answering(t, http.StatusOK, text)
	for onTerminal, want := range map[bool]string{false: text, true: "callback: cb_1\n  answer body: \\x1b[31mboom\n"} {
		term := program.At(address)
		term.OutTerminal = onTerminal
		if code := term.Invoke("callback", "evidence", cmdtest.OneID); code != console.ExitOK || term.Stdout.String() != want {
			t.Errorf("exit code %d: %q", code, term.Stdout.String())
		}
	}
}
