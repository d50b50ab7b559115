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

// A filter selects the callbacks of a page. The page's URL holds it.
type filter struct {
	query.Filter
	// invalid are the invalid conditions. The message of each is the given value.
	invalid []store.FieldError
	// endpoint is the one of the filter, or zero.
	endpoint store.Endpoint
}

// parameters returns a parser for parameters. Their times are in the viewer's zone.
func (r *request) parameters(from url.Values) *query.Values {
	values := query.NewValues(from)
	values.Time = r.parseInput
	return values
}

// readFilter parses the filter in parameters and ignores all other parameters.
func (r *request) readFilter(from url.Values) *filter {
	values := r.parameters(query.Clean(from))
	f := &filter{Filter: values.Filter(r.now)}
	for _, condition := range values.Invalid {
		f.refuse(condition.Field)
	}
	return f
}

// refuse adds a condition to f.invalid. A wrong label is named "label"; too many labels are reported by
// count.
func (f *filter) refuse(name string) {
	condition := store.FieldError{Field: name, Message: f.Values.Get(name)}
	if label, isLabel := strings.CutPrefix(name, query.LabelPrefix); isLabel {
		condition = store.FieldError{Field: "label", Message: label}
	} else if name == "label" {
		n := 0
		for name := range f.Values {
			if strings.HasPrefix(name, query.LabelPrefix) {
				n++
			}
		}
		condition.Message = fmt.Sprintf("%d (≤ %d)", n, query.MaxLabels)
	}
	f.invalid = append(f.invalid, condition)
}

// findEndpoint resolves the endpoint of a filter. It accepts a deleted endpoint, whose callbacks remain. An
// unknown endpoint becomes an invalid condition.
func (u *UI) findEndpoint(r *request, f *filter) error {
	err := f.Find(r.ctx, r.caller.Project, u.Store)
	if err == nil && f.EndpointID != "" {
		f.endpoint, err = u.Store.AnyEndpoint(r.ctx, r.caller.Project, f.EndpointID)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		f.refuse("endpoint")
	case err != nil:
		return fmt.Errorf("find the endpoint of a filter: %w", err)
	}
	return nil
}

// query returns the filter as a URL query.
func (f *filter) query() string { return f.Values.Encode() }

// conditions describes the filter's conditions in the viewer's language.
func (f *filter) conditions(b *base) (facts []fact) {
	for _, name := range slices.Sorted(maps.Keys(f.Values)) {
		for _, value := range f.Values[name] {
			condition := fact{Name: b.T("filter." + name), Value: value, Data: true}
			label, isLabel := strings.CutPrefix(name, query.LabelPrefix)
			switch {
			case isLabel:
				condition.Name, condition.Value = b.T("filter.label"), label+" = "+value
			case name == "state", name == "kind", name == "reason", name == "class":
				condition.Value, condition.Data = b.Or(name+".", value), !b.Has(name+"."+value)
			case name == "overdue":
				condition.Value, condition.Data = b.T("yes"), false
			case name == "endpoint" && f.endpoint.ID != "":
				condition = *f.endpointFact(b)
			case name == "from":
				condition.Value = b.Absolute(f.From)
			case name == "to":
				condition.Value = b.Absolute(f.To)
			case name == "finished_from":
				condition.Value = b.Absolute(f.FinishedFrom)
			case name == "finished_to":
				condition.Value = b.Absolute(f.FinishedTo)
			}
			facts = append(facts, condition)
		}
	}
	return facts
}

// endpointFact names the filter's endpoint, or returns nil.
func (f *filter) endpointFact(b *base) *fact {
	if f.endpoint.ID == "" {
		return nil
	}
	id := store.EndpointPrefix + f.endpoint.ID
	return &fact{Name: b.T("filter.endpoint"), Value: endpointLabel(&f.endpoint), Data: true,
		Link: Root + "/endpoints/" + id, Title: id}
}

// nameFilters sets the endpoints of filters, in one call for all. Of one that is deleted or unknown the
// condition shows what was typed.
func (u *UI) nameFilters(r *request, filters ...*filter) error {
	var names []string
	for _, f := range filters {
		if f == nil {
			continue
		}
		if name := f.Values.Get("endpoint"); name != "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	found, err := u.Store.FindEndpoints(r.ctx, r.caller.Project, names)
	if err != nil {
		return fmt.Errorf("find the endpoints of filters: %w", err)
	}
	for _, f := range filters {
		if f != nil {
			f.endpoint = found[f.Values.Get("endpoint")]
		}
	}
	return nil
}

// filterOf parses the stored filter of a redrive. ok is false if it cannot be parsed; the page then shows the
// stored text.
func filterOf(r *request, of *store.Redrive) (*filter, bool) {
	values, ok := query.FromJSON(of.FilterText)
	if !ok {
		return nil, false
	}
	if len(values["state"]) == 0 { // the action has chosen the states
		for _, s := range of.Filter.States {
			values.Add("state", string(s))
		}
	}
	f := r.readFilter(values)
	if len(f.invalid) > 0 {
		return nil, false
	}
	return f, true
}
