package ui

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// shownDetail is how many bytes of a detail the page shows, so that a page of them stays small.
const shownDetail = 1000

// auditPage is who has changed what, newest first.
type auditPage struct {
	base
	// Object, Actor, From and To are what the form says.
	Object, Actor, From, To string
	Actions                 []option
	FieldErrors             []store.FieldError
	Rows                    []*auditRow
	Next                    string
	search
	// Narrow: conditions narrow the list.
	Narrow bool
}

// An auditRow is one entry.
type auditRow struct {
	store.AuditEntry
	// What is the action in words. Who is the actor's name, and Key the id of their key beside it; empty: it
	// has none.
	What, Who, Key string
	// Of is what was changed, with the prefix of its id; Link is its page, empty where it has none. History
	// is all that was done to it, empty where the list is that already. Made is a callback that the change
	// made.
	Of, Link, History, Made string
	// Moments are the times of the detail, which has them in Unix milliseconds.
	Moments []moment
	// Data has a line for each field that the change made different, and the detail below; Cut: it is longer.
	Data string
	Cut  bool
}

// A moment is a time with the name that a detail gives it.
type moment struct {
	Name string
	At   int64
}

// A family is the actions on one kind of thing.
type family struct {
	// name begins the actions. prefix is that of the ids of the things, path where they have pages; both may
	// be empty.
	name, prefix, path string
}

// families are all that there are; the objects of the last ones are words, and no ids.
func families() []family {
	return []family{
		{"callback.", store.CallbackPrefix, "/callbacks/"}, {"poll.", store.CallbackPrefix, "/callbacks/"},
		{"endpoint.", store.EndpointPrefix, "/endpoints/"},
		{"schedule.", store.SchedulePrefix, "/schedules/"}, {"redrive.", store.RedrivePrefix, "/redrives/"},
		{"key.", store.KeyPrefix, ""},
		{"lane.", "", ""}, {"project.", "", ""}, {"secret.", "", ""}, {"preset.", "", ""}, {"index.", "", ""},
	}
}

// familyOf finds an action's family.
func familyOf(action string) family {
	for _, f := range families() {
		if strings.HasPrefix(action, f.name) {
			return f
		}
	}
	return family{}
}

// audit is GET /ui/audit.
func (u *UI) audit(r *request) (*answer, error) {
	p := &auditPage{base: u.base(r, "audit", "audit.title"), Object: r.query("object"),
		Actor: r.query("actor"), From: r.query("from"), To: r.query("to")}
	action := r.query("action")
	p.Narrow = p.Object != "" || p.Actor != "" || p.From != "" || p.To != "" || action != ""
	f := store.AuditFilter{Object: objectOf(p.Object, action), Action: action, Actor: p.Actor}
	values := r.parameters(query.Clean(r.url.Query()))
	f.From, f.To = values.Between()
	for _, wrong := range values.Invalid {
		p.FieldErrors = append(p.FieldErrors,
			store.FieldError{Field: wrong.Field, Message: values.Get(wrong.Field)})
	}
	if after := r.query("cursor"); after != "" {
		if id, ok := store.BareID("", after); ok {
			f.After = id
		}
	}
	p.offer(action)
	if len(p.FieldErrors) > 0 {
		return show("audit", p)
	}
	f.Limit = pageSize
	found, err := u.Store.Audit(r.ctx, r.who.Project, f)
	if err != nil {
		return nil, err
	}
	for i := range found.Entries {
		p.Rows = append(p.Rows, p.row(&found.Entries[i]))
	}
	if found.Next != "" {
		p.Next = p.With("cursor", found.Next)
		if len(p.Rows) == 0 {
			p.lookOn(&store.Cursor{ID: found.Next}, false)
		}
	}
	return show("audit", p)
}

// objectOf writes an object as entries name it: ids without their prefix. Only lanes and secrets are named by
// the whole id of an endpoint.
func objectOf(text, action string) string {
	if strings.HasPrefix(action, "lane.") || strings.HasPrefix(action, "secret.") {
		return text
	}
	for _, f := range families() {
		if id, ok := store.BareID(f.prefix, text); ok && f.prefix != "" {
			return id
		}
	}
	return text
}

