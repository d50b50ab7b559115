package relay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A SourceConfig is an outbox table that a relay reads. Its JSON is an element of the setting relay.
type SourceConfig struct {
	// Name is part of every idempotency key. 1 to 64 of a-z, 0-9, '.', '_' and '-'.
	Name string
	// DSN is a URL with the scheme postgres or mysql. It may have a password.
	DSN string
	// PasswordFile is the path of a file with the password. Empty: it is in DSN, or there is none.
	PasswordFile string
	// Table may have a schema or database before a dot. Default dispatcher_outbox.
	Table string
	// Origin is the database and the table that Name stands for, without credentials. Default
	// HOST:PORT/DATABASE/TABLE.
	Origin string
	// Project receives the callbacks if the relay runs in a server. Default "default".
	Project string
	// Poll is the pause between two scans. 10ms to 60s, default 100ms.
	Poll time.Duration
	// Batch is the most rows of a page. 1 to 1000, default 500.
	Batch int
	// Keep is how long removed rows stay in the table TABLE_done. Zero: they are not kept. At most 366d.
	Keep time.Duration
	// MinAge leaves younger rows for later. At most 1h.
	MinAge time.Duration
	// Tail permits scans that begin behind rows which were read before. Default true. A database that does
	// not number rows in the order of their INSERTs needs false.
	Tail bool
}

// Bounds and defaults of sources.
const (
	maxConfigBytes = 1 << 20
	maxSourceName  = 64
	DefaultProject = "default"
	defaultPoll    = 100 * time.Millisecond
	minPoll        = 10 * time.Millisecond
	maxPoll        = time.Minute
	defaultBatch   = 500
	maxBatch       = 1000
	maxKeep        = 366 * 24 * time.Hour
	maxMinAge      = time.Hour
)

// setting is the JSON of a source.
type setting struct {
	Name         string  `json:"name"`
	DSN          string  `json:"dsn"`
	PasswordFile string  `json:"password_file"`
	Table        string  `json:"table"`
	Origin       string  `json:"origin"`
	Project      string  `json:"project"`
	Poll         *string `json:"poll"`
	Batch        *int    `json:"batch"`
	Keep         string  `json:"keep"`
	MinAge       string  `json:"min_age"`
	Tail         *bool   `json:"tail"`
}

// ParseSources parses the setting relay, a JSON list, and expands its ranges: for example, a dsn with
// {00..31} stands for 32 sources. Errors name fields such as "[0].dsn" and contain no part of a DSN. With an
// error there are no sources.
func ParseSources(raw []byte) ([]SourceConfig, []store.FieldError) {
	var elements []json.RawMessage
	if len(raw) > maxConfigBytes {
		return nil, invalid("", "is longer than 1 MiB")
	}
	if wrong := decode(raw, &elements); wrong != "" {
		return nil, invalid("", wrong)
	}
	if len(elements) > store.MaxRelaySources {
		return nil, invalid("", tooMany)
	}
	var sources []SourceConfig
	var wrong []store.FieldError
	seen := newDuplicates()
	for i, element := range elements {
		at := "[" + strconv.Itoa(i) + "]"
		expanded, errs := parseElement(element)
		if len(sources)+len(expanded) > store.MaxRelaySources {
			return nil, invalid(at, tooMany)
		}
		for _, c := range expanded {
			errs = append(errs, seen.add(at, &c)...)
		}
		for _, e := range errs {
			e.Field = strings.TrimSuffix(at+"."+e.Field, ".")
			wrong = append(wrong, e)
		}
		sources = append(sources, expanded...)
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return sources, nil
}

var tooMany = fmt.Sprintf("has more than %d sources; give the others to another relay process",
	store.MaxRelaySources)

func invalid(field, message string) []store.FieldError {
	return []store.FieldError{{Field: field, Message: message}}
}

// parseElement parses one element of the list.
func parseElement(raw []byte) ([]SourceConfig, []store.FieldError) {
	var s setting
	if wrong := decode(raw, &s); wrong != "" {
		return nil, invalid("", wrong)
	}
	settings, field, err := s.expand()
	if err != nil {
		return nil, invalid(field, err.Error())
	}
	list := make([]SourceConfig, len(settings))
	for i := range settings {
		c, wrong := settings[i].config()
		if len(wrong) > 0 {
			return nil, wrong
		}
		list[i] = c
	}
	return list, nil
}

// decode decodes JSON without unknown members. Its error is a sentence without a part of a value.
func decode(raw []byte, v any) (wrong string) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return typeError(mistyped)
		}
		if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return "has the unknown member " + clip(field, 64) + "; there are name, dsn, password_file, " +
				"table, origin, project, poll, batch, keep, min_age and tail"
		}
		return "is not JSON; write a list such as [{\"name\":\"pay\",\"dsn\":\"mysql://relay@db:3306/pay\"}]"
	}
	if _, err := d.Token(); err != io.EOF {
		return "has text after its end"
	}
	return ""
}

