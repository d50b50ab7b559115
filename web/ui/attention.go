package ui

import (
	"cmp"
	"maps"
	"net/url"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// Bounds of what needs attention: alerts, causes, lanes and endpoints that a line names.
const (
	namedAlerts    = 3
	namedCauses    = 3
	namedLanes     = 3
	namedEndpoints = 3
)

// A problem is one line of what needs attention.
type problem struct {
	// Kind is the colour. Text says what is wrong and how often.
	Kind, Text string
	Parts      []problemPart
	// Acts are links to the list that shows exactly it, or to the form that cures it.
	Acts []problemAct
}

// A problemPart is one cause or object. Link may be empty. By is the actor, Note an operator's text, and Data
// is true if Name is no text of the catalogue. Since is a time in Unix milliseconds, or zero.
type problemPart struct {
	Count, Name, Link, By, Note string
	Data                        bool
	Since                       int64
}

// A problemAct is a link. Asks is true if it leads to a form.
type problemAct struct {
	Text, Link string
	Asks       bool
}

// readAttention sets the figures of the last hour and what needs attention.
func (u *UI) readAttention(r *request, p *overviewPage, counts *store.Counts) error {
	minutes, err := u.readRates(r)
	if err != nil {
		return err
	}
	p.figuresOfHour(minutes, counts)
	if err := u.firingProblem(r, p); err != nil {
		return err
	}
	if err := u.relayProblems(r, p); err != nil {
		return err
	}
	if err := u.deadProblem(r, p, counts.States[store.Dead]); err != nil {
		return err
	}
	if err := u.laneProblems(r, p); err != nil {
		return err
	}
	p.Due, err = u.Store.DueNow(r.ctx, r.caller.Project, r.now)
	if err != nil {
		return err
	}
	if p.Due.OldestAt != 0 && r.now-p.Due.OldestAt > overdueAfter.Milliseconds() {
		n := atLeast(int64(p.Due.Count), p.Due.More)
		p.Attention = append(p.Attention, problem{Kind: "warn", Text: p.T("attention.overdue", "n", n),
			Parts: []problemPart{{Name: p.T("attention.oldest"), Since: p.Due.OldestAt}},
			Acts: []problemAct{{Text: p.T("attention.show"),
				Link: link("/callbacks", "overdue", "true", "order", "due")}}})
	}
	return u.failingProblem(r, p)
}

// firingProblem adds the alerts that fire and are not silenced, those that began first.
func (u *UI) firingProblem(r *request, p *overviewPage) error {
	found, err := u.Engine.Alerts(r.ctx, r.caller.Project, store.AlertFilter{Limit: store.MaxAlerts})
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(slices.Clone(found), func(v alert.View) bool {
		return v.State != alert.StateFiring || v.Silenced
	})
	if len(found) == 0 {
		return nil
	}
	slices.SortStableFunc(found, func(a, b alert.View) int { return cmp.Compare(a.Since, b.Since) })
	line := problem{Kind: "bad", Text: p.T("attention.firing", "n", len(found)),
		Acts: []problemAct{{Text: p.T("attention.show"), Link: Root + "/alerts"}}}
	for i := range found[:min(len(found), namedAlerts)] {
		v := &found[i]
		line.Parts = append(line.Parts, problemPart{Name: v.Name, Data: true,
			Link: Root + "/alerts/" + store.AlertPrefix + v.ID, Since: v.Since})
	}
	p.Attention = append(p.Attention, line)
	return nil
}

// deadProblem adds the callbacks that died in the last hour by their most frequent causes, and counts the
// older ones of all dead callbacks.
func (u *UI) deadProblem(r *request, p *overviewPage, all int64) error {
	from := store.Minute.Begin(r.now) - store.Hour.Milliseconds()
	died, err := u.Store.DiedSince(r.ctx, r.caller.Project, from)
	if err != nil {
		return err
	}
	n, since := int64(0), query.FormatTime(from)
	for _, count := range died.Classes {
		n += count
	}
	if all > n && !died.More {
		p.Older = problemAct{Text: p.T("attention.older", "n", all-n),
			Link: link("/callbacks", "state", string(store.Dead), "finished_to", since)}
	}
	if n == 0 {
		return nil
	}
	list := link("/callbacks", "state", string(store.Dead), "finished_from", since)
	line := problem{Kind: "bad", Text: p.T("attention.dead", "n", atLeast(n, died.More)), Acts: []problemAct{
		{Text: p.T("attention.show"), Link: list}, {Text: p.T("menu.dead"), Link: Root + "/dead"}}}
	classes := slices.SortedFunc(maps.Keys(died.Classes), func(a, b store.Class) int {
		return cmp.Or(cmp.Compare(died.Classes[b], died.Classes[a]), cmp.Compare(a, b))
	})
	for _, class := range classes[:min(len(classes), namedCauses)] {
		n -= died.Classes[class]
		part := problemPart{
			Count: atLeast(died.Classes[class], died.More), Name: p.Or("class.", string(class)),
			Data: !p.Has("class." + string(class)), Link: list + "&class=" + url.QueryEscape(string(class)),
		}
		if class == "" { // no filter selects these
			part.Name, part.Data, part.Link = p.T("attention.unsent"), false, list
		}
		line.Parts = append(line.Parts, part)
	}
	if n > 0 {
		line.Parts = append(line.Parts,
			problemPart{Count: atLeast(n, died.More), Name: p.T("attention.others"), Link: list})
	}
	p.Attention = append(p.Attention, line)
	return nil
}

// blocking are the codes of the blocks that need an operator, in the order of the page.
var blocking = [...]string{
	control.BlockBreakerOpen, control.BlockEndpointOff, control.BlockEndpointPaused, control.BlockLanePaused,
}

// laneProblems adds the lanes with a backlog that a pause, an open breaker or a disabled endpoint blocks.
func (u *UI) laneProblems(r *request, p *overviewPage) error {
	for _, code := range blocking {
		line := problem{Kind: "warn"}
		if code == control.BlockBreakerOpen || code == control.BlockEndpointOff {
			line.Kind = "bad"
		}
		n := 0
		var only laneState
		for _, row := range p.Lanes {
			at := slices.IndexFunc(row.States, func(s laneState) bool { return s.Code == code })
			if row.Open == 0 || at < 0 {
				continue
			}
			n++
			only = row.States[at]
			if n > namedLanes {
				continue
			}
			part := problemPart{Name: row.Label, Data: true, Link: row.Page(), Since: only.Since,
				Note: only.Note}
			who, err := u.whoPaused(r, row, code)
			if err != nil {
				return err
			}
			part.By = who
			line.Parts = append(line.Parts, part)
		}
		if n == 0 {
			continue
		}
		count := grouped(int64(n))
		if p.heldCut {
			count += "+"
		}
		line.Text = p.T("attention."+code, "n", count)
		if n == 1 && only.Act != "" && p.Can(string(store.ScopeOperate)) {
			line.Acts = append(line.Acts, problemAct{Text: only.ActText, Link: only.Act, Asks: true})
		}
		line.Acts = append(line.Acts, problemAct{Text: p.T("attention.show"),
			Link: link("/lanes", "sort", "backlog", "why", code)})
		p.Attention = append(p.Attention, line)
	}
	return nil
}

// whoPaused returns the name of the key that has paused a lane or its endpoint; empty if the audit log does
// not say.
func (u *UI) whoPaused(r *request, row *laneRow, code string) (string, error) {
	f := store.AuditFilter{Object: row.Key, Action: "lane.pause", Limit: 1}
	switch code {
	case control.BlockLanePaused:
	case control.BlockEndpointPaused:
		f.Object, f.Action = row.EndpointID, "endpoint.pause"
	default:
		return "", nil
	}
	found, err := u.Store.Audit(r.ctx, r.caller.Project, f)
	if err != nil || len(found.Entries) == 0 {
		return "", err
	}
	return actorName(found.Entries[0].Actor), nil
}

// failingProblem adds the endpoints whose last attempt has failed.
func (u *UI) failingProblem(r *request, p *overviewPage) error {
	found, err := u.Store.Endpoints(r.ctx, r.caller.Project,
		store.EndpointFilter{Failing: true, NoSinks: true, Now: r.now, Limit: endpointsPerPage + 1})
	if err != nil || len(found) == 0 {
		return err
	}
	n := grouped(int64(min(len(found), endpointsPerPage)))
	if len(found) > endpointsPerPage {
		n += "+"
	}
	line := problem{Kind: "warn", Text: p.T("attention.failing", "n", n),
		Acts: []problemAct{{Text: p.T("attention.show"), Link: link("/endpoints", "failing", "true")}}}
	for i := range found[:min(len(found), namedEndpoints)] {
		row := newEndpointRow(found[i])
		line.Parts = append(line.Parts, problemPart{Name: row.Label, Data: true,
			Link: Root + "/endpoints/" + row.FullID, Since: row.FailingSince})
	}
	p.Attention = append(p.Attention, line)
	return nil
}