// offer fills in the actions to choose from: families, and the one action that an address may name.
func (p *auditPage) offer(action string) {
	p.Actions = []option{{Text: p.T("filter.any"), Chosen: action == ""}}
	known := action == ""
	for _, f := range families() {
		chosen := f.name == action
		known = known || chosen
		p.Actions = append(p.Actions, option{Value: f.name,
			Text: p.T("audit.family." + strings.TrimSuffix(f.name, ".")), Chosen: chosen})
	}
	if !known {
		p.Actions = append(p.Actions, option{Value: action, Text: p.Or("action.", action),
			Data: !p.Has("action." + action), Chosen: true})
	}
}

// row makes a row of an entry.
func (p *auditPage) row(e *store.AuditEntry) *auditRow {
	row := &auditRow{AuditEntry: *e, What: p.Or("action.", e.Action), Who: e.Actor, Of: e.Object}
	if at := strings.LastIndex(e.Actor, " ("+store.KeyPrefix); at > 0 {
		row.Who, row.Key = e.Actor[:at], strings.TrimSuffix(e.Actor[at+2:], ")")
	}
	f := familyOf(e.Action)
	if _, isID := store.BareID("", e.Object); isID && f.prefix != "" {
		row.Of = f.prefix + e.Object
	}
	switch {
	case row.Of == "":
	case f.path != "" && row.Of != e.Object:
		row.Link = Root + f.path + row.Of
	case f.name == "lane.":
		row.Link = link("/lanes", "q", e.Object)
	case f.name == "secret.":
		if _, isID := store.BareID(store.EndpointPrefix, e.Object); isID {
			row.Link = Root + "/endpoints/" + e.Object
		}
	}
	if e.Object != "" && p.Object != row.Of && p.Object != e.Object {
		row.History = p.history(row, f)
	}
	row.read(e.Detail)
	data := changesOf(e.Before, e.After)
	if data != "" && e.Detail != "" {
		data += "\n"
	}
	row.Data, row.Cut = cut(data+indented(e.Detail), shownDetail)
	return row
}

// changesOf writes what a change made different, a field a line: "name: "Tea" → "Coffee"". What is no object,
// which only a damaged row can have, is left out.
func changesOf(before, after string) string {
	sides := [2]map[string]json.RawMessage{}
	for i, text := range [2]string{before, after} {
		if text != "" && json.Unmarshal([]byte(text), &sides[i]) != nil {
			return ""
		}
	}
	longer := sides[0]
	if len(longer) < len(sides[1]) {
		longer = sides[1]
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(longer)) {
		was, is := orDash(sides[0][name]), orDash(sides[1][name])
		if before == "" {
			fmt.Fprintf(&b, "%s: %s\n", name, is)
			continue
		}
		fmt.Fprintf(&b, "%s: %s → %s\n", name, was, is)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// orDash is a value as it is written; a dash for none.
func orDash(value json.RawMessage) string {
	if len(value) == 0 || string(value) == "null" {
		return "–"
	}
	return string(value)
}

// read finds in a detail what is more than words. What is no object has nothing of it.
func (row *auditRow) read(detail string) {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(detail), &members) != nil {
		return
	}
	if made, err := strconv.Unquote(string(members["callback"])); err == nil {
		if _, isID := store.BareID(store.CallbackPrefix, made); isID {
			row.Made = made
		}
	}
	for _, name := range []string{"until", "due_at", "expires_at"} {
		if ms, err := strconv.ParseInt(string(members[name]), 10, 64); err == nil && ms > 0 &&
			ms < store.Forever {
			row.Moments = append(row.Moments, moment{name, ms})
		}
	}
}

// history is the list of all that was done to a row's object. A lane and a secret that are named by an
// endpoint's id are looked for among their own kind only: otherwise the id is the endpoint.
func (p *auditPage) history(row *auditRow, f family) string {
	if objectOf(row.Of, "") != row.Object {
		return link("/audit", "object", row.Of, "action", f.name)
	}
	return link("/audit", "object", row.Of)
}