// typeError says which type a member must have.
func typeError(err *json.UnmarshalTypeError) string {
	types := map[string]string{
		"string": "a text", "int": "a whole number", "bool": "true or false", "slice": "a list",
		"struct": "an object with name and dsn",
	}
	want := types[err.Type.Kind().String()]
	if err.Field == "" {
		return "must be " + want
	}
	return "has the member " + clip(err.Field, 64) + ", which must be " + want
}

// config converts the setting of one source, without a range.
func (s *setting) config() (SourceConfig, []store.FieldError) {
	p := parser{}
	c := SourceConfig{
		Name: s.Name, DSN: s.DSN, PasswordFile: s.PasswordFile, Table: s.Table, Origin: s.Origin,
		Project: s.Project, Poll: defaultPoll, Batch: defaultBatch, Tail: s.Tail == nil || *s.Tail,
	}
	p.check(IsSourceName(c.Name), "name", "must have 1 to 64 of the characters a-z, 0-9, '.', '_' and '-', "+
		"and not be . or ..")
	if c.Table == "" {
		c.Table = source.DefaultTable
	}
	if c.Project == "" {
		c.Project = DefaultProject
	}
	p.check(IsSourceName(c.Project), "project", "must be the name of a project")
	if s.Poll != nil {
		c.Poll = p.duration("poll", *s.Poll, minPoll, maxPoll)
	}
	if s.Batch != nil {
		c.Batch = *s.Batch
		p.check(c.Batch >= 1 && c.Batch <= maxBatch, "batch", "must be from 1 to 1000")
	}
	c.Keep = p.duration("keep", s.Keep, 0, maxKeep)
	c.MinAge = p.duration("min_age", s.MinAge, 0, maxMinAge)
	p.check(len(c.Origin) <= maxOrigin, "origin", "must have at most 500 bytes")
	p.table(&c)
	return c, p.wrong
}

// table checks the DSN and the table, and sets the default origin.
func (p *parser) table(c *SourceConfig) {
	if _, err := source.Open(source.Options{DSN: c.DSN}); err != nil {
		p.check(false, "dsn", "must be a URL such as postgres://relay@db:5432/pay or "+
			"mysql://relay@db:3306/pay; "+err.Error())
		return
	}
	s, err := source.Open(source.Options{DSN: c.DSN, Table: c.Table})
	if err != nil {
		p.check(false, "table", "must be a table: "+err.Error())
		return
	}
	if c.Origin == "" {
		c.Origin = s.Origin()
		p.check(len(c.Origin) <= maxOrigin, "dsn", "is too long; set origin to a shorter name of the table")
	}
}

// maxOrigin bounds the text that a source's name stands for.
const maxOrigin = 500

// A parser collects the errors of one source.
type parser struct{ wrong []store.FieldError }

func (p *parser) check(ok bool, field, message string) {
	if !ok {
		p.wrong = append(p.wrong, store.FieldError{Field: field, Message: message})
	}
}

// duration parses a duration of a setting; empty: zero.
func (p *parser) duration(field, text string, least, most time.Duration) time.Duration {
	if text == "" && least == 0 {
		return 0
	}
	d, err := schedule.ParseDuration(text)
	if err != nil {
		p.check(false, field, "must be a duration such as 100ms, 5s or 7d")
		return 0
	}
	p.check(d >= least && d <= most, field, "must be from "+least.String()+" to "+most.String())
	return d
}

// IsSourceName reports whether a text can be the name of a source: 1 to 64 of a-z, 0-9, '.', '_' and '-', but
// not "." or "..", which have another meaning in paths.
func IsSourceName(name string) bool {
	return name != "" && len(name) <= maxSourceName && name != "." && name != ".." &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

// Label returns the source's name for metrics and health: NAME, or PROJECT/NAME outside of the default
// project.
func (c *SourceConfig) Label() string {
	if c.Project == DefaultProject || c.Project == "" {
		return c.Name
	}
	return c.Project + "/" + c.Name
}

// clip returns at most the first n bytes of a text, without a partial character at the end.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
