package cli

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// CallbackCommand has the commands for callbacks.
type CallbackCommand struct {
	Send     callbackSend     `cmd:"" set:"method=POST" help:"Send one callback. It is retried until it is delivered or its attempts are used up."`
	Get      callbackGet      `cmd:"" help:"Show one callback with its attempts and its retry schedule."`
	List     callbackList     `cmd:"" help:"List callbacks, newest first."`
	Explain  callbackExplain  `cmd:"" help:"Show why a callback is not sent yet, and what to do."`
	Evidence callbackEvidence `cmd:"" help:"Print a delivery report of a callback, for the dispute \"we never got it\"."`
	Payload  callbackPayload  `cmd:"" help:"Print the body that a callback sends."`
	Cancel   callbackCancel   `cmd:"" help:"Cancel one callback, or all open callbacks of a reference."`
	Retry    callbackRetry    `cmd:"" help:"Retry one callback now: the next attempt of an open one, or a new attempt of a finished one."`

	Reschedule callbackReschedule `cmd:"" help:"Move the next attempt of a scheduled callback, or revive a dead one at that time."`
	Set        callbackSet        `cmd:"" help:"Change the URL, headers, policy or expiry of a scheduled or dead callback."`
}

// callbackGet shows one callback.
type callbackGet struct {
	attemptFlags
	ID   string `arg:"" help:"Id of the callback, cb_ and 26 characters."`
	JSON bool   `help:"Print JSON for machines: the callback, and its attempts under \"attempts\"."`
	serverFlags
}

// Run prints the callback, its attempts and the times of the remaining ones.
func (cmd *callbackGet) Run(c *session) error {
	var cb client.Callback
	return cmd.show(c, cmd.ID, cmd.JSON, get(remote.CallbackPath(cmd.ID)), &cb,
		func(attempts []client.Attempt) {
			showCallback(c, &cb, attempts, nil, time.Now())
		})
}

// attemptFlags are the flags of a command that prints attempts.
type attemptFlags struct {
	Attempts int `default:"50" placeholder:"N" help:"Maximum number of attempts, newest ones first; 0: all. Default: 50."`
}

// show reads a callback into out, then its attempts. It prints both as JSON, or passes the attempts to show.
func (f *attemptFlags) show(
	c *session, id string, asJSON bool, r request, out any, show func([]client.Attempt),
) error {
	if f.Attempts < 0 {
		return console.Wrong("--attempts must be at least 0")
	}
	answer, err := c.call(r, out)
	if err != nil {
		return err
	}
	raw, err := remote.NewestAttempts(c.ctx, c.client, id, f.Attempts)
	if err != nil {
		return err
	}
	if asJSON {
		return printWithAttempts(c, answer, raw)
	}
	list, err := safeAttempts(raw)
	if err != nil {
		return err
	}
	show(list)
	if len(list) > 0 && list[0].Number > 1 {
		c.printf("\n%d older attempts; --attempts 0 shows all\n", list[0].Number-1)
	}
	return nil
}

// safeAttempts decodes attempts and makes their texts safe for a terminal.
func safeAttempts(raw []json.RawMessage) ([]client.Attempt, error) {
	list, err := remote.DecodeAttempts(raw)
	console.MakeSafe(&list)
	return list, err
}

// printWithAttempts prints a callback as the server wrote it, with the additional member attempts.
func printWithAttempts(c *session, callback []byte, attempts []json.RawMessage) error {
	list, err := json.Marshal(attempts)
	if err != nil {
		return err
	}
	head := strings.TrimSuffix(strings.TrimSpace(string(callback)), "}") + ","
	return c.PrintJSON([]byte(head + `"attempts":` + string(list) + "}"))
}

// filterFlags select callbacks. Lists and redrives share them.
type filterFlags struct {
	State       []string          `in:"state" placeholder:"STATE" help:"Only these states: scheduled, attempting, succeeded, dead, canceled."`
	Kind        string            `in:"kind" placeholder:"KIND" help:"Only this kind: notify or poll."`
	Topic       string            `in:"topic" placeholder:"TOPIC" help:"Only this topic."`
	Ref         string            `in:"ref" placeholder:"REF" help:"Only this reference."`
	LockKey     string            `in:"lock_key" placeholder:"KEY" help:"Only this lock key."`
	Endpoint    string            `in:"endpoint" placeholder:"ID|EXTERNAL_ID" help:"Only callbacks to this endpoint."`
	Lane        string            `in:"lane" placeholder:"LANE" help:"Only this lane."`
	Class       string            `in:"class" placeholder:"CLASS" help:"Only if the last attempt had this class, such as http_5xx."`
	StatusCode  int               `in:"status_code" placeholder:"CODE" help:"Only if the last attempt got this status."`
	Label       map[string]string `in:"label" mapsep:"none" placeholder:"NAME=VALUE" help:"Only with this label. Can be repeated."`
	MinAttempts int               `in:"min_attempts" placeholder:"N" help:"Only with at least this many counted attempts."`
	Overdue     bool              `in:"overdue" help:"Only overdue callbacks."`
	From        string            `in:"from" placeholder:"TIME" help:"Only if accepted at or after this time, RFC 3339."`
	To          string            `in:"to" placeholder:"TIME" help:"Only if accepted before this time, RFC 3339."`

	FinishedFrom string `in:"finished_from" placeholder:"TIME" help:"Only if finished at or after this time, RFC 3339."`
	FinishedTo   string `in:"finished_to" placeholder:"TIME" help:"Only if finished before this time, RFC 3339."`
}

