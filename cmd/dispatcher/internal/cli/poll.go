package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// kindPoll is how the API names callbacks that are polls.
const kindPoll = string(store.Poll)

// PollCommand is the API for polls from the shell.
type PollCommand struct {
	Create  pollCreate  `cmd:"" set:"method=GET without a body, else POST" help:"Ask an upstream again and again until its answer is final, and have the result told."`
	Get     pollGet     `cmd:"" help:"Show one poll with its rule, its outcome, its attempts and its ladder."`
	List    pollList    `cmd:"" help:"List polls, newest first."`
	Resolve pollResolve `cmd:"" help:"End a poll from outside, where its answer was learned in another way."`
}

// A shownPoll is what the commands read of a poll.
type shownPoll struct {
	remote.Callback
	Poll pollDetail `json:"poll"`
}

// A pollDetail is what a poll has beside its callback.
type pollDetail struct {
	Until struct {
		Success []json.RawMessage `json:"success"`
		Failure []json.RawMessage `json:"failure"`
	} `json:"until"`
	HoldIf      []json.RawMessage `json:"hold_if"`
	Evaluate    []any             `json:"evaluate"`
	ErrorBudget *int              `json:"error_budget"`
	Errors      int               `json:"errors"`
	Context     json.RawMessage   `json:"context"`
	OnResult    *struct {
		URL        string `json:"url"`
		EndpointID string `json:"endpoint_id"`
		Topic      string `json:"topic"`
	} `json:"on_result"`
	Outcome          string          `json:"outcome"`
	ResultCallbackID string          `json:"result_callback_id"`
	Data             json.RawMessage `json:"data"`
}

// show prints a poll's rule, and what becomes of its result.
func (p *pollDetail) show(c *console.Console) {
	c.Line("success", predicateTexts(p.Until.Success))
	c.Line("failure", predicateTexts(p.Until.Failure))
	c.Line("hold if", predicateTexts(p.HoldIf))
	var statuses []string
	for _, s := range p.Evaluate {
		statuses = append(statuses, fmt.Sprint(s))
	}
	c.Line("evaluates", console.Printable(strings.Join(statuses, " ")))
	errs := fmt.Sprintf("%d in a row", p.Errors)
	if p.ErrorBudget != nil {
		errs += fmt.Sprintf("; it bears %d", *p.ErrorBudget)
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

// jsonText prints JSON from elsewhere on one line; nothing for null.
func jsonText(raw json.RawMessage) string {
	if string(raw) == "null" {
		return ""
	}
	return console.Printable(string(raw))
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

// pollPath is the address of one poll.
func pollPath(id string) string { return "/v1/polls/" + url.PathEscape(id) }

// noPoll puts into words that there is no such poll.
func noPoll(err error, id string) error { return remote.InWords(err, "no poll has the id %q", id) }

// pollGet shows one poll.
type pollGet struct {
	remote.Flags
	attemptFlags
	ID   string `arg:"" help:"Id of the poll, cb_ and 26 characters."`
	JSON bool   `name:"json" help:"Print JSON for machines: the poll, and its attempts under \"attempts\"."`
}

// Run shows the poll.
func (cmd *pollGet) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	var p shownPoll
	what := shownWith{pollPath(cmd.ID), cmd.ID, cmd.Attempts, cmd.JSON}
	return noPoll(showWithAttempts(ctx, c, cl, what, &p, func(attempts []remote.Attempt) {
		showCallback(c, &p.Callback, attempts, &p.Poll, time.Now())
	}), cmd.ID)
}

// pollList lists polls.
type pollList struct {
	remote.Flags
	State  []string `placeholder:"STATE" help:"Only these states: scheduled, attempting, succeeded, dead, canceled."`
	Ref    string   `placeholder:"REF" help:"Only this reference."`
	Topic  string   `placeholder:"TOPIC" help:"Only this topic."`
	Limit  int      `default:"50" placeholder:"N" help:"Most polls to show, at most 500. Default: 50."`
	Cursor string   `placeholder:"CURSOR" help:"Continue a list at the cursor that it ended with."`
	JSON   bool     `name:"json" help:"Print the server's answer for machines."`
}

// Help is what poll list --help says below the flags' summary.
func (*pollList) Help() string {
	return "Polls are callbacks: \"dispatcher callback list --kind poll\" has more filters, and retry and cancel of \"dispatcher callback\" work on them."
}

// Run prints the polls.
func (cmd *pollList) Run(ctx context.Context, c *console.Console) error {
	list := callbackList{
		Flags: cmd.Flags, Kind: kindPoll, State: cmd.State, Ref: cmd.Ref, Topic: cmd.Topic, Limit: cmd.Limit, Cursor: cmd.Cursor, JSON: cmd.JSON,
	}
	return list.Run(ctx, c)
}

// pollResolve ends a poll.
type pollResolve struct {
	remote.Flags
	ID     string `arg:"" help:"Id of the poll."`
	Data   string `placeholder:"JSON|@FILE|-" help:"What was learned: it goes into the result as it stands, beside the last answer."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
	JSON   bool   `name:"json" help:"Print the server's answer for machines."`
}

// Run ends it.
func (cmd *pollResolve) Run(ctx context.Context, c *console.Console) error {
	in := map[string]any{}
	putTexts(in, map[string]string{"reason": cmd.Reason})
	if err := putJSON(c, in, "data", "data", cmd.Data); err != nil {
		return err
	}
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	var resolved remote.CancelResult
	answer, err := cl.Call(ctx, http.MethodPost, pollPath(cmd.ID)+"/resolve", in, &resolved)
	if err != nil {
		return noPoll(err, cmd.ID)
	}
	if cmd.JSON {
		return console.PrintJSON(c, answer)
	}
	sentence := "resolved: it is not asked any more (see \"dispatcher poll get " + console.Printable(resolved.Callback.ID) + "\")"
	switch resolved.Result {
	case "resolved":
	case "already_terminal":
		sentence = "had ended before, " + stateText(c, &resolved.Callback) + ": nothing was changed"
	default:
		sentence = console.Printable(resolved.Result)
	}
	fmt.Fprintf(c.Out, "%s  %s\n", console.Printable(resolved.Callback.ID), sentence)
	return nil
}
