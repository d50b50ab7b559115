package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// CallbackCommand is the API for callbacks from the shell.
type CallbackCommand struct {
	Send     callbackSend     `cmd:"" set:"method=POST" help:"Send one callback: it is accepted now and attempted until it is terminal."`
	Get      callbackGet      `cmd:"" help:"Show one callback with its attempts and its ladder."`
	List     callbackList     `cmd:"" help:"List callbacks, newest first."`
	Explain  callbackExplain  `cmd:"" help:"Say why a callback has not been sent yet, and what can be done about it."`
	Evidence callbackEvidence `cmd:"" help:"Print what the records say of a callback, for the dispute \"you never told us\"."`
	Cancel   callbackCancel   `cmd:"" help:"Cancel one callback, or all open ones of a reference."`
	Retry    callbackRetry    `cmd:"" help:"Attempt one callback now, whatever its state."`
}

// callbackGet shows one callback.
type callbackGet struct {
	attemptFlags
	ID   string `arg:"" help:"Id of the callback, cb_ and 26 characters."`
	JSON bool   `name:"json" help:"Print JSON for machines: the callback, and its attempts under \"attempts\"."`
	remote.Flags
}

// Run shows the callback, its ladder and its attempts.
func (cmd *callbackGet) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	var cb client.Callback
	what := shownWith{remote.CallbackPath(cmd.ID), cmd.ID, cmd.Attempts, cmd.JSON}
	return showWithAttempts(ctx, c, cl, what, &cb, func(attempts []client.Attempt) {
		showCallback(c, &cb, attempts, nil, time.Now())
	})
}

// attemptFlags are those of what shows attempts.
type attemptFlags struct {
	Attempts int `default:"50" placeholder:"N" help:"Most attempts to show, the newest; 0: every one. Default: 50."`
}

// shownWith is what is shown with its attempts: the path that it is read from, its id, how many attempts at
// most, and whether it is for machines.
type shownWith struct {
	path, id string
	most     int
	asJSON   bool
}

// showWithAttempts reads a callback into out, and its attempts, and shows them by show, or prints both for
// machines.
func showWithAttempts(
	ctx context.Context, c *console.Console, cl *remote.Client, what shownWith, out any, show func([]client.Attempt),
) error {
	if what.most < 0 {
		return console.Wrong("--attempts is at least 0")
	}
	answer, err := cl.Call(ctx, http.MethodGet, what.path, nil, out)
	if err != nil {
		return err
	}
	attempts, err := remote.NewestAttempts(ctx, cl, what.id, what.most)
	if err != nil {
		return err
	}
	if what.asJSON {
		return printWithAttempts(c, answer, attempts)
	}
	list, err := remote.DecodeAttempts(attempts)
	if err != nil {
		return err
	}
	show(list)
	if len(list) > 0 && list[0].Number > 1 {
		fmt.Fprintf(c.Out, "\nolder attempts: %d more, --attempts 0 shows every one\n", list[0].Number-1)
	}
	return nil
}

// printWithAttempts prints a callback as the server wrote it, with one more member.
func printWithAttempts(c *console.Console, callback []byte, attempts []json.RawMessage) error {
	list, err := json.Marshal(attempts)
	if err != nil {
		return err
	}
	head := strings.TrimSuffix(strings.TrimSpace(string(callback)), "}") + ","
	return console.PrintJSON(c, []byte(head+`"attempts":`+string(list)+"}"))
}

// callbackList lists callbacks.
type callbackList struct {
	State       []string          `placeholder:"STATE" help:"Only these states: scheduled, attempting, succeeded, dead, canceled."`
	Kind        string            `placeholder:"KIND" help:"Only this kind: notify or poll."`
	Topic       string            `placeholder:"TOPIC" help:"Only this topic."`
	Ref         string            `placeholder:"REF" help:"Only this reference."`
	LockKey     string            `placeholder:"KEY" help:"Only this lock key."`
	Endpoint    string            `placeholder:"ID|EXTERNAL_ID" help:"Only those for this endpoint."`
	Lane        string            `placeholder:"LANE" help:"Only this lane."`
	Class       string            `placeholder:"CLASS" help:"Only those whose last attempt ended with this class, such as http_5xx."`
	Reason      string            `placeholder:"REASON" help:"Only those that ended for this reason, such as exhausted."`
	StatusCode  int               `placeholder:"CODE" help:"Only those whose last attempt was answered with this status."`
	Label       map[string]string `mapsep:"none" placeholder:"NAME=VALUE" help:"Only those with this label; may be repeated."`
	MinAttempts int               `placeholder:"N" help:"Only those with at least so many charged attempts."`
	Overdue     bool              `help:"Only those that should have been attempted already."`
	From        string            `placeholder:"TIME" help:"Only those accepted at or after this time, RFC 3339."`
	To          string            `placeholder:"TIME" help:"Only those accepted before this time, RFC 3339."`
	ByDue       bool              `help:"Open callbacks by due time, earliest first."`
	Limit       int               `default:"50" placeholder:"N" help:"Most callbacks to show, at most 500. Default: 50."`
	Cursor      string            `placeholder:"CURSOR" help:"Continue a list at the cursor that it ended with."`
	answerFlags
}

