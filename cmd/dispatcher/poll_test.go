package main

import (
	"strings"
	"testing"
)

const onePoll = `{"id":"` + oneID + `","kind":"poll","project":"default","url":"https://bank.example/q","method":"GET","topic":null,"ref":"order-1","lock_key":null,
 "lane":"l","labels":{},"state":"scheduled","reason":null,"due_at":"2099-01-01T00:00:00.000Z","attempt_count":1,"divert_count":0,"max_attempts":null,"tiers":["5s","30s"],
 "policy":{"tiers":["5s","30s"],"repeat_last":true,"deadline":"3d"},"success":{"until":{}},"signer":"none","last_status":200,"last_class":"rule_mismatch",
 "created_at":"2026-11-21T10:00:00.000Z","finished_at":null,"expires_at":null,
 "poll":{"until":{"success":[{"pointer":"/trade_state","in":["SUCCESS","PAID"]},{"pointer":"/n","in":[1]}],"failure":[{"status":[404]},{"pointer":"/s","in":["A,B"]}]},
 "hold_if":null,"evaluate":["200-299",404],"error_budget":3,"errors":2,"context":{"a":  "\u001b<b>"},"on_result":{"url":"https://shop.example/","endpoint_id":"ep_1","topic":"t","ref":"order-1"},
 "outcome":null,"result_callback_id":null,"data":null}}`

func TestPollCreate(t *testing.T) {
	t.Parallel()
	address, requests := fakeServer(t, map[string]string{"POST /v1/polls": onePoll})
	term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
	code := term.invoke("poll", "create", "--ref", "order-1", "--url", "https://bank.example/q", "--method", "POST", "-d", "{ }", "-H", "A: b, c", "--signer", "none",
		"--success", "/trade_state=SUCCESS,PAID", "--success", `{"pointer": "/n", "eq": 1}`, "--failure", `{"status": [404]}`, "--hold-if", "/code=BUSY", "--evaluate", "200-299,404",
		"--error-budget", "0", "--tiers", "5s,30s", "--repeat-last", "--deadline", "72h", "--timeout", "3s", "--delay", "1m", "--topic", "t", "--label", "a=b", "--lock-key", "k", "--lane", "l",
		"--context", `{"a":  "<b>"}`, "--on-result-url", "https://shop.example/", "--on-result-endpoint", "merchant-7", "--idempotency-key", "i")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	if got := term.stdout.String(); got != oneID+"  accepted (see \"dispatcher poll get "+oneID+"\")\n" {
		t.Errorf("said %q", got)
	}
	want := `{"context":{"a":"\u003cb\u003e"},"delay":"1m","error_budget":0,"evaluate":["200-299","404"],"hold_if":[{"in":["BUSY"],"pointer":"/code"}],"idempotency_key":"i",` +
		`"labels":{"a":"b"},"lane":"l","lock_key":"k","on_result":{"endpoint":"merchant-7","url":"https://shop.example/"},` +
		`"policy":{"deadline":"72h","repeat_last":true,"tiers":["5s","30s"],"timeout":"3s"},"ref":"order-1",` +
		`"request":{"body_base64":"eyB9","content_type":"application/json","headers":{"A":"b, c"},"method":"POST","signer":"none","url":"https://bank.example/q"},` +
		`"topic":"t","until":{"failure":[{"status":[404]}],"success":[{"in":["SUCCESS","PAID"],"pointer":"/trade_state"},{"eq":1,"pointer":"/n"}]}}`
	if got := bodyOfRequest(t, requests()[0]); got != want {
		t.Errorf("sent %s\nwant %s", got, want)
	}
}

// A result callback can be given whole, and a policy by its name.
func TestPollCreateWithAWholeResult(t *testing.T) {
	t.Parallel()
	address, requests := fakeServer(t, map[string]string{"POST /v1/polls": with(t, onePoll, `{"replayed":true}`)})
	term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
	code := term.invoke("poll", "create", "--ref", "order-1", "--endpoint", "bank", "--policy", "fast", "--failure", "/s=A", "--on-result", `{"endpoint": "merchant-7", "topic": "payment.result"}`)
	if code != exitOK || !strings.Contains(term.stdout.String(), "no other one was made") {
		t.Fatalf("exit code %d: %s%s", code, term.stdout.String(), term.stderr.String())
	}
	want := `{"on_result":{"endpoint":"merchant-7","topic":"payment.result"},"policy":"fast","ref":"order-1","request":{"endpoint":"bank"},"until":{"failure":[{"in":["A"],"pointer":"/s"}]}}`
	if got := bodyOfRequest(t, requests()[0]); got != want {
		t.Errorf("sent %s\nwant %s", got, want)
	}
}

// What goes into a result, or is sent, as it stands reaches the server byte by byte.
func TestVerbatimIsSentAsItIs(t *testing.T) {
	t.Parallel()
	got, err := encode(map[string]any{"b": verbatim(`{"x":  "<&>"}`), "a": map[string]any{"c": []string{"<"}, "d": verbatim("1.50")}, "e": map[string]any{}})
	if want := `{"a":{"c":["\u003c"],"d":1.50},"b":{"x":  "<&>"},"e":{}}`; err != nil || string(got) != want {
		t.Errorf("encoded %s (%v), want %s", got, err, want)
	}
}

