package ui

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (u *UI) orderRoutes() []Route {
	return []Route{page("/orders", u.order)}
}

// maxOrder is how many callbacks of one reference a page shows.
const maxOrder = 200

// orderPage is everything under one business reference, by where it goes.
type orderPage struct {
	base
	Ref    string
	Groups []orderGroup
	// Counts are how many there are in each state.
	Counts []chip
	// More: there are more than the page shows, and Rest is where they are.
	More bool
	Rest string
}

// An orderGroup is what goes to one receiver.
type orderGroup struct {
	Name string
	// Link is the endpoint's page; empty: it is a plain address.
	Link string
	Rows []*callbackRow
}

// order is GET /ui/orders?ref=REF.
func (u *UI) order(r *request) (*answer, error) {
	ref := r.url.Query().Get("ref")
	if ref == "" {
		return nil, store.ErrNotFound
	}
	p := &orderPage{base: u.base(r, "callbacks", "order.title", "ref", ref), Ref: ref, Rest: link("/callbacks", "ref", ref)}
	page, err := u.Callbacks.List(r.ctx, r.who.project, store.Filter{Ref: ref, Now: r.now, Limit: maxOrder})
	if err != nil {
		return nil, err
	}
	p.More = page.Next != nil
	places := make(map[string]int)
	states := make(map[store.State]int64)
	for i := range page.Callbacks {
		row := newRow(&page.Callbacks[i], r.now)
		name, to := row.Lane, ""
		if row.EndpointID != "" {
			name, to = row.EndpointFullID, Root+"/endpoints/"+row.EndpointFullID
		}
		at, ok := places[name]
		if !ok {
			at = len(p.Groups)
			places[name] = at
			p.Groups = append(p.Groups, orderGroup{Name: name, Link: to})
		}
		p.Groups[at].Rows = append(p.Groups[at].Rows, row)
		states[row.State]++
	}
	if err := u.nameGroups(r, p.Groups); err != nil {
		return nil, err
	}
	slices.SortStableFunc(p.Groups, func(a, b orderGroup) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range store.States {
		if n := states[s]; n > 0 {
			p.Counts = append(p.Counts, chip{Text: p.T("state." + string(s)), Count: n, Link: link("/callbacks", "ref", ref, "state", string(s))})
		}
	}
	return show("order", p)
}

// maxNamed is how many endpoints of one page are asked for their names.
const maxNamed = 20

// nameGroups puts the names of endpoints in the place of their ids.
func (u *UI) nameGroups(r *request, groups []orderGroup) error {
	for i := range groups {
		id, ok := store.BareID(store.EndpointPrefix, groups[i].Name)
		if !ok || i >= maxNamed {
			continue
		}
		ep, err := u.Endpoints.AnyEndpoint(r.ctx, r.who.project, id)
		if err != nil && !notFound(err) {
			return err
		}
		if err != nil || ep.DeletedAt != 0 {
			groups[i].Link = "" // it has no page
		}
		groups[i].Name = cmp.Or(ep.Name, ep.ExternalID, groups[i].Name)
	}
	return nil
}
