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
	JSON bool   `help:"Print JSON for machines: the callback, and its attempts under \"attempts\"."`
	serverFlags
}

// Run shows the callback, its ladder and its attempts.
func (cmd *callbackGet) Run(c *session) error {
	var cb client.Callback
	return cmd.show(c, cmd.ID, cmd.JSON, get(remote.CallbackPath(cmd.ID)), &cb,
		func(attempts []client.Attempt) {
			showCallback(c, &cb, attempts, nil, time.Now())
		})
}

// attemptFlags are those of what shows attempts.
type attemptFlags struct {
	Attempts int `default:"50" placeholder:"N" help:"Most attempts to show, the newest; 0: every one. Default: 50."`
}

// show reads a callback into out, and its attempts, and shows them by show, or prints both for machines.
func (f *attemptFlags) show(
	c *session, id string, asJSON bool, r request, out any, show func([]client.Attempt),
) error {
	if f.Attempts < 0 {
		return console.Wrong("--attempts is at least 0")
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
		c.printf("\nolder attempts: %d more, --attempts 0 shows every one\n", list[0].Number-1)
	}
	return nil
}

// safeAttempts reads attempts as the server wrote them.
func safeAttempts(raw []json.RawMessage) ([]client.Attempt, error) {
	list, err := remote.DecodeAttempts(raw)
	console.MakeSafe(&list)
	return list, err
}

// printWithAttempts prints a callback as the server wrote it, with one more member.
func printWithAttempts(c *session, callback []byte, attempts []json.RawMessage) error {
	list, err := json.Marshal(attempts)
	if err != nil {
		return err
	}
	head := strings.TrimSuffix(strings.TrimSpace(string(callback)), "}") + ","
	return c.PrintJSON([]byte(head + `"attempts":` + string(list) + "}"))
}

// callbackList lists callbacks.
type callbackList struct {
	State       []string          `in:"state" placeholder:"STATE" help:"Only these states: scheduled, attempting, succeeded, dead, canceled."`
	Kind        string            `in:"kind" placeholder:"KIND" help:"Only this kind: notify or poll."`
	Topic       string            `in:"topic" placeholder:"TOPIC" help:"Only this topic."`
	Ref         string            `in:"ref" placeholder:"REF" help:"Only this reference."`
	LockKey     string            `in:"lock_key" placeholder:"KEY" help:"Only this lock key."`
	Endpoint    string            `in:"endpoint" placeholder:"ID|EXTERNAL_ID" help:"Only those for this endpoint."`
	Lane        string            `in:"lane" placeholder:"LANE" help:"Only this lane."`
	Class       string            `in:"class" placeholder:"CLASS" help:"Only those whose last attempt ended with this class, such as http_5xx."`
	Reason      string            `in:"reason" placeholder:"REASON" help:"Only those that ended for this reason, such as exhausted."`
	StatusCode  int               `in:"status_code" placeholder:"CODE" help:"Only those whose last attempt was answered with this status."`
	Label       map[string]string `in:"label" mapsep:"none" placeholder:"NAME=VALUE" help:"Only those with this label; may be repeated."`
	MinAttempts int               `in:"min_attempts" placeholder:"N" help:"Only those with at least so many charged attempts."`
	Overdue     bool              `in:"overdue" help:"Only those that should have been attempted already."`
	From        string            `in:"from" placeholder:"TIME" help:"Only those accepted at or after this time, RFC 3339."`
	To          string            `in:"to" placeholder:"TIME" help:"Only those accepted before this time, RFC 3339."`
	ByDue       bool              `help:"Open callbacks by due time, earliest first."`
	Limit       int               `default:"50" placeholder:"N" help:"Most callbacks to show, at most 500. Default: 50."`
	cursorFlag
	answerFlags
}

// searchTime is how long a list is looked through for callbacks that match before it is said where to go on.
const searchTime = 10 * time.Second

// Run prints up to the limit of callbacks. A rare callback is looked for page by page.
func (cmd *callbackList) Run(c *session) error {
	p := &remote.Pager{Path: "/v1/callbacks", Query: queryOf(cmd), Limit: cmd.Limit, Within: searchTime}
	p.Query.Set("cursor", cmd.Cursor)
	if cmd.ByDue {
		p.Query.Set("order", "due")
	}
	return showCallbacks(c, p)
}

// showCallbacks prints what a pager finds.
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

// callbackCancel cancels.
type callbackCancel struct {
	ID              string `arg:"" optional:"" help:"Id of the callback."`
	Ref             string `in:"ref" placeholder:"REF" help:"Cancel all open callbacks of this reference instead."`
	Topic           string `in:"topic" placeholder:"TOPIC" help:"With --ref: only those of this topic."`
	IncludeTerminal bool   `in:"include_terminal" help:"With --ref: tell of those too that had ended already, so that it is known what became of each."`
	changeFlags
}

