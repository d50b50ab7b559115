package cli

import (
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// requestFlags say which request is made, and where; callbacks and polls have the same. A command says with set:"method=…" which method is
// meant where none is given.
type requestFlags struct {
	URL         string   `in:"url" name:"url" placeholder:"URL" help:"Address that is called; with --endpoint it replaces only the endpoint's, if that one's url_override allows it."`
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
	data, err := console.ReadInput(c.Console, f.Data)
	if err != nil {
		return err
	}
	// Not as "payload", which ends where its JSON does: a file mostly has a line's end behind that, and signatures are over bytes.
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

// put writes them into the body of a request, as its policy. One that is named, or given whole, excludes them.
func (f *tierFlags) put(policy string, in body) error {
	if f.Tiers == nil {
		for flag, given := range map[string]bool{"repeat-last": f.RepeatLast, "deadline": f.Deadline != "", "timeout": f.Timeout != ""} {
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
