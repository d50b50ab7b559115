package ui

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

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
	control.LaneView
	// Standings are what holds it, if anything does.
	Standings []standing
	// EndpointFullID is the endpoint's whose lane it is, with its prefix; empty: none. EndpointLabel is what
	// people call that one, if anything.
	EndpointFullID, EndpointLabel string
	// Paused: its own pause is on.
	Paused bool
}

func (b *base) laneRow(v *control.LaneView) *laneRow {
	row := &laneRow{LaneView: *v, Paused: v.OwnPause > b.now}
	if v.EndpointID != "" {
		row.EndpointFullID = store.EndpointPrefix + v.EndpointID
	}
	for _, hold := range v.Blocks(b.now) {
		row.Standings = append(row.Standings, b.laneStanding(v, hold))
	}
	return row
}

// flightText writes how many attempts a lane has in flight and how many it may have at present; empty: the
// index does not say. Before the lane's first claim only the former is known.
func flightText(v *control.LaneView) string {
	switch {
	case v == nil || v.State == nil:
		return ""
	case v.State.Concurrency == 0:
		return strconv.Itoa(v.State.InFlight)
	}
	return fmt.Sprintf("%d / %d", v.State.InFlight, v.State.Concurrency)
}

// flightLimit is the most attempts that a lane may ever have in flight; zero: not known.
func flightLimit(v *control.LaneView) int {
	if v == nil || v.State == nil {
		return 0
	}
	return v.State.Limit
}

// Flight is how many attempts it has in flight, and may have at present.
func (l *laneRow) Flight() string { return flightText(&l.LaneView) }

// Most is how many attempts it may ever have in flight.
func (l *laneRow) Most() int { return flightLimit(&l.LaneView) }

