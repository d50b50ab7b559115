package cli

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

const onePoll = `{"id":"` + cmdtest.OneID + `","kind":"poll","project":"default","url":"https://bank.example/q","method":"GET",
 "topic":null,"ref":"order-1","lock_key":null,"lane":"l","labels":{},"state":"scheduled","reason":null,
 "due_at":"2099-01-01T00:00:00.000Z","attempt_count":1,"divert_count":0,"max_attempts":null,"tiers":["5s","30s"],
 "policy":{"tiers":["5s","30s"],"repeat_last":true,"deadline":"3d"},"success":{"until":{}},"signer":"none",
 "last_status":200,"last_class":"rule_mismatch","created_at":"2026-11-21T10:00:00.000Z","finished_at":null,
 "expires_at":null,"poll":{"until":{"success":[{"pointer":"/trade_state","in":["SUCCESS","PAID"]},{"pointer":"/n","in":[1]}],
 "failure":[{"status":[404]},{"pointer":"/s","in":["A,B"]}]},"hold_if":null,"evaluate":["200-299",404],"error_budget":3,
 "errors":2,"context":{"a":  "\u001b<b>"},"on_result":{"url":"https://shop.example/","endpoint_id":"ep_1","topic":"t",
 "ref":"order-1"},"outcome":null,"result_callback_id":null,"data":null}}`

func TestPollCreate(t *testing.T) {
	t.Parallel()
	program.Exchanges(t, map[string]string{"POST /v1/polls": onePoll}, cmdtest.Exchange{
		Line: "poll create --ref order-1 --url https://bank.example/q --method POST --signer none " +
			"--success /trade_state=SUCCESS,PAID --hold-if /code=BUSY --evaluate 200-299,404 --error-budget 0 --tiers 5s,30s " +
			"--repeat-last --deadline 72h --timeout 3s --delay 1m --topic t --label a=b --lock-key k --lane l " +
			"--on-result-url https://shop.example/ --on-result-endpoint merchant-7 --idempotency-key i",
		Args: []string{"-d", "{ }", "-H", "A: b, c", "--success", `{"pointer": "/n", "eq": 1}`, "--failure", `{"status": [404]}`,
			"--context", `{"a":  "<b>"}`},
		Says: []string{cmdtest.OneID + "  accepted (see \"dispatcher poll get " + cmdtest.OneID + "\")\n"},
		Call: "POST /v1/polls",
		Body: `{"context":{"a":"\u003cb\u003e"},"delay":"1m","error_budget":0,"evaluate":["200-299","404"],` +
			`"hold_if":[{"in":["BUSY"],"pointer":"/code"}],"idempotency_key":"i","labels":{"a":"b"},"lane":"l","lock_key":"k",` +
			`"on_result":{"endpoint":"merchant-7","url":"https://shop.example/"},` +
			`"policy":{"deadline":"72h","repeat_last":true,"tiers":["5s","30s"],"timeout":"3s"},"ref":"order-1",` +
			`"request":{"body_base64":"eyB9","content_type":"application/json","headers":{"A":"b, c"},"method":"POST",` +
			`"signer":"none","url":"https://bank.example/q"},"topic":"t","until":{"failure":[{"status":[404]}],` +
			`"success":[{"in":["SUCCESS","PAID"],"pointer":"/trade_state"},{"eq":1,"pointer":"/n"}]}}`,
	})
	// A result callback can be given whole, and a policy by its name.
	program.Exchanges(t, map[string]string{"POST /v1/polls": cmdtest.With(t, onePoll, `{"replayed":true}`)}, cmdtest.Exchange{
		Line: "poll create --ref order-1 --endpoint bank --policy fast --failure /s=A --on-result",
		Args: []string{`{"endpoint": "merchant-7", "topic": "payment.result"}`},
		Says: []string{"no other one was made"},
		Call: "POST /v1/polls",
		Body: `{"on_result":{"endpoint":"merchant-7","topic":"payment.result"},"policy":"fast","ref":"order-1",` +
			`"request":{"endpoint":"bank"},"until":{"failure":[{"in":["A"],"pointer":"/s"}]}}`,
	})
}

