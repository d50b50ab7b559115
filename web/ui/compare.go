package ui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// maxListed bounds the references of a list. The API accepts longer lists.
	maxListed = 10_000
	// maxRef bounds the characters of a reference or topic.
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
	// Compared is the result of a list with topics, Facts its counts, and Items the first Most of each kind;
	// Cut is true if there are more. Nil: the list has references alone.
	Compared *store.ItemComparison
	Facts    []fact
	Items    []dayItem
	Most     int
	Cut      bool
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
	refs.Suggest = "order-20261121-0001,payment.succeeded"
	f.Fields = []field{begin, end, refs}
	f.Submit, f.PreviewSubmit = f.T("compare.submit"), f.T("compare.file")
	return f, nil
}

// compare is POST /ui/books/compare. It changes nothing, but the list is too long for a URL.
func (u *UI) compare(r *request) (*response, error) {
	s, wrong := readSpan(r, r.value("from"), r.value("to"))
	items, message := readItems(r, "refs", maxListed)
	if message == "" && len(items) == 0 {
		message = r.lang.text("compare.none")
	}
	if message != "" {
		wrong = append(wrong, store.FieldError{Field: "refs", Message: message})
	}
	if len(wrong) > 0 {
		return nil, &store.InvalidError{Fields: wrong}
	}
	ctx, cancel := context.WithTimeout(r.ctx, reconcileTimeout)
	defer cancel()
	p := &comparisonPage{
		base: u.base(r, "books", "compare.title"), From: s.From, To: s.To,
		RepeatLink: link("/books/compare", "from", r.value("from"), "to", r.value("to")),
	}
	if slices.ContainsFunc(items, func(i store.RefTopic) bool { return i.Topic != "" }) {
		return u.compareItems(ctx, r, p, items)
	}
	refs := make([]string, len(items))
	for i := range items {
		refs[i] = items[i].Ref
	}
	c, err := u.Store.Compare(ctx, r.caller.Project, s.From, s.To, refs, maxRefs)
	switch {
	case err != nil && r.timedOut(ctx):
		return nil, invalid("from", r.lang.text("books.toolong"))
	case err != nil:
		return nil, err
	case r.form.Has("preview"):
		return download("missing.txt", []byte(strings.Join(append(c.Missing, ""), "\n")))
	}
	p.Listed, p.Matched = c.Matched+len(c.Missing), c.Matched
	p.Missing, p.MissingCount = c.Missing[:min(len(c.Missing), maxRefs)], len(c.Missing)
	p.Extra, p.MoreExtra = c.Extra, c.More
	return show("compare", p)
}

// compareItems compares a list of references with topics.
func (u *UI) compareItems(ctx context.Context, r *request, p *comparisonPage,
	items []store.RefTopic) (*response, error) {
	c, err := u.Store.CompareItems(ctx, r.caller.Project, p.From, p.To, items, maxListed)
	switch {
	case err != nil && r.timedOut(ctx):
		return nil, invalid("from", r.lang.text("books.toolong"))
	case err != nil:
		return nil, err
	case r.form.Has("preview"):
		return missingItems(c.Items)
	}
	p.Compared, p.MissingCount, p.Most = &c, int(c.Missing), maxRefs
	for _, f := range []struct {
		key string
		n   int64
	}{{"compare.listed", c.Listed}, {"compare.matched", c.Matched}, {"books.item.missing", c.Missing},
		{"books.item.unfinished", c.Unfinished}, {"books.item.duplicate", c.Duplicates},
		{"books.item.extra", c.Extra}} {
		p.Facts = append(p.Facts, fact{Name: p.T(f.key), Value: p.N(f.n), Data: true})
	}
	shown := make(map[store.ItemKind]int)
	for i := range c.Items {
		kind := c.Items[i].Kind
		shown[kind]++
		if shown[kind] <= maxRefs {
			p.Items = append(p.Items, dayItemOf(&c.Items[i]))
		} else {
			p.Cut = true
		}
	}
	return show("compare", p)
}

// missingItems returns a file with the missing items, in the form of a list.
func missingItems(items []store.ReconcileItem) (*response, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	for i := range items {
		if items[i].Kind != store.ItemMissing {
			continue
		}
		if err := w.Write([]string{items[i].Ref, items[i].Topic}); err != nil {
			return nil, fmt.Errorf("write the missing items as CSV: %w", err)
		}
	}
	w.Flush()
	return download("missing.txt", out.Bytes())
}
