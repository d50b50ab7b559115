package ui

import (
	"cmp"
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
	// Held selects paused lanes.
	Held bool
	// ByBacklog selects the largest lanes, the largest first. Why selects the lanes with this block among the
	// largest and the held ones.
	ByBacklog bool
	Why       string
	// Narrow is true if the filter has a condition. Unanswered is true if the index has not reported the
	// state of a lane.
	Narrow, Unanswered bool
	// Conditions is the number of the filter's conditions.
	Conditions int
	Rows       []*laneRow
	// Next is the URL of the next page; empty on the last.
	Next string
}

// A laneRow is a lane in a list.
type laneRow struct {
	control.LaneView
	// States are the lane's blocks.
	States []laneState
	// EndpointFullID is the id of the lane's endpoint with the prefix, or empty. Label is the name of the
	// endpoint, else the key.
	EndpointFullID, Label string
	// Flight is the number of attempts in flight and its limit; empty if unknown.
	Flight string
	// Figures are the statistics of the last 24 hours.
	Figures figures
	// Paused is true if the lane's own pause is on.
	Paused bool
}

func (b *base) laneRow(v *control.LaneView) *laneRow {
	row := &laneRow{LaneView: *v, Flight: b.flightText(v), Paused: v.OwnPause > b.now, Label: v.Key}
	if v.EndpointID != "" {
		row.EndpointFullID = store.EndpointPrefix + v.EndpointID
	}
	for _, block := range v.Blocks(b.now) {
		row.States = append(row.States, b.blockState(v, block))
	}
	return row
}

// flightText formats the number of attempts in flight and their current limit. It is empty if the index has
// not reported them. The limit is unknown before the lane's first claim.
func (b *base) flightText(v *control.LaneView) string {
	switch {
	case v == nil || v.State == nil:
		return ""
	case v.State.Concurrency == 0:
		return strconv.Itoa(v.State.InFlight)
	}
	return b.T("lanes.flight", "n", v.State.InFlight, "limit", v.State.Concurrency)
}

// Page returns the page of the lane. The lane of an endpoint has the endpoint's page.
func (l *laneRow) Page() string {
	if l.EndpointFullID != "" {
		return Root + "/endpoints/" + l.EndpointFullID
	}
	return link("/lane", "key", l.Key)
}

