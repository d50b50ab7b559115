package cli

import (
	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// EventCommand has the commands for events.
type EventCommand struct {
	Send eventSend `cmd:"" set:"method=POST" help:"Send one event to all endpoints that subscribe to its topic."`
}

// contentFlags are the method, headers and body of a request.
type contentFlags struct {
	Method      string   `in:"method" placeholder:"METHOD" help:"HTTP method. Default: ${method}."`
	Data        string   `short:"d" placeholder:"TEXT|@FILE|-" help:"Body: a text, @FILE, or - for the standard input. Sent unchanged."`
	ContentType string   `in:"content_type" placeholder:"TYPE" help:"Content type of the body. Default: application/json if it is JSON, else text/plain or application/octet-stream."`
	Header      []string `in:"headers,headers" short:"H" sep:"none" placeholder:"NAME:VALUE" help:"A header to send. Can be repeated."`
}

// versionFlags are the order of a callback or an event among others.
type versionFlags struct {
	Supersede bool   `in:"supersede" help:"Cancel older versions with the same --ref and --topic. Needs --version."`
	Version   *int64 `in:"version" placeholder:"N" help:"Version of the object that --ref names; a higher number is newer."`
	Order     string `in:"order" placeholder:"strict" help:"With --lock-key: strict waits until all earlier callbacks with the same key have finished."`

	StartAttempt int `in:"start_attempt" placeholder:"N" help:"Number of the first attempt, if you made earlier ones elsewhere: with 4, the next wait is tier 4."`
}

// eventSend submits one event.
type eventSend struct {
	contentFlags
	Ref string `in:"ref" placeholder:"REF" help:"Business reference, such as an order number."`
	aboutFlags
	versionFlags
	Policy  string `in:"policy,choice" placeholder:"NAME|JSON|@FILE" help:"Policy, instead of that of each endpoint: a name (see \"dispatcher policy list\"), or an object."`
	Success string `in:"success,choice" placeholder:"NAME|JSON|@FILE" help:"Success rule, instead of that of each endpoint: a name (see \"dispatcher success-rule list\"), or an object."`
	tierFlags
	answerFlags
}

// Help is the text below the summary of event send --help.
func (*eventSend) Help() string {
	return "Each endpoint gets its own callback with the same body. URL, signer, secret and limits are " +
		"the endpoint's. An event without subscribers is accepted and creates no callback."
}

// Run submits the event and prints the ids of its callbacks.
func (cmd *eventSend) Run(c *session) error {
	if cmd.Topic == "" {
		return console.Wrong("give --topic: the endpoints that subscribe to it get the event")
	}
	in, err := bodyOf(c, cmd)
	if err == nil {
		err = cmd.tierFlags.put(cmd.Policy, in)
	}
	if err == nil {
		err = cmd.contentFlags.put(c, in)
	}
	if err != nil {
		return err
	}
	return printResponse(c, post("/v1/events", in), func(e *client.Event) {
		what := "accepted"
		if e.Replayed {
			what = "accepted before, with the same idempotency key"
		}
		if len(e.Callbacks) == 0 {
			c.printf("%s  %s; no endpoint subscribes to %s, so there is no callback\n", e.ID, what,
				console.Printable(cmd.Topic))
			return
		}
		c.printf("%s  %s; callbacks: %d\n", e.ID, what, len(e.Callbacks))
		for _, id := range e.Callbacks {
			c.printf("%s\n", id)
		}
	})
}
