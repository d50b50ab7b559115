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

// session is one run of a command: its input and output, and the server that it talks to.
type session struct {
	*console.Console
	ctx   context.Context
	flags remote.Flags
	// json: print responses as JSON, as the server wrote them.
	json bool
	// maxAnswer limits the bytes of a response; zero: the client's own limit.
	maxAnswer int64
	// client is nil until the first request, so that errors of the command line are reported first.
	client *remote.Client
}

// serverFlags are the flags of every command that talks to a server.
type serverFlags struct{ remote.Flags }

// ProvideSession returns the session that kong passes to Run.
func (f *serverFlags) ProvideSession(ctx context.Context, c *console.Console) *session {
	return &session{Console: c, ctx: ctx, flags: f.Flags}
}

// answerFlags are the flags of a command that makes one request and prints the response.
type answerFlags struct {
	serverFlags
	JSON bool `help:"Print the server's response as JSON."`
}

// ProvideSession returns the session that kong passes to Run.
func (f *answerFlags) ProvideSession(ctx context.Context, c *console.Console) *session {
	return &session{Console: c, ctx: ctx, flags: f.Flags, json: f.JSON}
}

// reasonFlag is the reason of a change.
type reasonFlag struct {
	Reason string `in:"reason" placeholder:"TEXT" help:"Reason, for the audit log."`
}

// changeFlags are the flags of a command that changes something.
type changeFlags struct {
	reasonFlag
	answerFlags
}

// request is one call of the API.
type request struct {
	method, path string
	// in is the body, or a pointer to a command whose flags make the body; nil: no body.
	in any
	// missing replaces the detail of a 404 response; empty: the server's own detail is printed.
	missing string
}

func get(path string) request          { return request{method: http.MethodGet, path: path} }
func post(path string, in any) request { return request{method: http.MethodPost, path: path, in: in} }

func (r request) onMissing(message string) request { r.missing = message; return r }

// call makes a request and decodes the response into out, unless out is nil. The texts in out are then safe
// for a terminal.
func (c *session) call(r request, out any) ([]byte, error) {
	if err := r.fill(c); err != nil {
		return nil, err
	}
	if err := c.connect(); err != nil {
		return nil, err
	}
	answer, err := c.client.Call(c.ctx, r.method, r.path, r.in, out)
	if r.missing != "" {
		err = remote.WithDetail(err, r.missing)
	}
	switch out.(type) {
	case nil:
	case *client.RevealedSecret, *client.RotatedSecret, *client.EndpointWithSecret:
		// The PEM of a secret needs its newlines.
	default:
		console.MakeSafe(out)
	}
	return answer, err
}

// connect creates the client at the first call.
func (c *session) connect() (err error) {
	if c.client == nil {
		c.client, err = remote.NewWith(c.Console, c.flags, c.maxAnswer)
	}
	return err
}

// fill replaces a command in r.in by the body that its flags make.
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

// printResponse makes a request and prints the response, with show or as JSON.
func printResponse[T any](c *session, r request, show func(*T)) error {
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

// done makes a request without a response body and prints a message.
func (c *session) done(r request, format string, args ...any) error {
	_, err := c.call(r, nil)
	if err == nil {
		c.printf(format+"\n", args...)
	}
	return err
}

// cursorFlag is where a list continues.
type cursorFlag struct {
	Cursor string `placeholder:"CURSOR" help:"Continue a list at the cursor that it printed."`
}

// listFlags are the flags of every list.
type listFlags struct {
	serverFlags
	Limit int `default:"50" placeholder:"N" help:"Maximum number of entries. Default: 50."`
	cursorFlag
	JSON bool `help:"Print the server's response as JSON: one page of up to 500."`
}

// ProvideSession returns the session that kong passes to Run.
func (f *listFlags) ProvideSession(ctx context.Context, c *console.Console) *session {
	return &session{Console: c, ctx: ctx, flags: f.Flags, json: f.JSON}
}

// list prints a list as a table, page by page up to the limit. q has the filter flags, header names the
// columns, and row returns the cells of an entry. none is printed instead of an empty list.
func list[T any](
	c *session, f listFlags, path string, q any, none, header string, row func(*T) []any,
) error {
	if err := c.connect(); err != nil {
		return err
	}
	if f.Limit < 1 {
		return console.Wrong("--limit must be at least 1")
	}
	p := &remote.Pager{Path: path, Query: queryOf(q), Limit: f.Limit, Most: remote.MostPerPage}
	p.Query.Set("cursor", f.Cursor)
	return showFound(c, p, none, header, row)
}

// showFound prints the entries that a pager finds, and the cursor if there are more. As JSON it prints one
// page.
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
		c.printf("%s so far, after searching for %s; use --from and --to to search less\n", none, p.Within)
	}
	if p.Next != "" {
		c.printf("\nmore: --cursor %s\n", p.Next)
	}
	return nil
}

