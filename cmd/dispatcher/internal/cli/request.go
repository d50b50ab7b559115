package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// answerFlags are those of a command that makes one request: which server it goes to, and how its answer is shown.
type answerFlags struct {
	remote.Flags
	JSON bool `name:"json" help:"Print the server's answer for machines."`
}

// changeFlags are those of a command that changes something.
type changeFlags struct {
	Reason string `placeholder:"TEXT" help:"Why, for the audit."`
	answerFlags
}

// A request is one call of the API.
type request struct {
	method, path string
	// in is the body; nil: none.
	in any
	// missing is said where what the path names does not exist; empty: the server's own sentence.
	missing string
}

func get(path string) request              { return request{method: http.MethodGet, path: path} }
func post(path string, in any) request     { return request{method: http.MethodPost, path: path, in: in} }
func (r request) orSay(say string) request { r.missing = say; return r }

// made makes the request and reads the answer into out; nil: it is not read.
func (r request) made(ctx context.Context, cl *remote.Client, out any) ([]byte, error) {
	answer, err := cl.Call(ctx, r.method, r.path, r.in, out)
	if r.missing != "" {
		err = remote.InWords(err, "%s", r.missing)
	}
	return answer, err
}

// ask makes a request and shows the answer: by show, or for machines as the server wrote it.
func ask[T any](ctx context.Context, c *console.Console, f answerFlags, r request, show func(*T)) error {
	cl, err := remote.New(c, f.Flags)
	if err != nil {
		return err
	}
	return askAt(ctx, c, cl, f.JSON, r, show)
}

// askAt is ask with a client that there is already.
func askAt[T any](
	ctx context.Context, c *console.Console, cl *remote.Client, asJSON bool, r request, show func(*T),
) error {
	var out T
	answer, err := r.made(ctx, cl, &out)
	if err != nil {
		return err
	}
	if asJSON {
		return console.PrintJSON(c, answer)
	}
	show(&out)
	return nil
}

// listFlags are those of every list.
type listFlags struct {
	remote.Flags
	Limit  int    `default:"50" placeholder:"N" help:"Most entries to show. Default: 50."`
	Cursor string `placeholder:"CURSOR" help:"Continue a list at the cursor that it ended with."`
	JSON   bool   `name:"json" help:"Print the server's answer for machines: one page, of at most 500."`
}

// list prints a list as a table, page after page up to the limit. None is what it says instead of an empty one.
func list[T any](
	ctx context.Context, c *console.Console, f listFlags, path string, q url.Values, none string, columns []console.Column[T],
) error {
	cl, err := remote.New(c, f.Flags)
	if err != nil {
		return err
	}
	if f.Limit < 1 {
		return console.Wrong("--limit is at least 1")
	}
	if f.JSON {
		answer, err := remote.Page(ctx, cl, path, q, f.Limit, f.Cursor, nil)
		if err != nil {
			return err
		}
		return console.PrintJSON(c, answer)
	}
	var found []T
	next := f.Cursor
	for first := true; first || next != "" && len(found) < f.Limit; first = false {
		var page client.Page[T]
		if _, err := remote.Page(ctx, cl, path, q, min(f.Limit-len(found), remote.MostPerPage), next, &page); err != nil {
			return err
		}
		found, next = append(found, page.Data...), page.NextCursor
	}
	if len(found) == 0 {
		fmt.Fprintln(c.Out, none)
		return nil
	}
	console.ShowTable(c, found, columns)
	showMore(c, next)
	return nil
}

// showMore says where a list goes on, if it does.
func showMore(c *console.Console, cursor string) {
	if cursor != "" {
		fmt.Fprintf(c.Out, "\nthere are more: --cursor %s\n", console.Printable(cursor))
	}
}

// parameters is a query of those that are not empty, in pairs of name and value.
func parameters(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// yes is the value of a parameter that is given or not.
func yes(given bool) string {
	if given {
		return "true"
	}
	return ""
}

// reasonOf is the body of a request that needs nothing but a reason; nil: none was given.
func reasonOf(reason string) any {
	if reason == "" {
		return nil
	}
	return map[string]string{"reason": reason}
}

// A body is that of a request, by the names of its members.
type body map[string]any

// texts puts those that are not empty into it, in pairs of name and text.
func (b body) texts(pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			b[pairs[i]] = pairs[i+1]
		}
	}
}

// clear takes fields away, which fieldOf finds by what --clear calls them; among says which there are.
func (b body) clear(names []string, fieldOf map[string]string, among string) error {
	for _, name := range names {
		field := fieldOf[strings.ReplaceAll(strings.TrimSpace(name), "_", "-")]
		switch _, given := b[field]; {
		case field == "":
			return console.Wrong("--clear %q: it is %s", name, among)
		case given:
			return console.Wrong("--clear %s takes away what another flag gives, or stands twice", name)
		}
		b[field] = nil
	}
	return nil
}

