package query

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// DefaultLimit and MaxLimit bound the page of a list.
	DefaultLimit = 50
	MaxLimit     = 500
	// maxRepeats is how often a parameter may be given, and MaxLabels how many labels may be filters
	// together: each is a part of an SQL statement, whose size is bounded.
	maxRepeats = 20
	MaxLabels  = 20
	// maxFindings is the most errors that one request names, so that a request cannot make its own answer
	// long.
	maxFindings = 100
)

// What is wrong with a parameter, where a face may say it in other words.
const (
	BadTime   = `must be a time as RFC 3339 writes it, such as "2026-11-21T08:00:00.000Z"`
	Needed    = "is required"
	Unordered = "must not be later than to"
	repeated  = "is a duplicate parameter"
)

// Values are the parameters of one request. Each method reads one, notes what is wrong with it, and then
// returns the zero value. A parameter may be given once, unless it is read with All.
type Values struct {
	url.Values
	// Invalid is what was wrong so far.
	Invalid []store.FieldError
	// Time reads a moment into Unix milliseconds.
	Time func(text string) (ms int64, ok bool)
	// Cursors are those of the list that is read: see Page.
	Cursors Cursors

	known map[string]bool
}

// NewValues reads parameters whose times are as RFC 3339 writes them.
func NewValues(values url.Values) *Values {
	return &Values{Values: values, Time: timeInQuery, known: make(map[string]bool)}
}

// Parse splits a query. Unlike package url it drops nothing: a part that cannot be split is an error.
func Parse(raw string) (*Values, error) {
	values, err := url.ParseQuery(raw)
	v := NewValues(values)
	if err != nil {
		v.Add("query", "is not a query string")
		return nil, v.Err()
	}
	return v, nil
}

// Add notes that a parameter is wrong.
func (v *Values) Add(name, message string) {
	if len(v.Invalid) < maxFindings {
		v.Invalid = append(v.Invalid, store.FieldError{Field: Printable(name), Message: message})
	}
}

// Err returns nil, or the *store.InvalidError of everything that was wrong.
func (v *Values) Err() error {
	if len(v.Invalid) == 0 {
		return nil
	}
	return &store.InvalidError{Fields: v.Invalid}
}

// All returns every value of a parameter that is text.
func (v *Values) All(name string) (texts []string) {
	v.known[name] = true
	if len(v.Values[name]) > maxRepeats {
		v.Add(name, fmt.Sprintf("may be given at most %d times", maxRepeats))
		return nil
	}
	for _, text := range v.Values[name] {
		switch wrong := CheckText(text, false); {
		case wrong != "":
			v.Add(name, wrong)
		case text == "":
			// An empty filter is a variable that the caller did not fill. It must not mean "all".
			v.Add(name, "must not be empty")
		default:
			texts = append(texts, text)
		}
	}
	return texts
}

// One returns the value of a parameter that may be given once, or "".
func (v *Values) One(name string) string {
	if len(v.Values[name]) > 1 {
		v.known[name] = true
		v.Add(name, repeated)
		return ""
	}
	if texts := v.All(name); len(texts) > 0 {
		return texts[0]
	}
	return ""
}

// Number returns a whole number between the bounds, or otherwise when it is not given.
func (v *Values) Number(name string, least, most, otherwise int) int {
	text := v.One(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		v.Add(name, "must be a whole number from "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
		return otherwise
	}
	return n
}

// Instant returns a moment in Unix milliseconds.
func (v *Values) Instant(name string) (ms int64) {
	if text := v.One(name); text != "" {
		var ok bool
		ms, ok = v.Time(text)
		if !ok {
			v.Add(name, BadTime)
		}
	}
	return ms
}

// Between returns the moments from and to, each zero where it is not given.
func (v *Values) Between() (from, to int64) {
	from, to = v.Instant("from"), v.Instant("to")
	if from != 0 && to != 0 && from > to {
		v.Add("from", Unordered)
	}
	return from, to
}

// Wait returns how long a request may wait, from zero to most.
func (v *Values) Wait(name string, most time.Duration) time.Duration {
	text := v.One(name)
	if text == "" {
		return 0
	}
	d, err := schedule.ParseDuration(text)
	if err != nil || d < 0 || d > most {
		v.Add(name, "must be a duration from 0s to "+schedule.FormatDuration(most)+`, such as "20s"`)
		return 0
	}
	return d
}

// OneOf returns a value out of those allowed, or "".
func (v *Values) OneOf(name string, allowed ...string) string {
	text := v.One(name)
	if text != "" && !slices.Contains(allowed, text) {
		v.Add(name, "must be one of "+strings.Join(allowed, ", "))
		return ""
	}
	return text
}

// Yes returns whether a parameter that is true or false is true.
func (v *Values) Yes(name string) bool { return v.OneOf(name, "true", "false") == "true" }

// Unknown refuses every parameter that was not read.
func (v *Values) Unknown() {
	for name := range v.Values {
		if !v.known[name] {
			v.Add(name, "is not a filter of this list")
		}
	}
}

// Page reads limit and cursor.
func (v *Values) Page(list byte) (limit int, after *store.Cursor) {
	limit = v.Number("limit", 1, MaxLimit, DefaultLimit)
	if text := v.One("cursor"); text != "" {
		c, err := v.Cursors.Decode(list, text)
		if err != nil {
			v.Add("cursor", err.Error())
			return limit, nil
		}
		after = &c
	}
	return limit, after
}

// CheckText says what is wrong with a text that came from outside, or nothing. Line ends and tabs are allowed
// where the text may have several lines, other control characters never.
func CheckText(s string, lines bool) (wrong string) {
	if !utf8.ValidString(s) {
		return "is not valid UTF-8"
	}
	for _, r := range s {
		if unicode.IsControl(r) && (!lines || r != '\n' && r != '\r' && r != '\t') {
			return "has a NUL or control character"
		}
	}
	return ""
}

// Printable returns the name of a parameter or a field as it may stand in an answer.
func Printable(name string) string {
	if len(name) > 128 {
		name = name[:125] + "…"
	}
	return strings.ToValidUTF8(name, "�")
}

// ParseTime reads what RFC 3339 allows into Unix milliseconds, rounded up: t and z in lower case too, a space
// for the T, any zone, any fraction.
func ParseTime(s string) (ms int64, ok bool) {
	if len(s) < len("2006-01-02T15:04:05Z") {
		return 0, false
	}
	if c := s[10]; c == 't' || c == ' ' {
		s = s[:10] + "T" + s[11:]
	}
	if strings.HasSuffix(s, "z") {
		s = s[:len(s)-1] + "Z"
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0, false
	}
	ms = schedule.CeilMillis(t)
	// Rounding and the zone can lead out of the years that RFC 3339 can write: the answer could not be read.
	year := time.UnixMilli(ms).UTC().Year()
	return ms, year >= 0 && year <= 9999
}

// timeInQuery is ParseTime for a query. A plus sign that was not escaped arrives as a space; where only a
// zone can stand, it is read as a plus sign.
func timeInQuery(s string) (ms int64, ok bool) {
	if i := len(s) - len(" 08:00"); i > len("2006-01-02") && s[i] == ' ' {
		s = s[:i] + "+" + s[i+1:]
	}
	return ParseTime(s)
}
