package config

import (
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// ShowCommand shows the effective settings.
type ShowCommand struct {
	Flags
	JSON bool `help:"Print JSON for machines."`
}

// A shownSetting is one line of what config shows.
type shownSetting struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	From    string `json:"from"`
}

// Run prints every setting with its value, secrets masked, and where it came from. Wrong settings end it like
// a start.
func (cmd *ShowCommand) Run(c *console.Console) error {
	l, err := Load(c, &cmd.Flags)
	if err != nil {
		return err
	}
	shown := l.shown()
	if cmd.JSON {
		return c.PrintValue(shown)
	}
	t := c.NewTable("setting", "value", "from")
	for _, s := range shown {
		t.Row(s.Setting, s.Value, s.From)
	}
	t.Render()
	return nil
}

// shown returns the settings for people, in the order of the catalogue.
func (l *loaded) shown() []shownSetting {
	values := reflect.ValueOf(l.Settings)
	var list []shownSetting
	for _, s := range catalogue() {
		list = append(list, shownSetting{
			Setting: s.key,
			Value:   showValue(s, values.Field(s.field)),
			From:    l.origins[s.key],
		})
	}
	return list
}

// showValue prints a value as it would be written in a flag.
func showValue(s setting, v reflect.Value) string {
	switch value := v.Interface().(type) {
	case time.Duration:
		return schedule.FormatDuration(value)
	case int:
		return strconv.Itoa(value)
	case bool:
		return strconv.FormatBool(value)
	case []string:
		parts := make([]string, len(value))
		for i, part := range value {
			parts[i] = maskValue(s, part)
		}
		return strings.Join(parts, ",")
	}
	return maskValue(s, v.String())
}

// masked stands for a secret.
const masked = "***"

// maskURL hides the password of an address, and the value of every parameter of its query. Host lists, which
// url.Parse refuses in some forms, are masked as text. Something that is no address is hidden whole.
func maskURL(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		if strings.HasPrefix(text, "sqlite:") || text == "" {
			return text
		}
		return masked
	}
	if end := strings.IndexAny(rest, "?#"); end >= 0 && strings.Contains(rest[end:], "@") {
		// A password with ? or # in clear looks like this: nobody can say where it ends.
		return scheme + "://" + masked
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	// The last @ ends the credentials: a password may hold one, and so may, wrongly written, a slash.
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, _, hasPassword := strings.Cut(rest[:at], ":")
		if hasPassword {
			user += ":" + masked
		}
		rest = user + rest[at:]
	}
	if !hasQuery {
		return scheme + "://" + rest
	}
	return scheme + "://" + rest + "?" + maskQuery(query)
}

// maskQuery hides the values of parameters that hold credentials.
func maskQuery(query string) string {
	parts := strings.Split(query, "&")
	for i, part := range parts {
		name, _, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil || !harmlessParameter(strings.ToLower(plain)) {
			parts[i] = name + "=" + masked
		}
	}
	return strings.Join(parts, "&")
}

// harmlessParameter says which parameters of a database's address people need to see.
func harmlessParameter(name string) bool {
	switch name {
	case "sslmode", "application_name", "connect_timeout", "pool_max_conns", "search_path", "db", "protocol",
		"target_session_attrs":
		return true
	}
	return false
}

// maskValue returns what may be shown of a setting's value.
func maskValue(s setting, value string) string {
	switch {
	case value == "":
		return ""
	case s.secret == "all":
		return masked
	case s.secret == "url":
		return maskURL(value)
	}
	return value
}

// Scrub replaces what must not be shown of the settings in a text, such as the error of a driver.
func (s *Settings) Scrub(text string) string {
	secrets := append([]string{s.AdminKey}, s.MasterKey...)
	for _, address := range []string{s.DatabaseURL, s.RedisURL} {
		if address == "" {
			continue
		}
		text = strings.ReplaceAll(text, address, maskURL(address))
		if u, err := url.Parse(address); err == nil && u.User != nil {
			password, _ := u.User.Password()
			secrets = append(secrets, password)
		}
	}
	for _, secret := range secrets {
		// Shorter ones are met by chance, and replacing them would make the text unreadable.
		if len(secret) >= 6 {
			text = strings.ReplaceAll(text, secret, masked)
		}
	}
	return text
}

// A cleanError is an error whose text has lost its secrets.
type cleanError struct {
	error
	text string
}

func (e *cleanError) Error() string { return e.text }

func (e *cleanError) Unwrap() error { return e.error }

// Clean takes the settings' secrets out of an error's text: drivers quote addresses with their passwords.
func (s *Settings) Clean(err error) error {
	if err == nil {
		return nil
	}
	return &cleanError{error: err, text: s.Scrub(err.Error())}
}
