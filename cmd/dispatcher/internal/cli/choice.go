package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// choiceFlags say how something is to be sent; callbacks and endpoints have the same. Each is a name, or an object where no name says it.
type choiceFlags struct {
	Profile string `placeholder:"NAME" help:"Policy, success rule, signer and time limit in one word: alipay, wechat-v2, wechat-v3, standard, or one of the project's own."`
	Policy  string `placeholder:"NAME|JSON|@FILE" help:"Policy: a name (see \"dispatcher policy list\"), exp(FIRST,FACTOR,LONGEST,COUNT), or an object such as {\"tiers\": [\"15s\", \"3m\"], \"timeout\": \"5s\"}."`
	Success string `placeholder:"NAME|JSON|@FILE" help:"Success rule: http-2xx, http-200, body-success, body-ok, alipay, wechat-v2-xml, wechat-v3, adyen-accepted, json-code, one of the project's own, or an object such as {\"status\": [200], \"body\": {\"equals\": \"OK\"}}."`
	Signer  string `placeholder:"NAME|JSON|@FILE" help:"Signer: a name, or an object with its options such as {\"type\": \"sorted-kv\", \"alg\": \"md5\"}; \"dispatcher signer list\" explains them."`
}

// put writes what was given into the body of a request.
func (f *choiceFlags) put(c *console.Console, in map[string]any) error {
	if f.Profile != "" {
		in["profile"] = f.Profile
	}
	for _, choice := range []struct{ name, value string }{{"policy", f.Policy}, {"success", f.Success}, {"signer", f.Signer}} {
		if err := putChoice(c, in, choice.name, choice.value); err != nil {
			return err
		}
	}
	return nil
}

// putChoice puts the value of the flag of that name, unless it is empty, into the body of a request.
func putChoice(c *console.Console, in map[string]any, name, value string) error {
	if value == "" {
		return nil
	}
	choice, err := nameOrObject(c, name, value)
	if err == nil {
		in[name] = choice
	}
	return err
}

// nameOrObject reads the value of a flag that is a name or a JSON object: what it means is the server's to judge.
func nameOrObject(c *console.Console, flag, value string) (any, error) {
	text, err := console.ReadText(c, flag, value)
	if err != nil {
		return nil, err
	}
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") {
		return text, nil
	}
	return object(flag, text)
}

// object takes the text of a flag for a JSON object.
func object(flag, text string) (remote.Verbatim, error) {
	if !strings.HasPrefix(text, "{") || !json.Valid([]byte(text)) {
		return nil, &console.UsageError{Lines: []string{fmt.Sprintf("--%s is not a JSON object%s", flag, console.SyntaxOf([]byte(text)))}}
	}
	return remote.Verbatim(text), nil
}

// readObject reads the value of a flag of the form JSON|@FILE|- that is an object.
func readObject(c *console.Console, flag, value string) (remote.Verbatim, error) {
	text, err := console.ReadText(c, flag, value)
	if err != nil {
		return nil, err
	}
	return object(flag, strings.TrimSpace(text))
}

// putJSON puts the value of a flag of the form JSON|@FILE|-, unless it is empty, into the body of a request.
func putJSON(c *console.Console, in map[string]any, flag, name, value string) error {
	if value == "" {
		return nil
	}
	text, err := console.ReadText(c, flag, value)
	if err != nil {
		return err
	}
	if text = strings.TrimSpace(text); !json.Valid([]byte(text)) {
		return &console.UsageError{Lines: []string{fmt.Sprintf("--%s is not JSON%s", flag, console.SyntaxOf([]byte(text)))}}
	}
	in[name] = remote.Verbatim(text)
	return nil
}

// choiceText prints a choice as the server tells it, for people: a name, an object, or nothing for null.
func choiceText(raw json.RawMessage) string {
	var name string
	if json.Unmarshal(raw, &name) == nil {
		return console.Printable(name)
	}
	return console.Printable(string(raw))
}

// headerLines reads headers of the form NAME:VALUE.
func headerLines(lines []string) (map[string]string, error) {
	headers := map[string]string{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return nil, &console.UsageError{Lines: []string{fmt.Sprintf("--header %q is not of the form NAME:VALUE", line)}}
		}
		if _, twice := headers[name]; twice {
			return nil, &console.UsageError{Lines: []string{fmt.Sprintf("--header %s is given twice", name)}}
		}
		headers[name] = strings.TrimSpace(value)
	}
	return headers, nil
}