// lanes is GET /ui/lanes.
func (u *UI) lanes(r *request) (*answer, error) {
	p := &lanesPage{base: u.base(r, "lanes", "lanes.title"), Search: r.searchText("q"),
		Held: r.query("held") == "true", ByBacklog: r.query("sort") == "backlog"}
	p.Narrow = p.Search != "" || p.Held
	f := store.LaneFilter{Search: p.Search, Held: p.Held, Now: r.now, DueBy: r.now, Limit: pageSize + 1}
	if after := r.url.Query().Get("cursor"); isLaneKey(after) {
		f.After = after
	}
	views, err := u.someLanes(r, p, f)
	if err != nil {
		return nil, err
	}
	views, last := query.Cut(views, pageSize)
	if last != nil {
		p.Next = p.With("cursor", last.Key)
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
func (u *UI) someLanes(r *request, p *lanesPage, f store.LaneFilter) ([]control.LaneView, error) {
	if !p.ByBacklog {
		return u.Engine.Lanes(r.ctx, r.who.Project, f)
	}
	counts, err := u.Store.Counts(r.ctx, r.who.Project)
	if err != nil {
		return nil, err
	}
	after := f.After
	f.After = ""
	views, err := u.largestLanes(r, &counts, f)
	slices.SortStableFunc(views, func(a, b control.LaneView) int { return cmp.Compare(b.Open, a.Open) })
	// Where the lane that the page before ended with is none of the largest any more, they are shown from the
	// beginning.
	last := slices.IndexFunc(views, func(v control.LaneView) bool { return v.Key == after })
	return views[last+1:], err
}

// largestLanes are the lanes that have the most open callbacks, as far as they are among those that are asked
// for.
func (u *UI) largestLanes(r *request, counts *store.Counts, f store.LaneFilter) ([]control.LaneView, error) {
	for _, lane := range counts.Lanes {
		f.Keys = append(f.Keys, lane.Lane)
	}
	f.Limit = len(f.Keys)
	if f.Limit == 0 {
		return nil, nil
	}
	return u.Engine.Lanes(r.ctx, r.who.Project, f)
}

// laneActs are acts on one lane. A lane's key may have any characters, so forms have it as a parameter of
// their address.
func (u *UI) laneActs() []Route {
	pause, resume := pausing(u.Engine.PauseLane)
	return actsOn(u, kind[*laneRow]{
		path: "/lanes/", texts: "lanes.", section: "lanes", id: (*request).laneKey, find: u.findLane,
		begin: (*form).beginLane,
		page:  func(r *request) string { return link("/lanes", "q", r.url.Query().Get("key")) },
	}, []actOn[*laneRow]{
		{name: "pause", ask: askPause[*laneRow], do: pause},
		{name: "resume", ask: (*form).askResumeLane, do: resume},
		{name: "limits", ask: (*form).askLimitLane, do: u.limitLane},
	})
}

// laneKey is the key of the lane that an act is about.
func (r *request) laneKey() (string, error) {
	key := r.url.Query().Get("key")
	if !isLaneKey(key) {
		return "", store.ErrNotFound
	}
	return key, nil
}

func (u *UI) findLane(r *request, key string) (*laneRow, error) {
	found, err := u.lanesByKey(r, []string{key})
	if err != nil {
		return nil, err
	}
	if found[key] == nil {
		return nil, store.ErrNotFound
	}
	b := u.base(r, "lanes", "lanes.title")
	return b.laneRow(found[key]), nil
}

// beginLane says which lane a form is about.
func (f *form) beginLane(row *laneRow) {
	f.Action, f.Back = f.r.url.Path+"?"+url.Values{"key": {row.Key}}.Encode(), f.r.back(Root+"/lanes")
	f.tell("column.lane", row.Key, "lanes.open", f.N(row.Open))
	if id := row.EndpointFullID; id != "" {
		f.Facts = append(f.Facts, fact{Name: f.T("column.endpoint"), Value: id,
			Link: Root + "/endpoints/" + id, Data: true})
	}
}

func (f *form) askResumeLane(row *laneRow) error {
	for _, s := range row.Standings {
		if s.Code == control.BlockLanePaused && s.Note != "" {
			f.tell("endpoint.pause.reason", s.Note)
		}
	}
	return nil
}

func (f *form) askLimitLane(row *laneRow) error {
	if row.EndpointFullID != "" {
		f.Says = append(f.Says, f.T("lanes.limits.endpoint"))
	}
	texts := map[string]string{"concurrency": "", "rate": row.Rate.String()}
	if row.Limit > 0 {
		texts["concurrency"] = strconv.Itoa(row.Limit)
	}
	limit, rate := f.askMono("concurrency", "endpoint.field.concurrency", "32"),
		f.askMono("rate", "endpoint.field.rate", "50/s")
	limit.Value, rate.Value = texts["concurrency"], texts["rate"]
	f.Fields = []field{limit, rate}
	f.remember(texts)
	return nil
}

// limitLane sets the bounds that differ from what the form has shown: a field that was emptied takes a bound
// away.
func (u *UI) limitLane(r *request, key string) error {
	var (
		wrong store.InvalidError
		limit *int
		rate  *store.Rate
		err   error
	)
	refuse := func(name, message string) {
		wrong.Fields = append(wrong.Fields, store.FieldError{Field: name, Message: message})
	}
	if text := r.changed("concurrency"); text != nil {
		limit = new(int)
		if *text != "" {
			*limit, err = strconv.Atoi(*text)
			if err != nil || *limit < 1 {
				refuse("concurrency", r.lang.text("endpoint.field.concurrency.wrong"))
			}
		}
	}
	if text := r.changed("rate"); text != nil {
		rate = new(store.Rate)
		if *text != "" {
			*rate, err = store.ParseRate(*text)
			if err != nil {
				refuse("rate", err.Error())
			}
		}
	}
	if len(wrong.Fields) > 0 {
		return &wrong
	}
	_, err = u.Engine.SetLane(r.ctx, r.who.Project, key, limit, rate, r.by())
	return err
}
