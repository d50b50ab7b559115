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

// PollCommand has the commands for polls.
type PollCommand struct {
	Create  pollCreate  `cmd:"" set:"method=GET without a body, else POST" help:"Ask an upstream repeatedly until its status is final, and send the result in a callback."`
	Get     pollGet     `cmd:"" help:"Show one poll with its rule, outcome, attempts and retry schedule."`
	List    pollList    `cmd:"" help:"List polls, newest first."`
	Resolve pollResolve `cmd:"" help:"End a poll whose status became known in another way."`
}

// pollLines returns a poll's rule and its result callback as pairs of name and text.
func pollLines(p *client.PollDetail) []string {
	var rule struct{ Success, Failure []json.RawMessage }
	var holdIf []json.RawMessage
	var evaluate []any
	var budget *int
	// A value of an unexpected form is left out. The server has validated these fields.
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
		errs += fmt.Sprintf(" of at most %d", *budget)
	}
	result := "none"
	if to := p.OnResult; to != nil {
		result = "to " + cmp.Or(to.URL, to.EndpointID)
		if to.URL != "" && to.EndpointID != "" {
			result += " of " + to.EndpointID
		}
		if to.Topic != "" {
			result += " as " + to.Topic
		}
	}
	if p.ResultCallbackID != "" {
		result += " (callback " + p.ResultCallbackID + ")"
	}
	return []string{
		"success", predicateTexts(rule.Success), "failure", predicateTexts(rule.Failure), "hold if",
		predicateTexts(holdIf),
		"evaluates", console.Printable(strings.Join(statuses, " ")), "errors", errs, "context",
		jsonText(p.Context),
		"result", result, "data", jsonText(p.Data),
	}
}

// predicateTexts formats predicates in the short form of poll create, if that has all of their content, else
// as JSON.
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
			slices.ContainsFunc(p.In, needsJSON) {
			continue
		}
		texts[i] = console.Printable(p.Pointer + "=" + strings.Join(p.In, ","))
	}
	return strings.Join(texts, " or ")
}

// forPoll completes a request whose path is relative to a poll.
func (r request) forPoll(id string) request {
	r.path = "/v1/polls/" + url.PathEscape(id) + r.path
	return r.onMissing(fmt.Sprintf("no poll has the id %q", id))
}

// pollGet shows one poll.
type pollGet struct {
	attemptFlags
	ID   string `arg:"" help:"Id of the poll, cb_ and 26 characters."`
	JSON bool   `help:"Print the poll as JSON, with its attempts."`
	serverFlags
}

// Run prints the poll.
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
	Limit int      `default:"50" placeholder:"N" help:"Maximum number of polls, up to 500. Default: 50."`
	cursorFlag
	answerFlags
}

// Help is the text below the summary of poll list --help.
func (*pollList) Help() string {
	return "Polls are callbacks. \"dispatcher callback list --kind poll\" has more filters, and " +
		"\"dispatcher callback retry\" and \"cancel\" work on polls."
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
	Data string `in:"data,json" placeholder:"JSON|@FILE|-" help:"The status, which is put into the result unchanged, together with the last response."`
	changeFlags
}

// Run ends the poll.
func (cmd *pollResolve) Run(c *session) error {
	return printResponse(c, post("/resolve", cmd).forPoll(cmd.ID), func(resolved *client.ResolveResult) {
		sentence := resolved.Result
		switch resolved.Result {
		case "resolved":
			sentence = "resolved (see \"dispatcher poll get " + resolved.Callback.ID + "\")"
		case "already_terminal":
			sentence = "already finished, " + stateText(c, &resolved.Callback) + ": nothing was changed"
		}
		c.printf("%s  %s\n", resolved.Callback.ID, sentence)
	})
}