func TestPollGet(t *testing.T) {
	t.Parallel()
	attempt := with(t, oneAttempt, `{"class":"rule_mismatch","status_code":200,"rule":{"expected":"e","saw":"/trade_state is \"NEW\""}}`)
	ended := with(t, onePoll, `{"state":"succeeded","reason":"failure","due_at":null,"poll":{"until":{"success":[]},"hold_if":[{"pointer":"/c","in":["BUSY"]}],"evaluate":["200-299"],"errors":0,"context":null,`+
		`"on_result":null,"outcome":"failure","result_callback_id":null,"data":{"k":1}}}`)
	for _, tc := range []struct {
		poll, attempt string
		want          []string
	}{
		{onePoll, attempt, []string{
			"poll       " + oneID + "\nstate      scheduled\noutcome    none yet\n", "tiers      5s 30s …, the last one again and again, for 3d\n",
			`success    /trade_state=SUCCESS,PAID or {"pointer":"/n","in":[1]}` + "\n", `failure    {"status":[404]} or {"pointer":"/s","in":["A,B"]}` + "\n", "evaluates  200-299 404\n",
			"errors     2 in a row; it bears 3\n", `context    {"a":  "\u001b<b>"}` + "\n", "result     told to https://shop.example/ of ep_1 as t\n", `200: /trade_state is "NEW"`, "not final",
		}},
		{ended, with(t, oneAttempt, `{"class":"ok","status_code":200,"outcome":"succeeded"}`), []string{
			"state      succeeded: failure\noutcome    failure\n", "hold if    /c=BUSY\n", "result     told to nobody\n", `data       {"k":1}` + "\n", "final",
		}},
	} {
		address, _ := fakeServer(t, map[string]string{"GET /v1/polls/" + oneID: tc.poll, "GET /v1/callbacks/" + oneID + "/attempts": `{"data":[` + tc.attempt + `]}`})
		term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
		if code := term.invoke("poll", "get", oneID); code != exitOK {
			t.Fatalf("exit code %d: %s", code, term.stderr.String())
		}
		for _, want := range tc.want {
			if !strings.Contains(term.stdout.String(), want) {
				t.Errorf("does not show %q:\n%s", want, term.stdout.String())
			}
		}
		term = newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
		if code := term.invoke("poll", "get", oneID, "--json"); code != exitOK || !strings.Contains(term.stdout.String(), `"attempts": [`) || !strings.Contains(term.stdout.String(), `"outcome":`) {
			t.Errorf("exit code %d: %s", code, term.stdout.String())
		}
	}
}

// A poll shown as the callback that it is says where the rest is.
func TestCallbackGetOfAPoll(t *testing.T) {
	t.Parallel()
	address, _ := fakeServer(t, map[string]string{"GET /v1/callbacks/" + oneID: onePoll, "GET /v1/callbacks/" + oneID + "/attempts": `{"data":[]}`})
	term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
	if code := term.invoke("callback", "get", oneID); code != exitOK || !strings.Contains(term.stdout.String(), "dispatcher poll get "+oneID) {
		t.Errorf("exit code %d: %s", code, term.stdout.String())
	}
}

func TestPollList(t *testing.T) {
	t.Parallel()
	address, requests := fakeServer(t, map[string]string{"GET /v1/callbacks": `{"data":[` + onePoll + `],"next_cursor":"abc"}`})
	term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
	if code := term.invoke("poll", "list", "--state", "dead,scheduled", "--ref", "r", "--topic", "t", "--limit", "1"); code != exitOK {
		t.Fatalf("exit code %d: %s", code, term.stderr.String())
	}
	if got := term.stdout.String(); !strings.Contains(got, oneID) || !strings.Contains(got, "--cursor abc") {
		t.Errorf("shows %s", got)
	}
	if got := requests()[0].uri; got != "/v1/callbacks?kind=poll&limit=1&ref=r&state=dead&state=scheduled&topic=t" {
		t.Errorf("asked for %s", got)
	}
}

func TestPollResolve(t *testing.T) {
	t.Parallel()
	for result, want := range map[string]string{"resolved": "resolved: it is not asked any more", "already_terminal": "had ended before, scheduled: nothing was changed", "new": "new\n"} {
		address, requests := fakeServer(t, map[string]string{"POST /v1/polls/" + oneID + "/resolve": `{"result":"` + result + `","callback":` + oneCallback + `}`})
		term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
		term.in = strings.NewReader(` {"trade_state": "SUCCESS"}` + "\n")
		if code := term.invoke("poll", "resolve", oneID, "--data", "-", "--reason", "r"); code != exitOK || !strings.HasPrefix(term.stdout.String(), oneID+"  "+want) {
			t.Errorf("exit code %d: %s%s", code, term.stdout.String(), term.stderr.String())
		}
		if got := bodyOfRequest(t, requests()[0]); got != `{"data":{"trade_state":"SUCCESS"},"reason":"r"}` {
			t.Errorf("sent %s", got)
		}
	}
	address, _ := fakeServer(t, nil)
	for _, args := range [][]string{{"get", oneID}, {"resolve", oneID}} {
		term := newTerminal("DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")
		if code := term.invoke(append([]string{"poll"}, args...)...); code != exitFailed || term.stderr.String() != `dispatcher: no poll has the id "`+oneID+`" (404 not_found)`+"\n" {
			t.Errorf("%v: exit code %d: %s", args, code, term.stderr.String())
		}
	}
}
