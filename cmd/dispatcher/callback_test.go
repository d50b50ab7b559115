package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

func TestCallbackSend(t *testing.T) {
	t.Parallel()
	body := writeFile(t, "body.json", "{ \"paid\":  10000 }\n")
	rule := writeFile(t, "rule.json", "{\"status\": [200],\n \"body\": {\"equals\": \"<ok>\"}}\n")
	sent := base64.StdEncoding.EncodeToString([]byte("{ \"paid\":  10000 }\n"))
	exchanges(t, map[string]string{"POST /v1/callbacks": oneCallback}, exchange{
		line: "callback send --url https://shop.example/notify --data @" + body + " --topic payment.succeeded --ref order-1 " +
			"--lock-key order-1 --delay 5s --tiers 1s,2s --repeat-last --deadline 1h --timeout 3s --success body-success " +
			"--label channel=alipay;x --lane m1 --idempotency-key i1 -H",
		args: []string{"X-Shop: 7, 8"},
		says: []string{oneID + "  accepted"},
		call: "POST /v1/callbacks",
		body: `{"body_base64":"` + sent + `","content_type":"application/json","delay":"5s","headers":{"X-Shop":"7, 8"},` +
			`"idempotency_key":"i1","labels":{"channel":"alipay;x"},"lane":"m1","lock_key":"order-1",` +
			`"policy":{"deadline":"1h","repeat_last":true,"tiers":["1s","2s"],"timeout":"3s"},"ref":"order-1",` +
			`"success":"body-success","topic":"payment.succeeded","url":"https://shop.example/notify"}`,
	}, exchange{
		// An endpoint takes the address's place; what is an object goes as one.
		line: "callback send --endpoint merchant-7 --profile alipay --success @" + rule + " --signer none --lock-key k " +
			"--order strict --ref r --topic t --supersede --version 0 --policy",
		args: []string{`{"tiers": ["1s"], "jitter": 0.10}`},
		call: "POST /v1/callbacks",
		body: `{"endpoint":"merchant-7","lock_key":"k","order":"strict","policy":{"jitter":0.1,"tiers":["1s"]},` +
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
	address, _ := fakeServer(t, map[string]string{
		"GET /v1/callbacks/" + oneID:               oneCallback,
		"GET /v1/callbacks/" + oneID + "/attempts": listOf(oneAttempt),
	})
	term := at(address)
	term.ends(t, exitOK, "callback", "get", oneID)
	got := term.stdout.String()
	says(t, got, "order-1", "scheduled", "1/3 charged, 2 diverted", "ep_1", "version    7", "policy     payment",
		`success    {"status":[200]}`, "#1", "failed", "500 http_5xx", "1.2ms", "#2", "after 3m", "#3", "to come",
		`\x1b[31mboom\x202e`)
	if strings.ContainsAny(got, "\x1b\u202e") {
		t.Error("control characters of a receiver reach the terminal")
	}

	// JSON is the server's own, with the attempts.
	term = at(address)
	var shown struct {
		ID       string                    `json:"id"`
		Labels2  map[string]map[string]any `json:"labels2"`
		Attempts []shownAttempt            `json:"attempts"`
	}
	code := term.invoke("callback", "get", oneID, "--json")
	if err := json.Unmarshal(term.stdout.Bytes(), &shown); err != nil || code != exitOK {
		t.Fatalf("exit code %d: %s: %v", code, term.stdout.String(), err)
	}
	if shown.ID != oneID || len(shown.Attempts) != 1 || shown.Labels2["a"] == nil {
		t.Errorf("got %+v", shown)
	}
}

// The newest attempts are shown in their order, and how many are older; --attempts 0 reads page after page.
func TestCallbackGetReadsAttemptsByPages(t *testing.T) {
	t.Parallel()
	const made = 1203
	address := handling(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/attempts") {
			respond(t, w, oneCallback)
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
			page = append(page, with(t, oneAttempt, fmt.Sprintf(`{"number":%d}`, n)))
		}
		next := "null"
		if rest := last - len(page); rest > 0 {
			next = fmt.Sprintf(`"%d"`, rest)
		}
		respond(t, w, `{"data":[`+strings.Join(page, ",")+`],"next_cursor":`+next+`}`)
	})
	for most, want := range map[string]int{"50": 50, "500": 500, "700": 700, "0": made} {
		term := at(address)
		var shown struct {
			Attempts []shownAttempt `json:"attempts"`
		}
		if code := term.invoke("callback", "get", oneID, "--json", "--attempts", most); code != exitOK {
			t.Fatalf("exit code %d: %s", code, term.stderr.String())
		}
		if err := json.Unmarshal(term.stdout.Bytes(), &shown); err != nil || len(shown.Attempts) != want {
			t.Fatalf("--attempts %s: %v, %d attempts", most, err, len(shown.Attempts))
		}
		for i := range shown.Attempts {
			if n := made - want + 1 + i; shown.Attempts[i].Number != n {
				t.Fatalf("--attempts %s: attempt %d in the place of %d", most, shown.Attempts[i].Number, n)
			}
		}
	}
	term := at(address)
	term.ends(t, exitOK, "callback", "get", oneID, "--attempts", "3")
	says(t, term.stdout.String(), "#1201", "#1203", "#1204",
		"older attempts: 1200 more, --attempts 0 shows every one")
	term = at(address)
	if code := term.invoke("callback", "get", oneID, "--attempts", "-1"); code != exitUsage {
		t.Errorf("--attempts -1: exit code %d", code)
	}
}

