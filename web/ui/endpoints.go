package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// listHours is the number of hours of activity in a list of endpoints, the current hour included.
const listHours = 24

// endpointsPage is the list of endpoints.
type endpointsPage struct {
	base
	Search, Topic string
	Held, Failing bool
	// Narrow is true if the filter has a condition. Conditions is their number.
	Narrow     bool
	Conditions int
	Rows       []*endpointRow
	// Next is the URL of the next page; empty on the last.
	Next string
}

// An endpointRow is an endpoint in a list or at the top of its page.
type endpointRow struct {
	store.Endpoint
	// FullID has the prefix. Label is the name, the external id or host and path of the URL, which is Host.
	// Address is the URL with credentials masked.
	FullID, Label, Address, Host string
	// Lane is nil if the endpoint has no lane yet. Flight is the number of attempts in flight and its limit;
	// empty if unknown.
	Lane    *control.LaneView
	Flight  string
	States  []laneState
	Figures figures
}

func newEndpointRow(ep store.Endpoint) *endpointRow {
	row := &endpointRow{Endpoint: ep, FullID: store.EndpointPrefix + ep.ID, Address: store.MaskURL(ep.URL)}
	row.Host = shortAddress(row.Address)
	row.Label = cmp.Or(ep.Name, ep.ExternalID, row.Host)
	return row
}

// endpointLabels returns the labels of endpoints by their ids with the prefix. It skips empty ids and
// deleted endpoints.
func (u *UI) endpointLabels(r *request, ids []string) (map[string]string, error) {
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := u.Store.FindEndpoints(r.ctx, r.caller.Project, ids)
	if err != nil {
		return nil, fmt.Errorf("find the endpoints of lanes: %w", err)
	}
	labels := make(map[string]string, len(found))
	for id, ep := range found {
		labels[id] = endpointLabel(&ep)
	}
	return labels, nil
}

// endpointLabel returns the name of an endpoint, its external id, or host and path.
func endpointLabel(ep *store.Endpoint) string {
	return cmp.Or(ep.Name, ep.ExternalID, shortAddress(store.MaskURL(ep.URL)))
}

// endpointsPerPage is less than pageSize, because a row has a chart.
const endpointsPerPage = 25

// endpoints is GET /ui/endpoints.
func (u *UI) endpoints(r *request) (*response, error) {
	p := &endpointsPage{
		base: u.base(r, "endpoints", "endpoints.title"), Search: r.searchText("q"),
		Topic: r.searchText("topic"),
		Held:  r.query("held") == "true", Failing: r.query("failing") == "true",
	}
	p.Conditions = countTrue(p.Search != "", p.Topic != "", p.Held, p.Failing)
	p.Narrow = p.Conditions > 0
	f := store.EndpointFilter{
		Search: p.Search, Topic: p.Topic, NotSending: p.Held, Failing: p.Failing, Now: r.now,
		NoSinks: true, Limit: endpointsPerPage + 1,
	}
	f.After, _ = store.BareID("", r.query("cursor"))
	failing, err := u.failingFirst(r, f)
	if err != nil {
		return nil, err
	}
	found, err := u.Store.Endpoints(r.ctx, r.caller.Project, f)
	if err != nil {
		return nil, err
	}
	found, last := query.Cut(found, endpointsPerPage)
	if last != nil {
		p.Next = p.With("cursor", last.ID)
	}
	found = slices.DeleteFunc(found, func(ep store.Endpoint) bool {
		return slices.ContainsFunc(failing, func(shown store.Endpoint) bool { return shown.ID == ep.ID })
	})
	if f.After == "" {
		found = slices.Concat(failing, found)
	}
	for i := range found {
		p.Rows = append(p.Rows, newEndpointRow(found[i]))
	}
	if err := u.addLaneStates(r, &p.base, p.Rows, listHours); err != nil {
		return nil, err
	}
	return show("endpoints", p)
}

// failingFirst returns the newest failing endpoints that match a filter. They are the first rows of the
// list, and no later page shows them again.
func (u *UI) failingFirst(r *request, f store.EndpointFilter) ([]store.Endpoint, error) {
	if f.Failing { // the list has no others
		return nil, nil
	}
	f.Failing, f.After, f.Limit = true, "", endpointsPerPage
	return u.Store.Endpoints(r.ctx, r.caller.Project, f)
}

// addLaneStates sets the lanes, the figures of the last hours and the states of endpoints. It reads them for
// all rows in two calls.
func (u *UI) addLaneStates(r *request, b *base, rows []*endpointRow, hours int) error {
	var numbers []int64
	var keys []string
	for _, row := range rows {
		if row.LaneID != 0 {
			numbers, keys = append(numbers, row.LaneID), append(keys, row.LaneKey())
		}
	}
	lanes, err := u.lanesByKey(r, keys)
	if err != nil {
		return err
	}
	from := hoursAgo(r.now, hours)
	activity, err := u.laneActivity(r, numbers, hours)
	if err != nil {
		return err
	}
	for _, row := range rows {
		row.Lane = lanes[row.LaneKey()]
		row.Flight = b.flightText(row.Lane)
		row.Figures = r.lang.figuresOf(activity[row.LaneID], from, hours)
		row.States = b.endpointStates(row)
	}
	return nil
}

// lanesByKey returns the lanes that exist, by key.
func (u *UI) lanesByKey(r *request, keys []string) (map[string]*control.LaneView, error) {
	found := make(map[string]*control.LaneView, len(keys))
	if len(keys) == 0 {
		return found, nil
	}
	views, err := u.Engine.Lanes(r.ctx, r.caller.Project,
		store.LaneFilter{Keys: keys, Limit: len(keys), DueBy: r.now})
	if err != nil {
		return nil, err
	}
	for i := range views {
		found[views[i].Key] = &views[i]
	}
	return found, nil
}

// countTrue returns how many conditions are true.
func countTrue(conditions ...bool) (n int) {
	for _, is := range conditions {
		if is {
			n++
		}
	}
	return n
}

// searchText returns a parameter of the page's URL as a search text. It replaces invalid UTF-8, removes
// control characters and cuts at 512 bytes.
func (r *request) searchText(name string) string {
	text, _ := cut(strings.ToValidUTF8(r.query(name), "?"), 512)
	return strings.Map(func(char rune) rune {
		if unicode.IsControl(char) {
			return -1
		}
		return char
	}, text)
}
