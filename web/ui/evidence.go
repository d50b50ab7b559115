package ui

import (
	"context"
	"fmt"
	"html"
	"html/template"
	"regexp"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// evidencePage is the delivery report of a callback or of an order, for a dispute about whether it was sent.
type evidencePage struct {
	base
	// Name is the object of the report, Back its page. Download is the report as a file.
	Name, Back, Download string
	// NotShown is the number of the order's callbacks without a report. It is empty if all have one.
	NotShown string
	// Report is the report in the viewer's language, as preformatted text.
	Report template.HTML
}

// evidence is GET /ui/callbacks/{id}/evidence. With as=text it downloads the report.
func (u *UI) evidence(r *request) (*response, error) {
	report, err := load(r, store.CallbackPrefix, u.report)
	if err != nil {
		return nil, err
	}
	page := Root + "/callbacks/" + r.params["id"]
	p := &evidencePage{base: u.base(r, "callbacks", "evidence.title"), Name: r.params["id"], Back: page,
		Download: page + "/evidence?as=text"}
	return p.respond(r.params["id"]+"-evidence.txt", []*control.Report{report})
}

func (u *UI) report(ctx context.Context, project, id string) (*control.Report, error) {
	return u.Engine.Report(ctx, project, id, control.MaxReport)
}

// orderEvidence is GET /ui/orders/evidence?ref=REF: the delivery reports of the callbacks of an order.
func (u *UI) orderEvidence(r *request) (*response, error) {
	ref := r.url.Query().Get("ref")
	page, err := u.Store.OfRef(r.ctx, r.caller.Project, ref, r.now, maxOrder)
	if err != nil {
		return nil, err
	}
	if ref == "" || len(page.Callbacks) == 0 {
		return nil, store.ErrNotFound
	}
	var reports []*control.Report
	for i := range page.Callbacks {
		report, err := u.report(r.ctx, r.caller.Project, page.Callbacks[i].ID)
		if err != nil {
			return nil, err
		}
		reports = append(reports, report)
	}
	p := &evidencePage{base: u.base(r, "callbacks", "evidence.title"), Name: ref,
		NotShown: atLeast(page.Hidden(), page.More),
		Back:     link("/orders", "ref", ref),
		Download: link("/orders/evidence", "ref", ref, "as", "text")}
	return p.respond("order-evidence.txt", reports)
}

// respond writes the reports. It returns the page, or the file if the request asks for text.
func (p *evidencePage) respond(file string, reports []*control.Report) (*response, error) {
	p.Report = p.reportHTML(reports...)
	if p.NotShown != "" {
		p.Report += "\n" + escaped(p.T("order.more", "n", p.NotShown)) + "\n"
	}
	if p.r.query("as") == "text" {
		return download(file, reportText(p.Report))
	}
	return show("evidence", p)
}

// reportHTML writes reports in the viewer's language, as preformatted text.
func (b *base) reportHTML(reports ...*control.Report) template.HTML {
	var all strings.Builder
	for i, report := range reports {
		if i > 0 {
			all.WriteString(strings.Repeat("-", 72) + "\n\n")
		}
		w := reportWriter{base: b, report: report}
		w.write()
		all.WriteString(w.Builder.String())
	}
	return template.HTML(all.String())
}

// ReportTexts returns the writers of reports as text, with times in UTC, by the code of the language.
func ReportTexts() (map[string]func(*control.Report) []byte, error) {
	all, err := embeddedLanguages()
	if err != nil {
		return nil, err
	}
	texts := make(map[string]func(*control.Report) []byte)
	for _, l := range all {
		texts[l.code] = func(r *control.Report) []byte {
			b := base{lang: l, zone: zoneChoice{Location: time.UTC}}
			return reportText(b.reportHTML(r))
		}
	}
	return texts, nil
}

// reportText returns the text of a report. All data in the HTML is escaped, so that what is left without the
// tags is the text.
func reportText(report template.HTML) []byte {
	return []byte(html.UnescapeString(anyTag.ReplaceAllString(string(report), "")))
}

var anyTag = regexp.MustCompile(`<[^>]*>`)

// A reportWriter writes a report as lines of HTML. Data is marked and escaped.
type reportWriter struct {
	*base
	report *control.Report
	strings.Builder
}

// line writes a line with the text of a key and a value.
func (w *reportWriter) line(key string, value template.HTML) {
	w.WriteString(template.HTMLEscapeString(w.T(key)) + w.T("colon") + string(value) + "\n")
}

// part writes a line of an attempt.
func (w *reportWriter) part(key string, value template.HTML) {
	w.WriteString("  ")
	w.line(key, value)
}

// data returns a text as data.
func (w *reportWriter) data(text string) template.HTML { return asData(w.report.Mask(text)) }

// says returns the text of a key.
func (w *reportWriter) says(key string, params ...any) template.HTML {
	return escaped(w.T(key, params...))
}

// named returns the text of a key that ends with a name, or the name.
func (w *reportWriter) named(prefix, name string) template.HTML { return escaped(w.Or(prefix, name)) }

// clock returns a time in the viewer's zone and in UTC.
func (w *reportWriter) clock(ms int64) template.HTML {
	t := time.UnixMilli(ms)
	text := t.In(w.zone.Location).Format(yearDay + clockExact + " -07:00")
	if w.zone.Location != time.UTC {
		text += t.UTC().Format(" (" + yearDay + clockExact + " UTC)")
	}
	return asData(text)
}

func (w *reportWriter) write() {
	r := w.report
	c := &r.Callback
	given := func(key, value string) {
		if value != "" {
			w.line(key, w.data(value))
		}
	}
	w.line("evidence.reported", w.clock(r.At))
	w.line("evidence.callback", asData(store.CallbackPrefix+c.ID))
	given("column.ref", c.Ref)
	given("column.topic", c.Topic)
	if c.EndpointID != "" {
		w.line("column.endpoint", asData(store.EndpointPrefix+c.EndpointID))
	}
	w.line("callback.request", w.data(c.Method+" "+store.MaskURL(c.URL)))
	w.line("evidence.id", asData("webhook-id: "+store.CallbackPrefix+c.ID))
	w.line("evidence.accepted", w.clock(c.CreatedAt))
	due := "evidence.due"
	if r.FirstDue != c.FirstDueAt {
		due = "evidence.due1"
	}
	w.line(due, w.clock(r.FirstDue))
	given("evidence.type", c.ContentType)
	w.line("payload.title", w.payload())
	state := w.named("state.", string(c.StateAt(r.At)))
	switch reason := w.named("reason.", string(c.Reason)); {
	case c.Kind == store.Poll && c.State == store.Succeeded:
		state = reason // the poll is final; its answer may be a failure
	case c.Reason != "":
		state += " · " + reason
	}
	w.line("column.state", state)
	if c.FinishedAt != 0 {
		w.line("why.ended", w.clock(c.FinishedAt))
	}
	w.line("evidence.attempts", w.says("evidence.counted", "total", r.Total, "counted", c.AttemptCount))
	if older := r.Older(); older > 0 {
		w.WriteString(string(w.says("evidence.older", "shown", len(r.Attempts), "older", older)) + "\n")
	}
	for i := range r.Attempts {
		w.attempt(&r.Attempts[i])
	}
	if c.DueAt != 0 && c.State == store.Scheduled {
		w.WriteString("\n")
		w.line("attempt.next", w.clock(c.DueAt))
	}
	w.WriteString("\n" + string(w.says("evidence.masked")) + "\n")
}

func (w *reportWriter) payload() template.HTML {
	switch r := w.report; {
	case r.PayloadHidden:
		return w.says("view.payload")
	case r.PayloadSum != "":
		return w.says("payload.size", "n", r.PayloadSize) + asData(" · SHA-256 "+r.PayloadSum)
	case r.Callback.PayloadPurged:
		return w.says("payload.gone")
	}
	return w.says("payload.none")
}

func (w *reportWriter) attempt(a *store.Attempt) {
	c := &w.report.Callback
	fmt.Fprintf(w, "\n%s · %s\n", w.says("attempt.title", "number", a.Number),
		w.named("evidence.trigger.", string(a.Trigger)))
	w.part("evidence.started", w.clock(a.StartedAt))
	w.part("evidence.ended", w.clock(a.EndedAt))
	if a.URL != "" && a.URL != c.URL {
		w.part("evidence.sent", w.data(store.MaskURL(a.URL)))
	}
	shown := displayOutcome(a, c)
	outcome := w.named("outcome.", shown)
	if shown != notFinal && a.Class != store.ClassOK && a.Class != "" {
		outcome += " · " + w.named("class.", string(a.Class)) + " (" + asData(string(a.Class)) + ")"
	}
	w.part("evidence.outcome", outcome)
	switch {
	case a.Status != 0:
		w.part("evidence.status", asData(fmt.Sprint(a.Status)))
	case a.Error != "":
		w.part("evidence.error", w.Engine(w.report.Mask(a.Error)))
	}
	if a.KeyID != "" {
		w.part("evidence.key", asData(a.KeyID))
	}
	if a.Rule != nil {
		w.part("column.rule", w.data(a.Rule.Name))
		w.part("attempt.expected", w.Engine(w.report.Mask(a.Rule.Expected)))
		w.part("attempt.saw", w.Engine(w.report.Mask(a.Rule.Saw)))
	}
	for _, h := range a.ResponseHeaders {
		w.part("evidence.header", w.data(h.Name+": "+h.Value))
	}
	if a.ResponseBody != "" {
		body := strings.ReplaceAll(strings.TrimSpace(a.ResponseBody), "\n", "\n    ")
		w.part("attempt.body", w.data(body))
	}
	if a.NextDueAt != 0 {
		w.part("attempt.next", w.clock(a.NextDueAt))
	}
}
