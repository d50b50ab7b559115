package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// maxDetail bounds the bytes of a detail in the list.
const maxDetail = 1000

// auditPage is the audit log, newest first.
type auditPage struct {
	base
	// Object, Actor, From and To are the values of the filter's form.
	Object, Actor, From, To string
	Actions                 []option
	FieldErrors             []store.FieldError
	Rows                    []*auditRow
	Next                    string
	scan
	// Narrow is true if the filter has a condition. Conditions is their number.
	Narrow     bool
	Conditions int
}

// An auditRow is one entry of the audit log.
type auditRow struct {
	store.AuditEntry
	// ActionText is a text of the catalogue. Name is the actor's name, and Key the id of the actor's key
	// or of the person, if the entry has one.
	ActionText, Name, Key string
	// FullObject is the object's id with the prefix, Link its page. History is the list of all entries for
	// the object. NewCallback is the id of a callback that the act created. All may be empty.
	FullObject, Link, History, NewCallback string
	// Label is the name of the object. It is empty if the object has none or does not exist any more.
	Label string
	// Moments are the times in the detail, which has them in Unix milliseconds.
	Moments []moment
	// Data has a line for each changed field, then the detail. Cut is true if it is longer than maxDetail.
	Data string
	Cut  bool
}

// A moment is a time in Unix milliseconds with its name in the detail.
type moment struct {
	Name string
	At   int64
}

// An actionGroup is the group of actions on one kind of object.
type actionGroup struct {
	// name is the prefix of the actions' names. prefix is the prefix of the objects' ids, path the path of
	// their pages. Both may be empty.
	name, prefix, path string
}

// actionGroups returns all groups. The objects of the groups without a prefix are no ids.
func actionGroups() []actionGroup {
	return []actionGroup{
		{"callback.", store.CallbackPrefix, "/callbacks/"}, {"poll.", store.CallbackPrefix, "/callbacks/"},
		{"endpoint.", store.EndpointPrefix, "/endpoints/"},
		{"schedule.", store.SchedulePrefix, "/schedules/"}, {"redrive.", store.RedrivePrefix, "/redrives/"},
		{"key.", store.KeyPrefix, ""},
		{"lane.", "", ""}, {"project.", "", ""}, {"secret.", "", ""}, {"preset.", "", ""}, {"index.", "", ""},
		{"alert.", store.AlertPrefix, "/alerts/"}, {"relay.", "", ""},
	}
}

// actionGroupOf returns the group of an action. It is zero for an unknown action.
func actionGroupOf(action string) actionGroup {
	for _, f := range actionGroups() {
		if strings.HasPrefix(action, f.name) {
			return f
		}
	}
	return actionGroup{}
}

// auditRows is less than pageSize, because a row has the whole change.
const auditRows = 30

// audit is GET /ui/audit.
func (u *UI) audit(r *request) (*response, error) {
	p := &auditPage{base: u.base(r, "audit", "audit.title"), Object: r.query("object"),
		Actor: r.query("actor"), From: r.query("from"), To: r.query("to")}
	action := r.query("action")
	p.Conditions = countTrue(p.Object != "", p.Actor != "", p.From != "", p.To != "", action != "")
	p.Narrow = p.Conditions > 0
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
	f.Limit = auditRows
	found, err := u.Store.Audit(r.ctx, r.caller.Project, f)
	if err != nil {
		return nil, err
	}
	for i := range found.Entries {
		p.Rows = append(p.Rows, p.row(&found.Entries[i]))
	}
	if err := u.labelAudit(r, p.Rows); err != nil {
		return nil, err
	}
	if found.Next != "" {
		p.Next = p.With("cursor", found.Next)
		if len(p.Rows) == 0 {
			p.continueScan(&store.Cursor{ID: found.Next}, false)
		}
	}
	return show("audit", p)
}

// labelAudit sets the names of the objects.
func (u *UI) labelAudit(r *request, rows []*auditRow) error {
	var ids []string
	keys := false
	for _, row := range rows {
		if strings.HasPrefix(row.FullObject, store.EndpointPrefix) {
			ids = append(ids, row.FullObject)
		}
		keys = keys || strings.HasPrefix(row.FullObject, store.KeyPrefix)
	}
	labels, err := u.endpointLabels(r, ids)
	if err != nil {
		return err
	}
	if labels == nil {
		labels = make(map[string]string)
	}
	if keys {
		all, err := u.Engine.Keys(r.ctx, r.caller.Project)
		if err != nil {
			return err
		}
		for i := range all {
			labels[store.KeyPrefix+all[i].ID] = all[i].Name
		}
	}
	for _, row := range rows {
		label, known := labels[row.FullObject]
		if !known {
			label, err = u.nameOf(r, row)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			labels[row.FullObject] = label
		}
		row.Label = label
	}
	return nil
}

