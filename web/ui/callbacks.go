package ui

import (
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// pageSize is the number of rows of a list. A page must stay below 100 KiB, see checkSize.
const pageSize = 40

// callbacksPage is the list of callbacks.
type callbacksPage struct {
	base
	Filter *filter
	// Chips are the states with their numbers of callbacks.
	Chips []chip
	Table callbackTable
	// Next is the URL of the next page; empty on the last. First is the URL of the first; empty on the first.
	Next, First string
	scan
	// Advanced is true if a field of the folded part is filled in.
	Advanced         bool
	Classes, Reasons []option
	Kinds            []option
	Acts             []bulkAct
	FieldErrors      []store.FieldError
	// Narrow is true if the filter has a condition. Conditions is their number. Matches is the number of
	// callbacks that match, such as "8" or "40+".
	Narrow           bool
	Conditions       int
	Matches          string
	LabelName, Label string
	// Endpoint is that of the filter. Nil: none.
	Endpoint *fact
	ResetTo  string
}

// A chip is a link to one part of a list.
type chip struct {
	Text, Link string
	Count      int64
	// Counted is true if Count is set.
	Counted, Current bool
}

// A bulkAct is a link to the form of an action on all callbacks that match the filter.
type bulkAct struct{ Name, Link string }

// callbacks is GET /ui/callbacks.
func (u *UI) callbacks(r *request) (*response, error) {
	return u.listCallbacks(r, "callbacks", "")
}

// listCallbacks shows a list of callbacks. name is the path and the prefix of the texts. If only is set, the
// list has that kind alone.
func (u *UI) listCallbacks(r *request, name string, only store.Kind) (*response, error) {
	params := r.url.Query()
	if only != "" {
		params.Set("kind", string(only))
	}
	f := r.readFilter(params)
	if err := u.findEndpoint(r, f); err != nil {
		return nil, err
	}
	p := &callbacksPage{base: u.base(r, name, name+".title"), Filter: f, FieldErrors: f.invalid}
	f.ByDue = params.Get("order") == "due"
	p.Table = callbackTable{Caption: p.Title, ByNewest: p.With("order", ""),
		ByDue: p.With("order", "due"), DueFirst: f.ByDue, Polls: only == store.Poll}
	f.After = query.ReadPlace(params.Get("cursor"))
	if f.After != nil {
		p.First = p.With()
	}
	if len(f.invalid) == 0 {
		if err := u.readRows(r, p); err != nil {
			return nil, err
		}
	}
	p.Endpoint = f.endpointFact(&p.base)
	counts, err := u.Store.Counts(r.ctx, r.caller.Project)
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
	p.Conditions = len(f.Values)
	if only != "" { // the kind is the page's
		p.Conditions--
	}
	p.Narrow = p.Conditions > 0
	if p.Can(string(store.ScopeOperate)) && len(p.Table.Rows) > 0 && !f.Empty() {
		p.Matches = grouped(int64(len(p.Table.Rows)))
		if p.Next != "" || f.After != nil {
			p.Matches = grouped(pageSize) + "+"
		}
		for _, act := range []string{"retry", "cancel", "reschedule", "set_url"} {
			p.Acts = append(p.Acts, bulkAct{act, Root + "/redrives/new?action=" + act + "&" + f.query()})
		}
	}
	return show("callbacks", p)
}

// readRows reads one page of rows. For a filter that no SQL index serves, the store scans a bounded part of
// the table. Then a page may be short or empty and still have a next one.
func (u *UI) readRows(r *request, p *callbacksPage) error {
	f := p.Filter.Filter.Filter
	f.Limit = pageSize
	found, err := u.Store.List(r.ctx, r.caller.Project, f)
	if err != nil {
		return err
	}
	p.Table.Rows, err = u.callbackRows(r, found.Callbacks)
	if err != nil {
		return err
	}
	if p.Table.Polls {
		if err := u.readSeen(r, p.Table.Rows); err != nil {
			return err
		}
	}
	f.After = found.Next
	if f.After != nil {
		p.Next = p.With("cursor", query.Place(*f.After))
		if len(p.Table.Rows) == 0 {
			p.continueScan(found.Next, f.ByDue)
		}
	}
	return nil
}

// chips sets the state filters. Their counts are shown only if counted: they are those of all kinds.
func (p *callbacksPage) chips(counts *store.Counts, counted bool) {
	states := p.Filter.Values["state"]
	p.Chips = append(p.Chips, chip{Text: p.T("state.all"), Link: p.With("state", ""),
		Current: len(states) == 0})
	for _, s := range store.States {
		c := chip{Text: p.T("state." + string(s)), Link: p.With("state", string(s)),
			Current: len(states) == 1 && states[0] == string(s)}
		if s != store.Attempting && counted { // the counters include attempting in scheduled
			c.Count, c.Counted = counts.States[s], true
		}
		p.Chips = append(p.Chips, c)
	}
}

// fields sets the options of the filter's form. kinds adds the filter by kind. The form has fields for one
// label; the part with them and other rare fields is folded unless one of them is filled in.
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
	folded := []string{"lock_key", "lane", "reason", "status_code", "min_attempts", "from", "to",
		"finished_from", "finished_to", "kind"}
	for _, name := range folded {
		p.Advanced = p.Advanced || v.Get(name) != "" && (name != "kind" || kinds)
	}
	p.Advanced = p.Advanced || len(p.Filter.Labels) > 0
}

// Value returns a parameter of the filter.
func (p *callbacksPage) Value(name string) string { return p.Filter.Values.Get(name) }

// Hidden returns the parameters that the form sends in hidden fields.
func (p *callbacksPage) Hidden() []named {
	var all []named
	for name := range p.Filter.Labels {
		all = append(all, named{query.LabelPrefix + name, p.Filter.Labels[name]})
	}
	for _, s := range p.Filter.Values["state"] {
		all = append(all, named{"state", s})
	}
	if p.Table.DueFirst {
		all = append(all, named{"order", "due"})
	}
	return all
}

// A scan is the state of a list whose filter no SQL index serves. The store scans a bounded part of the table
// for each page, so that no page takes long.
type scan struct {
	// More is true if the page is empty and the rest of the table is still to be scanned.
	More bool
	// Reached is the time that the scan has reached, in Unix milliseconds: a due time if the list is by due
	// time, else a creation time.
	Reached int64
}

// continueScan records that the page is empty and that the scan continues at the cursor.
func (s *scan) continueScan(next *store.Cursor, byDue bool) {
	s.More, s.Reached = true, next.DueAt
	if !byDue {
		s.Reached = store.IDTime(next.ID)
	}
}
