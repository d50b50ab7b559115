package ui

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// A filter is which callbacks a page is about, as the page's address says it.
type filter struct {
	query.Filter
	// wrong are the conditions that could not be read, by name, each with what was given.
	wrong []store.FieldError
}

// parameters reads parameters whose times are in the viewer's zone.
func (r *request) parameters(from url.Values) *query.Values {
	values := query.NewValues(from)
	values.Time = r.parseInput
	return values
}

// readFilter reads the filter out of parameters, and passes over what else there is.
func (r *request) readFilter(from url.Values) *filter {
	values := r.parameters(query.Clean(from))
	f := &filter{Filter: values.Filter(r.now)}
	for _, wrong := range values.Invalid {
		f.refuse(wrong.Field)
	}
	return f
}

// refuse notes that a condition is wrong.
func (f *filter) refuse(name string) {
	wrong := store.FieldError{Field: name, Message: f.Values.Get(name)}
	if label, isLabel := strings.CutPrefix(name, query.LabelPrefix); isLabel {
		wrong = store.FieldError{Field: "label", Message: label}
	} else if name == "label" {
		n := 0
		for name := range f.Values {
			if strings.HasPrefix(name, query.LabelPrefix) {
				n++
			}
		}
		wrong.Message = fmt.Sprintf("%d (≤ %d)", n, query.MaxLabels)
	}
	f.wrong = append(f.wrong, wrong)
}

// findEndpoint finds the endpoint that a filter names, also one that was deleted.
func (u *UI) findEndpoint(r *request, f *filter) error {
	err := f.Find(r.ctx, r.who.Project, u.Store)
	if err == nil && f.EndpointID != "" {
		_, err = u.Store.AnyEndpoint(r.ctx, r.who.Project, f.EndpointID)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		f.refuse("endpoint")
	case err != nil:
		return fmt.Errorf("find the endpoint of a filter: %w", err)
	}
	return nil
}

// query is the filter as a part of an address.
func (f *filter) query() string { return f.Values.Encode() }

// says names the conditions in the viewer's words.
func (f *filter) says(b *base) (facts []fact) {
	for _, name := range slices.Sorted(maps.Keys(f.Values)) {
		for _, value := range f.Values[name] {
			said := fact{Name: b.T("filter." + name), Value: value, Data: true}
			label, isLabel := strings.CutPrefix(name, query.LabelPrefix)
			switch {
			case isLabel:
				said.Name, said.Value = b.T("filter.label"), label+" = "+value
			case name == "state", name == "kind", name == "reason":
				said.Value, said.Data = b.Or(name+".", value), !b.Has(name+"."+value)
			case name == "overdue":
				said.Value, said.Data = b.T("yes"), false
			case name == "from":
				said.Value = b.Absolute(f.From)
			case name == "to":
				said.Value = b.Absolute(f.To)
			}
			facts = append(facts, said)
		}
	}
	return facts
}

// filterOf reads the filter of a redrive as its caller wrote it. What cannot be read is shown as it is.
func filterOf(r *request, of *store.Redrive) (*filter, bool) {
	values, ok := query.FromJSON(of.Shown)
	if !ok {
		return nil, false
	}
	if len(values["state"]) == 0 { // which the action has decided
		for _, s := range of.Filter.States {
			values.Add("state", string(s))
		}
	}
	f := r.readFilter(values)
	return f, len(f.wrong) == 0
}
