package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// A session is one run of a command: where it reads and writes, and the server that it asks.
type session struct {
	*console.Console
	ctx   context.Context
	flags remote.Flags
	// json: answers are shown for machines, as the server wrote them.
	json bool
	// maxAnswer is the most bytes of an answer; zero: the client's own bound.
	maxAnswer int64
	client    *remote.Client // nil until it is needed: what is wrong with the command line is said first
}

// serverFlags are those of every command that talks to a server.
type serverFlags struct{ remote.Flags }

// ProvideSession makes what the command is run with.
func (f *serverFlags) ProvideSession(ctx context.Context, c *console.Console) *session {
	return &session{Console: c, ctx: ctx, flags: f.Flags}
}

// answerFlags are those of a command that makes one request: which server it goes to, and how its answer is
// shown.
type answerFlags struct {
	serverFlags
	JSON bool `help:"Print the server's answer for machines."`
}

// ProvideSession makes what the command is run with.
func (f *answerFlags) ProvideSession(ctx context.Context, c *console.Console) *session {
	return &session{Console: c, ctx: ctx, flags: f.Flags, json: f.JSON}
}

// A reasonFlag says why something is changed.
type reasonFlag struct {
	Reason string `in:"reason" placeholder:"TEXT" help:"Why, for the audit."`
}

// changeFlags are those of a command that changes something.
type changeFlags struct {
	reasonFlag
	answerFlags
}

// A request is one call of the API.
type request struct {
	method, path string
	// in is the body, or a command whose flags say it; empty: none.
	in any
	// missing is said where what the path names does not exist; empty: the server's own sentence.
	missing string
}

func get(path string) request              { return request{method: http.MethodGet, path: path} }
func post(path string, in any) request     { return request{method: http.MethodPost, path: path, in: in} }
func (r request) orSay(say string) request { r.missing = say; return r }

// call makes a request and reads the answer into out, whose texts are safe for a terminal then; nil: it is
// not read.
func (c *session) call(r request, out any) ([]byte, error) {
	if err := r.fill(c); err != nil {
		return nil, err
	}
	if err := c.connect(); err != nil {
		return nil, err
	}
	answer, err := c.client.Call(c.ctx, r.method, r.path, r.in, out)
	if r.missing != "" {
		err = remote.InWords(err, r.missing)
	}
	switch out.(type) {
	case nil, *client.RevealedSecret, *client.RotatedSecret, *client.EndpointWithSecret: // PEM has lines
	default:
		console.MakeSafe(out)
	}
	return answer, err
}

// connect makes the client, unless there is one.
func (c *session) connect() (err error) {
	if c.client == nil {
		c.client, err = remote.NewWith(c.Console, c.flags, c.maxAnswer)
	}
	return err
}

// fill makes the body of what a command's flags say.
func (r *request) fill(c *session) error {
	if v := reflect.ValueOf(r.in); v.Kind() == reflect.Pointer {
		in, err := bodyOf(c, r.in)
		if err != nil {
			return err
		}
		r.in = in
	}
	if in, ok := r.in.(body); ok && len(in) == 0 {
		r.in = nil
	}
	return nil
}

// ask makes a request and shows the answer: by show, or for machines as the server wrote it.
func ask[T any](c *session, r request, show func(*T)) error {
	var out T
	answer, err := c.call(r, &out)
	if err != nil {
		return err
	}
	if c.json {
		return c.PrintJSON(answer)
	}
	show(&out)
	return nil
}

// done makes a request that has no answer, and says what was done.
func (c *session) done(r request, format string, args ...any) error {
	_, err := c.call(r, nil)
	if err == nil {
		c.printf(format+"\n", args...)
	}
	return err
}

// A cursorFlag says where a list goes on.
type cursorFlag struct {
	Cursor string `placeholder:"CURSOR" help:"Continue a list at the cursor that it ended with."`
}

// listFlags are those of every list.
type listFlags struct {
	serverFlags
	Limit int `default:"50" placeholder:"N" help:"Most entries to show. Default: 50."`
	cursorFlag
	JSON bool `help:"Print the server's answer for machines: one page, of at most 500."`
}

