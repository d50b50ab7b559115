package cli

import (
	"context"
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

// showPoll prints a poll's rule, and what becomes of its result.
func showPoll(c *console.Console, p *client.PollDetail) {
	var rule struct{ Success, Failure []json.RawMessage }
	var holdIf []json.RawMessage
	var evaluate []any
	var budget *int
	// What is not of its form is not shown: the server has checked it.
	for into, raw := range map[any]json.RawMessage{&rule: p.Until, &holdIf: p.HoldIf, &evaluate: p.Evaluate, &budget: p.ErrorBudget} {
		_ = json.Unmarshal(raw, into)
	}
	c.Line("success", predicateTexts(rule.Success))
	c.Line("failure", predicateTexts(rule.Failure))
	c.Line("hold if", predicateTexts(holdIf))
	var statuses []string
	for _, s := range evaluate {
		statuses = append(statuses, fmt.Sprint(s))
	}
	c.Line("evaluates", console.Printable(strings.Join(statuses, " ")))
	errs := fmt.Sprintf("%d in a row", p.Errors)
	if budget != nil {
		errs += fmt.Sprintf("; it bears %d", *budget)
	}
	c.Line("errors", errs)
	c.Line("context", jsonText(p.Context))
	result := "told to nobody"
	if to := p.OnResult; to != nil {
		result = "told to " + console.Printable(console.FirstOf(to.URL, to.EndpointID))
		if to.URL != "" && to.EndpointID != "" {
			result += " of " + console.Printable(to.EndpointID)
		}
		if to.Topic != "" {
			result += " as " + console.Printable(to.Topic)
		}
	}
	if p.ResultCallbackID != "" {
		result += " by " + console.Printable(p.ResultCallbackID)
	}
	c.Line("result", result)
	c.Line("data", jsonText(p.Data))
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
	remote.Flags
}

// Run shows the poll.
func (cmd *pollGet) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	var p client.PollCallback
	r := get("").forPoll(cmd.ID)
	err = showWithAttempts(ctx, c, cl, shownWith{r.path, cmd.ID, cmd.Attempts, cmd.JSON}, &p, func(attempts []client.Attempt) {
		showCallback(c, &p.Callback, attempts, &p.Poll, time.Now())
	})
	return remote.InWords(err, "%s", r.missing)
}

// pollList lists polls.
type pollList struct {
	State  []string `placeholder:"STATE" help:"Only these states: scheduled, attempting, succeeded, dead, canceled."`
	Ref    string   `placeholder:"REF" help:"Only this reference."`
	Topic  string   `placeholder:"TOPIC" help:"Only this topic."`
	Limit  int      `default:"50" placeholder:"N" help:"Most polls to show, at most 500. Default: 50."`
	Cursor string   `placeholder:"CURSOR" help:"Continue a list at the cursor that it ended with."`
	answerFlags
}

// Help is what poll list --help says below the flags' summary.
func (*pollList) Help() string {
	return "Polls are callbacks: \"dispatcher callback list --kind poll\" has more filters, and retry and cancel of \"dispatcher callback\" work on them."
}

// Run prints the polls.
func (cmd *pollList) Run(ctx context.Context, c *console.Console) error {
	list := callbackList{
		Kind: string(client.Poll), State: cmd.State, Ref: cmd.Ref, Topic: cmd.Topic, Limit: cmd.Limit, Cursor: cmd.Cursor,
		answerFlags: cmd.answerFlags,
	}
	return list.Run(ctx, c)
}

// pollResolve ends a poll.
type pollResolve struct {
	ID   string `arg:"" help:"Id of the poll."`
	Data string `placeholder:"JSON|@FILE|-" help:"What was learned: it goes into the result as it stands, beside the last answer."`
	changeFlags
}

// Run ends it.
func (cmd *pollResolve) Run(ctx context.Context, c *console.Console) error {
	in := body{}
	in.texts("reason", cmd.Reason)
	if err := in.json(c, "data", cmd.Data); err != nil {
		return err
	}
	return ask(ctx, c, cmd.answerFlags, post("/resolve", in).forPoll(cmd.ID), func(resolved *client.ResolveResult) {
		sentence := "resolved: it is not asked any more (see \"dispatcher poll get " + console.Printable(resolved.Callback.ID) + "\")"
		switch resolved.Result {
		case "resolved":
		case "already_terminal":
			sentence = "had ended before, " + stateText(c, &resolved.Callback) + ": nothing was changed"
		default:
			sentence = console.Printable(resolved.Result)
		}
		fmt.Fprintf(c.Out, "%s  %s\n", console.Printable(resolved.Callback.ID), sentence)
	})
}
