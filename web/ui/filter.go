package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// filterNames are the parameters of a filter, as the API names them; labels are beside them, each as "label.NAME".
var filterNames = [...]string{
	"state", "kind", "topic", "ref", "lock_key", "endpoint", "lane", "class", "status_code", "reason", "min_attempts", "overdue", "from", "to",
}

const labelPrefix = "label."

// maxLabels is how many labels may be conditions together, as in the API: each is a part of a statement of
// SQL.
const maxLabels = 20

// A filter is which callbacks a page is about, as the page's address says it.
type filter struct {
	store.Filter
	// values are its parameters, those that say something.
	values url.Values
	// wrong are parameters that cannot be meant, by name.
	wrong []store.FieldError
}

// readFilter reads the filter out of parameters; what else there is, it passes over. An empty parameter is a field that nobody filled.
func (r *request) readFilter(from url.Values) *filter {
	f := &filter{values: url.Values{}}
	for name, values := range from {
		label, isLabel := strings.CutPrefix(name, labelPrefix)
		if !isLabel && !slices.Contains(filterNames[:], name) {
			continue
		}
		for _, value := range values {
			if value = strings.TrimSpace(value); value != "" && len(f.values[name]) < len(store.States) {
				f.values.Add(name, value)
			}
		}
		switch {
		case isLabel:
			f.label(name, label)
		case name != "state" && len(f.values[name]) > 1:
			f.refuse(name)
		}
	}
	if n := len(f.Labels); n > maxLabels {
		f.Labels = nil
		f.wrong = append(f.wrong, store.FieldError{Field: "label", Message: fmt.Sprintf("%d (≤ %d)", n, maxLabels)})
	}
	for _, s := range f.values["state"] {
		if f.States = append(f.States, store.State(s)); !slices.Contains(store.States[:], store.State(s)) {
			f.refuse("state")
		}
	}
	get := f.values.Get
	f.Kind, f.Class, f.Reason = store.Kind(get("kind")), store.Class(get("class")), store.Reason(get("reason"))
	f.Topic, f.Ref, f.LockKey, f.Lane = get("topic"), get("ref"), get("lock_key"), get("lane")
	switch get("overdue") {
	case "true":
		f.Overdue = true
	case "false", "":
		delete(f.values, "overdue") // which says nothing
	default:
		f.refuse("overdue")
	}
	if get("min_attempts") == "0" {
		delete(f.values, "min_attempts")
	}
	f.Status = f.number("status_code", 100, 999)
	f.MinAttempts = f.number("min_attempts", 0, 1_000_000)
	f.From, f.To = f.moment(r, "from"), f.moment(r, "to")
	if f.Kind != "" && f.Kind != store.Notify && f.Kind != store.Poll {
		f.refuse("kind")
	}
	if f.Class != "" && !slices.Contains(store.Classes[:], f.Class) {
		f.refuse("class")
	}
	if f.From != 0 && f.To != 0 && f.From > f.To {
		f.refuse("from")
	}
	f.Now = r.now
	return f
}

// label adds the condition that a parameter has for a label.
func (f *filter) label(name, label string) {
	switch values := f.values[name]; len(values) {
	case 0: // which says nothing
	case 1:
		if f.Labels == nil {
			f.Labels = make(map[string]string)
		}
		f.Labels[label] = values[0]
	default:
		f.wrong = append(f.wrong, store.FieldError{Field: "label", Message: label})
	}
}

func (f *filter) refuse(name string) {
	f.wrong = append(f.wrong, store.FieldError{Field: name, Message: f.values.Get(name)})
}

func (f *filter) number(name string, least, most int) int {
	s := f.values.Get(name)
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		f.refuse(name)
		return 0
	}
	return n
}

func (f *filter) moment(r *request, name string) int64 {
	s := f.values.Get(name)
	if s == "" {
		return 0
	}
	ms, ok := r.parseInput(s)
	if !ok {
		f.refuse(name)
	}
	return ms
}

// endpointNames finds an endpoint by what people call it. AnyEndpoint finds one that was deleted, too.
type endpointNames interface {
	AnyEndpoint(ctx context.Context, project, id string) (store.Endpoint, error)
	EndpointByExternalID(ctx context.Context, project, externalID string) (store.Endpoint, error)
}

