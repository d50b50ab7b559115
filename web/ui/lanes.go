package ui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Lanes is what pages ask of the engine for lanes.
type Lanes interface {
	// Lanes returns lanes in the order of their keys, each with what waits in it and how it stands in the index.
	Lanes(ctx context.Context, project string, f store.LaneFilter) ([]dispatch.LaneView, error)
	// SetLane bounds a lane: nil leaves a bound as it is, zero takes it away.
	SetLane(ctx context.Context, project, key string, limit *int, rate *store.Rate, by store.Actor) (store.Lane, error)
	// PauseLane holds a lane until then; with 0 it is resumed.
	PauseLane(ctx context.Context, project, key string, until int64, by store.Actor) (store.Lane, error)
}

func (u *UI) laneRoutes() []Route {
	return append([]Route{page("/lanes", u.lanes)}, u.laneActRoutes()...)
}

// lanesPage is the list of lanes.
type lanesPage struct {
	base
	Search string
	Held   bool
	// ByBacklog: only the largest ones are shown, in that order.
	ByBacklog bool
	// Narrow: conditions narrow the list. Unanswered: the index does not say how the lanes stand.
	Narrow, Unanswered bool
	Rows               []*laneRow
	// Next is the address of the next page; empty: there is none.
	Next string
}

// A laneRow is a lane in a list.
type laneRow struct {
	dispatch.LaneView
	// Standings are what holds it, if anything does.
	Standings []standing
	// EndpointFullID is the endpoint's whose lane it is, with its prefix; empty: none. EndpointLabel is what people call that one, if anything.
	EndpointFullID, EndpointLabel string
	// Paused: its own pause is on.
	Paused bool
}

func (b *base) laneRow(v *dispatch.LaneView) *laneRow {
	row := &laneRow{LaneView: *v, Paused: v.OwnPause > b.now}
	if v.EndpointID != "" {
		row.EndpointFullID = store.EndpointPrefix + v.EndpointID
	}
	for _, hold := range v.Holds(b.now) {
		row.Standings = append(row.Standings, b.laneStanding(v, hold))
	}
	return row
}

// flightText writes how many attempts a lane has in flight and how many it may have at present; empty: the index does not say. Before the
// lane's first claim only the former is known.
func flightText(s *schedule.LaneState) string {
	switch {
	case s == nil:
		return ""
	case s.Concurrency == 0:
		return strconv.Itoa(s.InFlight)
	}
	return fmt.Sprintf("%d / %d", s.InFlight, s.Concurrency)
}

// flightLimit is the most attempts that a lane may ever have in flight; zero: not known.
func flightLimit(v *dispatch.LaneView) int {
	if v == nil || v.State == nil {
		return 0
	}
	return v.State.Limit
}

// Flight is how many attempts it has in flight, and may have at present.
func (l *laneRow) Flight() string { return flightText(l.State) }

// Most is how many attempts it may ever have in flight.
func (l *laneRow) Most() int { return flightLimit(&l.LaneView) }

// lanes is GET /ui/lanes.
func (u *UI) lanes(r *request) (*answer, error) {
	p := &lanesPage{base: u.base(r, "lanes", "lanes.title"), Search: r.searchText("q"), Held: r.query("held") == "true", ByBacklog: r.query("sort") == "backlog"}
	p.Narrow = p.Search != "" || p.Held
	f := store.LaneFilter{Search: p.Search, Held: p.Held, Now: r.now, DueBy: r.now, Limit: pageSize + 1}
	if after := r.url.Query().Get("cursor"); isLaneKey(after) {
		f.After = after
	}
	views, err := u.someLanes(r, p, f)
	if err != nil {
		return nil, err
	}
	if len(views) > pageSize {
		views = views[:pageSize]
		p.Next = p.With("cursor", views[pageSize-1].Key)
	}
	for i := range views {
		p.Unanswered = p.Unanswered || views[i].State == nil
		p.Rows = append(p.Rows, p.laneRow(&views[i]))
	}
	if err := u.labelLanes(r, p.Rows); err != nil {
		return nil, err
	}
	return show("lanes", p)
}

// labelLanes fills in what people call the endpoints of lanes.
func (u *UI) labelLanes(r *request, rows []*laneRow) error {
	var ids []string
	for _, row := range rows {
		ids = append(ids, row.EndpointFullID)
	}
	labels, err := u.endpointLabels(r, ids)
	for _, row := range rows {
		row.EndpointLabel = labels[row.EndpointFullID]
	}
	return err
}

// isLaneKey says whether a text that came with an address can be a lane's key.
func isLaneKey(s string) bool { return s != "" && utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// someLanes reads the lanes of a page: by their keys, or those that have the most open callbacks.
func (u *UI) someLanes(r *request, p *lanesPage, f store.LaneFilter) ([]dispatch.LaneView, error) {
	if !p.ByBacklog {
		return u.Lanes.Lanes(r.ctx, r.who.project, f)
	}
	counts, err := u.Callbacks.Counts(r.ctx, r.who.project)
	if err != nil {
		return nil, err
	}
	for _, lane := range counts.Lanes {
		f.Keys = append(f.Keys, lane.Lane)
	}
	if len(f.Keys) == 0 {
		return nil, nil
	}
	after := f.After
	f.After, f.Limit = "", len(f.Keys)
	views, err := u.Lanes.Lanes(r.ctx, r.who.project, f)
	slices.SortStableFunc(views, func(a, b dispatch.LaneView) int { return cmp.Compare(b.Open, a.Open) })
	// Where the lane that the page before ended with is none of the largest any more, they are shown from the beginning.
	last := slices.IndexFunc(views, func(v dispatch.LaneView) bool { return v.Key == after })
	return views[last+1:], err
}