// nameOf returns the name of a callback, a schedule or an alert, or what a bulk action does. A page has few
// of them.
func (u *UI) nameOf(r *request, row *auditRow) (string, error) {
	if row.FullObject == row.Object {
		return "", nil
	}
	switch {
	case strings.HasPrefix(row.FullObject, store.CallbackPrefix):
		c, err := u.Store.Get(r.ctx, r.caller.Project, row.Object)
		parts := slices.DeleteFunc([]string{c.Topic, c.Ref}, func(s string) bool { return s == "" })
		return strings.Join(parts, " · "), err
	case strings.HasPrefix(row.FullObject, store.SchedulePrefix):
		s, err := u.Engine.Schedule(r.ctx, r.caller.Project, row.Object)
		return s.Name, err
	case strings.HasPrefix(row.FullObject, store.AlertPrefix):
		a, err := u.Engine.Alert(r.ctx, r.caller.Project, row.Object)
		return a.Name, err
	case strings.HasPrefix(row.FullObject, store.RedrivePrefix):
		redrive, err := u.Store.Redrive(r.ctx, r.caller.Project, row.Object)
		if err != nil {
			return "", err
		}
		return r.lang.text("redrives.action."+string(redrive.Action)) + " · " +
			r.lang.text("redrives.what", "n", redrive.Matched), nil
	}
	return "", nil
}

// objectOf returns an object as entries store it: an id without its prefix. But entries for lanes and secrets
// have the id of an endpoint with its prefix.
func objectOf(text, action string) string {
	if strings.HasPrefix(action, "lane.") || strings.HasPrefix(action, "secret.") {
		return text
	}
	for _, f := range actionGroups() {
		if id, ok := store.BareID(f.prefix, text); ok && f.prefix != "" {
			return id
		}
	}
	return text
}

// offer sets the options of the action filter: the groups, and the single action that a URL may name.
func (p *auditPage) offer(action string) {
	p.Actions = []option{{Text: p.T("filter.any"), Chosen: action == ""}}
	known := action == ""
	for _, f := range actionGroups() {
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

// row returns the row of an entry.
func (p *auditPage) row(e *store.AuditEntry) *auditRow {
	row := &auditRow{
		AuditEntry: *e, ActionText: p.Or("action.", e.Action), FullObject: e.Object,
	}
	row.Name, row.Key = actorOfEntry(e)
	group := actionGroupOf(e.Action)
	if _, isID := store.BareID("", e.Object); isID && group.prefix != "" {
		row.FullObject = group.prefix + e.Object
	}
	switch {
	case row.FullObject == "":
	case group.path != "" && row.FullObject != e.Object:
		row.Link = Root + group.path + row.FullObject
	case group.name == "lane.":
		row.Link = link("/lanes", "q", e.Object)
	case group.name == "relay.":
		row.Link = Root + "/" + e.Object // relay/NAME
	case group.name == "secret.":
		if _, isID := store.BareID(store.EndpointPrefix, e.Object); isID {
			row.Link = Root + "/endpoints/" + e.Object
		}
	}
	if e.Object != "" && p.Object != row.FullObject && p.Object != e.Object {
		row.History = p.history(row, group)
	}
	row.read(e.Detail)
	data := changesOf(e.Before, e.After)
	if data != "" && e.Detail != "" {
		data += "\n"
	}
	row.Data, row.Cut = cut(data+indented(e.Detail), maxDetail)
	return row
}

// actorOfEntry returns the name of the actor, and the id of the actor's key or of the person, or "".
func actorOfEntry(e *store.AuditEntry) (name, key string) {
	// The id is in the last parentheses: a name may also have some.
	if at := strings.LastIndex(e.Actor, " ("); at > 0 {
		id := strings.TrimSuffix(e.Actor[at+2:], ")")
		if strings.HasPrefix(id, store.KeyPrefix) || strings.HasPrefix(id, query.PersonPrefix) {
			return e.Actor[:at], id
		}
	}
	return e.Actor, ""
}

// changesOf formats the changed fields of an entry, one a line, such as: name: "Tea" → "Coffee". It returns
// "" if before or after is not a JSON object, which only a damaged row has.
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

// orDash returns a JSON value as text, or a dash for null or a missing value.
func orDash(value json.RawMessage) string {
	if len(value) == 0 || string(value) == "null" {
		return "–"
	}
	return string(value)
}

// read sets the fields that come from the detail: a new callback and times. It ignores a detail that is not a
// JSON object.
func (row *auditRow) read(detail string) {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(detail), &members) != nil {
		return
	}
	if made, err := strconv.Unquote(string(members["callback"])); err == nil {
		if _, isID := store.BareID(store.CallbackPrefix, made); isID {
			row.NewCallback = made
		}
	}
	for _, name := range []string{"until", "due_at", "expires_at"} {
		ms, err := strconv.ParseInt(string(members[name]), 10, 64)
		if err == nil && ms > 0 && ms < store.Forever {
			row.Moments = append(row.Moments, moment{name, ms})
		}
	}
}

// history returns the URL of the list of all entries for a row's object. For a lane or a secret it adds the
// action group: without it, the id would select the entries for the endpoint.
func (p *auditPage) history(row *auditRow, group actionGroup) string {
	if objectOf(row.FullObject, "") != row.Object {
		return link("/audit", "object", row.FullObject, "action", group.name)
	}
	return link("/audit", "object", row.FullObject)
}
