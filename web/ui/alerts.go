package ui

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sink"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// Bounds of the pages of alerts.
const (
	// shownFiring bounds the firing alerts above the list, shownInstances what each of them names.
	shownFiring    = 10
	shownInstances = 3
	listMessages   = 10
	alertMessages  = 20
	alertFirings   = 20
)

// alertsPage is the list of alerts: firing ones first.
type alertsPage struct {
	base
	Search string
	// Conditions is the number of the filter's conditions.
	Conditions int
	// Firing are the first firing alerts, with their causes. FiringCount counts all.
	Firing      []*alertRow
	FiringCount int
	Rows        []*alertRow
	// Next is the URL of the next page; empty on the last. First is the URL of the first; empty on the first.
	Next, First string
	Messages    []*messageRow
}

// alertPage is the page of one alert.
type alertPage struct {
	base
	*alertRow
	Facts    []fact
	Firings  []firingRow
	Messages []*messageRow
	History  []change
}

// An alertRow is an alert in a list or at the top of its page.
type alertRow struct {
	alert.View
	// FullID has the prefix. Kind is the colour of the state.
	FullID, Kind string
	// Says is the condition in words. Scope is the one object that it watches; nil: all.
	Says  string
	Scope *fact
	// Sink is masked. SinkName is its type, SinkTo the host or the recipients.
	Sink             sink.Config
	SinkName, SinkTo string
	// Instances are what fires now, at most shownInstances, and More the number of the others. Cause is the
	// page that shows them. Cures are forms.
	Instances []problemPart
	More      int
	Cause     string
	Cures     []problemAct
}

// Lost returns the id of the last message if it is dead, else "".
func (row *alertRow) Lost() string {
	if row.SentState != store.Dead {
		return ""
	}
	return store.CallbackPrefix + row.SentID
}

// A firingRow is one firing in the history of an alert.
type firingRow struct {
	store.AlertFiring
	// Measured is the value in the unit of the condition; empty if it has none.
	Measured, Page string
}

// A messageRow is a message of an alert: a callback. Alert is the name of the alert, Kind what the message
// is: firing, resolved, test or digest.
type messageRow struct {
	*callbackRow
	Alert, Kind string
	// Last says why the message was not delivered, or what the platform answered.
	Last string
}

// alertColours are the colours of the states, in the order of the list.
var alertColours = []named{
	{alert.StateFiring, "bad"}, {alert.StatePending, "warn"}, {alert.StateOK, "good"},
	{alert.StateDisabled, ""},
}

func (b *base) alertRow(v *alert.View) *alertRow {
	row := &alertRow{View: *v, FullID: store.AlertPrefix + v.ID, Says: b.conditionText(&v.When)}
	for _, s := range alertColours {
		if s.Name == v.State {
			row.Kind = s.Value
		}
	}
	// A damaged row shows an empty sink.
	if err := json.Unmarshal([]byte(v.SinkMasked), &row.Sink); err != nil {
		row.Sink = sink.Config{}
	}
	row.SinkName, row.SinkTo = b.Or("alerts.sink.", row.Sink.Type), row.Sink.Host()
	if row.Sink.Type == sink.Email {
		row.SinkTo = strings.Join(row.Sink.To, ", ")
	}
	return row
}

// conditionText describes a condition in words.
func (b *base) conditionText(w *store.AlertWhen) string {
	above := strconv.FormatInt(w.Above, 10)
	switch r, _ := alert.RuleOf(w.Kind); r.Unit {
	case alert.Duration:
		above = b.duration(time.Duration(w.Above) * time.Millisecond)
	case alert.Percent:
		above = strconv.FormatFloat(w.Below, 'g', -1, 64)
	}
	key := "alerts.says." + string(w.Kind)
	if !b.Has(key) {
		return string(w.Kind)
	}
	return b.T(key, "above", above, "window", b.duration(w.Window))
}

// measured formats a value in the unit of a kind.
func (b *base) measured(kind store.AlertKind, value float64) string {
	r, _ := alert.RuleOf(kind)
	switch {
	case value < 0: // not a measure, such as a schedule whose last run created no callback
		return ""
	case r.Unit == alert.Duration:
		return b.duration((time.Duration(value) * time.Millisecond).Round(time.Second))
	case r.Unit == alert.Percent:
		return strconv.FormatFloat(value, 'f', 1, 64) + " %"
	case kind == store.AlertRelayRefused:
		return b.rowCount(int(value))
	case r.Unit == alert.Count:
		return grouped(int64(value))
	}
	return ""
}

