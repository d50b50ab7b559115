package ui

import (
	"errors"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// searchPage shows the results of a search that has found more than one kind of object.
type searchPage struct {
	base
	Query string
	Parts []searchPart
}

// A searchPart is one interpretation of the search text, with its results.
type searchPart struct {
	Name string
	// Rows are the newest callbacks. Without rows the scan is not complete: the list behind Link continues
	// it.
	Rows callbackTable
	// Endpoints are the endpoints found. Link is the list of all results.
	Endpoints []store.Endpoint
	Link      string
}

// searchRows bounds the results of each part.
const searchRows = 5

// A lookup is one interpretation of the search text as a filter of callbacks.
type lookup struct {
	name, link string
	filter     store.Filter
}

func notFound(err error) bool { return errors.Is(err, store.ErrNotFound) }

// search is GET /ui/search?q=: an id, a reference, a lock key, a label as NAME=VALUE, or an endpoint. If only
// one interpretation has results, search redirects to them.
func (u *UI) search(r *request) (*response, error) {
	q := r.query("q")
	if len(q) > 256 {
		q, _ = cut(q, 256)
	}
	if q == "" {
		return redirect(Root + "/callbacks")
	}
	if a, err := u.searchID(r, q); a != nil || err != nil {
		return a, err
	}
	p := &searchPage{base: u.base(r, "callbacks", "search.title", "q", q), Query: q}
	lookups := []lookup{
		{"search.byref", link("/orders", "ref", q), store.Filter{Ref: q}},
		{"search.bylock", link("/callbacks", "lock_key", q), store.Filter{LockKey: q}},
	}
	if name, value, ok := strings.Cut(q, "="); ok && name != "" && value != "" {
		to := link("/callbacks", query.LabelPrefix+name, value)
		lookups = append(lookups, lookup{"search.bylabel", to,
			store.Filter{Labels: map[string]string{name: value}}})
	}
	for _, part := range lookups {
		part.filter.Now, part.filter.Limit = r.now, searchRows
		found, err := u.Store.List(r.ctx, r.caller.Project, part.filter)
		if err != nil {
			return nil, err
		}
		if len(found.Callbacks) > 0 || found.Next != nil {
			table := callbackTable{Caption: p.T(part.name)}
			table.Rows, err = u.callbackRows(r, found.Callbacks)
			if err != nil {
				return nil, err
			}
			if part.filter.Ref != "" {
				return redirect(part.link) // an exact reference is what most searches are for
			}
			p.Parts = append(p.Parts, searchPart{Name: table.Caption, Link: part.link, Rows: table})
		}
	}
	endpoints, err := u.Store.Endpoints(r.ctx, r.caller.Project,
		store.EndpointFilter{Search: q, Now: r.now, Limit: searchRows})
	if err != nil {
		return nil, err
	}
	if len(endpoints) > 0 {
		p.Parts = append(p.Parts, searchPart{Name: p.T("search.endpoints"), Endpoints: endpoints,
			Link: link("/endpoints", "q", q)})
	}
	if len(p.Parts) == 1 {
		if only := &p.Parts[0]; len(only.Endpoints) == 1 {
			return redirect(Root + "/endpoints/" + store.EndpointPrefix + only.Endpoints[0].ID)
		} else if len(only.Endpoints) == 0 {
			return redirect(only.Link)
		}
	}
	return show("search", p)
}

// searchID redirects to the object with an id. An id without a prefix can only be a callback's. It returns
// nil and no error if q is not an id.
func (u *UI) searchID(r *request, q string) (*response, error) {
	for _, f := range actionGroups() {
		if _, ok := store.BareID(f.prefix, q); ok && f.path != "" {
			return redirect(Root + f.path + q)
		}
	}
	id := strings.ToUpper(q)
	if len(q) == 26 {
		if _, ok := store.BareID("", id); ok {
			switch _, err := u.Store.Get(r.ctx, r.caller.Project, id); {
			case err == nil:
				return redirect(Root + "/callbacks/" + store.CallbackPrefix + id)
			case !notFound(err):
				return nil, err
			}
		}
	}
	return nil, nil
}
