package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

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
		return u.Engine.Lanes(r.ctx, r.who.Project, f)
	}
	counts, err := u.Store.Counts(r.ctx, r.who.Project)
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
	views, err := u.Engine.Lanes(r.ctx, r.who.Project, f)
	slices.SortStableFunc(views, func(a, b dispatch.LaneView) int { return cmp.Compare(b.Open, a.Open) })
	// Where the lane that the page before ended with is none of the largest any more, they are shown from the beginning.
	last := slices.IndexFunc(views, func(v dispatch.LaneView) bool { return v.Key == after })
	return views[last+1:], err
}

// A lane's key may have any characters, so acts have it as a parameter of their address and not as a part of the path.
func (u *UI) laneActRoutes() []Route {
	return u.acts(
		act{"/lanes/pause", store.ScopeOperate, u.askPauseLane, u.pauseLane},
		act{"/lanes/resume", store.ScopeOperate, u.askResumeLane, u.resumeLane},
		act{"/lanes/limits", store.ScopeOperate, u.askLimitLane, u.limitLane},
	)
}

// laneKey is the key of the lane that an act is about, as it stands in the address.
func (r *request) laneKey() string { return r.url.Query().Get("key") }

// laneForm begins the form of an act on one lane. The texts are those of "lanes.NAME.*".
func (u *UI) laneForm(r *request, name string) (*form, *laneRow, error) {
	key := r.laneKey()
	if !isLaneKey(key) {
		return nil, nil, store.ErrNotFound
	}
	found, err := u.lanesByKey(r, []string{key})
	if err != nil {
		return nil, nil, err
	}
	if found[key] == nil {
		return nil, nil, store.ErrNotFound
	}
	f := &form{base: u.base(r, "lanes", "lanes."+name+".title"), Action: link("/lanes/"+name, "key", key), Back: r.back(Root + "/lanes")}
	f.Says, f.Submit = []string{f.T("lanes." + name + ".says")}, f.T("lanes."+name+".submit")
	row := f.laneRow(found[key])
	f.Facts = []fact{{Name: f.T("column.lane"), Value: key, Data: true}, {Name: f.T("lanes.open"), Value: f.N(row.Open), Data: true}}
	if row.EndpointFullID != "" {
		f.Facts = append(f.Facts, fact{Name: f.T("column.endpoint"), Value: row.EndpointFullID, Link: Root + "/endpoints/" + row.EndpointFullID, Data: true})
	}
	return f, row, nil
}

// laneActed goes back to where an act on the request's lane was asked for, and says that it was done.
func (u *UI) laneActed(r *request, name string, err error) (*answer, error) {
	if err != nil {
		return nil, err
	}
	return u.did(r, link("/lanes", "q", r.laneKey()), r.lang.text("lanes."+name+".done"))
}

func (u *UI) askPauseLane(r *request) (*form, error) {
	f, _, err := u.laneForm(r, "pause")
	if err != nil {
		return nil, err
	}
	f.Fields = f.pauseFields()
	return f, nil
}

func (u *UI) pauseLane(r *request) (*answer, error) {
	until, err := r.pauseEnd()
	if err != nil {
		return nil, err
	}
	_, err = u.Engine.PauseLane(r.ctx, r.who.Project, r.laneKey(), until, r.by())
	return u.laneActed(r, "pause", err)
}

func (u *UI) askResumeLane(r *request) (*form, error) {
	f, row, err := u.laneForm(r, "resume")
	if err != nil {
		return nil, err
	}
	for _, s := range row.Standings {
		if s.Code == dispatch.BlockLanePaused && s.Note != "" {
			f.Facts = append(f.Facts, fact{Name: f.T("endpoint.pause.reason"), Value: s.Note, Data: true})
		}
	}
	f.Fields = []field{f.reasonField()}
	return f, nil
}

func (u *UI) resumeLane(r *request) (*answer, error) {
	_, err := u.Engine.PauseLane(r.ctx, r.who.Project, r.laneKey(), 0, r.by())
	return u.laneActed(r, "resume", err)
}

func (u *UI) askLimitLane(r *request) (*form, error) {
	f, row, err := u.laneForm(r, "limits")
	if err != nil {
		return nil, err
	}
	if row.EndpointFullID != "" {
		f.Says = append(f.Says, f.T("lanes.limits.endpoint"))
	}
	limit := ""
	if row.Limit > 0 {
		limit = strconv.Itoa(row.Limit)
	}
	f.Fields = []field{
		{Name: "concurrency", Kind: lineField, Label: f.T("endpoint.field.concurrency"), Help: f.T("endpoint.field.concurrency.help"), Value: limit, Suggest: "32", Mono: true},
		{Name: "rate", Kind: lineField, Label: f.T("endpoint.field.rate"), Help: f.T("endpoint.field.rate.help"), Value: row.Rate.String(), Suggest: "50/s", Mono: true},
		f.reasonField(),
	}
	f.remember(map[string]string{"concurrency": limit, "rate": row.Rate.String()})
	return f, nil
}

// limitLane sets the bounds that differ from what the form has shown: a field that was emptied takes a bound away.
func (u *UI) limitLane(r *request) (*answer, error) {
	var (
		wrong store.InvalidError
		limit *int
		rate  *store.Rate
		err   error
	)
	if text := r.changed("concurrency"); text != nil {
		limit = new(int)
		if *text != "" {
			if *limit, err = strconv.Atoi(*text); err != nil || *limit < 1 {
				wrong.Fields = append(wrong.Fields, store.FieldError{Field: "concurrency", Message: r.lang.text("endpoint.field.concurrency.wrong")})
			}
		}
	}
	if text := r.changed("rate"); text != nil {
		rate = new(store.Rate)
		if *text != "" {
			if *rate, err = store.ParseRate(*text); err != nil {
				wrong.Fields = append(wrong.Fields, store.FieldError{Field: "rate", Message: err.Error()})
			}
		}
	}
	if len(wrong.Fields) > 0 {
		return nil, &wrong
	}
	_, err = u.Engine.SetLane(r.ctx, r.who.Project, r.laneKey(), limit, rate, r.by())
	return u.laneActed(r, "limits", err)
}
