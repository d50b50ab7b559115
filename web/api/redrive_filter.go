package api

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// maxFilter is the most bytes of a redrive's filter, which is kept and shown as it was given.
const maxFilter = 16 << 10

// picks reads the filter of a redrive: the filters of GET /v1/callbacks as the members of an object. They are made the parameters of a
// query and read as one, so that both have the same names, meanings and bounds.
func (f *fields) picks(raw []byte) (p query.Filter) {
	const name = "filter"
	if len(raw) > maxFilter {
		f.add(name, fmt.Sprintf("is longer than %d KiB", maxFilter>>10))
		return p
	}
	q := query.NewValues(url.Values{})
	f.object(name, name+".", raw, func(key, value []byte) bool {
		f.parameter(name+".", string(key), value, q.Values)
		return true
	})
	for name, values := range q.Values {
		if len(values) == 0 && strings.HasPrefix(name, query.LabelPrefix) { // null
			delete(q.Values, name)
		}
	}
	p = filterOf(q, 0)
	q.Unknown()
	for _, wrong := range q.Invalid {
		f.add(name+"."+wrong.Field, wrong.Message)
	}
	return p
}

// parameter makes a member of a filter parameters of a query. One without a value is none; of one that no filter has, the name alone is
// taken, which the query refuses.
func (f *fields) parameter(prefix, key string, raw []byte, to url.Values) {
	shown := prefix + query.Printable(key)
	put := func(key string, values ...string) { to[key] = append(to[key], values...) }
	if key != "label" { // which is no parameter, but has some
		put(key)
	}
	if isNull(raw) {
		return
	}
	switch key {
	case "state":
		put(key, f.textOrTexts(shown, raw, len(store.States))...)
	case "status_code", "min_attempts":
		if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
			f.add(shown, "must be a whole number")
		} else {
			put(key, string(raw))
		}
	case "overdue":
		var yes bool
		if f.boolean(shown, raw, &yes); yes {
			put(key, "true")
		}
	case "label":
		f.labelParameters(shown, raw, put)
	case "kind", "topic", "ref", "lock_key", "endpoint", "lane", "class", "reason", "from", "to":
		put(key, f.textOrTexts(shown, raw, 0)...)
	default:
		if strings.HasPrefix(key, query.LabelPrefix) {
			put(key, f.textOrTexts(shown, raw, 0)...)
		}
	}
}

// labelParameters takes the members of "label": {NAME: VALUE}.
func (f *fields) labelParameters(shown string, raw []byte, put func(key string, values ...string)) {
	n := 0
	f.object(shown, shown+".", raw, func(key, value []byte) bool {
		if n++; n > accept.MaxLabels {
			if n == accept.MaxLabels+1 {
				f.add(shown, fmt.Sprintf("has more labels than the %d that a callback can have", accept.MaxLabels))
			}
			return true
		}
		put(query.LabelPrefix+string(key), f.textOrTexts(shown+"."+query.Printable(string(key)), value, 0)...)
		return true
	})
}

// textOrTexts decodes one text, or an array of 1 to most of them where most is not zero. Null is none.
func (f *fields) textOrTexts(name string, raw []byte, most int) (texts []string) {
	if most > 0 && raw[0] == '[' {
		before := len(f.invalid)
		if f.lines(name, raw, most, &texts); len(texts) == 0 && len(f.invalid) == before {
			f.add(name, "must not be empty")
		}
		return texts
	}
	var text *string
	if f.line(name, raw, &text); text == nil {
		return nil
	}
	return []string{*text}
}
