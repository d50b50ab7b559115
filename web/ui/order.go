package ui

import (
	"cmp"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

// Bounds of an order's page: its callbacks, the attempts of each, the acts on them, those on what they share,
// and the events and the bytes of each response on one page of the timeline.
const (
	maxOrder      = 50
	orderAttempts = 20
	maxActs       = 100
	orderEvents   = 15
	fewEvents     = 6 // if there are more than manyCallbacks: the page must stay small
	manyCallbacks = 20
	orderBody     = 300
)

// orderPage shows the callbacks of one business reference on one time axis, those that are not delivered
// first, and below them everything that has happened.
type orderPage struct {
	base
	Ref  string
	Rows []*orderRow
	// Counts are the numbers of all its callbacks by state. NotShown is the number of those that are not in
	// Rows. It is empty if all are.
	Counts   []chip
	NotShown string
	// Labels are those that all callbacks share.
	Labels []named
	// Active is the time of the last event.
	Active int64
	// Dead and Open are the numbers of callbacks that a bulk action changes. They are empty if there are
	// none, or if the viewer may not.
	Dead, Open string
	// Cut is true if there are more attempts than orderAttempts of a callback, ActsCut if there may be more
	// acts than maxActs.
	Cut     bool
	ActsCut bool
	Axis    template.HTML
	Shows   []chip
	Events  []*orderEvent
	// Older and Newest link to other pages of the timeline. They are empty if there are none.
	Older, Newest string
	// Support is a text for the merchant.
	Support string
}

// An orderRow is a callback of an order.
type orderRow struct {
	*callbackRow
	// ToLink is the endpoint's page, or "".
	ToLink string
	// Why says why the callback is not delivered, since Since and until Until. They may be zero.
	Why          string
	Since, Until int64
	Cure         cure
	Axis         template.HTML
	// creator names what created the callback. Empty: not known.
	creator string
	// attempts are the last ones, the newest first.
	attempts []store.Attempt
	result   *orderRow // of a poll
	resultID string
}

// order is GET /ui/orders?ref=REF.
func (u *UI) order(r *request) (*response, error) {
	ref := r.url.Query().Get("ref")
	if ref == "" {
		return nil, store.ErrNotFound
	}
	if id, ok := store.BareID(store.AlertPrefix, ref); ok { // the reference of an alert's messages
		switch _, err := u.Engine.Alert(r.ctx, r.caller.Project, id); {
		case err == nil:
			return redirect(Root + "/alerts/" + ref)
		case !notFound(err):
			return nil, err
		}
	}
	p := &orderPage{base: u.base(r, "callbacks", "order.title", "ref", ref), Ref: ref}
	page, err := u.Store.OfRef(r.ctx, r.caller.Project, ref, r.now, maxOrder)
	if err != nil {
		return nil, err
	}
	if len(page.Callbacks) == 0 {
		return show("order", p)
	}
	acts, err := u.readOrder(r, p, page.Callbacks)
	if err != nil {
		return nil, err
	}
	p.count(&page)
	p.shareLabels()
	p.draw()
	events := p.events(acts)
	p.Active = events[0].At
	p.timeline(events, r.query("show"), r.query("before"))
	p.Support = p.support()
	return show("order", p)
}

// readOrder reads everything about the callbacks, with one call for each kind of data, and two for the acts.
// It returns the acts on them and on what they share.
func (u *UI) readOrder(
	r *request, p *orderPage, callbacks []store.Callback,
) (acts []store.AuditEntry, err error) {
	rows, err := u.callbackRows(r, callbacks)
	if err != nil {
		return nil, err
	}
	creators, err := u.creators(r, &p.base, callbacks)
	if err != nil {
		return nil, err
	}
	ids, shared, oldest := make([]string, len(rows)), []string{r.caller.Project}, r.now
	var polls []string
	for i, row := range rows {
		o := &orderRow{callbackRow: row, creator: creators[row.CreatedBy].Text}
		if row.EndpointID != "" {
			shared = append(shared, row.EndpointID)
			if row.To != shortAddress(row.Address) { // it has a name, so it was not deleted
				o.ToLink = Root + "/endpoints/" + row.EndpointFullID
			}
		}
		p.Rows = append(p.Rows, o)
		ids[i], oldest = row.ID, min(oldest, row.CreatedAt)
		shared = append(shared, row.Lane)
		if row.Kind == store.Poll {
			polls = append(polls, row.ID)
		}
	}
	why, err := u.Engine.ExplainAll(r.ctx, r.caller.Project, callbacks)
	if err != nil {
		return nil, err
	}
	attempts, err := u.Store.AttemptsOf(r.ctx, r.caller.Project, ids, orderAttempts)
	if err != nil {
		return nil, err
	}
	for i, o := range p.Rows {
		o.attempts = attemptsOf(attempts, o.ID)
		o.DivertedFor = divertedFor(&o.Callback, o.attempts)
		p.Cut = p.Cut || o.AttemptSeq > len(o.attempts)
		p.explain(o, &why[i])
	}
	if len(polls) > 0 {
		reports, err := u.Store.PollReports(r.ctx, r.caller.Project, polls)
		if err != nil {
			return nil, err
		}
		p.linkResults(reports)
	}
	slices.SortStableFunc(p.Rows, func(a, b *orderRow) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.ID, b.ID))
	})
	return u.orderActs(r, p, oldest, ids, shared)
}

