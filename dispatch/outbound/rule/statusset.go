package rule

import (
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// A statusSet is a set of HTTP statuses as inclusive ranges.
type statusSet []statusRange

type statusRange struct{ from, to int }

// maxStatuses is the maximum of entries in a set.
const maxStatuses = 50

func (s statusSet) has(status int) bool {
	for _, r := range s {
		if status >= r.from && status <= r.to {
			return true
		}
	}
	return false
}

// String returns the set for people: "200-299, 404".
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

// MarshalJSON returns the range as a caller writes it: 204, or "500-599".
func (r statusRange) MarshalJSON() ([]byte, error) {
	if r.from == r.to {
		return []byte(r.String()), nil
	}
	return parse.Quote(r.String()), nil
}

// ReadSetting parses a set of 204, "204" and "200-299", from 100 to 599. The tag final marks sets of answers
// that can be final, and says what such an answer is. They cannot have 1xx or 3xx.
func (s *statusSet) ReadSetting(v parse.Setting) {
	for _, e := range v.List(maxStatuses) {
		low, high, isRange := strings.Cut(e.Plain(), "-")
		if !isRange {
			high = low
		}
		r := statusRange{status(low), status(high)}
		if r.from == 0 || r.to == 0 || r.from > r.to {
			e.Fail(`must be an HTTP status from 100 to 599 or a range such as "200-299"`)
			continue
		}
		*s = append(*s, r)
	}
	what := v.Tag("final")
	for _, r := range *s {
		if what != "" && (r.from < 200 || r.from < 400 && r.to >= 300) {
			v.Fail("%s includes 1xx or 3xx, which is never %s: redirects are not followed", r, what)
		}
	}
}

// status parses a status of three digits. Zero means that it is none.
func status(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || len(text) != 3 || n < 100 || n > 599 {
		return 0
	}
	return n
}
