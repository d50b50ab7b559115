package ui

import (
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// pageSize is how many rows a list shows: with what stands around them they are less than 100 KB.
const pageSize = 40

// callbacksPage is the list of callbacks.
type callbacksPage struct {
	base
	Filter *filter
	// Chips are the states, with how many callbacks are in each.
	Chips []chip
	Rows  []*callbackRow
	// Next is the address of the next page, First of the first; empty: there is none, or this is it.
	Next, First string
	search
	// ByDue: they are in order of their due times.
	ByDue bool
	// Advanced: a field that is folded away says something.
	Advanced         bool
	Classes, Reasons []option
	Kinds            []option
	Acts             []bulkAct
	FieldErrors      []store.FieldError
	// Narrow: conditions narrow the list.
	Narrow           bool
	LabelName, Label string
	ResetTo          string
}

// A chip is a link that picks one part of a list.
type chip struct {
	Text, Link string
	Count      int64
	// Counted: Count says something.
	Counted, Current bool
}

// A bulkAct is something that can be done to all that a filter picks.
type bulkAct struct{ Name, Link string }

// A callbackRow is a callback in a list.
type callbackRow struct {
	store.Callback
	State store.State
	// FullID has its prefix, Address is masked.
	FullID, Address, EndpointFullID string
	// When is the due time of an open one, else when it ended.
	When int64
	Late bool
	// Tries are the charged attempts and how many there can be, where that is known.
	Tries string
}

func newRow(c *store.Callback, now int64) *callbackRow {
	row := &callbackRow{Callback: *c, State: c.StateAt(now), FullID: store.CallbackPrefix + c.ID,
		Address: store.MaskURL(c.URL), When: c.DueAt}
	if c.EndpointID != "" {
		row.EndpointFullID = store.EndpointPrefix + c.EndpointID
	}
	row.Tries = grouped(int64(c.AttemptCount))
	if !c.Policy.RepeatLast {
		row.Tries += " / " + grouped(int64(c.MaxAttempts()))
	}
	if c.State.Terminal() {
		row.When = c.FinishedAt
	} else {
		row.Late = row.State == store.Scheduled && c.DueAt < now-1000
	}
	return row
}

func newRows(callbacks []store.Callback, now int64) []*callbackRow {
	rows := make([]*callbackRow, len(callbacks))
	for i := range callbacks {
		rows[i] = newRow(&callbacks[i], now)
	}
	return rows
}

// callbacks is GET /ui/callbacks.
func (u *UI) callbacks(r *request) (*answer, error) {
	return u.listCallbacks(r, "callbacks", "")
}

// listCallbacks shows a list of callbacks, whose page has the name. With only, it is of that kind alone.
func (u *UI) listCallbacks(r *request, name string, only store.Kind) (*answer, error) {
	params := r.url.Query()
	if only != "" {
		params.Set("kind", string(only))
	}
	f := r.readFilter(params)
	if err := u.findEndpoint(r, f); err != nil {
		return nil, err
	}
	p := &callbacksPage{base: u.base(r, name, name+".title"), Filter: f, ByDue: params.Get("order") == "due",
		FieldErrors: f.wrong}
	f.ByDue = p.ByDue
	f.After = query.ReadPlace(params.Get("cursor"))
	if f.After != nil {
		p.First = p.With()
	}
	if len(f.wrong) == 0 {
		if err := u.fillRows(r, p); err != nil {
			return nil, err
		}
	}
	counts, err := u.Store.Counts(r.ctx, r.who.Project)
	if err != nil {
		return nil, err
	}
	p.chips(&counts, only == "")
	p.fields(only == "")
	if only == store.Poll {
		unresolved := params.Get("reason") == string(store.Unresolved)
		p.Chips = append(p.Chips, chip{Text: p.T("polls.unresolved"),
			Link:    p.With("state", string(store.Dead), "reason", string(store.Unresolved)),
			Current: unresolved})
	}
	p.ResetTo = Root + "/" + name
	p.Narrow = len(f.Values) > 1 || len(f.Values) == 1 && only == ""
	if p.Can(string(store.ScopeOperate)) && len(f.wrong) == 0 && !f.Empty() {
		for _, act := range []string{"retry", "cancel", "reschedule", "set_url"} {
			p.Acts = append(p.Acts, bulkAct{act, Root + "/redrives/new?action=" + act + "&" + f.query()})
		}
	}
	return show("callbacks", p)
}

// fillRows reads one page of rows. A filter that no index serves is looked for in a bounded part of the
// table: the page may be short, even empty, and still have a next one.
func (u *UI) fillRows(r *request, p *callbacksPage) error {
	f := p.Filter.Filter.Filter
	f.Limit = pageSize
	found, err := u.Store.List(r.ctx, r.who.Project, f)
	if err != nil {
		return err
	}
	p.Rows = newRows(found.Callbacks, r.now)
	f.After = found.Next
	if f.After != nil {
		p.Next = p.With("cursor", query.Place(*f.After))
		if len(p.Rows) == 0 {
			p.lookOn(found.Next, f.ByDue)
		}
	}
	return nil
}

// chips are the states, and how many are in each where nothing else is asked for.
func (p *callbacksPage) chips(counts *store.Counts, counted bool) {
	states := p.Filter.Values["state"]
	p.Chips = append(p.Chips, chip{Text: p.T("state.all"), Link: p.With("state", ""),
		Current: len(states) == 0})
	for _, s := range store.States {
		c := chip{Text: p.T("state." + string(s)), Link: p.With("state", string(s)),
			Current: len(states) == 1 && states[0] == string(s)}
		if s != store.Attempting && counted { // which is counted within scheduled
			c.Count, c.Counted = counts.States[s], true
		}
		p.Chips = append(p.Chips, c)
	}
}

// fields prepares what the form of the filter offers.
func (p *callbacksPage) fields(kinds bool) {
	v := p.Filter.Values
	class, reason, kind := v.Get("class"), v.Get("reason"), v.Get("kind")
	p.Classes = p.orAny(class, choose(&p.base, "", store.Class(class), store.Classes[:]...))
	p.Reasons = p.orAny(reason, choose(&p.base, "reason.", reason,
		"exhausted", "rejected", "gone", "expired", "blocked", "invalid", "poison", "unresolved", "requested",
		"superseded", "endpoint_deleted"))
	if kinds {
		p.Kinds = p.orAny(kind, choose(&p.base, "kind.", store.Kind(kind), store.Notify, store.Poll))
	}
	for name, value := range p.Filter.Labels {
		p.LabelName, p.Label = name, value
	}
	for _, name := range []string{"lock_key", "lane", "reason", "status_code", "min_attempts", "from", "to",
		"kind"} {
		p.Advanced = p.Advanced || v.Get(name) != "" && (name != "kind" || kinds)
	}
	p.Advanced = p.Advanced || len(p.Filter.Labels) > 0
}

// Value is what a parameter of the filter says.
func (p *callbacksPage) Value(name string) string { return p.Filter.Values.Get(name) }

// Hidden are the parameters that the form does not show.
func (p *callbacksPage) Hidden() []named {
	var all []named
	for name := range p.Filter.Labels {
		all = append(all, named{query.LabelPrefix + name, p.Filter.Labels[name]})
	}
	for _, s := range p.Filter.Values["state"] {
		all = append(all, named{"state", s})
	}
	if p.ByDue {
		all = append(all, named{"order", "due"})
	}
	return all
}

// A search is what a list says while nothing of it was found: a filter that no index serves is looked for in
// a bounded part of the table for each page, so that none takes long.
type search struct {
	// More: nothing was found so far, and there is more to look through.
	More bool
	// Reached is the moment up to which the list was looked through, in its order.
	Reached int64
}

// lookOn says that the next page, which begins at the cursor, may have what this one has not.
func (s *search) lookOn(next *store.Cursor, byDue bool) {
	s.More, s.Reached = true, next.DueAt
	if !byDue {
		s.Reached = store.IDTime(next.ID)
	}
}
