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

// listHours is how far back a list of endpoints looks, with the hour that it is now.
const listHours = 24

// endpointsPage is the list of endpoints.
type endpointsPage struct {
	base
	Search, Topic string
	Held, Failing bool
	// Narrow: conditions narrow the list.
	Narrow bool
	Rows   []*endpointRow
	// Next is the address of the next page; empty: there is none.
	Next string
}

// An endpointRow is an endpoint in a list, or at the head of its own page.
type endpointRow struct {
	store.Endpoint
	// FullID has its prefix, Label is what people call it, Address is masked.
	FullID, Label, Address string
	// Lane is nil where it has none yet.
	Lane      *control.LaneView
	Standings []standing
	Figures   figures
}

func newEndpointRow(ep store.Endpoint) *endpointRow {
	row := &endpointRow{Endpoint: ep, FullID: store.EndpointPrefix + ep.ID, Address: store.MaskURL(ep.URL)}
	row.Label = cmp.Or(ep.Name, ep.ExternalID, row.FullID)
	return row
}

// endpointLabels is what people call endpoints, by their ids with the prefix. One that has no name, or is
// gone, is not among them; empty ids are passed over.
func (u *UI) endpointLabels(r *request, ids []string) (map[string]string, error) {
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := u.Store.FindEndpoints(r.ctx, r.who.Project, ids)
	if err != nil {
		return nil, fmt.Errorf("find the endpoints of lanes: %w", err)
	}
	labels := make(map[string]string, len(found))
	for id, ep := range found {
		if label := cmp.Or(ep.Name, ep.ExternalID); label != "" {
			labels[id] = label
		}
	}
	return labels, nil
}

// endpointsShown is how many endpoints a page shows: each has much to show.
const endpointsShown = 25

// endpoints is GET /ui/endpoints.
func (u *UI) endpoints(r *request) (*answer, error) {
	p := &endpointsPage{
		base: u.base(r, "endpoints", "endpoints.title"), Search: r.searchText("q"),
		Topic: r.searchText("topic"),
		Held:  r.query("held") == "true", Failing: r.query("failing") == "true",
	}
	p.Narrow = p.Search != "" || p.Topic != "" || p.Held || p.Failing
	f := store.EndpointFilter{Search: p.Search, Topic: p.Topic, Held: p.Held, Failing: p.Failing, Now: r.now,
		Limit: endpointsShown + 1}
	f.After, _ = store.BareID("", r.query("cursor"))
	found, err := u.Store.Endpoints(r.ctx, r.who.Project, f)
	if err != nil {
		return nil, err
	}
	found, last := query.Cut(found, endpointsShown)
	if last != nil {
		p.Next = p.With("cursor", last.ID)
	}
	for i := range found {
		p.Rows = append(p.Rows, newEndpointRow(found[i]))
	}
	if err := u.standInto(r, &p.base, p.Rows, listHours); err != nil {
		return nil, err
	}
	return show("endpoints", p)
}

// standInto fills in how endpoints stand: their lanes and what happened in them within the last hours, all of
// them at once.
func (u *UI) standInto(r *request, b *base, rows []*endpointRow, hours int) error {
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
	activity := make(map[int64][]store.Activity)
	if len(numbers) > 0 {
		all, err := u.Store.LaneActivity(r.ctx, r.who.Project, numbers, from)
		if err != nil {
			return err
		}
		for _, a := range all {
			activity[a.LaneID] = append(activity[a.LaneID], a)
		}
	}
	for _, row := range rows {
		row.Lane = lanes[row.LaneKey()]
		row.Figures = figuresOf(activity[row.LaneID], from, hours)
		row.Standings = b.standings(row)
	}
	return nil
}

// lanesByKey finds lanes; those that do not exist are not in the answer.
func (u *UI) lanesByKey(r *request, keys []string) (map[string]*control.LaneView, error) {
	found := make(map[string]*control.LaneView, len(keys))
	if len(keys) == 0 {
		return found, nil
	}
	views, err := u.Engine.Lanes(r.ctx, r.who.Project,
		store.LaneFilter{Keys: keys, Limit: len(keys), DueBy: r.now})
	if err != nil {
		return nil, err
	}
	for i := range views {
		found[views[i].Key] = &views[i]
	}
	return found, nil
}

// searchText returns a parameter of the page's address as a text that can be looked for: without what no
// stored text has.
func (r *request) searchText(name string) string {
	text, _ := cut(strings.ToValidUTF8(r.query(name), "?"), 512)
	return strings.Map(func(char rune) rune {
		if unicode.IsControl(char) {
			return -1
		}
		return char
	}, text)
}