// callbackList lists callbacks.
type callbackList struct {
	filterFlags
	Reason string `in:"reason" aliases:"end-reason" placeholder:"REASON" help:"Only if they ended for this reason, such as exhausted."`

	ByDue bool `help:"List open callbacks by due time, earliest first."`
	Limit int  `default:"50" placeholder:"N" help:"Maximum number of callbacks. Default: 50."`
	CSV   bool `xor:"form" help:"Print CSV for spreadsheets."`
	cursorFlag
	serverFlags
	JSON bool `xor:"form" help:"Print the server's response as JSON: one page of up to 500."`
}

// searchTime limits the search of a list. After it, the list prints the cursor to continue from.
const searchTime = 10 * time.Second

// Run prints up to Limit callbacks. Rare matches may take several pages.
func (cmd *callbackList) Run(c *session) error {
	p := &remote.Pager{Path: "/v1/callbacks", Query: queryOf(cmd), Limit: cmd.Limit, Within: searchTime}
	p.Query.Set("cursor", cmd.Cursor)
	if cmd.ByDue {
		p.Query.Set("order", "due")
	}
	if cmd.CSV {
		return printCSV(c, p)
	}
	c.json = cmd.JSON
	return showCallbacks(c, p)
}

// showCallbacks prints the callbacks that a pager finds.
func showCallbacks(c *session, p *remote.Pager) error {
	header := "id, state, attempts, due, last, topic, ref, url"
	return showFound(c, p, "no callbacks match", header, func(cb *client.Callback) []any {
		return []any{
			cb.ID, stateText(c, cb), attemptCount(cb), whenDue(cb, time.Now()), remote.LastOf(cb),
			console.Short(cb.Topic, 32),
			console.Short(cb.Ref, 32), console.Short(cb.URL, console.Widest),
		}
	})
}

// callbackCancel cancels callbacks.
type callbackCancel struct {
	ID              string `arg:"" optional:"" help:"Id of the callback."`
	Ref             string `in:"ref" placeholder:"REF" help:"Cancel all open callbacks of this reference."`
	Topic           string `in:"topic" placeholder:"TOPIC" help:"With --ref: only callbacks of this topic."`
	IncludeTerminal bool   `in:"include_terminal" help:"With --ref: also list callbacks that had already finished."`
	changeFlags
}

// Run cancels the callbacks and prints the result of each.
func (cmd *callbackCancel) Run(c *session) error {
	if (cmd.ID == "") == (cmd.Ref == "") || (cmd.Topic != "" || cmd.IncludeTerminal) && cmd.Ref == "" {
		return console.Wrong("give either an id or --ref; --topic and --include-terminal " +
			"need --ref")
	}
	show := func(r *client.CancelResult) {
		sentence := meaning(r.Result)
		if cmd.IncludeTerminal && r.Result == "already_terminal" {
			sentence = "already finished, " + stateText(c, &r.Callback)
		}
		c.printf("%s  %s\n", r.Callback.ID, sentence)
	}
	if cmd.ID != "" {
		return printResponse(c, post(remote.CallbackPath(cmd.ID)+"/cancel", cmd), show)
	}
	return printResponse(c, post("/v1/callbacks/cancel", cmd), func(all *client.Page[client.CancelResult]) {
		for i := range all.Data {
			show(&all.Data[i])
		}
		switch {
		case len(all.Data) > 0:
		case cmd.IncludeTerminal:
			c.printf("no callback has this reference\n")
		default:
			c.printf("no open callback has this reference\n")
		}
	})
}

// callbackRetry attempts a callback now.
type callbackRetry struct {
	ID     string `arg:"" help:"Id of the callback."`
	Ladder string `in:"ladder" default:"once" enum:"once,restart" help:"For a finished callback. once: a single attempt; restart: the whole retry schedule again. Default: once."`
	URL    string `in:"url" placeholder:"URL" help:"Send it to this URL from now on."`
	changeFlags
}

// Run requests the attempt.
func (cmd *callbackRetry) Run(c *session) error {
	return printResponse(c, post(remote.CallbackPath(cmd.ID)+"/retry", cmd), func(cb *client.Callback) {
		c.printf("%s  is %s and will be attempted now (see \"dispatcher callback get %[1]s\")\n", cb.ID,
			cb.State)
	})
}

