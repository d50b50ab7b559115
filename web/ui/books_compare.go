package ui

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// maxListed is the most references of a list that is compared here; the API takes longer ones.
	maxListed = 10_000
	// maxRef is the most characters of a reference.
	maxRef = 256
	// shownRefs is how many references the page names that are on one side only.
	shownRefs = 200
)

// comparisonPage is what a caller's own list has and the project has not, and the other way round.
type comparisonPage struct {
	base
	From, To int64
	// Listed is how many different references the list has.
	Listed, Matched int
	// Missing are the first of those that nothing was accepted for, MissingCount is how many there are.
	Missing      []string
	MissingCount int
	// Extra are of callbacks and not in the list; MoreExtra: there are more of them.
	Extra     []string
	MoreExtra bool
	Again     string
}

// MissingLines are the missing ones, one a line.
func (p *comparisonPage) MissingLines() string { return strings.Join(p.Missing, "\n") }

// Agrees says whether both sides have the same.
func (p *comparisonPage) Agrees() bool { return p.MissingCount == 0 && len(p.Extra) == 0 }

func (u *UI) askCompare(r *request) (*form, error) {
	f := &form{base: u.base(r, "books", "compare.title"), Back: r.back(Root + "/books"), Says: []string{r.lang.text("compare.says"), r.lang.text("compare.time")}}
	from := r.query("from")
	if from == "" {
		from = inputOf(r, dayBegin(r, 0))
	}
	f.Fields = []field{
		{Name: "from", Kind: "datetime-local", Label: f.T("books.from"), Help: f.T("form.zone", "zone", r.zone.name), Value: from, Required: true},
		{Name: "to", Kind: "datetime-local", Label: f.T("books.to"), Help: f.T("books.to.help"), Value: r.query("to")},
		{Name: "refs", Kind: textField, Label: f.T("compare.refs"), Help: f.T("compare.refs.help", "n", maxListed), Mono: true, Rows: 12, Required: true},
	}
	f.Submit, f.PreviewSubmit = f.T("compare.submit"), f.T("compare.file")
	return f, nil
}

// compare is POST /ui/books/compare, because of the list's size: it changes nothing.
func (u *UI) compare(r *request) (*answer, error) {
	s, wrong := readSpan(r, r.value("from"), r.value("to"))
	refs, message := readRefs(r)
	if message != "" {
		wrong = append(wrong, store.FieldError{Field: "refs", Message: message})
	}
	if len(wrong) > 0 {
		return nil, &store.InvalidError{Fields: wrong}
	}
	ctx, cancel := context.WithTimeout(r.ctx, booksTime)
	defer cancel()
	c, err := u.Books.Compare(ctx, r.who.project, s.From, s.To, refs, shownRefs)
	if err != nil && r.tookTooLong(ctx) {
		return nil, invalid("from", r.lang.text("books.toolong"))
	}
	if err != nil {
		return nil, err
	}
	if r.form.Has("preview") {
		return download("missing.txt", []byte(strings.Join(append(c.Missing, ""), "\n")))
	}
	p := &comparisonPage{
		base: u.base(r, "books", "compare.title"), From: s.From, To: s.To, Listed: c.Matched + len(c.Missing), Matched: c.Matched,
		Missing: c.Missing[:min(len(c.Missing), shownRefs)], MissingCount: len(c.Missing), Extra: c.Extra, MoreExtra: c.More,
		Again: link("/books/compare", "from", r.value("from"), "to", r.value("to")),
	}
	return show("compare", p)
}

// readRefs reads the list, one reference a line; empty lines are none. The message says what is wrong with it.
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