// lanes is GET /ui/lanes.
func (u *UI) lanes(r *request) (*response, error) {
	p := &lanesPage{base: u.base(r, "lanes", "lanes.title"), Search: r.searchText("q"),
		Held: r.query("held") == "true", ByBacklog: r.query("sort") == "backlog"}
	if p.ByBacklog {
		p.Why = r.searchText("why")
	}
	p.Conditions = countTrue(p.Search != "", p.Held, p.Why != "")
	p.Narrow = p.Conditions > 0
	f := store.LaneFilter{Search: p.Search, Paused: p.Held, Now: r.now, DueBy: r.now, Limit: pageSize + 1}
	if after := r.url.Query().Get("cursor"); isLaneKey(after) {
		f.After = after
	}
	views, err := u.readLanes(r, p, f)
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

// labelLanes sets the labels and the figures of lanes, in two calls for all of them.
func (u *UI) labelLanes(r *request, rows []*laneRow) error {
	if err := u.nameLanes(r, rows); err != nil {
		return err
	}
	return u.addFigures(r, rows, listHours)
}

// nameLanes labels the lanes of endpoints with the names of those.
func (u *UI) nameLanes(r *request, rows []*laneRow) error {
	var ids []string
	for _, row := range rows {
		ids = append(ids, row.EndpointFullID)
	}
	labels, err := u.endpointLabels(r, ids)
	for _, row := range rows {
		row.Label = cmp.Or(labels[row.EndpointFullID], row.Label)
	}
	return err
}

// addFigures sets the figures of lanes from their activity in the last hours.
func (u *UI) addFigures(r *request, rows []*laneRow, hours int) error {
	numbers := make([]int64, len(rows))
	for i, row := range rows {
		numbers[i] = row.ID
	}
	activity, err := u.laneActivity(r, numbers, hours)
	for _, row := range rows {
		row.Figures = r.lang.figuresOf(activity[row.ID], hoursAgo(r.now, hours), hours)
	}
	return err
}

// laneActivity returns the activity of lanes in the last hours, by the lanes' numbers.
func (u *UI) laneActivity(r *request, numbers []int64, hours int) (map[int64][]store.Activity, error) {
	found := make(map[int64][]store.Activity)
	if len(numbers) == 0 {
		return found, nil
	}
	all, err := u.Store.LaneActivity(r.ctx, r.caller.Project, numbers, hoursAgo(r.now, hours))
	for i := range all {
		found[all[i].LaneID] = append(found[all[i].LaneID], all[i])
	}
	return found, err
}

// isLaneKey reports whether a text from a URL can be a lane's key.
func isLaneKey(s string) bool { return s != "" && utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// readLanes reads the lanes of a page, in order of their keys or by backlog.
func (u *UI) readLanes(r *request, p *lanesPage, f store.LaneFilter) ([]control.LaneView, error) {
	if !p.ByBacklog {
		return u.Engine.Lanes(r.ctx, r.caller.Project, f)
	}
	counts, err := u.Store.Counts(r.ctx, r.caller.Project)
	if err != nil {
		return nil, err
	}
	after := f.After
	f.After = ""
	if p.Why != "" {
		f.Keys, err = u.Engine.HeldLanes(r.ctx, r.caller.Project)
		if err != nil {
			return nil, err
		}
	}
	views, err := u.largestLanes(r, &counts, f)
	if p.Why != "" {
		is := func(b control.Block) bool { return b.Code == p.Why }
		views = slices.DeleteFunc(views, func(v control.LaneView) bool {
			return v.Open == 0 || !slices.ContainsFunc(v.Blocks(r.now), is)
		})
	}
	slices.SortStableFunc(views, func(a, b control.LaneView) int { return cmp.Compare(b.Open, a.Open) })
	// The last lane of the previous page may be too small for the list by now. Then last is -1, and the list
	// starts again.
	last := slices.IndexFunc(views, func(v control.LaneView) bool { return v.Key == after })
	return views[last+1:], err
}

// largestLanes returns the project's largest lanes, by open callbacks, and those with the keys of the filter,
// as far as they match the rest of the filter.
func (u *UI) largestLanes(r *request, counts *store.Counts, f store.LaneFilter) ([]control.LaneView, error) {
	for _, lane := range counts.Lanes {
		f.Keys = append(f.Keys, lane.Lane)
	}
	slices.Sort(f.Keys)
	f.Keys = slices.Compact(f.Keys)
	f.Limit = len(f.Keys)
	if f.Limit == 0 {
		return nil, nil
	}
	return u.Engine.Lanes(r.ctx, r.caller.Project, f)
}

// laneActs returns the routes of the acts on a lane. A lane's key may have any characters, so it is a URL
// parameter and no part of the path.
func (u *UI) laneActs() []Route {
	pause, resume := pausing(u.Engine.PauseLane)
	return actsOn(u, kind[*laneRow]{
		path: "/lanes/", texts: "lanes.", section: "lanes", id: (*request).laneKey, find: u.findLane,
		begin: (*form).beginLane,
		page:  func(r *request) string { return link("/lane", "key", r.url.Query().Get("key")) },
	}, []actOn[*laneRow]{
		{name: "pause", ask: askPause[*laneRow], do: pause},
		{name: "resume", ask: (*form).askResumeLane, do: resume},
		{name: "limits", ask: (*form).askLimitLane, do: u.limitLane},
	})
}

// laneKey returns the key of the request's lane.
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
	row := b.laneRow(found[key])
	return row, u.nameLanes(r, []*laneRow{row})
}

// beginLane adds the facts of a lane to a form.
func (f *form) beginLane(row *laneRow) {
	f.Action, f.Back = f.r.url.Path+"?"+url.Values{"key": {row.Key}}.Encode(), f.r.back(Root+"/lanes")
	if id := row.EndpointFullID; id != "" {
		f.Facts = append(f.Facts, fact{Name: f.T("column.endpoint"), Value: row.Label,
			Link: Root + "/endpoints/" + id, Data: true})
	} else {
		f.addFacts("column.lane", row.Key)
	}
	f.addFacts("lanes.open", f.N(row.Open))
}

func (f *form) askResumeLane(row *laneRow) error {
	for _, s := range row.States {
		if s.Code == control.BlockLanePaused && s.Note != "" {
			f.addFacts("endpoint.pause.reason", s.Note)
		}
	}
	return nil
}

func (f *form) askLimitLane(row *laneRow) error {
	if row.EndpointFullID != "" {
		f.Effects = append(f.Effects, f.T("lanes.limits.endpoint"))
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

// limitLane sets the limits that differ from their rendered values. An empty field removes a limit.
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
	_, err = u.Engine.SetLane(r.ctx, r.caller.Project, key, limit, rate, r.by())
	return err
}
