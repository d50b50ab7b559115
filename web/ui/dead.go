package ui

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// deadPage is the list of dead callbacks, grouped by cause.
type deadPage struct {
	base
	// Total is the number of dead callbacks, by the counters.
	Total int64
	// Groups are undelivered callbacks. Unresolved are polls without a final result: alerts and not failures.
	Groups, Unresolved []*deadGroup
}

// A deadGroup is the dead callbacks with one cause.
type deadGroup struct {
	store.DeadGroup
	// Means explains the cause, Cure says how to fix it. Both may be empty.
	Means, Cure string
	// All is the link to the list of the callbacks. Redrive and Address link to the forms that retry them or
	// change their URL. They are empty if the act is not offered.
	All, Redrive, Address string
	// One is the link to the form that retries the oldest callback of the group.
	One string
	// Receivers are the receivers of the newest callbacks of the group, with their numbers.
	Receivers []receiverCount
	// Total is the number of receivers, such as "3" or "3+".
	Total string
}

// A receiverCount is a receiver with a number of callbacks. Count ends with "+" if there may be more. Link is
// the list of these callbacks.
type receiverCount struct{ Name, Count, Link string }

const (
	// receiverGroups bounds the groups whose receivers are read, one call each. receiverRows bounds the
	// callbacks of such a call, and namedReceivers the receivers of a group.
	receiverGroups = 12
	receiverRows   = 40
	namedReceivers = 3
)

// wrongAddress are the classes that a wrong URL can cause.
var wrongAddress = [...]store.Class{
	store.ClassRedirect, store.ClassHTTP4xx, store.ClassGone, store.ClassProtocol, store.ClassDNSNotFound,
	store.ClassConnectRefused,
	store.ClassUnreachable, store.ClassTLSCert, store.ClassBlocked,
}

// dead is GET /ui/dead.
func (u *UI) dead(r *request) (*response, error) {
	groups, err := u.Store.DeadGroups(r.ctx, r.caller.Project)
	if err != nil {
		return nil, err
	}
	counts, err := u.Store.Counts(r.ctx, r.caller.Project)
	if err != nil {
		return nil, err
	}
	p := &deadPage{base: u.base(r, "dead", "dead.title"), Total: counts.States[store.Dead]}
	for i := range groups {
		g := p.group(&groups[i])
		if g.Reason == store.Unresolved {
			p.Unresolved = append(p.Unresolved, g)
		} else {
			p.Groups = append(p.Groups, g)
		}
	}
	if err := u.addReceivers(r, slices.Concat(p.Groups, p.Unresolved)); err != nil {
		return nil, err
	}
	return show("dead", p)
}

// addReceivers sets the receivers of the first groups, from their newest callbacks.
func (u *UI) addReceivers(r *request, groups []*deadGroup) error {
	for _, g := range groups[:min(len(groups), receiverGroups)] {
		f := store.Filter{States: []store.State{store.Dead}, Reason: g.Reason, Class: g.Class, Now: r.now,
			Status: g.Status, Limit: receiverRows}
		found, err := u.Store.List(r.ctx, r.caller.Project, f)
		if err != nil {
			return err
		}
		rows, err := u.callbackRows(r, found.Callbacks)
		if err != nil {
			return err
		}
		g.addReceivers(rows, found.Next != nil)
	}
	return nil
}

// addReceivers counts the receivers of callbacks. more is true if the group has other callbacks.
func (g *deadGroup) addReceivers(rows []*callbackRow, more bool) {
	counts := make(map[string]int)
	var order []*callbackRow
	for _, row := range rows {
		if counts[row.To] == 0 {
			order = append(order, row)
		}
		counts[row.To]++
	}
	slices.SortStableFunc(order, func(a, b *callbackRow) int { return counts[b.To] - counts[a.To] })
	for _, row := range order[:min(len(order), namedReceivers)] {
		n := grouped(int64(counts[row.To]))
		if more {
			n += "+"
		}
		to := g.All + "&lane=" + url.QueryEscape(row.Lane)
		if row.EndpointFullID != "" {
			to = g.All + "&endpoint=" + row.EndpointFullID
		}
		g.Receivers = append(g.Receivers, receiverCount{row.To, n, to})
	}
	g.Total = grouped(int64(len(order)))
	if more {
		g.Total += "+"
	}
}

// group returns the group with its texts and links. All links use the same filter, so they act on the
// callbacks of the group only.
func (p *deadPage) group(group *store.DeadGroup) *deadGroup {
	g := &deadGroup{DeadGroup: *group}
	filter := []string{"state", string(store.Dead), "reason", string(g.Reason), "class", string(g.Class)}
	if g.Status != 0 {
		filter = append(filter, "status_code", strconv.Itoa(g.Status))
	}
	act := func(action store.RedriveAction) string {
		return link("/redrives/new", slices.Concat([]string{"action", string(action)}, filter)...)
	}
	g.All = link("/callbacks", filter...)
	// The class of a poll's last attempt does not explain why the poll has no final result.
	if key := "class." + string(g.Class); p.Has(key) && g.Reason != store.Unresolved {
		g.Means = p.T(key)
	}
	// The cure for the reason is preferred to the cure for the class.
	for _, key := range []string{"dead.cure." + string(g.Reason), "dead.cure." + string(g.Class)} {
		if g.Cure == "" && p.Has(key) {
			g.Cure = p.T(key)
		}
	}
	if p.Can(string(store.ScopeOperate)) {
		g.Redrive, g.One = act(store.RedriveRetry), retryForm(group.OldestID, Root+"/dead")
		if slices.Contains(wrongAddress[:], g.Class) && g.Reason != store.Unresolved {
			g.Address = act(store.RedriveSetURL)
		}
	}
	return g
}