// orderActs reads the acts on callbacks and on what they share. Each has its own limit: many changes of an
// endpoint must not hide the acts on the callbacks.
func (u *UI) orderActs(
	r *request, p *orderPage, since int64, callbacks, shared []string,
) (acts []store.AuditEntry, err error) {
	slices.Sort(shared)
	shared = slices.DeleteFunc(slices.Compact(shared), func(object string) bool {
		return slices.Contains(callbacks, object) // a lane may have any name
	})
	for _, objects := range [][]string{callbacks, shared} {
		some, err := u.Store.AuditOf(r.ctx, r.caller.Project, objects, since, maxActs)
		if err != nil {
			return nil, err
		}
		acts, p.ActsCut = append(acts, some...), p.ActsCut || len(some) == maxActs
	}
	return acts, nil
}

// attemptsOf returns the attempts of one callback.
func attemptsOf(all []store.Attempt, id string) (own []store.Attempt) {
	for i := range all {
		if all[i].CallbackID == id {
			own = append(own, all[i])
		}
	}
	return own
}

// rank sorts open callbacks before dead ones, and both before the others.
func (o *orderRow) rank() int {
	switch {
	case !o.Callback.State.Terminal():
		return 0
	case o.State == store.Dead:
		return 1
	}
	return 2
}

// linkResults links polls with their result callbacks.
func (p *orderPage) linkResults(reports []store.PollReport) {
	for _, report := range reports {
		for _, o := range p.Rows {
			if o.ID != report.ID {
				continue
			}
			o.resultID = store.CallbackPrefix + report.ResultID
			for _, result := range p.Rows {
				if result.ID == report.ResultID {
					o.result = result
				}
			}
		}
	}
}

// Answer says in words what the last attempt got. It is empty if that is the state already.
func (p *orderPage) Answer(o *orderRow) string {
	switch {
	case o.AttemptSeq == 0, o.LastClass == store.ClassOK:
		return ""
	case o.PollAnswered():
		return p.T("outcome." + notFinal)
	}
	return p.Or("class.", string(o.LastClass))
}

// count sets the counts by state and the numbers for the bulk actions.
func (p *orderPage) count(page *store.RefPage) {
	p.NotShown = atLeast(page.Hidden(), page.More)
	add := func(n int64, shown string, filter ...string) {
		if n > 0 {
			p.Counts = append(p.Counts, chip{Text: p.T("state." + shown), Count: n, Current: true,
				Link: link("/callbacks", append(filter, "ref", p.Ref)...)})
		}
	}
	for _, s := range store.States {
		add(page.Counts[s], string(s), "state", string(s))
	}
	for _, reason := range []store.Reason{store.PollSucceeded, store.PollFailed, store.ResolvedOutside} {
		c := store.Callback{Kind: store.Poll, State: store.Succeeded, Reason: reason}
		add(page.Polls[reason], "final_"+string(c.PollOutcome()), "kind", string(store.Poll),
			"reason", string(reason))
	}
	if p.Can(string(store.ScopeOperate)) {
		p.Dead = atLeast(page.Counts[store.Dead], page.More)
		p.Open = atLeast(page.Counts[store.Scheduled]+page.Counts[store.Attempting], page.More)
	}
}

// atLeast formats a number of callbacks, with "+" if there are more. It is empty for zero.
func atLeast(n int64, more bool) string {
	switch {
	case n == 0:
		return ""
	case more:
		return grouped(n) + "+"
	}
	return grouped(n)
}

// shareLabels sets the labels that all callbacks share.
func (p *orderPage) shareLabels() {
	for name, value := range p.Rows[0].Labels {
		if !slices.ContainsFunc(p.Rows, func(o *orderRow) bool { return o.Labels[name] != value }) {
			p.Labels = append(p.Labels, named{name, value})
		}
	}
	slices.SortFunc(p.Labels, func(a, b named) int { return strings.Compare(a.Name, b.Name) })
}

// draw draws the attempts of all rows on one axis.
func (p *orderPage) draw() {
	t := picture.Track{Label: p.T("order.axis"), Now: time.UnixMilli(p.now), Location: p.zone.Location}
	for _, o := range p.Rows {
		var marks []picture.Mark
		for i := range o.attempts {
			a := &o.attempts[i]
			outcome := displayOutcome(a, &o.Callback)
			says := p.T("outcome." + outcome)
			if a.Outcome != store.AttemptSucceeded && outcome != notFinal {
				says = p.Or("class.", string(a.Class))
			}
			if a.Status != 0 {
				says = strconv.Itoa(a.Status) + " " + says
			}
			marks = append(marks, picture.Mark{
				At: time.UnixMilli(a.StartedAt), State: stepState(outcome), Manual: a.Trigger == store.Manual,
				Title: p.T("order.mark", "number", a.Number, "at", p.Absolute(a.StartedAt),
					"outcome", says),
				Href: Root + "/callbacks/" + o.FullID + "/attempts/" + strconv.Itoa(a.Number),
			})
		}
		if o.State == store.Scheduled && o.DueAt > 0 {
			marks = append(marks, picture.Mark{At: time.UnixMilli(max(o.DueAt, p.now)), State: picture.Next,
				Title: p.T("order.nextmark", "at", p.Absolute(o.DueAt))})
		} else if o.State == store.Attempting {
			marks = append(marks, picture.Mark{At: time.UnixMilli(p.now), State: picture.Attempting,
				Title: p.T("state.attempting")})
		}
		t.Rows = append(t.Rows, marks)
	}
	head, rows := t.Draw()
	p.Axis = head
	for i, o := range p.Rows {
		o.Axis = rows[i]
	}
}
