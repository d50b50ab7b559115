package config

import (
	"encoding/json"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sink"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// ShowCommand prints the effective settings.
type ShowCommand struct {
	Flags
	JSON bool `help:"Print JSON for machines."`
}

// settingRow is one line of the output of config.
type settingRow struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	From    string `json:"from"`
}

// Run prints each setting with its value and origin. Secrets are masked. Wrong settings are reported as serve
// reports them.
func (cmd *ShowCommand) Run(c *console.Console) error {
	l, err := Load(c, &cmd.Flags)
	if err != nil {
		return err
	}
	rows := l.rows()
	if cmd.JSON {
		return c.PrintValue(rows)
	}
	t := c.NewTable("setting", "value", "from")
	for _, s := range rows {
		t.Row(s.Setting, s.Value, s.From)
	}
	t.Render()
	return nil
}

// rows returns the printable settings in the order of the catalogue.
func (l *loaded) rows() []settingRow {
	values := reflect.ValueOf(l.Settings)
	var list []settingRow
	for _, s := range catalogue() {
		list = append(list, settingRow{
			Setting: s.key,
			Value:   formatValue(s, values.Field(s.field)),
			From:    l.origins[s.key],
		})
	}
	return list
}

// formatValue formats a value as it would be written in a flag, with secrets masked.
func formatValue(s setting, v reflect.Value) string {
	switch value := v.Interface().(type) {
	case time.Duration:
		return schedule.FormatDuration(value)
	case int:
		return strconv.Itoa(value)
	case float64:
		return strconv.FormatFloat(value, 'g', -1, 64)
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

// masked replaces a secret in outputs.
const masked = "***"

// maskURL masks the password of a URL and the values of its query parameters, except harmless ones. It works
// on the text, because url.Parse refuses some lists of hosts. A text that is not a URL is masked completely.
func maskURL(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		if strings.HasPrefix(text, "sqlite:") || text == "" {
			return text
		}
		return masked
	}
	if end := strings.IndexAny(rest, "?#"); end >= 0 && strings.Contains(rest[end:], "@") {
		// The password has an unescaped ? or #, so its end cannot be found.
		return scheme + "://" + masked
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	// The last @ ends the credentials: a password may contain @ and, wrongly unescaped, a slash.
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

// maskQuery masks the values of all parameters that are not known to be harmless.
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

// harmlessParameter reports whether a parameter of a database URL never holds a credential. Operators need to
// see its value.
func harmlessParameter(name string) bool {
	switch name {
	case "sslmode", "application_name", "connect_timeout", "pool_max_conns", "search_path", "db", "protocol",
		"target_session_attrs", "tls":
		return true
	}
	return false
}

// maskValue returns the printable form of a setting's value.
func maskValue(s setting, value string) string {
	switch {
	case value == "":
		return ""
	case s.secret == "all":
		return masked
	case s.secret == "url":
		return maskURL(value)
	case s.secret == "sinks":
		return maskSinks(value)
	case s.secret == "sources":
		return maskSources(value)
	}
	return value
}

// maskSinks returns a list of sinks with their credentials masked. A text that is not such a list is masked
// completely.
func maskSinks(text string) string {
	list, _ := sink.ParseList([]byte(text))
	for i := range list {
		list[i] = list[i].Masked()
	}
	shown, err := json.Marshal(list)
	if err != nil || list == nil {
		return masked
	}
	return string(shown)
}

// maskSources returns a list of sources as it was written, with the credentials of its DSNs masked. A text
// that is not such a list is masked completely.
func maskSources(text string) string {
	if _, wrong := relay.ParseSources([]byte(text)); len(wrong) > 0 {
		return masked
	}
	var list []map[string]any
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return masked
	}
	for _, source := range list {
		dsn, _ := source["dsn"].(string)
		source["dsn"] = maskURL(dsn)
	}
	shown, err := json.Marshal(list)
	if err != nil {
		return masked
	}
	return string(shown)
}

// Sources returns the outbox tables of relay, one for each number of a range.
func (s *Settings) Sources() ([]relay.SourceConfig, []store.FieldError) {
	if s.Relay == "" {
		return nil, nil
	}
	return relay.ParseSources([]byte(s.Relay))
}

// sourceSecrets returns the passwords in the DSNs of relay, as they are and as they are written.
func (s *Settings) sourceSecrets() []string {
	sources, _ := s.Sources()
	secrets := map[string]bool{}
	for i := range sources {
		u, err := url.Parse(sources[i].DSN)
		if err != nil || u.User == nil {
			continue
		}
		plain, _ := u.User.Password()
		authority := strings.SplitN(sources[i].DSN, "/", 4)[2] // of SCHEME://AUTHORITY/DATABASE
		_, written, _ := strings.Cut(authority[:strings.LastIndex(authority, "@")], ":")
		secrets[plain], secrets[written] = true, true
	}
	return slices.Collect(maps.Keys(secrets))
}

// Sinks returns the sinks of alert_sink.
func (s *Settings) Sinks() ([]sink.Config, []store.FieldError) {
	if s.AlertSink == "" {
		return nil, nil
	}
	return sink.ParseList([]byte(s.AlertSink))
}

// Scrub masks the settings' secrets in a text, such as the error of a driver.
func (s *Settings) Scrub(text string) string { return s.Scrubber()(text) }

// Scrubber returns Scrub for many texts. It parses the sources of relay once: there may be a thousand.
func (s *Settings) Scrubber() func(text string) string {
	sources := s.sourceSecrets()
	return func(text string) string { return s.scrub(text, sources) }
}

// scrub masks the settings' secrets, and more of them, in a text.
func (s *Settings) scrub(text string, more []string) string {
	secrets := slices.Concat([]string{s.AdminKey, s.OIDCClientSecret}, s.MasterKey, more)
	for _, header := range s.OTLPHeaders {
		_, value, _ := strings.Cut(header, "=")
		secrets = append(secrets, value)
	}
	sinks, _ := s.Sinks()
	for _, c := range sinks {
		secrets = append(secrets, c.URL, c.Secret, c.Password)
	}
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
		// A shorter secret could match ordinary words of the text.
		if len(secret) >= 6 {
			text = strings.ReplaceAll(text, secret, masked)
		}
	}
	return text
}

// cleanError is an error whose text has its secrets masked.
type cleanError struct {
	error
	text string
}

func (e *cleanError) Error() string { return e.text }

func (e *cleanError) Unwrap() error { return e.error }

// Clean masks the settings' secrets in an error's text, because drivers quote URLs with passwords.
func (s *Settings) Clean(err error) error {
	if err == nil {
		return nil
	}
	return &cleanError{error: err, text: s.Scrub(err.Error())}
}
