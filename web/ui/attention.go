package ui

import (
	"cmp"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
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
	died := slices.ContainsFunc(minutes, func(a store.Activity) bool { return a.Dead > 0 })
	if dead := counts.States[store.Dead]; died && dead > 0 {
		if err := u.deadProblem(r, p, dead); err != nil {
			return err
		}
	}
	if err := u.laneProblems(r, p); err != nil {
		return err
	}
	p.Due, err = u.Store.DueNow(r.ctx, r.caller.Project, r.now)
	if err != nil {
		return err
	}
	if p.Due.OldestAt != 0 && r.now-p.Due.OldestAt > overdueAfter.Milliseconds() {
		n := grouped(int64(p.Due.Count))
		if p.Due.More {
			n += "+"
		}
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

// deadProblem adds the dead callbacks by their most frequent causes. The page has the line while callbacks
// become dead: older dead letters alone need no attention every night.
func (u *UI) deadProblem(r *request, p *overviewPage, n int64) error {
	groups, err := u.Store.DeadGroups(r.ctx, r.caller.Project)
	if err != nil {
		return err
	}
	line := problem{Kind: "bad", Text: p.T("attention.dead", "n", n),
		Acts: []problemAct{{Text: p.T("menu.dead"), Link: Root + "/dead"}}}
	causes := deadCauses(groups)
	for _, cause := range causes[:min(len(causes), namedCauses)] {
		n -= int64(cause.Count)
		part := problemPart{Count: cause.counted(), Name: p.Or("class.", string(cause.Class)),
			Data: !p.Has("class." + string(cause.Class)),
			Link: link("/callbacks", "state", string(store.Dead), "class", string(cause.Class))}
		if cause.Class == "" { // no filter selects these
			part.Name, part.Data, part.Link = p.T("attention.unsent"), false, Root+"/dead"
		}
		line.Parts = append(line.Parts, part)
	}
	if len(causes) > namedCauses && n > 0 {
		line.Parts = append(line.Parts, problemPart{Count: grouped(n), Name: p.T("attention.others"),
			Link: Root + "/dead"})
	}
	p.Attention = append(p.Attention, line)
	return nil
}

// deadCauses sums groups by class, the largest first.
func deadCauses(groups []store.DeadGroup) (causes []*deadGroup) {
	for i := range groups {
		g := &groups[i]
		at := slices.IndexFunc(causes, func(c *deadGroup) bool { return c.Class == g.Class })
		if at < 0 {
			causes = append(causes, &deadGroup{DeadGroup: *g})
			continue
		}
		causes[at].Count += g.Count
		causes[at].More = causes[at].More || g.More
	}
	slices.SortStableFunc(causes, func(a, b *deadGroup) int { return b.Count - a.Count })
	return causes
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
		line.Text = p.T("attention."+code, "n", n)
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