// Run cancels and says of each callback what became of it.
func (cmd *callbackCancel) Run(c *session) error {
	if (cmd.ID == "") == (cmd.Ref == "") || (cmd.Topic != "" || cmd.IncludeTerminal) && cmd.Ref == "" {
		return console.Wrong("callback cancel needs either an id or --ref (with --topic or " +
			"--include-terminal if wanted)")
	}
	show := func(r *client.CancelResult) {
		sentence := meaning(r.Result)
		if cmd.IncludeTerminal && r.Result == "already_terminal" {
			sentence = "already terminal, " + stateText(c, &r.Callback)
		}
		c.printf("%s  %s\n", r.Callback.ID, sentence)
	}
	if cmd.ID != "" {
		return ask(c, post(remote.CallbackPath(cmd.ID)+"/cancel", cmd), show)
	}
	return ask(c, post("/v1/callbacks/cancel", cmd), func(all *client.Page[client.CancelResult]) {
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
	Ladder string `in:"ladder" default:"once" enum:"once,restart" help:"For a terminal callback: once is a single attempt, restart a new ladder from tier 1. Default: once."`
	URL    string `in:"url" placeholder:"URL" help:"Send it to this address from now on."`
	changeFlags
}

// Run asks for the attempt.
func (cmd *callbackRetry) Run(c *session) error {
	return ask(c, post(remote.CallbackPath(cmd.ID)+"/retry", cmd), func(cb *client.Callback) {
		c.printf("%s  is %s and will be attempted now (see \"dispatcher callback get %[1]s\")\n", cb.ID,
			cb.State)
	})
}

// requestFlags say which request is made, and where; callbacks and polls have the same. A command says with
// set:"method=…" which method is meant where none is given.
type requestFlags struct {
	URL         string   `in:"url" placeholder:"URL" help:"Address that is called; with --endpoint it replaces only the endpoint's, if that one's url_override allows it."`
	Endpoint    string   `in:"endpoint" placeholder:"ID|EXTERNAL_ID" help:"Endpoint that is called, by its id or your own name for it, with its secret, signer, headers and limits."`
	Method      string   `in:"method" placeholder:"METHOD" help:"HTTP method. Default: ${method}."`
	Data        string   `short:"d" placeholder:"TEXT|@FILE|-" help:"Body: the text itself, a file after @, or - for the standard input. Its bytes are sent as they are."`
	ContentType string   `in:"content_type" placeholder:"TYPE" help:"Content type of the body. Default: application/json if it is JSON, else text/plain or application/octet-stream."`
	Header      []string `in:"headers,headers" short:"H" sep:"none" placeholder:"NAME:VALUE" help:"A header to send; may be repeated."`
}

// put writes the request's body into the request that is told of.
func (f *requestFlags) put(c *session, in body) error {
	if f.URL == "" && f.Endpoint == "" {
		return console.Wrong("give --url or --endpoint")
	}
	if f.Data == "" {
		return nil
	}
	data, err := c.ReadInput(f.Data)
	if err != nil {
		return err
	}
	// Not as "payload", which ends where its JSON does: a file mostly has a line's end behind that, and
	// signatures are over bytes.
	in["body_base64"] = base64.StdEncoding.EncodeToString(data)
	if f.ContentType == "" {
		in["content_type"] = guessType(data)
	}
	return nil
}

// aboutFlags are what callbacks and polls have beside their request.
type aboutFlags struct {
	Topic          string            `in:"topic" placeholder:"TOPIC" help:"What it is about, such as payment.succeeded."`
	LockKey        string            `in:"lock_key" placeholder:"KEY" help:"Callbacks with the same key are never attempted at the same time."`
	Lane           string            `in:"lane" placeholder:"LANE" help:"Isolation key. Default: the destination."`
	Label          map[string]string `in:"labels" mapsep:"none" placeholder:"NAME=VALUE" help:"A label; may be repeated."`
	Delay          string            `in:"delay" placeholder:"DURATION" help:"Wait so long before the first attempt."`
	DueAt          string            `in:"due_at" placeholder:"TIME" help:"Make the first attempt at this time, RFC 3339."`
	ExpiresIn      string            `in:"expires_in" placeholder:"DURATION" help:"Give up so long after the first due time."`
	IdempotencyKey string            `in:"idempotency_key" placeholder:"KEY" help:"The same key with the same request is accepted once."`
}

// tierFlags are a policy in few words.
type tierFlags struct {
	Tiers      []string `placeholder:"15s,3m" help:"Waits between attempts, instead of a policy."`
	RepeatLast bool     `help:"With --tiers: go on with the last wait, until --deadline."`
	Deadline   string   `placeholder:"DURATION" help:"With --tiers: make no attempt so long after the first due time."`
	Timeout    string   `placeholder:"DURATION" help:"With --tiers: time limit of one attempt."`
}

// put writes them into the body of a request, as its policy. One that is named, or given whole, excludes
// them.
func (f *tierFlags) put(policy string, in body) error {
	if f.Tiers == nil {
		for flag, given := range map[string]bool{"repeat-last": f.RepeatLast, "deadline": f.Deadline != "",
			"timeout": f.Timeout != ""} {
			if given {
				return console.Wrong("--%s needs --tiers: a policy has its own", flag)
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
	Ref string `in:"ref" placeholder:"REF" help:"Business reference, such as an order number."`
	aboutFlags
	Supersede bool   `in:"supersede" help:"Cancel older ones of the same --ref and --topic; needs --version too."`
	Version   *int64 `in:"version" placeholder:"N" help:"Which version of what --ref names this tells of; higher is newer."`
	Order     string `in:"order" placeholder:"strict" help:"With --lock-key: strict starts it only after all with the same key that were accepted before it are terminal."`
	choiceFlags
	tierFlags
	answerFlags
}

// Run submits the callback and says what became of it.
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
	return ask(c, post("/v1/callbacks", in), func(cb *client.Callback) {
		what := "accepted"
		if cb.Replayed {
			what = "accepted before, with the same idempotency key"
		}
		c.printf("%s  %s (see \"dispatcher callback get %[1]s\")\n", cb.ID, what)
	})
}

// guessType returns the content type of a body that came without one.
func guessType(body []byte) string {
	switch {
	case json.Valid(body):
		return "application/json"
	case utf8.Valid(body):
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}
