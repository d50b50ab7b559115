package ui

import (
	"slices"
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// deadPage is the dead callbacks by what they died of.
type deadPage struct {
	base
	// Total is how many there are by the counters.
	Total int64
	// Groups are those whose receiver was not told. Unresolved are polls that ran out of tiers: alerts, and
	// no failures.
	Groups, Unresolved []*deadGroup
}

// A deadGroup is the callbacks that died of one cause.
type deadGroup struct {
	store.DeadGroup
	// Means says what happened, Cure what helps against it; empty: the cause says it all.
	Means, Cure string
	// All lists them. Redrive and Address lead to the forms that act on all of them; empty: that is not
	// offered.
	All, Redrive, Address string
	// Newest is the page of the last one of them.
	Newest string
}

// wrongAddress are the classes that a wrong address leads to.
var wrongAddress = [...]store.Class{
	store.ClassRedirect, store.ClassHTTP4xx, store.ClassGone, store.ClassProtocol, store.ClassDNSNotFound,
	store.ClassConnectRefused,
	store.ClassUnreachable, store.ClassTLSCert, store.ClassBlocked,
}

// dead is GET /ui/dead.
func (u *UI) dead(r *request) (*answer, error) {
	groups, err := u.Store.DeadGroups(r.ctx, r.who.Project)
	if err != nil {
		return nil, err
	}
	counts, err := u.Store.Counts(r.ctx, r.who.Project)
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
	return show("dead", p)
}

func (p *deadPage) group(of *store.DeadGroup) *deadGroup {
	g := &deadGroup{DeadGroup: *of, Newest: link("/callbacks/" + store.CallbackPrefix + of.NewestID)}
	filter := []string{"state", string(store.Dead), "reason", string(g.Reason), "class", string(g.Class)}
	if g.Status != 0 {
		filter = append(filter, "status_code", strconv.Itoa(g.Status))
	}
	act := func(action store.RedriveAction) string {
		return link("/redrives/new", slices.Concat([]string{"action", string(action)}, filter)...)
	}
	g.All = link("/callbacks", filter...)
	// of a poll, what it was asked last says little
	if key := "class." + string(g.Class); p.Has(key) && g.Reason != store.Unresolved {
		g.Means = p.T(key)
	}
	// Where the reason alone says what helps, what the last answer was does not matter.
	for _, key := range []string{"dead.cure." + string(g.Reason), "dead.cure." + string(g.Class)} {
		if g.Cure == "" && p.Has(key) {
			g.Cure = p.T(key)
		}
	}
	if p.Can(string(store.ScopeOperate)) {
		g.Redrive = act(store.RedriveRetry)
		if slices.Contains(wrongAddress[:], g.Class) && g.Reason != store.Unresolved {
			g.Address = act(store.RedriveSetURL)
		}
	}
	return g
}
