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

// appendJSON appends it as it is read: [204,"500-599"].
func (s statusSet) appendJSON(out []byte) []byte {
	for i, r := range s {
		out = append(out, "[,"[min(i, 1)])
		if r.from == r.to {
			out = strconv.AppendInt(out, int64(r.from), 10)
		} else {
			out = parse.Quote(out, r.String())
		}
	}
	return append(out, ']')
}

// statuses reads a set: 204, "204" and "200-299", from 100 to 599.
func (r *ruleReader) statuses(node int32, field string) statusSet {
	var set statusSet
	for i, c := range r.List(node, field, maxStatuses) {
		var text string
		switch r.Kind(c) {
		case parse.Number:
			text = string(r.Raw(c))
		case parse.String:
			text = r.Str(c)
		}
		low, high, isRange := strings.Cut(text, "-")
		if !isRange {
			high = low
		}
		from, to := status(low), status(high)
		if from == 0 || to == 0 || from > to {
			r.Fail(parse.Indexed(field, i), `is an HTTP status from 100 to 599 or a range such as "200-299"`)
			continue
		}
		set = append(set, statusRange{from, to})
	}
	return set
}

// status reads three digits; 0: they are no status.
func status(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || len(text) != 3 || n < 100 || n > 599 {
		return 0
	}
	return n
}
