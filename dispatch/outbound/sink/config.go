// Package sink describes where alerts go: chat robots of DingTalk, WeCom, Feishu, Lark, Slack and Teams,
// e-mail, and any webhook. A Config is one place. It validates and masks itself, renders messages in the
// platform's format and within its limits, and says how the engine has to send them.
//
//   - All text of a message is plain. Render escapes it: no name becomes a link, a mention or a header.
//   - The URL of a sink is its credential. Delivery puts it into the secret. Masked leaves only the host.
//
// The package sends nothing and keeps no state.
package sink

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The types of sinks.
const (
	DingTalk = "dingtalk"
	WeCom    = "wecom"
	Feishu   = "feishu" // Lark with a URL of open.larksuite.com
	Slack    = "slack"
	Teams    = "teams"
	Email    = "email"
	Webhook  = "webhook"
)

// The languages of a sink.
const (
	English = "en"
	Chinese = "zh-CN"
)

// Types returns the types of sinks.
func Types() []string { return []string{DingTalk, WeCom, Feishu, Slack, Teams, Email, Webhook} }

// A Config is one sink. The zero value is invalid. URL, Secret and Password are credentials.
type Config struct {
	Type string `json:"type"`
	// URL is the whole URL of the robot or of the webhook. Email has none.
	URL string `json:"url,omitempty"`
	// Secret is the signing secret of a robot of DingTalk or Feishu, or that of a webhook ("whsec_…"). Empty:
	// messages are not signed.
	Secret string `json:"secret,omitempty"`
	// Mentions are phone numbers or user ids, or "all". DingTalk, WeCom, Feishu and Slack have them.
	Mentions []string `json:"mentions,omitempty"`
	// Language is English or Chinese. Empty means English.
	Language string `json:"lang,omitempty"`

	// Server is the mail server, such as "smtps://mail.example:465" or "smtp://mail.example:587". The latter
	// is secured with STARTTLS. Without a scheme, port 465 means smtps.
	Server string `json:"server,omitempty"`
	// Username and Password sign in at the mail server. Both are empty if it needs none.
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	// From is the sender's address, and To are the recipients'.
	From string   `json:"from,omitempty"`
	To   []string `json:"to,omitempty"`
}

// maxConfigBytes bounds the JSON text of a sink.
const maxConfigBytes = 16 << 10

// Parse parses a sink from JSON and validates it. Errors name fields relative to the sink; the field "" is
// the sink itself.
func Parse(raw []byte) (Config, []store.FieldError) {
	c, err := decode[Config](raw)
	if err != "" {
		return Config{}, []store.FieldError{{Message: err}}
	}
	return c, c.Validate()
}

// ParseList parses a JSON list of at most 10 sinks. Errors name fields such as "[0].url".
func ParseList(raw []byte) ([]Config, []store.FieldError) {
	list, err := decode[[]Config](raw)
	if err != "" {
		return nil, []store.FieldError{{Message: err}}
	}
	if len(list) > maxSinks {
		return nil, []store.FieldError{{Message: "has more than 10 sinks"}}
	}
	var wrong []store.FieldError
	for i, c := range list {
		for _, e := range c.Validate() {
			e.Field = "[" + string(rune('0'+i)) + "]." + e.Field
			wrong = append(wrong, e)
		}
	}
	return list, wrong
}

const maxSinks = 10

// decode decodes JSON without unknown members. Its error is a sentence without a part of the text, which may
// have credentials.
func decode[T any](raw []byte) (v T, wrong string) {
	if len(raw) > maxConfigBytes {
		return v, "is longer than 16 KiB"
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return v, "has the unknown member " + parse.Cut(field, 64)
		}
		return v, "is not JSON of the expected form"
	}
	if _, err := d.Token(); err != io.EOF {
		return v, "has text after its end"
	}
	return v, ""
}

// Masked returns the sink for display: of a URL only scheme and host, and no secret.
func (c Config) Masked() Config {
	if c.URL != "" {
		c.URL = maskedURL(c.URL)
	}
	for _, secret := range []*string{&c.Secret, &c.Password} {
		if *secret != "" {
			*secret = store.Masked
		}
	}
	return c
}

// maskedURL returns scheme and host of a URL, and "***" for the rest.
func maskedURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return store.Masked
	}
	return u.Scheme + "://" + u.Host + "/" + store.Masked
}

// Host returns the host that the sink sends to, with its port if the URL has one.
func (c Config) Host() string {
	raw := c.URL
	if c.Type == Email {
		raw = c.mailServer()
	}
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Host
}

// Keep returns c with the credentials of old where c has none, or has what Masked shows of them. It keeps
// nothing for another type or another host: the credentials belong to the old one.
func (c Config) Keep(old Config) Config {
	masked := old.Masked()
	if c.Type != old.Type {
		return c
	}
	if c.URL == "" || c.URL == masked.URL || c.URL == store.Masked {
		c.URL = old.URL
	}
	if c.Host() != old.Host() || c.Type == Email && c.Username != old.Username {
		return c
	}
	if c.Secret == "" || c.Secret == store.Masked {
		c.Secret = old.Secret
	}
	if c.Password == "" || c.Password == store.Masked {
		c.Password = old.Password
	}
	return c
}

// Fingerprint returns 32 hex digits that are equal for sinks with the same address and credentials. Without
// the key no credential can be guessed from them.
func (c Config) Fingerprint(key []byte) string {
	parts := []string{c.Type, c.URL, c.Secret}
	if c.Type == Email {
		to := slices.Clone(c.To)
		slices.Sort(to)
		parts = append([]string{c.Type, c.mailServer(), c.Username, c.Password, c.From}, to...)
	}
	text, _ := json.Marshal(parts) // texts cannot fail; JSON separates them
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
