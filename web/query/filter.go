package query

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// LabelPrefix begins the name of a filter by a label.
const LabelPrefix = "label."

// names are the parameters of a filter, except labels.
var names = []string{
	"state", "kind", "topic", "ref", "lock_key", "endpoint", "lane", "class", "status_code", "reason",
	"min_attempts", "overdue", "from", "to", "finished_from", "finished_to",
}

// A Filter selects callbacks by the parameters of a request.
type Filter struct {
	store.Filter
	// Endpoint is an endpoint's id or external id. Empty: no condition. See Find.
	Endpoint string
	// Values are the parameters that were read.
	Values url.Values
}

// Filter reads the parameters of a filter. It accepts any text as a reason: the API rejects unknown reasons,
// the UI does not.
func (v *Values) Filter(now int64) (f Filter) {
	f.Filter = store.Filter{
		Kind:        store.Kind(v.OneOf("kind", string(store.Notify), string(store.Poll))),
		Topic:       v.One("topic"),
		Ref:         v.One("ref"),
		LockKey:     v.One("lock_key"),
		Lane:        v.One("lane"),
		Class:       store.Class(v.One("class")),
		Reason:      store.Reason(v.One("reason")),
		Status:      v.Number("status_code", 100, 999, 0),
		MinAttempts: v.Number("min_attempts", 0, 1_000_000, 0),
		Overdue:     v.Yes("overdue"),
		Now:         now,
	}
	f.From, f.To = v.Between()
	f.FinishedFrom, f.FinishedTo = v.period("finished_from", "finished_to")
	f.Endpoint, f.Values = v.One("endpoint"), v.Values
	for _, text := range v.All("state") {
		state := store.State(text)
		f.States = append(f.States, state)
		if !slices.Contains(store.States[:], state) {
			v.Add("state", "must be one of scheduled, attempting, succeeded, dead, canceled")
		}
	}
	if f.Class != "" && !slices.Contains(store.Classes[:], f.Class) {
		v.Add("class", "is not a known class")
	}
	f.Labels = v.labels()
	return f
}

// labels reads the filters by label values.
func (v *Values) labels() map[string]string {
	labels := make(map[string]string)
	for name := range v.Values {
		label, isLabel := strings.CutPrefix(name, LabelPrefix)
		if !isLabel {
			continue
		}
		v.known[name] = true
		labels[label] = ""
	}
	if len(labels) > MaxLabels {
		v.Add("label", fmt.Sprintf("has more than %d labels", MaxLabels))
		return nil
	}
	for label := range labels {
		if label == "" || CheckText(label, false) != "" {
			v.Add(LabelPrefix+label, "has an invalid label name")
		} else {
			labels[label] = v.One(LabelPrefix + label)
		}
		if labels[label] == "" { // invalid, and already recorded as an error
			delete(labels, label)
		}
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

// Clean returns the filter parameters of a URL for a page. It drops empty fields, surrounding space, other
// parameters, and values that mean no condition.
func Clean(from url.Values) url.Values {
	values := make(url.Values)
	for name, texts := range from {
		if !strings.HasPrefix(name, LabelPrefix) && !slices.Contains(names, name) {
			continue
		}
		for _, text := range texts {
			text = strings.TrimSpace(text)
			if text != "" && len(values[name]) < len(store.States) {
				values.Add(name, text)
			}
		}
	}
	for name, noCondition := range map[string]string{"overdue": "false", "min_attempts": "0"} {
		if len(values[name]) == 1 && values.Get(name) == noCondition {
			values.Del(name)
		}
	}
	return values
}

// Find looks up the endpoint of the filter. A deleted endpoint is found by its id, so that its callbacks can
// still be listed. Its external id may belong to another endpoint by now. An unknown endpoint is
// store.ErrNotFound.
func (f *Filter) Find(ctx context.Context, project string, in Store) error {
	if id, ok := store.BareID(store.EndpointPrefix, f.Endpoint); ok || f.Endpoint == "" {
		f.EndpointID = id
		return nil
	}
	ep, err := in.EndpointByExternalID(ctx, project, f.Endpoint)
	f.EndpointID = ep.ID
	return err
}

// Empty reports whether the filter has no condition, so that it selects every callback.
func (f *Filter) Empty() bool {
	conditions := f.Filter
	conditions.Now, conditions.Limit, conditions.After, conditions.ByDue = 0, 0, nil, false
	return f.Endpoint == "" && reflect.DeepEqual(conditions, store.Filter{})
}

// JSON returns the filter as JSON, as the API writes it.
func (f *Filter) JSON() store.JSONText {
	members, labels := make(map[string]any), make(map[string]string)
	for name, values := range f.Values {
		label, isLabel := strings.CutPrefix(name, LabelPrefix)
		switch {
		case isLabel:
			labels[label] = values[0]
			members["label"] = labels
		case name == "state":
			members[name] = values
		case name == "status_code":
			members[name] = f.Status
		case name == "min_attempts":
			members[name] = f.MinAttempts
		case name == "overdue":
			members[name] = f.Overdue
		case name == "from":
			members[name] = FormatTime(f.From)
		case name == "to":
			members[name] = FormatTime(f.To)
		case name == "finished_from":
			members[name] = FormatTime(f.FinishedFrom)
		case name == "finished_to":
			members[name] = FormatTime(f.FinishedTo)
		default:
			members[name] = values[0]
		}
	}
	text, err := json.Marshal(members)
	if err != nil {
		panic(err) // strings and numbers can always be encoded
	}
	return store.JSONText(text)
}

// FormatTime writes a time as the API does.
func FormatTime(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// FromJSON returns the parameters of a filter that is stored as JSON. ok is false if the text is not a JSON
// object.
func FromJSON(text store.JSONText) (values url.Values, ok bool) {
	var members map[string]any
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		return nil, false
	}
	values = make(url.Values)
	for name, member := range members {
		switch member := member.(type) {
		case []any:
			for _, one := range member {
				values.Add(name, parameter(one))
			}
		case map[string]any: // labels
			for label, one := range member {
				values.Add(name+"."+label, parameter(one))
			}
		default:
			values.Add(name, parameter(member))
		}
	}
	return values, true
}

// parameter formats a JSON value as a parameter.
func parameter(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "" // not reached: the value was decoded from JSON
	}
	return string(text)
}
