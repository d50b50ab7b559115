package sink

import (
	"fmt"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// maxURLBytes bounds a URL. It is the limit of all URLs that are sent to.
	maxURLBytes = 2048
	// maxText bounds secrets, names and addresses, in bytes.
	maxText = 256
	// maxMentions and maxRecipients bound the lists.
	maxMentions   = 50
	maxRecipients = 20
)

// findings collects what is wrong with a sink.
type findings []store.FieldError

func (f *findings) add(field, format string, args ...any) {
	*f = append(*f, store.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// Validate returns what is wrong with the sink, or nil. It does not check whether the address may be sent to;
// the guard does.
func (c Config) Validate() []store.FieldError {
	var f findings
	if !slices.Contains(Types(), c.Type) {
		f.add("type", "must be one of %s", strings.Join(Types(), ", "))
		return f
	}
	if c.Language != "" && c.Language != English && c.Language != Chinese {
		f.add("lang", "must be %s or %s", English, Chinese)
	}
	if c.Type == Email {
		c.validateEmail(&f)
		return f
	}
	for _, m := range [...]struct {
		field string
		given bool
	}{
		{"server", c.Server != ""}, {"username", c.Username != ""}, {"password", c.Password != ""},
		{"from", c.From != ""}, {"to", len(c.To) > 0},
	} {
		if m.given {
			f.add(m.field, "can only be used with type email")
		}
	}
	c.validateURL(&f)
	c.validateSecret(&f)
	c.validateMentions(&f)
	return f
}

func (c Config) validateURL(f *findings) {
	if c.URL == "" {
		f.add("url", "is required")
		return
	}
	if why := badURL(c.URL, "http", "https"); why != "" {
		f.add("url", "%s", why)
	}
}

// badURL returns what is wrong with a URL, or "". It never repeats a part of it.
func badURL(raw string, schemes ...string) string {
	u, err := url.Parse(raw)
	switch {
	case strings.Contains(raw, store.Masked):
		return "is masked; give the whole URL"
	case len(raw) > maxURLBytes:
		return fmt.Sprintf("has more than %d bytes", maxURLBytes)
	case !parse.IsPrintable(raw) || strings.Contains(raw, " "):
		return "must be printable ASCII without spaces"
	case err != nil || u.Host == "" || u.Hostname() == "" || !slices.Contains(schemes, u.Scheme):
		return "must begin with " + strings.Join(schemes, ":// or ") + ":// and have a host"
	case u.User != nil || strings.Contains(raw, "#"):
		return "must have no user, no password and no fragment"
	}
	return ""
}

func (c Config) validateSecret(f *findings) {
	switch {
	case c.Secret == "":
	case strings.Contains(c.Secret, store.Masked):
		f.add("secret", "is masked; give the secret itself")
	case c.Type == Webhook:
		if _, err := sign.ParseSecret(c.Secret); err != nil {
			f.add("secret", "%s", err)
		}
	case c.Type != DingTalk && c.Type != Feishu:
		f.add("secret", "is not used by %s: its URL is its credential", c.Type)
	case len(c.Secret) < minSecret || len(c.Secret) > maxText || !parse.IsPrintable(c.Secret) ||
		strings.Contains(c.Secret, " "):
		f.add("secret", "must be %d to %d printable ASCII characters without spaces", minSecret, maxText)
	}
}

// minSecret is the least length of a robot's signing secret, because shorter ones cannot be masked reliably.
const minSecret = 8

// mentionAll in Mentions stands for everybody.
const mentionAll = "all"

func (c Config) validateMentions(f *findings) {
	if len(c.Mentions) == 0 {
		return
	}
	if c.Type == Teams || c.Type == Webhook {
		f.add("mentions", "cannot be used with type %s", c.Type)
	}
	if len(c.Mentions) > maxMentions {
		f.add("mentions", "has more than %d entries", maxMentions)
		return
	}
	for i, m := range c.Mentions {
		if m == "" || len(m) > 64 || strings.ContainsFunc(m, isNoMention) {
			f.add(fmt.Sprintf("mentions[%d]", i), "must be a phone number or a user id: letters, digits, "+
				`+ - _ . @; or "all"`)
		}
	}
}

func isNoMention(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') &&
		!strings.ContainsRune("+-_.@", c)
}

func (c Config) validateEmail(f *findings) {
	if c.URL != "" {
		f.add("url", "is not used by email; give server")
	}
	if c.Secret != "" {
		f.add("secret", "is not used by email; give username and password")
	}
	if len(c.Mentions) > 0 {
		f.add("mentions", "cannot be used with type email")
	}
	if c.Server == "" {
		f.add("server", "is required, such as smtps://mail.example:465")
	} else if why := badServer(c.mailServer()); why != "" {
		f.add("server", "%s", why)
	}
	c.validateLogin(f)
	if !isAddress(c.From) {
		f.add("from", "must be one e-mail address in ASCII, such as alerts@shop.example")
	}
	if len(c.To) == 0 || len(c.To) > maxRecipients {
		f.add("to", "must have 1 to %d e-mail addresses", maxRecipients)
		return
	}
	for i, to := range c.To {
		if !isAddress(to) {
			f.add(fmt.Sprintf("to[%d]", i), "must be one e-mail address in ASCII, such as night@shop.example")
		}
	}
}

func badServer(server string) string {
	if why := badURL(server, "smtps", "smtp"); why != "" {
		return why
	}
	if u, err := url.Parse(server); err != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return "must have no path and no query"
	}
	return ""
}

// validateLogin checks user and password of a mail server.
func (c Config) validateLogin(f *findings) {
	if (c.Username == "") != (c.Password == "") {
		f.add("password", "username and password belong together")
		return
	}
	if !isPlain(c.Username) {
		f.add("username", "must be at most %d bytes of UTF-8 without control characters", maxText)
	}
	switch {
	case c.Password == store.Masked:
		f.add("password", "is masked; give the password itself")
	case c.Password != "" && len(c.Password) < sign.MinPassword || !isPlain(c.Password):
		f.add("password", "must be %d to %d bytes of UTF-8 without control characters", sign.MinPassword,
			maxText)
	}
}

// isPlain reports whether a text is short, and can stand in one line.
func isPlain(text string) bool {
	return len(text) <= maxText && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// isAddress reports whether a text is a bare e-mail address: printable ASCII without a name, and without the
// characters that separate addresses.
func isAddress(text string) bool {
	if len(text) > maxText || !parse.IsPrintable(text) || strings.ContainsAny(text, " \"<>(),:;[]\\") {
		return false
	}
	a, err := mail.ParseAddress(text)
	return err == nil && a.Address == text && a.Name == ""
}

// mailServer returns the server with its scheme.
func (c Config) mailServer() string {
	switch {
	case strings.Contains(c.Server, "://"):
		return strings.TrimSuffix(c.Server, "/")
	case strings.HasSuffix(c.Server, ":465"):
		return "smtps://" + c.Server
	}
	return "smtp://" + c.Server
}