// requestFlags describe the HTTP request of a callback or a poll. The tag set:"method=…" of a command is the
// default method in its help text.
type requestFlags struct {
	URL      string `in:"url" placeholder:"URL" help:"URL that is called. With --endpoint, it replaces the endpoint's URL if its url_override allows that."`
	Endpoint string `in:"endpoint" placeholder:"ID|EXTERNAL_ID" help:"Endpoint that is called, by its id or external id. Its secret, signer, headers and limits apply."`
	contentFlags
}

// put checks that the flags name a destination, and adds their body to in, the description of the request.
func (f *requestFlags) put(c *session, in body) error {
	if f.URL == "" && f.Endpoint == "" {
		return console.Wrong("give --url or --endpoint")
	}
	return f.contentFlags.put(c, in)
}

// put adds the body of the flags to in, the description of the request.
func (f *contentFlags) put(c *session, in body) error {
	if f.Data == "" {
		return nil
	}
	data, err := c.ReadInput(f.Data)
	if err != nil {
		return err
	}
	// "payload" would drop bytes after the end of its JSON, such as the newline at the end of a file, but the
	// signature covers all bytes.
	in["body_base64"] = base64.StdEncoding.EncodeToString(data)
	if f.ContentType == "" {
		in["content_type"] = guessType(data)
	}
	return nil
}

// aboutFlags are the flags of a callback or a poll apart from its request.
type aboutFlags struct {
	Topic          string            `in:"topic" placeholder:"TOPIC" help:"Event type, such as payment.succeeded."`
	LockKey        string            `in:"lock_key" placeholder:"KEY" help:"Callbacks with the same key are never attempted at the same time."`
	Label          map[string]string `in:"labels" mapsep:"none" placeholder:"NAME=VALUE" help:"A label. Can be repeated."`
	Delay          string            `in:"delay" placeholder:"DURATION" help:"Time to wait before the first attempt."`
	DueAt          string            `in:"due_at" placeholder:"TIME" help:"Time of the first attempt, RFC 3339."`
	ExpiresIn      string            `in:"expires_in" placeholder:"DURATION" help:"Give up this long after the first due time."`
	IdempotencyKey string            `in:"idempotency_key" placeholder:"KEY" help:"Requests with the same key are accepted only once."`
}

// tierFlags are a policy in short form.
type tierFlags struct {
	Tiers      []string `placeholder:"15s,3m" help:"Waits between attempts, instead of a policy."`
	RepeatLast bool     `help:"With --tiers: repeat the last wait until --deadline."`
	Deadline   string   `placeholder:"DURATION" help:"With --tiers: make no attempt later than this after the first due time."`
	Timeout    string   `placeholder:"DURATION" help:"With --tiers: timeout of one attempt."`
}

// put adds the flags to the body of a request, as its policy. policy is the value of --policy, which excludes
// them.
func (f *tierFlags) put(policy string, in body) error {
	if f.Tiers == nil {
		for flag, given := range map[string]bool{"repeat-last": f.RepeatLast, "deadline": f.Deadline != "",
			"timeout": f.Timeout != ""} {
			if given {
				return console.Wrong("--%s needs --tiers; a policy has its own value", flag)
			}
		}
		return nil
	}
	if policy != "" {
		return console.Wrong("--policy and --tiers exclude each other")
	}
	in["policy"] = struct {
		Deadline   string   `json:"deadline,omitempty"`
		RepeatLast bool     `json:"repeat_last,omitempty"`
		Tiers      []string `json:"tiers"`
		Timeout    string   `json:"timeout,omitempty"`
	}{f.Deadline, f.RepeatLast, console.NonEmpty(f.Tiers), f.Timeout}
	return nil
}

// callbackSend submits one callback.
type callbackSend struct {
	requestFlags
	Ref  string `in:"ref" placeholder:"REF" help:"Business reference, such as an order number."`
	Lane string `in:"lane" placeholder:"LANE" help:"Isolation key. Default: the destination."`
	aboutFlags
	versionFlags
	choiceFlags
	tierFlags
	answerFlags
}

// Run submits the callback and prints its id.
func (cmd *callbackSend) Run(c *session) error {
	in, err := bodyOf(c, cmd)
	if err == nil {
		err = cmd.tierFlags.put(cmd.Policy, in)
	}
	if err == nil {
		err = cmd.requestFlags.put(c, in)
	}
	if err != nil {
		return err
	}
	return printResponse(c, post("/v1/callbacks", in), func(cb *client.Callback) {
		what := "accepted"
		if cb.Replayed {
			what = "accepted before, with the same idempotency key"
		}
		c.printf("%s  %s (see \"dispatcher callback get %[1]s\")\n", cb.ID, what)
	})
}

// guessType returns the content type of a body that has none.
func guessType(body []byte) string {
	switch {
	case json.Valid(body):
		return "application/json"
	case utf8.Valid(body):
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}
