package ui

import (
	"encoding/json"
	"html/template"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Bounds of what the page of an endpoint shows.
const (
	endpointHours     = 48
	endpointCallbacks = 20
	endpointAudit     = 20
)

// endpointPage is one endpoint.
type endpointPage struct {
	base
	*endpointRow
	// Attempts and Took are charts.
	Attempts, Took       template.HTML
	Policy, Rule, Signed string
	SentHeaders          []named
	Callbacks            []*callbackRow
	// All, Dead and Overdue are lists of its callbacks, Redrive the form that sends the dead ones again.
	All, Dead, Overdue, Redrive string
	History                     []change
}

// A change is something that somebody did to an endpoint or a lane.
type change struct {
	At            int64
	Action, Actor string
	Reason        string
	// Parts are the names of what was changed, for programs and people alike.
	Parts []string
}

// endpoint is GET /ui/endpoints/{id}. Of one that was deleted its callbacks are left.
func (u *UI) endpoint(r *request) (*answer, error) {
	id, err := r.bareID(store.EndpointPrefix)
	if err != nil {
		return nil, err
	}
	ep, err := u.Endpoints.AnyEndpoint(r.ctx, r.who.project, id)
	if err != nil {
		return nil, err
	}
	row := newEndpointRow(ep)
	if ep.DeletedAt != 0 {
		return redirect(link("/callbacks", "endpoint", row.FullID))
	}
	p := &endpointPage{base: u.baseTitled(r, "endpoints", row.Label), endpointRow: row}
	if err := u.standInto(r, &p.base, []*endpointRow{row}, endpointHours); err != nil {
		return nil, err
	}
	p.Attempts, p.Took = row.Figures.attemptsChart(&p.base), row.Figures.tookChart(&p.base)
	p.Policy, p.Rule, p.Signed = policyText(ep.Policy), successText(ep.Success), ep.Signer
	p.SentHeaders = shownHeaders(ep.Headers)
	newest, err := u.Callbacks.List(r.ctx, r.who.project, store.Filter{EndpointID: id, Now: r.now, Limit: endpointCallbacks})
	if err != nil {
		return nil, err
	}
	for i := range newest.Callbacks {
		p.Callbacks = append(p.Callbacks, newRow(&newest.Callbacks[i], r.now))
	}
	p.All, p.Dead = link("/callbacks", "endpoint", row.FullID), link("/callbacks", "endpoint", row.FullID, "state", string(store.Dead))
	p.Overdue = link("/callbacks", "endpoint", row.FullID, "overdue", "true", "order", "due")
	p.Redrive = link("/redrives/new", "action", "retry", "endpoint", row.FullID, "state", string(store.Dead))
	// What was done to its lane, and that its secret was read, is said of the lane, whose key is the id with the prefix.
	if p.History, err = u.historyOf(r, id, row.FullID); err != nil {
		return nil, err
	}
	return show("endpoint", p)
}

// historyOf returns what was last done to objects, the newest first.
func (u *UI) historyOf(r *request, objects ...string) ([]change, error) {
	var entries []store.AuditEntry
	for _, object := range objects {
		found, err := u.Audit.Audit(r.ctx, r.who.project, store.AuditFilter{Object: object, Limit: endpointAudit})
		if err != nil {
			return nil, err
		}
		entries = append(entries, found.Entries...)
	}
	slices.SortStableFunc(entries, func(a, b store.AuditEntry) int { return strings.Compare(b.ID, a.ID) })
	var all []change
	for i := range entries[:min(len(entries), endpointAudit)] {
		e := &entries[i]
		all = append(all, change{At: e.At, Action: e.Action, Actor: e.Actor, Reason: e.Reason, Parts: changedParts(e.Detail)})
	}
	return all, nil
}

// changedParts reads which fields an entry of the audit says were changed; none, where it does not say.
func changedParts(detail string) []string {
	var d struct {
		Changed []string `json:"changed"`
	}
	if json.Unmarshal([]byte(detail), &d) != nil {
		return nil // the details of other actions are other objects, and a page without them says what was done all the same
	}
	return d.Changed[:min(len(d.Changed), 20)]
}