// ProvideSession makes what the command is run with.
func (f *listFlags) ProvideSession(ctx context.Context, c *console.Console) *session {
	return &session{Console: c, ctx: ctx, flags: f.Flags, json: f.JSON}
}

// list prints a list as a table, page after page up to the limit; q are the flags that narrow it, header
// names the columns, and row is one. None is what it says instead of an empty list.
func list[T any](
	c *session, f listFlags, path string, q any, none, header string, row func(*T) []any,
) error {
	if err := c.connect(); err != nil {
		return err
	}
	if f.Limit < 1 {
		return console.Wrong("--limit is at least 1")
	}
	p := &remote.Pager{Path: path, Query: queryOf(q), Limit: f.Limit, Most: remote.MostPerPage}
	p.Query.Set("cursor", f.Cursor)
	return showFound(c, p, none, header, row)
}

// showFound prints what a pager finds, safe for a terminal, and where the list goes on, if it does; for
// machines one page.
func showFound[T any](c *session, p *remote.Pager, none, header string, row func(*T) []any) error {
	if err := c.connect(); err != nil {
		return err
	}
	if c.json {
		answer, err := p.Page(c.ctx, c.client, p.Limit, nil)
		if err != nil {
			return err
		}
		return c.PrintJSON(answer)
	}
	found, err := remote.Pages[T](c.ctx, c.client, p)
	console.MakeSafe(&found)
	console.MakeSafe(&p.Next)
	switch {
	case err != nil:
		return err
	case len(found) > 0:
		console.ShowTable(c.Console, found, header, row)
	case p.Next == "":
		fmt.Fprintln(c.Out, none)
	default:
		c.printf("%s so far, after %s of looking; --from and --to make it shorter\n", none, p.Within)
	}
	if p.Next != "" {
		c.printf("\nthere are more: --cursor %s\n", p.Next)
	}
	return nil
}

// printf writes to the standard output.
func (c *session) printf(format string, args ...any) { fmt.Fprintf(c.Out, format, args...) }

// A body is that of a request, by the names of its members.
type body map[string]any

// bodyOf is the body that the flags of a command make, a pointer to a struct: those with the tag in:"NAME",
// or in:"NAME,HOW", unless they are empty. A name with a dot is that of a member's member, and one at an
// embedded struct that of the member that its flags make. How is for texts: choice (a name or an object),
// json, secret (both from a file, too); for lists: headers (NAME:VALUE), list (without blank ones); for
// switches: not, which is false.
func bodyOf(c *session, cmd any) (body, error) {
	in := body{}
	err := in.fill(c, reflect.ValueOf(cmd).Elem())
	return in, err
}

