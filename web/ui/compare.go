package ui

import (
	"cmp"
	"context"
	"strings"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// maxListed bounds the references of a list. The API accepts longer lists.
	maxListed = 10_000
	// maxRef bounds the characters of a reference.
	maxRef = 256
	// maxRefs bounds the missing references on the page, and the extra ones.
	maxRefs = 200
)

// comparisonPage compares a list of references with the project's callbacks.
type comparisonPage struct {
	base
	From, To int64
	// Listed counts the distinct references of the list, Matched those with a callback.
	Listed, Matched int
	// Missing are the first references without a callback, MissingCount counts all of them.
	Missing      []string
	MissingCount int
	// Extra are references of callbacks that are not in the list. MoreExtra is true if there are more.
	Extra      []string
	MoreExtra  bool
	RepeatLink string
}

// MissingLines returns the missing references, one a line.
func (p *comparisonPage) MissingLines() string { return strings.Join(p.Missing, "\n") }

// Agrees reports whether the list and the project have the same references.
func (p *comparisonPage) Agrees() bool { return p.MissingCount == 0 && len(p.Extra) == 0 }

func (u *UI) askCompare(r *request) (*form, error) {
	f := &form{base: u.base(r, "books", "compare.title"), Back: r.back(Root + "/books"),
		Effects: []string{r.lang.text("compare.says"), r.lang.text("compare.time")}}
	from := cmp.Or(r.query("from"), inputText(r, dayBegin(r, 0)))
	begin := f.askMoment("from", "books.from")
	begin.Value, begin.Required = from, true
	end := f.ask("to", momentField, "books.to")
	end.Value = r.query("to")
	refs := f.ask("refs", textField, "compare.refs")
	refs.Help, refs.Mono, refs.Rows, refs.Required = f.T("compare.refs.help", "n", maxListed), true, 12, true
	f.Fields = []field{begin, end, refs}
	f.Submit, f.PreviewSubmit = f.T("compare.submit"), f.T("compare.file")
	return f, nil
}

// compare is POST /ui/books/compare. It changes nothing, but the list is too long for a URL.
func (u *UI) compare(r *request) (*response, error) {
	s, wrong := readSpan(r, r.value("from"), r.value("to"))
	refs, message := readRefs(r)
	if message != "" {
		wrong = append(wrong, store.FieldError{Field: "refs", Message: message})
	}
	if len(wrong) > 0 {
		return nil, &store.InvalidError{Fields: wrong}
	}
	ctx, cancel := context.WithTimeout(r.ctx, reconcileTimeout)
	defer cancel()
	c, err := u.Store.Compare(ctx, r.caller.Project, s.From, s.To, refs, maxRefs)
	if err != nil && r.timedOut(ctx) {
		return nil, invalid("from", r.lang.text("books.toolong"))
	}
	if err != nil {
		return nil, err
	}
	if r.form.Has("preview") {
		return download("missing.txt", []byte(strings.Join(append(c.Missing, ""), "\n")))
	}
	p := &comparisonPage{
		base: u.base(r, "books", "compare.title"), From: s.From, To: s.To, Listed: c.Matched + len(c.Missing),
		Matched: c.Matched,
		Missing: c.Missing[:min(len(c.Missing), maxRefs)], MissingCount: len(c.Missing), Extra: c.Extra,
		MoreExtra:  c.More,
		RepeatLink: link("/books/compare", "from", r.value("from"), "to", r.value("to")),
	}
	return show("compare", p)
}

// readRefs parses the list, one reference a line. It skips empty lines. message is the error, or empty.
func readRefs(r *request) (refs []string, message string) {
	line := 0
	for text := range strings.Lines(r.text("refs")) {
		line++
		ref := strings.TrimSpace(text)
		switch {
		case ref == "":
			continue
		case utf8.RuneCountInString(ref) > maxRef:
			return nil, r.lang.text("compare.long", "line", line, "n", maxRef)
		case len(refs) == maxListed:
			return nil, r.lang.text("compare.many", "n", maxListed)
		}
		refs = append(refs, ref)
	}
	if len(refs) == 0 {
		return nil, r.lang.text("compare.none")
	}
	return refs, ""
}
