package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// PollCommand is the API for polls from the shell.
type PollCommand struct {
	Create  pollCreate  `cmd:"" set:"method=GET without a body, else POST" help:"Ask an upstream again and again until its answer is final, and have the result told."`
	Get     pollGet     `cmd:"" help:"Show one poll with its rule, its outcome, its attempts and its ladder."`
	List    pollList    `cmd:"" help:"List polls, newest first."`
	Resolve pollResolve `cmd:"" help:"End a poll from outside, where its answer was learned in another way."`
}

// pollLines are a poll's rule, and what becomes of its result, in pairs of name and text.
func pollLines(p *client.PollDetail) []string {
	var rule struct{ Success, Failure []json.RawMessage }
	var holdIf []json.RawMessage
	var evaluate []any
	var budget *int
	// What is not of its form is not shown: the server has checked it.
	for into, raw := range map[any]json.RawMessage{&rule: p.Until, &holdIf: p.HoldIf, &evaluate: p.Evaluate,
		&budget: p.ErrorBudget} {
		_ = json.Unmarshal(raw, into)
	}
	var statuses []string
	for _, s := range evaluate {
		statuses = append(statuses, fmt.Sprint(s))
	}
	errs := fmt.Sprintf("%d in a row", p.Errors)
	if budget != nil {
		errs += fmt.Sprintf("; it bears %d", *budget)
	}
	result := "told to nobody"
	if to := p.OnResult; to != nil {
		result = "told to " + cmp.Or(to.URL, to.EndpointID)
		if to.URL != "" && to.EndpointID != "" {
			result += " of " + to.EndpointID
		}
		if to.Topic != "" {
			result += " as " + to.Topic
		}
	}
	if p.ResultCallbackID != "" {
		result += " by " + p.ResultCallbackID
	}
	return []string{
		"success", predicateTexts(rule.Success), "failure", predicateTexts(rule.Failure), "hold if",
		predicateTexts(holdIf),
		"evaluates", console.Printable(strings.Join(statuses, " ")), "errors", errs, "context",
		jsonText(p.Context),
		"result", result, "data", jsonText(p.Data),
	}
}

// predicateTexts prints predicates as poll create takes them: in short where that says it all, else as JSON.
func predicateTexts(list []json.RawMessage) string {
	texts := make([]string, len(list))
	for i, raw := range list {
		texts[i] = jsonText(raw)
		var p struct {
			Pointer string   `json:"pointer"`
			In      []string `json:"in"`
		}
		d := json.NewDecoder(strings.NewReader(string(raw)))
		d.DisallowUnknownFields()
		if d.Decode(&p) != nil || len(p.In) == 0 || strings.Contains(p.Pointer, "=") ||
			slices.ContainsFunc(p.In, notInShort) {
			continue
		}
		texts[i] = console.Printable(p.Pointer + "=" + strings.Join(p.In, ","))
	}
	return strings.Join(texts, " or ")
}

// forPoll is the request for a poll of an id, whose path begins behind the poll's own.
func (r request) forPoll(id string) request {
	r.path = "/v1/polls/" + url.PathEscape(id) + r.path
	return r.orSay(fmt.Sprintf("no poll has the id %q", id))
}

// pollGet shows one poll.
type pollGet struct {
	attemptFlags
	ID   string `arg:"" help:"Id of the poll, cb_ and 26 characters."`
	JSON bool   `help:"Print JSON for machines: the poll, and its attempts under \"attempts\"."`
	serverFlags
}

// Run shows the poll.
func (cmd *pollGet) Run(c *session) error {
	var p client.PollCallback
	return cmd.show(c, cmd.ID, cmd.JSON, get("").forPoll(cmd.ID), &p, func(attempts []client.Attempt) {
		showCallback(c, &p.Callback, attempts, &p.Poll, time.Now())
	})
}

// pollList lists polls.
type pollList struct {
	State []string `in:"state" placeholder:"STATE" help:"Only these states: scheduled, attempting, succeeded, dead, canceled."`
	Ref   string   `in:"ref" placeholder:"REF" help:"Only this reference."`
	Topic string   `in:"topic" placeholder:"TOPIC" help:"Only this topic."`
	Limit int      `default:"50" placeholder:"N" help:"Most polls to show, at most 500. Default: 50."`
	cursorFlag
	answerFlags
}

// Help is what poll list --help says below the flags' summary.
func (*pollList) Help() string {
	return "Polls are callbacks: \"dispatcher callback list --kind poll\" has more filters, and retry and " +
		"cancel of \"dispatcher callback\" work on them."
}

// Run prints the polls.
func (cmd *pollList) Run(c *session) error {
	p := &remote.Pager{Path: "/v1/callbacks", Query: queryOf(cmd), Limit: cmd.Limit, Within: searchTime}
	p.Query.Set("cursor", cmd.Cursor)
	p.Query.Set("kind", string(client.Poll))
	return showCallbacks(c, p)
}

// pollResolve ends a poll.
type pollResolve struct {
	ID   string `arg:"" help:"Id of the poll."`
	Data string `in:"data,json" placeholder:"JSON|@FILE|-" help:"What was learned: it goes into the result as it stands, beside the last answer."`
	changeFlags
}

// Run ends it.
func (cmd *pollResolve) Run(c *session) error {
	return ask(c, post("/resolve", cmd).forPoll(cmd.ID), func(resolved *client.ResolveResult) {
		sentence := resolved.Result
		switch resolved.Result {
		case "resolved":
			sentence = "resolved: it is not asked any more (see \"dispatcher poll get " +
				resolved.Callback.ID + "\")"
		case "already_terminal":
			sentence = "had ended before, " + stateText(c, &resolved.Callback) + ": nothing was changed"
		}
		c.printf("%s  %s\n", resolved.Callback.ID, sentence)
	})
}

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
	OnResultURL      string `in:"on_result.url" placeholder:"URL" help:"Tell the result to this address, once it has ended."`
	OnResultEndpoint string `in:"on_result.endpoint" placeholder:"ID|EXTERNAL_ID" help:"Tell the result to this endpoint."`
	OnResult         string `placeholder:"JSON|@FILE|-" help:"Tell the result by this callback, such as {\"endpoint\": \"merchant-7\", \"topic\": \"payment.result\"}, instead of the two above."`
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
	}{{until, "success", "success", cmd.Success}, {until, "failure", "failure", cmd.Failure},
		{in, "hold_if", "hold-if", cmd.HoldIf}} {
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
		return nil, console.Wrong("--on-result is the whole callback: it excludes --on-result-url and " +
			"--on-result-endpoint")
	}
	in["on_result"], err = readObject(c, "on-result", cmd.OnResult)
	return in, err
}

// predicate reads one predicate. In short it is a pointer, =, and values of which one suffices; they stay
// texts, so that 01 is not 1. What they mean is the server's to judge.
func predicate(flag, value string) (any, error) {
	value = strings.TrimSpace(value)
	if strings.HasPrefix(value, "{") {
		return object(flag, value)
	}
	pointer, list, ok := strings.Cut(value, "=")
	if !ok || !strings.HasPrefix(pointer, "/") {
		return nil, console.Wrong("--%s %q is neither of the form /POINTER=VALUE,VALUE nor a JSON object",
			flag, value)
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