func TestPollGet(t *testing.T) {
	t.Parallel()
	ended := cmdtest.With(t, onePoll, `{"state":"succeeded","reason":"failure","due_at":null,"poll":{"until":{"success":[]},
 "hold_if":[{"pointer":"/c","in":["BUSY"]}],"evaluate":["200-299"],"errors":0,"context":null,"on_result":null,
 "outcome":"failure","result_callback_id":null,"data":{"k":1}}}`)
	for _, tc := range []struct {
		poll, attempt string
		want          []string
	}{
		{onePoll, `{"class":"rule_mismatch","status_code":200,"rule":{"expected":"e","saw":"/trade_state is \"NEW\""}}`, []string{
			"poll       " + cmdtest.OneID + "\nstate      scheduled\noutcome    none yet\n",
			"tiers      5s 30s …, the last one again and again, for 3d\n",
			`success    /trade_state=SUCCESS,PAID or {"pointer":"/n","in":[1]}` + "\n",
			`failure    {"status":[404]} or {"pointer":"/s","in":["A,B"]}` + "\n", "evaluates  200-299 404\n",
			"errors     2 in a row; it bears 3\n", `context    {"a":  "\u001b<b>"}` + "\n",
			"result     told to https://shop.example/ of ep_1 as t\n", `200: /trade_state is "NEW"`, "not final",
		}},
		{ended, `{"class":"ok","status_code":200,"outcome":"succeeded"}`, []string{
			"state      succeeded: failure\noutcome    failure\n", "hold if    /c=BUSY\n", "result     told to nobody\n",
			`data       {"k":1}` + "\n", "final",
		}},
	} {
		program.Exchanges(t, map[string]string{
			"GET /v1/polls/" + cmdtest.OneID: tc.poll, "GET /v1/callbacks/" + cmdtest.OneID: tc.poll,
			"GET /v1/callbacks/" + cmdtest.OneID + "/attempts": cmdtest.ListOf(cmdtest.With(t, cmdtest.OneAttempt, tc.attempt)),
		},
			cmdtest.Exchange{Line: "poll get " + cmdtest.OneID, Says: tc.want},
			cmdtest.Exchange{Line: "poll get " + cmdtest.OneID + " --json", Says: []string{`"attempts": [`, `"outcome":`}},
			// Shown as the callback that it is, it says where the rest is.
			cmdtest.Exchange{Line: "callback get " + cmdtest.OneID, Says: []string{"dispatcher poll get " + cmdtest.OneID}})
	}
}

func TestPollListAndResolve(t *testing.T) {
	t.Parallel()
	program.Exchanges(t, map[string]string{"GET /v1/callbacks": `{"data":[` + onePoll + `],"next_cursor":"abc"}`},
		cmdtest.Exchange{
			Line: "poll list --state dead,scheduled --ref r --topic t --limit 1", Says: []string{cmdtest.OneID, "--cursor abc"},
			Call: "GET /v1/callbacks?kind=poll&limit=1&ref=r&state=dead&state=scheduled&topic=t",
		})
	for result, want := range map[string]string{
		"resolved": "resolved: it is not asked any more", "new": "new\n",
		"already_terminal": "had ended before, scheduled: nothing was changed",
	} {
		call := "POST /v1/polls/" + cmdtest.OneID + "/resolve"
		program.Exchanges(t, map[string]string{call: `{"result":"` + result + `","callback":` + cmdtest.OneCallback + `}`}, cmdtest.Exchange{
			Line: "poll resolve " + cmdtest.OneID + " --data - --reason r", Stdin: ` {"trade_state": "SUCCESS"}` + "\n",
			Says: []string{cmdtest.OneID + "  " + want}, Call: call, Body: `{"data":{"trade_state":"SUCCESS"},"reason":"r"}`,
		})
	}
	unknown := []string{`dispatcher: no poll has the id "` + cmdtest.OneID + `" (404 not_found)` + "\n"}
	program.Exchanges(t, nil, cmdtest.Exchange{Line: "poll get " + cmdtest.OneID, Code: console.ExitFailed, Warns: unknown},
		cmdtest.Exchange{Line: "poll resolve " + cmdtest.OneID, Code: console.ExitFailed, Warns: unknown})
}