// query returns the list's filters as the API spells them.
func (cmd *callbackList) query() url.Values {
	filter := client.Filter{
		Kind: client.Kind(cmd.Kind), Topic: cmd.Topic, Ref: cmd.Ref, Endpoint: cmd.Endpoint, LockKey: cmd.LockKey, Lane: cmd.Lane,
		Class: client.Class(cmd.Class), Reason: client.TerminalReason(cmd.Reason), StatusCode: cmd.StatusCode, Label: cmd.Label,
		MinAttempts: cmd.MinAttempts, Overdue: cmd.Overdue,
	}
	for _, state := range cmd.State {
		filter.State = append(filter.State, client.State(state))
	}
	q := filter.Query()
	// What a time means is the server's to judge.
	for name, values := range parameters("from", cmd.From, "to", cmd.To, "cursor", cmd.Cursor) {
		q[name] = values
	}
	if cmd.ByDue {
		q.Set("order", "due")
	}
	q.Set("limit", strconv.Itoa(cmd.Limit))
	return q
}

// searchTime is how long a list is looked through for callbacks that match before it is said where to go on.
const searchTime = 10 * time.Second

// Run prints up to the limit of callbacks. A page of the API may be shorter than asked for although there are more: a rare callback is
// looked for page by page.
func (cmd *callbackList) Run(ctx context.Context, c *console.Console) error {
	cl, err := remote.New(c, cmd.Flags)
	if err != nil {
		return err
	}
	if cmd.JSON {
		answer, err := cl.Call(ctx, http.MethodGet, "/v1/callbacks?"+cmd.query().Encode(), nil, nil)
		if err != nil {
			return err
		}
		return console.PrintJSON(c, answer)
	}
	var found []client.Callback
	query, next, began := cmd.query(), "", time.Now()
	for first := true; first || next != "" && len(found) < cmd.Limit && time.Since(began) < searchTime; first = false {
		if !first {
			query.Set("cursor", next)
			query.Set("limit", strconv.Itoa(cmd.Limit-len(found)))
		}
		var page client.Page[client.Callback]
		if _, err := cl.Call(ctx, http.MethodGet, "/v1/callbacks?"+query.Encode(), nil, &page); err != nil {
			return err
		}
		found, next = append(found, page.Data...), page.NextCursor
	}
	switch {
	case len(found) > 0:
		showCallbacks(c, found, time.Now())
	case next == "":
		fmt.Fprintln(c.Out, "no callbacks match")
	default:
		fmt.Fprintf(c.Out, "no callbacks match so far, after %s of looking; --from and --to make it shorter\n", searchTime)
	}
	showMore(c, next)
	return nil
}

// callbackCancel cancels.
type callbackCancel struct {
	ID              string `arg:"" optional:"" help:"Id of the callback."`
	Ref             string `placeholder:"REF" help:"Cancel all open callbacks of this reference instead."`
	Topic           string `placeholder:"TOPIC" help:"With --ref: only those of this topic."`
	IncludeTerminal bool   `help:"With --ref: tell of those too that had ended already, so that it is known what became of each."`
	changeFlags
}

// Run cancels and says of each callback what became of it.
func (cmd *callbackCancel) Run(ctx context.Context, c *console.Console) error {
	if (cmd.ID == "") == (cmd.Ref == "") || (cmd.Topic != "" || cmd.IncludeTerminal) && cmd.Ref == "" {
		return console.Wrong("callback cancel needs either an id or --ref (with --topic or --include-terminal if wanted)")
	}
	in := body{}
	in.texts("reason", cmd.Reason, "ref", cmd.Ref, "topic", cmd.Topic)
	if cmd.IncludeTerminal {
		in["include_terminal"] = true
	}
	if cmd.ID != "" {
		r := post(remote.CallbackPath(cmd.ID)+"/cancel", in)
		return ask(ctx, c, cmd.answerFlags, r, func(result *client.CancelResult) { cmd.show(c, result) })
	}
	return ask(ctx, c, cmd.answerFlags, post("/v1/callbacks/cancel", in), func(all *client.Page[client.CancelResult]) {
		for i := range all.Data {
			cmd.show(c, &all.Data[i])
		}
		switch {
		case len(all.Data) > 0:
		case cmd.IncludeTerminal:
			fmt.Fprintln(c.Out, "no callback has this reference")
		default:
			fmt.Fprintln(c.Out, "no open callback has this reference")
		}
	})
}

// show says what became of one callback.
func (cmd *callbackCancel) show(c *console.Console, r *client.CancelResult) {
	sentence := cancelSentence(r.Result)
	if cmd.IncludeTerminal && r.Result == "already_terminal" {
		sentence = "already terminal, " + stateText(c, &r.Callback)
	}
	fmt.Fprintf(c.Out, "%s  %s\n", console.Printable(r.Callback.ID), sentence)
}

func cancelSentence(result string) string {
	switch result {
	case "canceled":
		return "canceled: no attempt will start any more"
	case "too_late":
		return "too late: an attempt is in flight; its success counts, else the callback ends canceled"
	case "already_terminal":
		return "already terminal: nothing was changed"
	}
	return console.Printable(result)
}

// callbackRetry attempts a callback now.
type callbackRetry struct {
	ID     string `arg:"" help:"Id of the callback."`
	Ladder string `default:"once" enum:"once,restart" help:"For a terminal callback: once is a single attempt, restart a new ladder from tier 1. Default: once."`
	URL    string `name:"url" placeholder:"URL" help:"Send it to this address from now on."`
	changeFlags
}

// Run asks for the attempt.
func (cmd *callbackRetry) Run(ctx context.Context, c *console.Console) error {
	in := body{"ladder": cmd.Ladder}
	in.texts("url", cmd.URL, "reason", cmd.Reason)
	return ask(ctx, c, cmd.answerFlags, post(remote.CallbackPath(cmd.ID)+"/retry", in), func(cb *client.Callback) {
		fmt.Fprintf(c.Out, "%s  is %s and will be attempted now (see \"dispatcher callback get %[1]s\")\n",
			console.Printable(cb.ID), console.Printable(cb.State))
	})
}
