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
	// DefaultLimit and MaxLimit are the default and maximum number of rows of a page.
	DefaultLimit = 50
	MaxLimit     = 500
	// maxRepeats is the maximum number of values of a parameter. MaxLabels is the maximum number of label
	// filters. Each value becomes a part of an SQL statement, whose size is limited.
	maxRepeats = 20
	MaxLabels  = 20
	// maxFindings is the maximum number of errors in a response, so that a request cannot make its response
	// long.
	maxFindings = 100
)

// Error messages of parameters. The API and the UI also use some of them.
const (
	BadTime   = `must be an RFC 3339 time, such as "2026-11-21T08:00:00.000Z"`
	Needed    = "is required"
	Unordered = "must not be later than to"
	repeated  = "is a duplicate parameter"
)

// Values are the parameters of one request. Each method reads one parameter. If it is invalid, the method
// records an error and returns the zero value. A parameter may have one value, unless All reads it.
type Values struct {
	url.Values
	// Invalid has the errors so far.
	Invalid []store.FieldError
	// Time parses a time into Unix milliseconds.
	Time func(text string) (ms int64, ok bool)
	// Cursors are the cursors of the list that is read; see Page.
	Cursors Cursors

	known map[string]bool
}

// NewValues returns Values whose times are in the format of RFC 3339.
func NewValues(values url.Values) *Values {
	return &Values{Values: values, Time: timeInQuery, known: make(map[string]bool)}
}

// Parse splits a query string. Unlike package url it does not drop invalid parts: they are an error.
func Parse(raw string) (*Values, error) {
	values, err := url.ParseQuery(raw)
	v := NewValues(values)
	if err != nil {
		v.Add("query", "is not a valid query string")
		return nil, v.Err()
	}
	return v, nil
}

// Add records an error of a parameter.
func (v *Values) Add(name, message string) {
	if len(v.Invalid) < maxFindings {
		v.Invalid = append(v.Invalid, store.FieldError{Field: Printable(name), Message: message})
	}
}

// Err returns nil, or the *store.InvalidError of all recorded errors.
func (v *Values) Err() error {
	if len(v.Invalid) == 0 {
		return nil
	}
	return &store.InvalidError{Fields: v.Invalid}
}

// All returns every value of a text parameter.
func (v *Values) All(name string) (texts []string) {
	v.known[name] = true
	if len(v.Values[name]) > maxRepeats {
		v.Add(name, fmt.Sprintf("has more than %d values", maxRepeats))
		return nil
	}
	for _, text := range v.Values[name] {
		switch wrong := CheckText(text, false); {
		case wrong != "":
			v.Add(name, wrong)
		case text == "":
			// An empty filter is probably a variable that the caller did not fill. It must not mean "all".
			v.Add(name, "must not be empty")
		default:
			texts = append(texts, text)
		}
	}
	return texts
}

// One returns the value of a parameter that may have one value, or "".
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

// Number returns an integer from least to most, or otherwise if the parameter is not given.
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

// Instant returns a time in Unix milliseconds, or zero if the parameter is not given.
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

// Between returns the times from and to. Each is zero if it is not given.
func (v *Values) Between() (from, to int64) { return v.period("from", "to") }

// period returns the times of two parameters. Each is zero if it is not given.
func (v *Values) period(first, last string) (from, to int64) {
	from, to = v.Instant(first), v.Instant(last)
	if from != 0 && to != 0 && from > to {
		v.Add(first, Unordered)
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

// OneOf returns one of the allowed values, or "".
func (v *Values) OneOf(name string, allowed ...string) string {
	text := v.One(name)
	if text != "" && !slices.Contains(allowed, text) {
		v.Add(name, "must be one of "+strings.Join(allowed, ", "))
		return ""
	}
	return text
}

// Yes returns the value of a boolean parameter.
func (v *Values) Yes(name string) bool { return v.OneOf(name, "true", "false") == "true" }

// Unknown records an error for every parameter that was not read. Call it last.
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

// CheckText returns what is wrong with a text from outside, or "". If lines is true, the text may have line
// ends and tabs. It must not have other control characters.
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

// Printable returns the name of a parameter or a field as a response may have it: valid UTF-8, and cut at 128
// bytes.
func Printable(name string) string {
	if len(name) > 128 {
		name = name[:125] + "…"
	}
	return strings.ToValidUTF8(name, "�")
}

// ParseTime parses an RFC 3339 time into Unix milliseconds, rounded up. It accepts t and z in lower case, a
// space in place of the T, any zone and any fraction.
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
	// Rounding or the zone can lead to a year that RFC 3339 cannot represent in a response.
	year := time.UnixMilli(ms).UTC().Year()
	return ms, year >= 0 && year <= 9999
}

// timeInQuery is ParseTime for a query string. An unescaped plus sign arrives as a space. Where only a zone
// is possible, timeInQuery reads the space as a plus sign.
func timeInQuery(s string) (ms int64, ok bool) {
	if i := len(s) - len(" 08:00"); i > len("2006-01-02") && s[i] == ' ' {
		s = s[:i] + "+" + s[i+1:]
	}
	return ParseTime(s)
}
