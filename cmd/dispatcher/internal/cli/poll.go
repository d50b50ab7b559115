package cli

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
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
	for into, raw := range map[any]json.RawMessage{&rule: p.Until, &holdIf: p.HoldIf, &evaluate: p.Evaluate, &budget: p.ErrorBudget} {
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
		result = "told to " + console.FirstOf(to.URL, to.EndpointID)
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
		"success", predicateTexts(rule.Success), "failure", predicateTexts(rule.Failure), "hold if", predicateTexts(holdIf),
		"evaluates", console.Printable(strings.Join(statuses, " ")), "errors", errs, "context", jsonText(p.Context),
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
		if d.Decode(&p) != nil || len(p.In) == 0 || strings.Contains(p.Pointer, "=") || slices.ContainsFunc(p.In, notInShort) {
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
	JSON bool   `name:"json" help:"Print JSON for machines: the poll, and its attempts under \"attempts\"."`
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
	State  []string `in:"state" placeholder:"STATE" help:"Only these states: scheduled, attempting, succeeded, dead, canceled."`
	Ref    string   `in:"ref" placeholder:"REF" help:"Only this reference."`
	Topic  string   `in:"topic" placeholder:"TOPIC" help:"Only this topic."`
	Limit  int      `default:"50" placeholder:"N" help:"Most polls to show, at most 500. Default: 50."`
	Cursor string   `placeholder:"CURSOR" help:"Continue a list at the cursor that it ended with."`
	answerFlags
}

// Help is what poll list --help says below the flags' summary.
func (*pollList) Help() string {
	return "Polls are callbacks: \"dispatcher callback list --kind poll\" has more filters, and retry and cancel of \"dispatcher callback\" work on them."
}

// Run prints the polls.
func (cmd *pollList) Run(c *session) error {
	p := pager{path: "/v1/callbacks", q: queryOf(cmd), limit: cmd.Limit, within: searchTime}
	p.q.Set("cursor", cmd.Cursor)
	p.q.Set("kind", string(client.Poll))
	return p.showCallbacks(c)
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
			sentence = "resolved: it is not asked any more (see \"dispatcher poll get " + resolved.Callback.ID + "\")"
		case "already_terminal":
			sentence = "had ended before, " + stateText(c, &resolved.Callback) + ": nothing was changed"
		}
		c.printf("%s  %s\n", resolved.Callback.ID, sentence)
	})
}
