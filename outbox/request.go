package outbox

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of fields. Texts are counted in characters.
const (
	maxText       = 256 // topic, ref, lock_key, content_type, the value of a label
	maxLane       = 128
	maxLabels     = 20
	maxLabelName  = 64
	maxHeaderName = 128
)

// elsewhere are fields of the API that a row has in a column of its own.
var elsewhere = map[string]string{
	"idempotency_key": "use ID",
	"payload":         "use Body",
	"body":            "use Body",
	"body_base64":     "use Body",
}

// ofEndpoints are the fields that each endpoint gives to the callbacks of an event.
var ofEndpoints = []string{"url", "endpoint", "lane", "profile", "signer"}

// request returns the JSON of the callback as the API reads it, with its members in alphabetical order.
func (c *Callback) request() ([]byte, error) {
	fields, err := c.fields()
	if err != nil {
		return nil, err
	}
	if err := c.check(fields); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(fields); err != nil {
		return nil, invalid("more", err.Error())
	}
	request := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(request) > MaxRequest {
		return nil, invalid("request",
			fmt.Sprintf("is %d bytes; at most %d are allowed", len(request), MaxRequest))
	}
	return request, nil
}

// fields returns the members of the request. All texts of the struct have been checked.
func (c *Callback) fields() (map[string]any, error) {
	fields := map[string]any{}
	for _, text := range []struct {
		field, value string
		most         int
	}{
		{"url", c.URL, MaxRequest}, {"endpoint", c.Endpoint, maxText}, {"topic", c.Topic, maxText},
		{"ref", c.Ref, maxText}, {"lock_key", c.LockKey, maxText}, {"order", c.Order, maxText},
		{"lane", c.Lane, maxLane}, {"policy", c.Policy, maxText}, {"success", c.Success, maxText},
		{"content_type", c.ContentType, maxText},
	} {
		if text.value == "" {
			continue
		}
		if err := checkText(text.field, text.value, text.most); err != nil {
			return nil, err
		}
		fields[text.field] = text.value
	}
	if c.Delay < 0 || c.Delay > MaxDelay {
		return nil, invalid("delay", fmt.Sprintf("is %s; it must be 0s to 9600h (400 days)", c.Delay))
	}
	if c.Delay > 0 {
		fields["delay"] = durationText(c.Delay)
	}
	if len(c.Headers) > 0 {
		fields["headers"] = c.Headers
	}
	if len(c.Labels) > 0 {
		fields["labels"] = c.Labels
	}
	return fields, addMore(fields, c.More)
}

// addMore adds the fields that the struct lacks.
func addMore(fields, more map[string]any) error {
	for name, value := range more {
		if err := checkText("more", name, maxText); err != nil {
			return err
		}
		if why := elsewhere[name]; why != "" {
			return invalid("more", fmt.Sprintf("has %q; %s", name, why))
		}
		if _, set := fields[name]; set {
			return invalid("more", fmt.Sprintf("has %q, which is also set in the struct", name))
		}
		if d, ok := value.(time.Duration); ok {
			value = durationText(d)
		}
		fields[name] = value
	}
	return nil
}

// durationText returns a duration as the API reads it, rounded up to milliseconds.
func durationText(d time.Duration) string {
	if rest := d % time.Millisecond; rest > 0 {
		d += time.Millisecond - rest
	}
	return d.String()
}

// check checks the fields, and adds the content type of JSON.
func (c *Callback) check(fields map[string]any) error {
	if err := c.checkFields(fields); err != nil {
		return err
	}
	if err := c.checkBody(fields); err != nil {
		return err
	}
	if len(c.Labels) > maxLabels {
		return invalid("labels",
			fmt.Sprintf("has %d labels; at most %d are allowed", len(c.Labels), maxLabels))
	}
	if err := checkTexts("labels", c.Labels, maxLabelName, maxText); err != nil {
		return err
	}
	return checkTexts("headers", c.Headers, maxHeaderName, MaxRequest)
}

// checkFields checks the destination, and the fields that depend on others.
func (c *Callback) checkFields(fields map[string]any) error {
	has := func(name string) bool { return fields[name] != nil }
	if c.Event {
		for _, name := range ofEndpoints {
			if has(name) {
				return invalid(name, "is not allowed with an event: it comes from each endpoint")
			}
		}
		if !has("topic") {
			return invalid("topic", "is required by an event")
		}
	} else if !has("url") && !has("endpoint") {
		return invalid("url", "is empty, and so is endpoint; set one of them, or Event")
	}
	if c.URL != "" {
		u, err := url.Parse(c.URL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return invalid("url", "must be an http or https URL, such as https://shop.example/notify")
		}
	}
	if c.Delay > 0 && has("due_at") {
		return invalid("delay", "and due_at are both set")
	}
	if c.Order != "" && c.Order != "strict" {
		return invalid("order", `must be "strict" or empty`)
	}
	if c.Order != "" && !has("lock_key") {
		return invalid("order", "requires a lock_key")
	}
	if fields["supersede"] == true && !(has("ref") && has("topic") && has("version")) {
		return invalid("supersede", "requires ref, topic and version")
	}
	return nil
}

// checkBody checks the body, and sets the content type of JSON.
func (c *Callback) checkBody(fields map[string]any) error {
	if c.Body == nil {
		method, _ := fields["method"].(string)
		switch strings.ToUpper(method) {
		case "GET", "HEAD", "DELETE":
		default:
			return invalid("body", "is nil; only the methods GET, HEAD and DELETE need none")
		}
		if c.ContentType != "" {
			return invalid("content_type", "requires a body")
		}
		return nil
	}
	if len(c.Body) > MaxBody {
		return invalid("body", fmt.Sprintf("is %d bytes; at most %d are allowed", len(c.Body), MaxBody))
	}
	if c.ContentType == "" && fields["content_type"] == nil {
		if !json.Valid(c.Body) {
			return invalid("content_type", "is empty, and the body is not JSON")
		}
		fields["content_type"] = "application/json"
	}
	return nil
}

// checkTexts checks the names and values of headers or labels. Values may be empty.
func checkTexts(field string, texts map[string]string, longestName, longestValue int) error {
	for name, value := range texts {
		if err := checkText(field, name, longestName); err != nil {
			return err
		}
		if value == "" {
			continue
		}
		if err := checkText(field, value, longestValue); err != nil {
			return err
		}
	}
	return nil
}

// checkText refuses a text that is empty, has more characters than allowed or control characters, or is not
// valid UTF-8, which encoding/json would change without an error.
func checkText(field, text string, most int) error {
	switch {
	case text == "":
		return invalid(field, "is empty")
	case !utf8.ValidString(text):
		return invalid(field, "is not valid UTF-8")
	case hasControl(text):
		return invalid(field, "has a control character")
	case utf8.RuneCountInString(text) > most:
		return invalid(field, fmt.Sprintf("is longer than %d characters", most))
	}
	return nil
}

func hasControl(text string) bool {
	for _, r := range text {
		if unicode.IsControl(r) {
			return true
		}
	}
	return false
}

// alphabet has the 32 characters of a random ID: no I, L, O and U, which people confuse or dislike.
const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// randomID returns 26 characters with 130 random bits.
func randomID() (string, error) {
	var b [26]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("outbox: random id: %w", err)
	}
	for i := range b {
		b[i] = alphabet[b[i]%byte(len(alphabet))]
	}
	return string(b[:]), nil
}