// A rare callback is looked for page by page.
func TestCallbackListGoesOnUntilItIsFull(t *testing.T) {
	t.Parallel()
	pages := map[string]string{
		"": `{"data":[],"next_cursor":"a"}`, "a": `{"data":[` + oneCallback + `],"next_cursor":"b"}`,
		"b": `{"data":[],"next_cursor":"c"}`, "c": listOf(oneCallback),
	}
	var asked []string
	address := handling(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked = append(asked, q.Get("cursor")+" "+q.Get("limit")) // one after the other
		respond(t, w, pages[q.Get("cursor")])
	})
	for limit, want := range map[string]string{"1": " 1,a 1", "2": " 2,a 2,b 1,c 1", "5": " 5,a 5,b 4,c 4"} {
		asked = nil
		term := at(address)
		term.ends(t, exitOK, "callback", "list", "--lane", "l", "--limit", limit)
		if got := strings.Join(asked, ","); got != want {
			t.Errorf("with --limit %s it asked for %q, want %q", limit, got, want)
		}
		if more := strings.Contains(term.stdout.String(), "there are more: --cursor b"); more != (limit == "1") {
			t.Errorf("with --limit %s it says: %s", limit, term.stdout.String())
		}
	}
	pages = map[string]string{"": listOf()}
	term := at(address)
	term.invoke("callback", "list")
	says(t, term.stdout.String(), "no callbacks match\n")
}

func TestCallbackCommands(t *testing.T) {
	t.Parallel()
	const one = "/v1/callbacks/" + oneID
	exchanges(t, map[string]string{
		"GET /v1/callbacks":         `{"data":[` + oneCallback + `],"next_cursor":"abc"}`,
		"POST " + one + "/cancel":   `{"result":"too_late","callback":` + oneCallback + `}`,
		"POST /v1/callbacks/cancel": `{"data":[{"result":"canceled","callback":` + oneCallback + `}]}`,
		"POST " + one + "/retry":    oneCallback,
	}, exchange{
		line: "callback list --state dead,scheduled --topic t --label a=b --overdue --by-due --status-code 500 --limit 1 " +
			"--endpoint merchant/7 --kind notify",
		says: []string{oneID, "--cursor abc"},
		call: "GET /v1/callbacks?endpoint=merchant%2F7&kind=notify&label.a=b&limit=1&order=due&overdue=true&state=dead&" +
			"state=scheduled&status_code=500&topic=t",
	}, exchange{
		line: "callback cancel " + oneID + " --reason why",
		says: []string{"too late"}, call: "POST " + one + "/cancel", body: `{"reason":"why"}`,
	}, exchange{
		line: "callback cancel --ref r --topic t",
		says: []string{"canceled"}, call: "POST /v1/callbacks/cancel", body: `{"ref":"r","topic":"t"}`,
	}, exchange{
		line: "callback cancel --ref r --include-terminal",
		says: []string{"canceled"}, call: "POST /v1/callbacks/cancel", body: `{"include_terminal":true,"ref":"r"}`,
	}, exchange{
		line: "callback retry " + oneID,
		says: []string{"will be attempted now"}, call: "POST " + one + "/retry", body: `{"ladder":"once"}`,
	}, exchange{
		line: "callback retry " + oneID + " --ladder restart --url http://h/",
		says: []string{"will be attempted now"}, call: "POST " + one + "/retry", body: `{"ladder":"restart","url":"http://h/"}`,
	})
}

func TestCallbackExplain(t *testing.T) {
	t.Parallel()
	block := func(code, detail, cure string) string {
		return `{"code":"` + code + `","since":null,"until":null,"detail":"` + detail + `","cure":` + cure + `}`
	}
	lane := with(t, block("lane_paused", `The lane is paused: \u001b[31mx`, `"POST /v1/lanes/https://shop.example:443/resume"`),
		`{"since":"2026-11-21T10:00:00.000Z","until":"2099-01-01T00:00:00.000Z"}`)
	address, _ := fakeServer(t, map[string]string{
		"GET /v1/callbacks/" + oneID + "/explain": `{"summary":"Its lane is paused.","next_at":"2099-01-01T00:00:00.000Z","blocking":[` +
			strings.Join([]string{
				lane, block("endpoint_disabled", "d", `"PATCH /v1/endpoints/ep_1 {\"enabled\": true}"`),
				block("project_paused", "d", `"POST /v1/resume"`), block("not_due", "d", `"Retry it to have it attempted at once."`),
				block("attempting", "d", "null"),
				block("rate_limited", "d", `"Raise the rate: PUT /v1/lanes/m-1/limits {\"rate\": \"N/s\"}"`),
				block("concurrency", "d", `"Raise it: PUT /v1/lanes/m-1/limits {\"concurrency\": N}"`),
				block("order", "d", `"POST /v1/callbacks/cb_1/retry or POST /v1/callbacks/cb_1/cancel"`),
			}, ",") + `]}`,
	})
	term := at(address)
	term.ends(t, exitOK, "callback", "explain", oneID)
	got := term.stdout.String()
	says(t, got, "Its lane is paused.\nit is attempted at the earliest 2099-01-01", "\nlane_paused  since 2026-11-21",
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
	address := answering(t, http.StatusOK, text)
	for onTerminal, want := range map[bool]string{false: text, true: "callback: cb_1\n  answer body: \\x1b[31mboom\n"} {
		term := at(address)
		term.outTerminal = onTerminal
		if code := term.invoke("callback", "evidence", oneID); code != exitOK || term.stdout.String() != want {
			t.Errorf("exit code %d: %q", code, term.stdout.String())
		}
	}
}
