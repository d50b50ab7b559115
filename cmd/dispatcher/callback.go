package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// callbackCommand is the API for callbacks from the shell.
type callbackCommand struct {
	Send     callbackSend     `cmd:"" set:"method=POST" help:"Send one callback: it is accepted now and attempted until it is terminal."`
	Get      callbackGet      `cmd:"" help:"Show one callback with its attempts and its ladder."`
	List     callbackList     `cmd:"" help:"List callbacks, newest first."`
	Explain  callbackExplain  `cmd:"" help:"Say why a callback has not been sent yet, and what can be done about it."`
	Evidence callbackEvidence `cmd:"" help:"Print what the records say of a callback, for the dispute \"you never told us\"."`
	Cancel   callbackCancel   `cmd:"" help:"Cancel one callback, or all open ones of a reference."`
	Retry    callbackRetry    `cmd:"" help:"Attempt one callback now, whatever its state."`
}

// A shownCallback is what the commands read of a callback.
type shownCallback struct {
	ID           string            `json:"id"`
	Kind         string            `json:"kind"`
	EndpointID   string            `json:"endpoint_id"`
	URL          string            `json:"url"`
	Method       string            `json:"method"`
	Topic        string            `json:"topic"`
	Ref          string            `json:"ref"`
	Version      *int64            `json:"version"`
	LockKey      string            `json:"lock_key"`
	Order        string            `json:"order"`
	Lane         string            `json:"lane"`
	Labels       map[string]string `json:"labels"`
	State        string            `json:"state"`
	Reason       string            `json:"reason"`
	DueAt        *time.Time        `json:"due_at"`
	AttemptCount int               `json:"attempt_count"`
	DivertCount  int               `json:"divert_count"`
	MaxAttempts  *int              `json:"max_attempts"`
	Tiers        []string          `json:"tiers"`
	Policy       json.RawMessage   `json:"policy"`
	Success      json.RawMessage   `json:"success"`
	Signer       json.RawMessage   `json:"signer"`
	LastStatus   *int              `json:"last_status"`
	LastClass    string            `json:"last_class"`
	CreatedAt    time.Time         `json:"created_at"`
	FinishedAt   *time.Time        `json:"finished_at"`
	ExpiresAt    *time.Time        `json:"expires_at"`
	Replayed     bool              `json:"replayed"`
}

// A shownAttempt is what the commands read of an attempt.
type shownAttempt struct {
	Number     int        `json:"number"`
	Trigger    string     `json:"trigger"`
	Outcome    string     `json:"outcome"`
	Charged    bool       `json:"charged"`
	Class      string     `json:"class"`
	StatusCode *int       `json:"status_code"`
	Error      string     `json:"error"`
	StartedAt  *time.Time `json:"started_at"`
	EndedAt    *time.Time `json:"ended_at"`
	DueAt      *time.Time `json:"due_at"`
	LatenessMs float64    `json:"lateness_ms"`
	Timings    struct {
		Total float64 `json:"total"`
	} `json:"timings_ms"`
	ResponseBody string `json:"response_body"`
	Rule         *struct {
		Expected string `json:"expected"`
		Saw      string `json:"saw"`
	} `json:"rule"`
	NextDueAt *time.Time `json:"next_due_at"`
}

// A callbackPage is one answer to a list.
type callbackPage struct {
	Data       []shownCallback `json:"data"`
	NextCursor *string         `json:"next_cursor"`
}

// callbackGet shows one callback.
type callbackGet struct {
	clientFlags
	attemptFlags
	ID   string `arg:"" help:"Id of the callback, cb_ and 26 characters."`
	JSON bool   `name:"json" help:"Print JSON for machines: the callback, and its attempts under \"attempts\"."`
}

