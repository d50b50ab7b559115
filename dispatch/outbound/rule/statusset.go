package rule

import (
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// A statusSet is HTTP statuses, as ranges with both ends in them.
type statusSet []statusRange

type statusRange struct{ from, to int }

// maxStatuses is how many entries a set may have.
const maxStatuses = 50

func (s statusSet) has(status int) bool {
	for _, r := range s {
		if status >= r.from && status <= r.to {
			return true
		}
	}
	return false
}

// String returns it for people: "200-299, 404".
func (s statusSet) String() string {
	texts := make([]string, len(s))
	for i, r := range s {
		texts[i] = r.String()
	}
	return strings.Join(texts, ", ")
}

// String returns "204" or "200-299".
func (r statusRange) String() string {
	if r.from == r.to {
		return strconv.Itoa(r.from)
	}
	return strconv.Itoa(r.from) + "-" + strconv.Itoa(r.to)
}

// MarshalJSON writes it as it is read: 204, or "500-599".
func (r statusRange) MarshalJSON() ([]byte, error) {
	if r.from == r.to {
		return []byte(r.String()), nil
	}
	return parse.Quote(r.String()), nil
}

// ReadSetting reads a set: 204, "204" and "200-299", from 100 to 599. Of a field with a tag final they are
// those of answers that count; the tag says as what.
func (s *statusSet) ReadSetting(v parse.Setting) {
	for _, e := range v.List(maxStatuses) {
		low, high, isRange := strings.Cut(e.Plain(), "-")
		if !isRange {
			high = low
		}
		r := statusRange{status(low), status(high)}
		if r.from == 0 || r.to == 0 || r.from > r.to {
			e.Fail(`is an HTTP status from 100 to 599 or a range such as "200-299"`)
			continue
		}
		*s = append(*s, r)
	}
	what := v.Tag("final")
	for _, r := range *s {
		if what != "" && (r.from < 200 || r.from < 400 && r.to >= 300) {
			v.Fail("%s has statuses of 1xx or 3xx, which are never %s: redirects are not followed", r, what)
		}
	}
}

// status reads three digits; 0: they are no status.
func status(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || len(text) != 3 || n < 100 || n > 599 {
		return 0
	}
	return n
}
