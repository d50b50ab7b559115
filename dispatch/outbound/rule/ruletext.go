package rule

import (
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// text returns the rule in its one spelling.
func (r *writtenRule) text() store.JSONText {
	w := parse.NewWriter()
	if r.status != nil {
		w.Name("status")
		w.Out = r.status.appendJSON(w.Out)
	}
	if r.body.op != bodyNone {
		w.Name("body")
		w.Out = r.body.appendJSON(w.Out)
	}
	if r.permanentIf.given() {
		w.Name("permanent_if")
		w.Out = r.permanentIf.appendJSON(w.Out)
	}
	if r.deferIf.given() {
		w.Name("defer_if")
		w.Out = r.deferIf.appendJSON(w.Out)
	}
	if r.deferAfter != 0 {
		w.Text("defer_after", formatWait(r.deferAfter))
	}
	if r.maxDefers != 0 {
		w.Name("max_defers")
		w.Out = strconv.AppendInt(w.Out, int64(r.maxDefers), 10)
	}
	return store.JSONText(w.End())
}

func (c *condition) given() bool { return c.status != nil || c.body.op != bodyNone }

func (c *condition) appendJSON(out []byte) []byte {
	w := parse.Writer{Out: append(out, '{')}
	if c.status != nil {
		w.Name("status")
		w.Out = c.status.appendJSON(w.Out)
	}
	if c.body.op != bodyNone {
		w.Name("body")
		w.Out = c.body.appendJSON(w.Out)
	}
	return w.End()
}

func (t *bodyTest) appendJSON(out []byte) []byte {
	w := parse.Writer{Out: append(out, '{')}
	w.Name(string(t.op))
	switch t.op {
	case bodyJSON:
		w.Out = t.predicates.appendJSON(w.Out)
	case bodyRegex:
		w.Out = parse.Quote(w.Out, t.pattern.String())
	default:
		w.Out = parse.Quote(w.Out, t.text)
	}
	if t.trim {
		w.Name("trim")
		w.Out = append(w.Out, "true"...)
	}
	return w.End()
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