// Run shows the callback, its ladder and its attempts.
func (cmd *callbackGet) Run(ctx context.Context, c *console) error {
	cl, err := newClient(c, cmd.clientFlags)
	if err != nil {
		return err
	}
	var cb shownCallback
	what := shownWith{callbackPath(cmd.ID), cmd.ID, cmd.Attempts, cmd.JSON}
	return showWithAttempts(ctx, c, cl, what, &cb, func(attempts []shownAttempt) {
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
	ctx context.Context, c *console, cl *client, what shownWith, out any, show func([]shownAttempt),
) error {
	if what.most < 0 {
		return &usageError{lines: []string{"--attempts is at least 0"}}
	}
	answer, err := cl.call(ctx, http.MethodGet, what.path, nil, out)
	if err != nil {
		return err
	}
	attempts, err := newestAttempts(ctx, cl, what.id, what.most)
	if err != nil {
		return err
	}
	if what.asJSON {
		return printWithAttempts(c, answer, attempts)
	}
	list, err := decodeAttempts(attempts)
	if err != nil {
		return err
	}
	show(list)
	if len(list) > 0 && list[0].Number > 1 {
		fmt.Fprintf(c.out, "\nolder attempts: %d more, --attempts 0 shows every one\n", list[0].Number-1)
	}
	return nil
}

// newestAttempts reads the newest attempts of a callback page by page, most of them or for zero all, and
// returns them by number.
func newestAttempts(ctx context.Context, cl *client, id string, most int) ([]json.RawMessage, error) {
	var all []json.RawMessage
	for next := ""; ; {
		n := mostPerPage
		if most > 0 {
			n = min(n, most-len(all))
		}
		var answer struct {
			Data       []json.RawMessage `json:"data"`
			NextCursor string            `json:"next_cursor"`
		}
		if _, err := page(ctx, cl, callbackPath(id)+"/attempts", url.Values{}, n, next, &answer); err != nil {
			return nil, err
		}
		all, next = append(all, answer.Data...), answer.NextCursor
		if next == "" || most > 0 && len(all) >= most {
			slices.Reverse(all)
			return all, nil
		}
	}
}

// decodeAttempts reads attempts as the server wrote them.
func decodeAttempts(raw []json.RawMessage) ([]shownAttempt, error) {
	list := make([]shownAttempt, len(raw))
	for i := range raw {
		if err := json.Unmarshal(raw[i], &list[i]); err != nil {
			return nil, fmt.Errorf("attempt %d of the answer: %w", i+1, err)
		}
	}
	return list, nil
}

// printWithAttempts prints a callback as the server wrote it, with one more member.
func printWithAttempts(c *console, callback []byte, attempts []json.RawMessage) error {
	list, err := json.Marshal(attempts)
	if err != nil {
		return err
	}
	head := strings.TrimSuffix(strings.TrimSpace(string(callback)), "}") + ","
	return printJSON(c, []byte(head+`"attempts":`+string(list)+"}"))
}

// callbackPath is the address of one callback.
func callbackPath(id string) string { return "/v1/callbacks/" + url.PathEscape(id) }

// callbackList lists callbacks.
type callbackList struct {
	clientFlags
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
	JSON        bool              `name:"json" help:"Print the server's answer for machines."`
}

// query returns the list's filters as the API spells them.
func (cmd *callbackList) query() url.Values {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	for _, state := range cmd.State {
		q.Add("state", state)
	}
	set("kind", cmd.Kind)
	set("topic", cmd.Topic)
	set("ref", cmd.Ref)
	set("lock_key", cmd.LockKey)
	set("endpoint", cmd.Endpoint)
	set("lane", cmd.Lane)
	set("class", cmd.Class)
	set("reason", cmd.Reason)
	set("from", cmd.From)
	set("to", cmd.To)
	set("cursor", cmd.Cursor)
	for name, value := range cmd.Label {
		q.Set("label."+name, value)
	}
	if cmd.StatusCode != 0 {
		q.Set("status_code", strconv.Itoa(cmd.StatusCode))
	}
	if cmd.MinAttempts != 0 {
		q.Set("min_attempts", strconv.Itoa(cmd.MinAttempts))
	}
	if cmd.Overdue {
		q.Set("overdue", "true")
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
func (cmd *callbackList) Run(ctx context.Context, c *console) error {
	cl, err := newClient(c, cmd.clientFlags)
	if err != nil {
		return err
	}
	if cmd.JSON {
		answer, err := cl.call(ctx, http.MethodGet, "/v1/callbacks?"+cmd.query().Encode(), nil, nil)
		if err != nil {
			return err
		}
		return printJSON(c, answer)
	}
	var found []shownCallback
	query, next, began := cmd.query(), "", time.Now()
	for first := true; first || next != "" && len(found) < cmd.Limit && time.Since(began) < searchTime; first = false {
		if !first {
			query.Set("cursor", next)
			query.Set("limit", strconv.Itoa(cmd.Limit-len(found)))
		}
		var page callbackPage
		if _, err := cl.call(ctx, http.MethodGet, "/v1/callbacks?"+query.Encode(), nil, &page); err != nil {
			return err
		}
		found, next = append(found, page.Data...), ""
		if page.NextCursor != nil {
			next = *page.NextCursor
		}
	}
	switch {
	case len(found) > 0:
		showCallbacks(c, found, time.Now())
	case next == "":
		fmt.Fprintln(c.out, "no callbacks match")
	default:
		fmt.Fprintf(c.out, "no callbacks match so far, after %s of looking; --from and --to make it shorter\n", searchTime)
	}
	if next != "" {
		fmt.Fprintf(c.out, "\nthere are more: --cursor %s\n", printable(next))
	}
	return nil
}

// callbackCancel cancels.
type callbackCancel struct {
	clientFlags
	ID              string `arg:"" optional:"" help:"Id of the callback."`
	Ref             string `placeholder:"REF" help:"Cancel all open callbacks of this reference instead."`
	Topic           string `placeholder:"TOPIC" help:"With --ref: only those of this topic."`
	IncludeTerminal bool   `help:"With --ref: tell of those too that had ended already, so that it is known what became of each."`
	Reason          string `placeholder:"TEXT" help:"Why, for the audit."`
	JSON            bool   `name:"json" help:"Print the server's answer for machines."`
}

// A cancelResult is what the server says of one cancel.
type cancelResult struct {
	Result   string        `json:"result"`
	Callback shownCallback `json:"callback"`
}

// Run cancels and says of each callback what became of it.
func (cmd *callbackCancel) Run(ctx context.Context, c *console) error {
	if (cmd.ID == "") == (cmd.Ref == "") || (cmd.Topic != "" || cmd.IncludeTerminal) && cmd.Ref == "" {
		return &usageError{lines: []string{"callback cancel needs either an id or --ref (with --topic or --include-terminal if wanted)"}}
	}
	cl, err := newClient(c, cmd.clientFlags)
	if err != nil {
		return err
	}
	in := map[string]any{}
	putTexts(in, map[string]string{"reason": cmd.Reason, "ref": cmd.Ref, "topic": cmd.Topic})
	if cmd.IncludeTerminal {
		in["include_terminal"] = true
	}
	var answer []byte
	var results []cancelResult
	if cmd.ID != "" {
		results = make([]cancelResult, 1)
		answer, err = cl.call(ctx, http.MethodPost, callbackPath(cmd.ID)+"/cancel", in, &results[0])
	} else {
		var all struct {
			Data []cancelResult `json:"data"`
		}
		answer, err = cl.call(ctx, http.MethodPost, "/v1/callbacks/cancel", in, &all)
		results = all.Data
	}
	if err != nil {
		return err
	}
	if cmd.JSON {
		return printJSON(c, answer)
	}
	for _, r := range results {
		sentence := cancelSentence(r.Result)
		if cmd.IncludeTerminal && r.Result == "already_terminal" {
			sentence = "already terminal, " + c.state(&r.Callback)
		}
		fmt.Fprintf(c.out, "%s  %s\n", printable(r.Callback.ID), sentence)
	}
	switch {
	case len(results) > 0:
	case cmd.IncludeTerminal:
		fmt.Fprintln(c.out, "no callback has this reference")
	default:
		fmt.Fprintln(c.out, "no open callback has this reference")
	}
	return nil
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
	return printable(result)
}

// callbackRetry attempts a callback now.
type callbackRetry struct {
	clientFlags
	ID     string `arg:"" help:"Id of the callback."`
	Ladder string `default:"once" enum:"once,restart" help:"For a terminal callback: once is a single attempt, restart a new ladder from tier 1. Default: once."`
	URL    string `name:"url" placeholder:"URL" help:"Send it to this address from now on."`
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
	JSON   bool   `name:"json" help:"Print the server's answer for machines."`
}

// Run asks for the attempt.
func (cmd *callbackRetry) Run(ctx context.Context, c *console) error {
	cl, err := newClient(c, cmd.clientFlags)
	if err != nil {
		return err
	}
	in := map[string]string{"ladder": cmd.Ladder}
	if cmd.URL != "" {
		in["url"] = cmd.URL
	}
	if cmd.Reason != "" {
		in["reason"] = cmd.Reason
	}
	var cb shownCallback
	answer, err := cl.call(ctx, http.MethodPost, callbackPath(cmd.ID)+"/retry", in, &cb)
	if err != nil {
		return err
	}
	if cmd.JSON {
		return printJSON(c, answer)
	}
	fmt.Fprintf(c.out, "%s  is %s and will be attempted now (see \"dispatcher callback get %[1]s\")\n", printable(cb.ID), printable(cb.State))
	return nil
}