// pollCreate submits one poll.
type pollCreate struct {
	Ref          string `in:"ref" required:"" placeholder:"REF" help:"Business reference, such as an order number. A reference and a URL have at most one open poll."`
	requestFlags `in:"request"`
	Signer       string   `in:"request.signer,choice" placeholder:"NAME|JSON|@FILE" help:"Signer of the request: a name, or an object with its options; \"dispatcher signer list\" explains them."`
	Success      []string `sep:"none" placeholder:"PRED" help:"Predicate for a response that is a final success. Can be repeated; one match is enough."`
	Failure      []string `sep:"none" placeholder:"PRED" help:"Predicate for a response that is a final failure. Can be repeated; one match is enough."`
	HoldIf       []string `sep:"none" placeholder:"PRED" help:"Predicate for a response that asks to wait, such as \"busy\". The lane is paused for 60s or Retry-After, and the attempt is not counted."`
	Evaluate     []string `in:"evaluate,list" placeholder:"STATUS" help:"Statuses whose responses the predicates check, such as 200-299,404. All others are errors. Default: 200-299."`
	ErrorBudget  *int     `in:"error_budget" placeholder:"N" help:"Maximum consecutive errors. Each one waits the same tier again. Default: 20."`
	Lane         string   `in:"lane" placeholder:"LANE" help:"Isolation key. Default: the destination."`
	aboutFlags
	Policy string `in:"policy,choice" placeholder:"NAME|JSON|@FILE" help:"Policy: a name (see \"dispatcher policy list\"), or an object such as {\"tiers\": [\"5s\", \"30s\"], \"repeat_last\": true, \"deadline\": \"72h\"}."`
	tierFlags
	Context          string `in:"context,json" placeholder:"JSON|@FILE|-" help:"JSON that is put into the result unchanged, at most 4 KiB."`
	OnResultURL      string `in:"on_result.url" placeholder:"URL" help:"Send the result to this URL when the poll ends."`
	OnResultEndpoint string `in:"on_result.endpoint" placeholder:"ID|EXTERNAL_ID" help:"Send the result to this endpoint when the poll ends."`
	OnResult         string `placeholder:"JSON|@FILE|-" help:"Send the result in this callback, such as {\"endpoint\": \"merchant-7\", \"topic\": \"payment.result\"}. Excludes the two flags above."`
	answerFlags
}

// Help is the text below the summary of poll create --help.
func (*pollCreate) Help() string {
	return `A predicate, PRED, is a JSON object, or the short form /POINTER=VALUE,VALUE: the value at a JSON
pointer equals one of these texts.

    --success /trade_state=SUCCESS,PAID
    --failure '{"pointer": "/trade_state", "in": ["CLOSED"]}'
    --failure '{"status": [404]}' --evaluate 200-299,404
    --success '{"all": [{"pointer": "/code", "eq": 0}, {"status": [200]}]}'
    --success '{"xml": "/xml/state", "ne": "NEW"}'

If no predicate matches, the poll waits for the next tier. A poll is a callback:
"dispatcher callback retry" asks now, and "dispatcher callback cancel" ends it.`
}

// Run submits the poll and prints its id.
func (cmd *pollCreate) Run(c *session) error {
	in, err := cmd.body(c)
	if err != nil {
		return err
	}
	return printResponse(c, post("/v1/polls", in), func(cb *client.Callback) {
		what := "accepted"
		switch {
		case cb.Replayed && cmd.IdempotencyKey != "":
			what = "accepted before, with the same idempotency key or the same reference and URL"
		case cb.Replayed:
			what = "is already open for this reference and URL; no poll was created"
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
		return nil, console.Wrong("give --success, --failure or both: the final responses")
	}
	in["until"] = until
	if err := cmd.tierFlags.put(cmd.Policy, in); err != nil || cmd.OnResult == "" {
		return in, err
	}
	if in["on_result"] != nil {
		return nil, console.Wrong("--on-result excludes --on-result-url and --on-result-endpoint")
	}
	in["on_result"], err = readObject(c, "on-result", cmd.OnResult)
	return in, err
}

// predicate parses a predicate. In the short form, the values stay texts, so that 01 does not equal 1. The
// server validates the rest.
func predicate(flag, value string) (any, error) {
	value = strings.TrimSpace(value)
	if strings.HasPrefix(value, "{") {
		return object(flag, value)
	}
	pointer, list, ok := strings.Cut(value, "=")
	if !ok || !strings.HasPrefix(pointer, "/") {
		return nil, console.Wrong("--%s %q is not /POINTER=VALUE,VALUE or a JSON object", flag, value)
	}
	values := strings.Split(list, ",")
	if slices.ContainsFunc(values, needsJSON) {
		return nil, console.Wrong(
			"--%s %q has a value that is empty or begins or ends with a space; "+
				"if you want that, write JSON, such as {\"pointer\": \"/state\", \"in\": [\"\"]}",
			flag, value)
	}
	return map[string]any{"pointer": pointer, "in": values}, nil
}

// needsJSON reports whether a value cannot be written in the short form. On a command line such a value is
// probably a mistake.
func needsJSON(value string) bool {
	return value == "" || value != strings.TrimSpace(value) || strings.Contains(value, ",")
}