// alerts is GET /ui/alerts.
func (u *UI) alerts(r *request) (*response, error) {
	p := &alertsPage{base: u.base(r, "alerts", "alerts.title"), Search: r.searchText("search")}
	p.Conditions = countTrue(p.Search != "")
	found, err := u.Engine.Alerts(r.ctx, r.caller.Project,
		store.AlertFilter{Search: p.Search, Limit: store.MaxAlerts})
	if err != nil {
		return nil, err
	}
	rows := make([]*alertRow, len(found))
	for i := range found {
		rows[i] = p.alertRow(&found[i])
	}
	sortAlerts(rows)
	after := r.query("cursor")
	at := slices.IndexFunc(rows, func(row *alertRow) bool { return row.FullID == after })
	if at < 0 {
		if err := u.addFiring(r, p, rows); err != nil {
			return nil, err
		}
		p.Messages, err = u.lastMessages(r, &p.base, rows)
		if err != nil {
			return nil, err
		}
	} else {
		p.First = p.With()
	}
	shown, last := query.Cut(rows[at+1:], pageSize)
	if last != nil {
		p.Next = p.With("cursor", (*last).FullID)
	}
	p.Rows = shown
	if err := u.nameScopes(r, slices.Concat(p.Firing, shown)); err != nil {
		return nil, err
	}
	return show("alerts", p)
}

// sortAlerts sorts alerts by state and name. Of the firing and pending ones the oldest comes first.
func sortAlerts(rows []*alertRow) {
	rank := func(row *alertRow) int {
		return slices.IndexFunc(alertColours, func(s named) bool { return s.Name == row.State })
	}
	slices.SortStableFunc(rows, func(a, b *alertRow) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Since, b.Since),
			cmp.Compare(a.Name, b.Name))
	})
}

// addFiring sets the firing alerts of a list, the first of them with their causes.
func (u *UI) addFiring(r *request, p *alertsPage, rows []*alertRow) error {
	for _, row := range rows {
		if row.State != alert.StateFiring {
			continue
		}
		p.FiringCount++
		if len(p.Firing) == shownFiring {
			continue
		}
		firings, err := u.Engine.AlertFirings(r.ctx, r.caller.Project, row.ID)
		if err != nil {
			return err
		}
		p.addCause(row, firings)
		p.Firing = append(p.Firing, row)
	}
	return nil
}

// addCause sets what an alert has found, where to see it and how to cure it.
func (b *base) addCause(row *alertRow, firings []store.AlertFiring) {
	now := make([]store.AlertFiring, 0, len(firings))
	for _, f := range firings {
		if f.FiredAt != 0 && f.ResolvedAt == 0 && row.State == alert.StateFiring {
			now = append(now, f)
		}
	}
	row.Cause = alert.Page(&row.When, now)
	for i := range now[:min(len(now), shownInstances)] {
		if now[i].Name != "" {
			row.Instances = append(row.Instances, problemPart{Name: now[i].Name, Data: true,
				Since: now[i].FiredAt, Link: alert.Page(&row.When, now[i:i+1])})
		}
	}
	if len(row.Instances) > 0 {
		row.More = max(row.Firing-len(row.Instances), 0)
	}
	if len(now) == 0 || !b.Can(string(store.ScopeOperate)) {
		return
	}
	cure := func(key, path string, pairs ...string) {
		row.Cures = append(row.Cures, problemAct{Text: b.T(key), Link: link(path, pairs...), Asks: true})
	}
	one := ""
	if len(now) == 1 {
		one = now[0].Instance
	}
	switch {
	case row.When.Kind == store.AlertDeadRate:
		cure("alerts.cure.retry", "/redrives/new", "action", "retry", "state", string(store.Dead))
	case row.When.Kind == store.AlertPollUnresolved:
		cure("alerts.cure.retry", "/redrives/new", "action", "retry", "kind", string(store.Poll),
			"state", string(store.Dead), "reason", string(store.Unresolved))
	case row.When.Kind == store.AlertEndpointSuccess && one != "":
		cure("endpoint.pause.button", "/endpoints/"+store.EndpointPrefix+one+"/pause")
	case row.When.Kind == store.AlertBreakerOpen && one != "":
		cure("lanes.pause.button", "/lanes/pause", "key", one)
	case row.When.Kind == store.AlertRelayRefused && one != "":
		cure("relay.retry", "/relay/"+one+"/retry")
	case row.When.Kind == store.AlertScheduleLate && one != "":
		cure("schedules.run", "/schedules/"+store.SchedulePrefix+one+"/run")
	}
}

// nameScopes sets the objects that alerts are restricted to, with their names.
func (u *UI) nameScopes(r *request, rows []*alertRow) error {
	var ids []string
	for _, row := range rows {
		w := &row.When
		switch {
		case w.Endpoint != "":
			id := store.EndpointPrefix + w.Endpoint
			row.Scope = &fact{Value: id, Link: Root + "/endpoints/" + id}
			ids = append(ids, id)
		case w.Lane != "":
			row.Scope = &fact{Value: w.Lane, Link: link("/lane", "key", w.Lane)}
			ids = append(ids, w.Lane)
		case w.Schedule != "":
			id := store.SchedulePrefix + w.Schedule
			row.Scope = &fact{Value: id, Link: Root + "/schedules/" + id}
			s, err := u.Engine.Schedule(r.ctx, r.caller.Project, w.Schedule)
			if err == nil {
				row.Scope.Value = s.Name
			} else if !notFound(err) {
				return err
			}
		}
	}
	labels, err := u.endpointLabels(r, ids)
	for _, row := range rows {
		if row.Scope != nil {
			row.Scope.Value = cmp.Or(labels[row.Scope.Value], row.Scope.Value)
		}
	}
	return err
}