// printf writes to the standard output.
func (c *session) printf(format string, args ...any) { fmt.Fprintf(c.Out, format, args...) }

// body is the body of a request by member names.
type body map[string]any

// bodyOf builds a request body from the flags of a command, a pointer to a struct. It uses the fields with
// the tag in:"NAME" or in:"NAME,HOW" that are not empty.
//
// NAME can be PARENT.CHILD, for a member of a member. On an embedded struct, NAME is the member that gets the
// struct's flags.
//
// HOW converts the value. For texts: choice (a name or an object), json and secret; these three also read
// @FILE. For lists: headers (NAME:VALUE) and list (drops blank elements). For switches: not, which sends
// false.
func bodyOf(c *session, cmd any) (body, error) {
	in := body{}
	err := in.fill(c, reflect.ValueOf(cmd).Elem())
	return in, err
}

// fill adds the tagged flags of a struct, and of the structs that it embeds.
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

// put adds a value to the body by the tag of its flag.
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

// nested returns the member of that name, which has members itself. It creates the member if necessary.
func (b body) nested(name string) body {
	in, ok := b[name].(body)
	if !ok {
		in = body{}
		b[name] = in
	}
	return in
}

// queryOf returns the flags of a command as query parameters.
func queryOf(cmd any) url.Values {
	q := url.Values{}
	in, err := bodyOf(nil, cmd)
	if err != nil {
		panic(err) // no query flag reads a file, so no error is possible
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

// changes reports whether the body has more than a reason.
func (b body) changes() bool {
	_, reason := b["reason"]
	return len(b) > 1 || len(b) == 1 && !reason
}

// clearable maps the names that --clear accepts to the fields of the API.
var clearable = map[string]string{
	"policy": "policy", "success": "success", "signer": "signer", "external-id": "external_id",
	"rate": "rate", "concurrency": "concurrency",
	"name": "name", "url-override": "url_override", "topic": "topics", "topics": "topics",
	"header": "headers", "headers": "headers",
}

// headers parses lines of the form NAME:VALUE.
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

// choiceFlags are how something is sent. Callbacks, endpoints and projects share them. Each is a name or an
// object.
type choiceFlags struct {
	Profile string `in:"profile" placeholder:"NAME" help:"Preset for policy, success rule, signer and timeout: alipay, wechat-v2, wechat-v3, standard, or one of the project's own."`
	Policy  string `in:"policy,choice" placeholder:"NAME|JSON|@FILE" help:"Policy: a name (see \"dispatcher policy list\"), exp(BASE,FACTOR,MAX,COUNT), or an object such as {\"tiers\": [\"15s\", \"3m\"], \"timeout\": \"5s\"}."`
	Success string `in:"success,choice" placeholder:"NAME|JSON|@FILE" help:"Success rule: http-2xx, http-200, body-success, body-ok, alipay, wechat-v2-xml, wechat-v3, adyen-accepted, json-code, one of the project's own, or an object such as {\"status\": [200], \"body\": {\"equals\": \"OK\"}}."`
	Signer  string `in:"signer,choice" placeholder:"NAME|JSON|@FILE" help:"Signer: a name, or an object with its options such as {\"type\": \"sorted-kv\", \"alg\": \"md5\"}; \"dispatcher signer list\" explains them."`
}

// attemptChoices are how each attempt is made. Endpoints and projects share them.
type attemptChoices struct {
	choiceFlags
	Header []string `in:"headers,headers" short:"H" sep:"none" placeholder:"NAME:VALUE" help:"A header to send with every attempt. Can be repeated."`
}

// choice reads a flag that is a name or a JSON object. The server validates it.
func choice(c *session, flag, value string) (any, error) {
	text, err := c.ReadText(flag, value)
	text = strings.TrimSpace(text)
	if err != nil || !strings.HasPrefix(text, "{") {
		return text, err
	}
	return object(flag, text)
}

// object checks that the text of a flag is a JSON object.
func object(flag, text string) (json.RawMessage, error) {
	if !strings.HasPrefix(text, "{") || !json.Valid([]byte(text)) {
		return nil, console.Wrong("--%s is not a JSON object%s", flag, console.SyntaxOf([]byte(text)))
	}
	return json.RawMessage(text), nil
}

// readObject reads a flag of the form JSON|@FILE|- that must be an object.
func readObject(c *session, flag, value string) (json.RawMessage, error) {
	text, err := c.ReadText(flag, value)
	if err != nil {
		return nil, err
	}
	return object(flag, strings.TrimSpace(text))
}

// readJSON reads a flag of the form JSON|@FILE|-.
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