func (b body) fill(c *session, v reflect.Value) error {
	for i := range v.NumField() {
		field, err := v.Type().Field(i), error(nil)
		tag, tagged := field.Tag.Lookup("in")
		switch {
		case field.Anonymous && tagged:
			err = b.nested(tag).fill(c, v.Field(i))
		case field.Anonymous && field.Type.Kind() == reflect.Struct:
			err = b.fill(c, v.Field(i))
		case tagged && !v.Field(i).IsZero():
			err = b.put(c, tag, v.Field(i).Interface())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// put writes a value by the tag of its flag.
func (b body) put(c *session, tag string, value any) (err error) {
	name, how, _ := strings.Cut(tag, ",")
	if parent, child, nested := strings.Cut(name, "."); nested {
		b, name = b.nested(parent), child
	}
	switch how {
	case "choice":
		value, err = choice(c, name, value.(string))
	case "json":
		value, err = readJSON(c, name, value.(string))
	case "secret":
		value, err = c.ReadSecret(name, value.(string))
	case "headers":
		value, err = headers(value.([]string))
	case "list":
		list := console.NonEmpty(value.([]string))
		if len(list) == 0 {
			return nil
		}
		value = list
	case "not":
		value = false
	}
	b[name] = value
	return err
}

// nested is a member that has members itself.
func (b body) nested(name string) body {
	in, ok := b[name].(body)
	if !ok {
		in = body{}
		b[name] = in
	}
	return in
}

// queryOf is what the flags of a command say, as the parameters of a request.
func queryOf(cmd any) url.Values {
	q := url.Values{}
	in, err := bodyOf(nil, cmd)
	if err != nil {
		panic(err) // no flag of a query is read from a file
	}
	for name, value := range in {
		switch value := value.(type) {
		case []string:
			q[name] = value
		case map[string]string:
			for key, value := range value {
				q.Set(name+"."+key, value)
			}
		default:
			q.Set(name, fmt.Sprint(value))
		}
	}
	return q
}

// changes says whether there is anything in it but a reason.
func (b body) changes() bool {
	_, reason := b["reason"]
	return len(b) > 1 || len(b) == 1 && !reason
}

// clearable are the fields that can be taken away, by what --clear calls them.
var clearable = map[string]string{
	"policy": "policy", "success": "success", "signer": "signer", "external-id": "external_id",
	"rate": "rate", "concurrency": "concurrency",
	"name": "name", "url-override": "url_override", "topic": "topics", "topics": "topics",
	"header": "headers", "headers": "headers",
}

// headers reads those of the form NAME:VALUE.
func headers(lines []string) (map[string]string, error) {
	list := map[string]string{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return nil, console.Wrong("--header %q is not of the form NAME:VALUE", line)
		}
		if _, twice := list[name]; twice {
			return nil, console.Wrong("--header %s is given twice", name)
		}
		list[name] = strings.TrimSpace(value)
	}
	return list, nil
}

// choiceFlags say how something is to be sent; callbacks and endpoints have the same. Each is a name, or an
// object where no name says it.
type choiceFlags struct {
	Profile string `in:"profile" placeholder:"NAME" help:"Policy, success rule, signer and time limit in one word: alipay, wechat-v2, wechat-v3, standard, or one of the project's own."`
	Policy  string `in:"policy,choice" placeholder:"NAME|JSON|@FILE" help:"Policy: a name (see \"dispatcher policy list\"), exp(FIRST,FACTOR,LONGEST,COUNT), or an object such as {\"tiers\": [\"15s\", \"3m\"], \"timeout\": \"5s\"}."`
	Success string `in:"success,choice" placeholder:"NAME|JSON|@FILE" help:"Success rule: http-2xx, http-200, body-success, body-ok, alipay, wechat-v2-xml, wechat-v3, adyen-accepted, json-code, one of the project's own, or an object such as {\"status\": [200], \"body\": {\"equals\": \"OK\"}}."`
	Signer  string `in:"signer,choice" placeholder:"NAME|JSON|@FILE" help:"Signer: a name, or an object with its options such as {\"type\": \"sorted-kv\", \"alg\": \"md5\"}; \"dispatcher signer list\" explains them."`
}

// attemptChoices say how every attempt is to be made; endpoints and projects have the same.
type attemptChoices struct {
	choiceFlags
	Header []string `in:"headers,headers" short:"H" sep:"none" placeholder:"NAME:VALUE" help:"A header to send with every attempt; may be repeated."`
}

// choice reads the value of the flag of that name: a name, or a JSON object. What it means is the server's to
// judge.
func choice(c *session, flag, value string) (any, error) {
	text, err := c.ReadText(flag, value)
	text = strings.TrimSpace(text)
	if err != nil || !strings.HasPrefix(text, "{") {
		return text, err
	}
	return object(flag, text)
}

// object takes the text of a flag for a JSON object.
func object(flag, text string) (json.RawMessage, error) {
	if !strings.HasPrefix(text, "{") || !json.Valid([]byte(text)) {
		return nil, console.Wrong("--%s is not a JSON object%s", flag, console.SyntaxOf([]byte(text)))
	}
	return json.RawMessage(text), nil
}

// readObject reads the value of a flag of the form JSON|@FILE|- that is an object.
func readObject(c *session, flag, value string) (json.RawMessage, error) {
	text, err := c.ReadText(flag, value)
	if err != nil {
		return nil, err
	}
	return object(flag, strings.TrimSpace(text))
}

// readJSON reads the value of a flag of the form JSON|@FILE|-.
func readJSON(c *session, flag, value string) (json.RawMessage, error) {
	text, err := c.ReadText(flag, value)
	if err != nil {
		return nil, err
	}
	text = strings.TrimSpace(text)
	if !json.Valid([]byte(text)) {
		return nil, console.Wrong("--%s is not JSON%s", flag, console.SyntaxOf([]byte(text)))
	}
	return json.RawMessage(text), nil
}