// headers puts in those of the form NAME:VALUE.
func (b body) headers(lines []string) error {
	headers := map[string]string{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return console.Wrong("--header %q is not of the form NAME:VALUE", line)
		}
		if _, twice := headers[name]; twice {
			return console.Wrong("--header %s is given twice", name)
		}
		headers[name] = strings.TrimSpace(value)
	}
	if len(headers) > 0 {
		b["headers"] = headers
	}
	return nil
}

// choiceFlags say how something is to be sent; callbacks and endpoints have the same. Each is a name, or an object where no name says it.
type choiceFlags struct {
	Profile string `placeholder:"NAME" help:"Policy, success rule, signer and time limit in one word: alipay, wechat-v2, wechat-v3, standard, or one of the project's own."`
	Policy  string `placeholder:"NAME|JSON|@FILE" help:"Policy: a name (see \"dispatcher policy list\"), exp(FIRST,FACTOR,LONGEST,COUNT), or an object such as {\"tiers\": [\"15s\", \"3m\"], \"timeout\": \"5s\"}."`
	Success string `placeholder:"NAME|JSON|@FILE" help:"Success rule: http-2xx, http-200, body-success, body-ok, alipay, wechat-v2-xml, wechat-v3, adyen-accepted, json-code, one of the project's own, or an object such as {\"status\": [200], \"body\": {\"equals\": \"OK\"}}."`
	Signer  string `placeholder:"NAME|JSON|@FILE" help:"Signer: a name, or an object with its options such as {\"type\": \"sorted-kv\", \"alg\": \"md5\"}; \"dispatcher signer list\" explains them."`
}

// put writes what was given into the body of a request.
func (f *choiceFlags) put(c *console.Console, in body) error {
	in.texts("profile", f.Profile)
	for _, choice := range [][2]string{{"policy", f.Policy}, {"success", f.Success}, {"signer", f.Signer}} {
		if err := in.choice(c, choice[0], choice[1]); err != nil {
			return err
		}
	}
	return nil
}

// choice puts in the value of the flag of that name, unless it is empty: a name or a JSON object. What it means is the
// server's to judge.
func (b body) choice(c *console.Console, name, value string) error {
	if value == "" {
		return nil
	}
	text, err := console.ReadText(c, name, value)
	if err != nil {
		return err
	}
	if text = strings.TrimSpace(text); !strings.HasPrefix(text, "{") {
		b[name] = text
		return nil
	}
	b[name], err = object(name, text)
	return err
}

// object takes the text of a flag for a JSON object.
func object(flag, text string) (json.RawMessage, error) {
	if !strings.HasPrefix(text, "{") || !json.Valid([]byte(text)) {
		return nil, console.Wrong("--%s is not a JSON object%s", flag, console.SyntaxOf([]byte(text)))
	}
	return json.RawMessage(text), nil
}

// readObject reads the value of a flag of the form JSON|@FILE|- that is an object.
func readObject(c *console.Console, flag, value string) (json.RawMessage, error) {
	text, err := console.ReadText(c, flag, value)
	if err != nil {
		return nil, err
	}
	return object(flag, strings.TrimSpace(text))
}

// json puts in the value of the flag of that name, of the form JSON|@FILE|-, unless it is empty.
func (b body) json(c *console.Console, name, value string) error {
	if value == "" {
		return nil
	}
	text, err := console.ReadText(c, name, value)
	if err != nil {
		return err
	}
	if text = strings.TrimSpace(text); !json.Valid([]byte(text)) {
		return console.Wrong("--%s is not JSON%s", name, console.SyntaxOf([]byte(text)))
	}
	b[name] = json.RawMessage(text)
	return nil
}

// choiceText prints a choice for people: a name, an object, or nothing for null.
func choiceText(choice client.Choice) string {
	return console.Printable(console.FirstOf(choice.Name, string(choice.Object)))
}

// jsonText prints JSON from elsewhere on one line; nothing for null.
func jsonText(raw json.RawMessage) string {
	if string(raw) == "null" {
		return ""
	}
	return console.Printable(string(raw))
}

// joined prints names from elsewhere one after the other.
func joined[T ~string](names []T, between string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return console.Printable(strings.Join(texts, between))
}

// numberOr prints a number; zero: otherwise.
func numberOr(n int, otherwise string) string {
	if n == 0 {
		return otherwise
	}
	return strconv.Itoa(n)
}

// printLines prints a text of several lines from elsewhere.
func printLines(c *console.Console, text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		fmt.Fprintln(c.Out, console.Printable(line))
	}
}

// picked returns the elements whose names are asked for, or all; an error names one that there is not.
func picked[T any](all []T, names []string, nameOf func(*T) string, kind string) ([]T, error) {
	var found []T
	known := map[string]bool{}
	for i := range all {
		name := nameOf(&all[i])
		if known[name] = true; len(names) == 0 || slices.Contains(names, name) {
			found = append(found, all[i])
		}
	}
	for _, name := range names {
		if !known[name] {
			return nil, fmt.Errorf("there is no %s %q; \"dispatcher %[1]s list\" shows all", kind, console.Printable(name))
		}
	}
	return found, nil
}
