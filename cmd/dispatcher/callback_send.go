package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"unicode/utf8"
)

// callbackSend submits one callback.
type callbackSend struct {
	clientFlags
	URL         string            `name:"url" placeholder:"URL" help:"Address that is called; with --endpoint it replaces only the endpoint's, if that one's url_override allows it."`
	Endpoint    string            `placeholder:"ID|EXTERNAL_ID" help:"Endpoint that is called, by its id or your own name for it, with its secret, signer, headers and limits."`
	Method      string            `placeholder:"METHOD" help:"HTTP method. Default: POST."`
	Data        string            `short:"d" placeholder:"TEXT|@FILE|-" help:"Body: the text itself, a file after @, or - for the standard input. Its bytes are sent as they are."`
	ContentType string            `placeholder:"TYPE" help:"Content type of the body. Default: application/json if it is JSON, else text/plain or application/octet-stream."`
	Header      []string          `short:"H" sep:"none" placeholder:"NAME:VALUE" help:"A header to send; may be repeated."`
	Topic       string            `placeholder:"TOPIC" help:"What happened, such as payment.succeeded."`
	Ref         string            `placeholder:"REF" help:"Business reference, such as an order number."`
	Supersede   bool              `help:"Cancel older ones of the same --ref and --topic; needs --version too."`
	Version     *int64            `placeholder:"N" help:"Which version of what --ref names this tells of; higher is newer."`
	LockKey     string            `placeholder:"KEY" help:"Callbacks with the same key are never attempted at the same time."`
	Order       string            `placeholder:"strict" help:"With --lock-key: strict starts it only after all with the same key that were accepted before it are terminal."`
	Lane        string            `placeholder:"LANE" help:"Isolation key. Default: the destination."`
	Label       map[string]string `mapsep:"none" placeholder:"NAME=VALUE" help:"A label; may be repeated."`
	Delay       string            `placeholder:"DURATION" help:"Wait so long before the first attempt."`
	DueAt       string            `placeholder:"TIME" help:"Make the first attempt at this time, RFC 3339."`
	ExpiresIn   string            `placeholder:"DURATION" help:"Give up so long after the first due time."`
	choiceFlags
	Tiers          []string `placeholder:"15s,3m" help:"Waits between attempts, instead of a policy."`
	Timeout        string   `placeholder:"DURATION" help:"With --tiers: time limit of one attempt."`
	IdempotencyKey string   `placeholder:"KEY" help:"The same key with the same request is accepted once."`
	JSON           bool     `name:"json" help:"Print the server's answer for machines."`
}

// maxInput is the most bytes of a body that are read from a file; the server's own limit is lower.
const maxInput = 1 << 20

// Run submits the callback and says what became of it.
func (cmd *callbackSend) Run(ctx context.Context, c *console) error {
	in, err := cmd.request(c)
	if err != nil {
		return err
	}
	cl, err := newClient(c, cmd.clientFlags)
	if err != nil {
		return err
	}
	var cb shownCallback
	answer, err := cl.call(ctx, http.MethodPost, "/v1/callbacks", in, &cb)
	if err != nil {
		return err
	}
	if cmd.JSON {
		return printJSON(c, answer)
	}
	what := "accepted"
	if cb.Replayed {
		what = "accepted before, with the same idempotency key"
	}
	fmt.Fprintf(c.out, "%s  %s (see \"dispatcher callback get %[1]s\")\n", printable(cb.ID), what)
	return nil
}

// request returns the body of the API call.
func (cmd *callbackSend) request(c *console) (map[string]any, error) {
	if cmd.URL == "" && cmd.Endpoint == "" {
		return nil, &usageError{lines: []string{"give --url or --endpoint"}}
	}
	in := map[string]any{}
	putTexts(in, map[string]string{
		"url": cmd.URL, "endpoint": cmd.Endpoint, "method": cmd.Method, "topic": cmd.Topic, "ref": cmd.Ref, "lock_key": cmd.LockKey,
		"order": cmd.Order, "lane": cmd.Lane, "delay": cmd.Delay, "due_at": cmd.DueAt, "expires_in": cmd.ExpiresIn,
		"idempotency_key": cmd.IdempotencyKey, "content_type": cmd.ContentType,
	})
	if len(cmd.Label) > 0 {
		in["labels"] = cmd.Label
	}
	if cmd.Supersede {
		in["supersede"] = true
	}
	if cmd.Version != nil {
		in["version"] = *cmd.Version
	}
	if err := cmd.choices(c, in); err != nil {
		return nil, err
	}
	headers, err := headerLines(cmd.Header)
	if err != nil {
		return nil, err
	}
	if len(headers) > 0 {
		in["headers"] = headers
	}
	if cmd.Data == "" {
		return in, nil
	}
	body, err := readInput(c, cmd.Data)
	if err != nil {
		return nil, err
	}
	// Not as "payload": encoding JSON within JSON would change its bytes, and signatures are over bytes.
	in["body_base64"] = base64.StdEncoding.EncodeToString(body)
	if cmd.ContentType == "" {
		in["content_type"] = guessType(body)
	}
	return in, nil
}

// choices puts policy, success rule and signer into the request. --tiers are a policy, in few words.
func (cmd *callbackSend) choices(c *console, in map[string]any) error {
	tiers := cmd.Tiers != nil
	switch {
	case tiers && cmd.Policy != "":
		return &usageError{lines: []string{"--policy and --tiers exclude each other"}}
	case !tiers && cmd.Timeout != "":
		return &usageError{lines: []string{"--timeout needs --tiers: a policy has its own"}}
	case tiers:
		policy := map[string]any{"tiers": nonEmpty(cmd.Tiers)}
		putTexts(policy, map[string]string{"timeout": cmd.Timeout})
		in["policy"] = policy
	}
	return cmd.put(c, in)
}

// nonEmpty returns the texts that are not blank, so that --tiers= means no tier at all.
func nonEmpty(texts []string) []string {
	out := []string{}
	for _, t := range texts {
		if t = strings.TrimSpace(t); t != "" {
			out = append(out, t)
		}
	}
	return out
}

// readInput returns what a flag of the form TEXT|@FILE|- names.
func readInput(c *console, data string) ([]byte, error) {
	var from io.Reader
	switch path, isFile := strings.CutPrefix(data, "@"); {
	case data == "-":
		from = c.in
	case isFile:
		f, err := os.Open(path)
		if err != nil {
			return nil, cannotRead(path, err)
		}
		defer f.Close()
		from = f
	default:
		return []byte(data), nil
	}
	body, err := io.ReadAll(io.LimitReader(from, maxInput+1))
	if err != nil {
		return nil, cannotRead(data, err)
	}
	if len(body) > maxInput {
		return nil, fmt.Errorf("%s is larger than %d KiB", data, maxInput>>10)
	}
	return body, nil
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