// lastMessages returns the last message of each alert, the newest first, at most listMessages.
func (u *UI) lastMessages(r *request, b *base, rows []*alertRow) ([]*messageRow, error) {
	sent := slices.DeleteFunc(slices.Clone(rows), func(row *alertRow) bool { return row.SentID == "" })
	slices.SortStableFunc(sent, func(a, b *alertRow) int { return cmp.Compare(b.SentAt, a.SentAt) })
	var messages []store.Callback
	for _, row := range sent[:min(len(sent), listMessages)] {
		c, err := u.Store.Get(r.ctx, r.caller.Project, row.SentID)
		switch {
		case err == nil:
			messages = append(messages, c)
		case !notFound(err): // retention removes messages
			return nil, err
		}
	}
	return b.messageRows(rows, messages), nil
}

// messageRows returns the rows of messages of alerts.
func (b *base) messageRows(alerts []*alertRow, messages []store.Callback) []*messageRow {
	rows := make([]*messageRow, len(messages))
	for i := range messages {
		c := &messages[i]
		row := &messageRow{callbackRow: newRow(c, b.now), Kind: c.Labels["alert"]}
		row.Last = b.Last(row.callbackRow)
		for _, a := range alerts {
			if a.FullID == c.Ref {
				row.Alert, row.To = a.Name, a.SinkName+" "+a.SinkTo
			}
		}
		rows[i] = row
	}
	return rows
}

// alert is GET /ui/alerts/{id}.
func (u *UI) alert(r *request) (*response, error) {
	v, err := load(r, store.AlertPrefix, u.Engine.Alert)
	if err != nil {
		return nil, err
	}
	p := &alertPage{base: u.baseTitled(r, "alerts", v.Name)}
	p.alertRow = p.base.alertRow(&v)
	firings, err := u.Engine.AlertFirings(r.ctx, r.caller.Project, v.ID)
	if err != nil {
		return nil, err
	}
	p.addCause(p.alertRow, firings)
	queue, err := u.Store.EndpointByExternalID(r.ctx, r.caller.Project, store.SinkPrefix+v.SinkID)
	if err != nil && !notFound(err) {
		return nil, err
	}
	p.addFacts(queue.ID)
	for i := range firings[:min(len(firings), alertFirings)] {
		p.Firings = append(p.Firings, firingRow{firings[i], p.measured(v.When.Kind, firings[i].Value),
			alert.Page(&v.When, firings[i:i+1])})
	}
	if err := u.nameScopes(r, []*alertRow{p.alertRow}); err != nil {
		return nil, err
	}
	sent, err := u.Store.List(r.ctx, r.caller.Project,
		store.Filter{Ref: p.FullID, Topic: alert.Topic, Now: r.now, Limit: alertMessages})
	if err != nil {
		return nil, err
	}
	p.Messages = p.messageRows([]*alertRow{p.alertRow}, sent.Callbacks)
	p.History, err = u.historyOf(r, v.ID)
	if err != nil {
		return nil, err
	}
	return show("alert", p)
}

// addFacts describes the alert: its sink, its times and its daily summary. queue is the id of the endpoint
// that its messages go to; empty if it has none.
func (p *alertPage) addFacts(queue string) {
	add := func(key, value string, data bool) {
		if value != "" {
			p.Facts = append(p.Facts, fact{Name: p.T(key), Value: value, Data: data})
		}
	}
	w := &p.When
	add("alerts.sink", strings.TrimSpace(p.SinkName+" "+p.SinkTo), true)
	if queue != "" && len(p.Facts) > 0 {
		p.Facts[0].Link = Root + "/endpoints/" + store.EndpointPrefix + queue
	}
	add("alerts.sink.server", p.Sink.Server, true)
	add("alerts.sink.mentions", strings.Join(p.Sink.Mentions, ", "), true)
	if w.Window != 0 {
		add("alerts.window", p.duration(w.Window), false)
	}
	if w.MinAttempts != 0 {
		add("alerts.min_attempts", grouped(w.MinAttempts), true)
	}
	if w.For != 0 {
		add("alerts.for", p.duration(w.For), false)
	}
	if p.DigestAt != "" {
		add("alerts.group.digest", p.DigestAt+" "+cmp.Or(p.DigestZone, utc.name), true)
	}
	add("column.created", p.Absolute(p.CreatedAt), true)
	add("column.updated", p.Absolute(p.UpdatedAt), true)
}
