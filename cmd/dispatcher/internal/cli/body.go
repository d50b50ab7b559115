package cli

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// A body is that of a request, by the names of its members.
type body map[string]any

// bodyOf is the body that the flags of a command make, a pointer to a struct: those with the tag in:"NAME", or
// in:"NAME,HOW", unless they are empty. A name with a dot is that of a member's member, and one at an embedded struct that of
// the member that its flags make. How is for texts: choice (a name
// or an object), json, secret (both from a file, too); for lists: headers (NAME:VALUE), list (without blank ones); for
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
		value, err = console.ReadSecret(c.Console, name, value.(string))
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

// clearable are the fields that can be taken away, by what --clear calls them.
var clearable = map[string]string{
	"policy": "policy", "success": "success", "signer": "signer", "external-id": "external_id", "rate": "rate", "concurrency": "concurrency",
	"name": "name", "url-override": "url_override", "topic": "topics", "topics": "topics", "header": "headers", "headers": "headers",
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

// choiceFlags say how something is to be sent; callbacks and endpoints have the same. Each is a name, or an object where no name says it.
type choiceFlags struct {
	Profile string `in:"profile" placeholder:"NAME" help:"Policy, success rule, signer and time limit in one word: alipay, wechat-v2, wechat-v3, standard, or one of the project's own."`
	Policy  string `in:"policy,choice" placeholder:"NAME|JSON|@FILE" help:"Policy: a name (see \"dispatcher policy list\"), exp(FIRST,FACTOR,LONGEST,COUNT), or an object such as {\"tiers\": [\"15s\", \"3m\"], \"timeout\": \"5s\"}."`
	Success string `in:"success,choice" placeholder:"NAME|JSON|@FILE" help:"Success rule: http-2xx, http-200, body-success, body-ok, alipay, wechat-v2-xml, wechat-v3, adyen-accepted, json-code, one of the project's own, or an object such as {\"status\": [200], \"body\": {\"equals\": \"OK\"}}."`
	Signer  string `in:"signer,choice" placeholder:"NAME|JSON|@FILE" help:"Signer: a name, or an object with its options such as {\"type\": \"sorted-kv\", \"alg\": \"md5\"}; \"dispatcher signer list\" explains them."`
}

// choice reads the value of the flag of that name: a name, or a JSON object. What it means is the server's to judge.
func choice(c *session, flag, value string) (any, error) {
	text, err := console.ReadText(c.Console, flag, value)
	if text = strings.TrimSpace(text); err != nil || !strings.HasPrefix(text, "{") {
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
	text, err := console.ReadText(c.Console, flag, value)
	if err != nil {
		return nil, err
	}
	return object(flag, strings.TrimSpace(text))
}

// readJSON reads the value of a flag of the form JSON|@FILE|-.
func readJSON(c *session, flag, value string) (json.RawMessage, error) {
	text, err := console.ReadText(c.Console, flag, value)
	if err != nil {
		return nil, err
	}
	if text = strings.TrimSpace(text); !json.Valid([]byte(text)) {
		return nil, console.Wrong("--%s is not JSON%s", flag, console.SyntaxOf([]byte(text)))
	}
	return json.RawMessage(text), nil
}
