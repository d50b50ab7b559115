package ui

import (
	"html/template"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// laneDetails is the part that the pages of an endpoint and of a lane share.
type laneDetails struct {
	States  []laneState
	Figures figures
	// Lane is nil if the endpoint has no lane yet. Flight is the number of attempts in flight and its limit.
	Lane   *control.LaneView
	Flight string
	// Attempts and Took are charts.
	Attempts, Took template.HTML
	Callbacks      callbackTable
	// Partial reports that the search for callbacks ended before all were read. The list continues it.
	Partial bool
	// One is the form that retries one callback of a receiver that fails: the open one with the earliest due
	// time, else a dead one. Dead is the form that retries all dead ones. They are empty if there is no such
	// callback, or if the viewer must not.
	One, Dead string
	History   []change
	// Kind is "endpoint" or "lane".
	Kind string
	// filter is the parameter that selects the callbacks in a list, with its value.
	filter []string
}

// List returns the list of the lane's callbacks, with more conditions.
func (d *laneDetails) List(conditions ...string) string {
	return link("/callbacks", append(d.filter[:2:2], conditions...)...)
}

// readLaneDetails reads the charts, the callbacks and the history. of selects the callbacks, and objects are
// those of the audit entries.
func (u *UI) readLaneDetails(r *request, b *base, d *laneDetails, of store.Filter, objects ...string) error {
	d.Attempts, d.Took = d.Figures.attemptsChart(b), d.Figures.tookChart(b)
	of.Now, of.Limit = r.now, endpointCallbacks
	newest, err := u.Store.List(r.ctx, r.caller.Project, of)
	if err != nil {
		return err
	}
	d.Callbacks.Caption, d.Partial = b.T("endpoint.callbacks"), newest.Next != nil
	d.Callbacks.Rows, err = u.callbackRows(r, newest.Callbacks)
	if err != nil {
		return err
	}
	if b.Can(string(store.ScopeOperate)) && len(d.Callbacks.Rows) > 0 {
		if err := u.readRetries(r, d, of); err != nil {
			return err
		}
	}
	d.History, err = u.historyOf(r, objects...)
	return err
}

// readRetries sets the forms that retry one callback, and all dead ones.
func (u *UI) readRetries(r *request, d *laneDetails, of store.Filter) error {
	of.Limit, of.States = 1, []store.State{store.Dead}
	dead, err := u.Store.List(r.ctx, r.caller.Project, of)
	if err != nil {
		return err
	}
	if len(dead.Callbacks) > 0 || dead.Next != nil {
		d.Dead = link("/redrives/new", append([]string{"action", string(store.RedriveRetry), "state",
			string(store.Dead)}, d.filter...)...)
	}
	of.States, of.ByDue = []store.State{store.Scheduled}, true
	due, err := u.Store.List(r.ctx, r.caller.Project, of)
	if err != nil {
		return err
	}
	failing := slices.ContainsFunc(d.States, func(s laneState) bool { return s.Kind == "bad" })
	if waiting := append(due.Callbacks, dead.Callbacks...); len(waiting) > 0 && (failing || d.Dead != "") {
		d.One = retryForm(waiting[0].ID, r.url.RequestURI())
	}
	return nil
}

// retryForm returns the form that retries a callback and then returns to a page.
func retryForm(id, back string) string {
	return link("/callbacks/"+store.CallbackPrefix+id+"/retry", "back", back)
}

// lanePage is the page of one lane.
type lanePage struct {
	base
	*laneRow
	Details *laneDetails
}

// lane is GET /ui/lane?key=KEY. For the lane of an endpoint it redirects to the endpoint's page.
func (u *UI) lane(r *request) (*response, error) {
	key, err := r.laneKey()
	if err != nil {
		return nil, err
	}
	row, err := u.findLane(r, key)
	if err != nil {
		return nil, err
	}
	if row.EndpointFullID != "" {
		return redirect(row.Page())
	}
	p := &lanePage{base: u.baseTitled(r, "lanes", row.Label), laneRow: row}
	if err := u.addFigures(r, []*laneRow{row}, endpointHours); err != nil {
		return nil, err
	}
	p.Details = &laneDetails{Kind: "lane", States: row.States, Figures: row.Figures, Lane: &row.LaneView,
		Flight: row.Flight, filter: []string{"lane", row.Key}}
	err = u.readLaneDetails(r, &p.base, p.Details, store.Filter{Lane: row.Key}, row.Key)
	if err != nil {
		return nil, err
	}
	return show("lane", p)
}
