package outbound

import (
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// text returns the rule in its one spelling.
func (r *writtenRule) text() store.JSONText {
	w := newJSONWriter()
	if r.status != nil {
		w.name("status")
		w.out = r.status.appendJSON(w.out)
	}
	if r.body.op != bodyNone {
		w.name("body")
		w.out = r.body.appendJSON(w.out)
	}
	if r.permanentIf.given() {
		w.name("permanent_if")
		w.out = r.permanentIf.appendJSON(w.out)
	}
	if r.deferIf.given() {
		w.name("defer_if")
		w.out = r.deferIf.appendJSON(w.out)
	}
	if r.deferAfter != 0 {
		w.text("defer_after", formatWait(r.deferAfter))
	}
	if r.maxDefers != 0 {
		w.name("max_defers")
		w.out = strconv.AppendInt(w.out, int64(r.maxDefers), 10)
	}
	return store.JSONText(w.end())
}

func (c *condition) given() bool { return c.status != nil || c.body.op != bodyNone }

func (c *condition) appendJSON(out []byte) []byte {
	w := jsonWriter{out: append(out, '{')}
	if c.status != nil {
		w.name("status")
		w.out = c.status.appendJSON(w.out)
	}
	if c.body.op != bodyNone {
		w.name("body")
		w.out = c.body.appendJSON(w.out)
	}
	return w.end()
}

func (t *bodyTest) appendJSON(out []byte) []byte {
	w := jsonWriter{out: append(out, '{')}
	w.name(string(t.op))
	switch t.op {
	case bodyJSON:
		w.out = t.predicates.appendJSON(w.out)
	case bodyRegex:
		w.out = quoteJSON(w.out, t.pattern.String())
	default:
		w.out = quoteJSON(w.out, t.text)
	}
	if t.trim {
		w.name("trim")
		w.out = append(w.out, "true"...)
	}
	return w.end()
}

// formatWait prints a duration as shortly as it can be read.
func formatWait(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