// findEndpoint fills in the endpoint that is named, by its id or the caller's own. Callbacks of one that was
// deleted are found by its id; the name may belong to another by now.
func (f *filter) findEndpoint(r *request, in endpointNames) error {
	name := f.values.Get("endpoint")
	if name == "" {
		return nil
	}
	var ep store.Endpoint
	var err error
	if id, ok := store.BareID(store.EndpointPrefix, name); ok {
		ep, err = in.AnyEndpoint(r.ctx, r.who.project, id)
	} else {
		ep, err = in.EndpointByExternalID(r.ctx, r.who.project, name)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		f.refuse("endpoint")
	case err != nil:
		return fmt.Errorf("find the endpoint of a filter: %w", err)
	}
	f.EndpointID = ep.ID
	return nil
}

// empty says whether it picks everything.
func (f *filter) empty() bool { return len(f.values) == 0 }

// shown is the filter as the API writes it.
func (f *filter) shown() store.JSONText {
	members := make(map[string]any)
	labels := make(map[string]string)
	for name, values := range f.values {
		label, isLabel := strings.CutPrefix(name, labelPrefix)
		switch {
		case isLabel:
			labels[label] = values[0]
		case name == "state":
			members[name] = values
		case name == "status_code":
			members[name] = f.Status
		case name == "min_attempts":
			members[name] = f.MinAttempts
		case name == "overdue":
			members[name] = f.Overdue
		case name == "from":
			members[name] = wire(f.From)
		case name == "to":
			members[name] = wire(f.To)
		default:
			members[name] = values[0]
		}
	}
	if len(labels) > 0 {
		members["label"] = labels
	}
	text, err := json.Marshal(members)
	if err != nil {
		panic(err) // texts and numbers can always be encoded
	}
	return store.JSONText(text)
}

// wire writes a moment as the API does.
func wire(ms int64) string { return time.UnixMilli(ms).UTC().Format(wireTime) }

// pairs are the parameters in order, for hidden fields.
func (f *filter) pairs() []named {
	var all []named
	for name, values := range f.values {
		for _, value := range values {
			all = append(all, named{name, value})
		}
	}
	slices.SortStableFunc(all, func(a, b named) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// query is the filter as a part of an address.
func (f *filter) query() string { return f.values.Encode() }

// says names the conditions in the viewer's words, for who is about to do something to all that they pick.
func (f *filter) says(b *base) []fact {
	var facts []fact
	for _, p := range f.pairs() {
		name := p.Name
		if label, ok := strings.CutPrefix(name, labelPrefix); ok {
			facts = append(facts, fact{Name: b.T("filter.label"), Value: label + " = " + p.Value, Data: true})
			continue
		}
		switch value := p.Value; name {
		case "state", "kind", "reason":
			facts = append(facts, fact{Name: b.T("filter." + name), Value: b.Or(name+".", value), Data: !b.Has(name + "." + value)})
		case "overdue":
			facts = append(facts, fact{Name: b.T("filter.overdue"), Value: b.T("yes")})
		case "from":
			facts = append(facts, fact{Name: b.T("filter.from"), Value: b.Absolute(f.From), Data: true})
		case "to":
			facts = append(facts, fact{Name: b.T("filter.to"), Value: b.Absolute(f.To), Data: true})
		default:
			facts = append(facts, fact{Name: b.T("filter." + name), Value: value, Data: true})
		}
	}
	return facts
}

// cursorOf writes a place in a list for an address, and readCursor reads it: the due time, where the list is in that order, and the id.
// It is not signed: each list is of the viewer's own project, and readCursor takes nothing that cannot be an
// id.
func cursorOf(c *store.Cursor) string {
	if c == nil {
		return ""
	}
	return strconv.FormatInt(c.DueAt, 36) + "." + c.ID
}

func readCursor(s string) *store.Cursor {
	due, id, ok := strings.Cut(s, ".")
	if !ok {
		return nil
	}
	at, err := strconv.ParseInt(due, 36, 64)
	if err != nil {
		return nil
	}
	if _, ok := store.BareID("", id); !ok {
		return nil
	}
	return &store.Cursor{DueAt: at, ID: id}
}
