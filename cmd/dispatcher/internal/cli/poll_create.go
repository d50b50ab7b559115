package cli

import (
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// pollCreate submits one poll.
type pollCreate struct {
	Ref          string `in:"ref" required:"" placeholder:"REF" help:"Business reference, such as an order number: there is one open poll of a reference and an address."`
	requestFlags `in:"request"`
	Signer       string   `in:"request.signer,choice" placeholder:"NAME|JSON|@FILE" help:"Signer of what is asked: a name, or an object with its options; \"dispatcher signer list\" explains them."`
	Success      []string `sep:"none" placeholder:"PRED" help:"An answer that is final, and good: a predicate; may be repeated, any one suffices."`
	Failure      []string `sep:"none" placeholder:"PRED" help:"An answer that is final, and bad: likewise."`
	HoldIf       []string `sep:"none" placeholder:"PRED" help:"An answer that asks to wait, such as that the upstream is busy: its lane is held for 60s or Retry-After, uncharged."`
	Evaluate     []string `in:"evaluate,list" placeholder:"STATUS" help:"Statuses whose answers are looked into, such as 200-299,404; all others are errors. Default: 200-299."`
	ErrorBudget  *int     `in:"error_budget" placeholder:"N" help:"How many errors in a row it bears; each waits the same tier again. Default: 20."`
	aboutFlags
	Policy string `in:"policy,choice" placeholder:"NAME|JSON|@FILE" help:"Policy: a name (see \"dispatcher policy list\"), or an object such as {\"tiers\": [\"5s\", \"30s\"], \"repeat_last\": true, \"deadline\": \"72h\"}."`
	tierFlags
	Context          string `in:"context,json" placeholder:"JSON|@FILE|-" help:"What goes into the result as it stands, at most 4 KiB."`
	OnResultURL      string `in:"on_result.url" name:"on-result-url" placeholder:"URL" help:"Tell the result to this address, once it has ended."`
	OnResultEndpoint string `in:"on_result.endpoint" name:"on-result-endpoint" placeholder:"ID|EXTERNAL_ID" help:"Tell the result to this endpoint."`
	OnResult         string `name:"on-result" placeholder:"JSON|@FILE|-" help:"Tell the result by this callback, such as {\"endpoint\": \"merchant-7\", \"topic\": \"payment.result\"}, instead of the two above."`
	answerFlags
}

// Help is what poll create --help says below the flags' summary.
func (*pollCreate) Help() string {
	return `A predicate, PRED, is a JSON object, or in short a JSON pointer and the texts of which one is to stand there:

    --success /trade_state=SUCCESS,PAID
    --failure '{"pointer": "/trade_state", "in": ["CLOSED"]}'
    --failure '{"status": [404]}' --evaluate 200-299,404
    --success '{"all": [{"pointer": "/code", "eq": 0}, {"xml": "/xml/state", "ne": "NEW"}]}'

What is neither a success nor a failure waits for the next tier. A poll is a callback: "dispatcher callback retry" asks now, and "dispatcher callback cancel" ends it.`
}

// Run submits the poll and says what became of it.
func (cmd *pollCreate) Run(c *session) error {
	in, err := cmd.body(c)
	if err != nil {
		return err
	}
	return ask(c, post("/v1/polls", in), func(cb *client.Callback) {
		what := "accepted"
		switch {
		case cb.Replayed && cmd.IdempotencyKey != "":
			what = "accepted before, with the same idempotency key or for the same reference and address"
		case cb.Replayed:
			what = "is the open poll of this reference and address; no other one was made"
		}
		c.printf("%s  %s (see \"dispatcher poll get %[1]s\")\n", cb.ID, what)
	})
}

// body returns the body of the API call.
func (cmd *pollCreate) body(c *session) (body, error) {
	in, err := bodyOf(c, cmd)
	if err != nil {
		return nil, err
	}
	if err := cmd.requestFlags.put(c, in.nested("request")); err != nil {
		return nil, err
	}
	until := body{}
	for _, rule := range []struct {
		to         body
		name, flag string
		given      []string
	}{{until, "success", "success", cmd.Success}, {until, "failure", "failure", cmd.Failure}, {in, "hold_if", "hold-if", cmd.HoldIf}} {
		for _, value := range rule.given {
			p, err := predicate(rule.flag, value)
			if err != nil {
				return nil, err
			}
			list, _ := rule.to[rule.name].([]any)
			rule.to[rule.name] = append(list, p)
		}
	}
	if len(until) == 0 {
		return nil, console.Wrong("give --success, --failure or both: which answers are final")
	}
	in["until"] = until
	if err := cmd.tierFlags.put(cmd.Policy, in); err != nil || cmd.OnResult == "" {
		return in, err
	}
	if in["on_result"] != nil {
		return nil, console.Wrong("--on-result is the whole callback: it excludes --on-result-url and --on-result-endpoint")
	}
	in["on_result"], err = readObject(c, "on-result", cmd.OnResult)
	return in, err
}

// predicate reads one predicate. In short it is a pointer, =, and values of which one suffices; they stay texts, so that 01 is not 1. What
// they mean is the server's to judge.
func predicate(flag, value string) (any, error) {
	value = strings.TrimSpace(value)
	if strings.HasPrefix(value, "{") {
		return object(flag, value)
	}
	pointer, list, ok := strings.Cut(value, "=")
	if !ok || !strings.HasPrefix(pointer, "/") {
		return nil, console.Wrong("--%s %q is neither of the form /POINTER=VALUE,VALUE nor a JSON object", flag, value)
	}
	values := strings.Split(list, ",")
	if slices.ContainsFunc(values, notInShort) {
		return nil, console.Wrong(
			"--%s %q has a value that is empty or begins or ends with a space; if that is meant, write it as JSON, such as {\"pointer\": \"/state\", \"in\": [\"\"]}", flag, value)
	}
	return map[string]any{"pointer": pointer, "in": values}, nil
}

// notInShort says that a value cannot be written in short: mostly it is a slip.
func notInShort(value string) bool {
	return value == "" || value != strings.TrimSpace(value) || strings.Contains(value, ",")
}
