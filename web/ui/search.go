package ui

import (
	"errors"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (u *UI) searchRoutes() []Route {
	return []Route{still("/search", store.ScopeRead, u.search)}
}

// searchPage is what one word was found as, where that is not one thing.
type searchPage struct {
	base
	Query string
	Parts []searchPart
}

// A searchPart is one way in which the word was understood.
type searchPart struct {
	Name string
	// Rows are the newest; none: nothing was found so far, and the list looks on.
	Rows []*callbackRow
	// Endpoints are those found; Link is where all of it is.
	Endpoints []store.Endpoint
	Link      string
}

// searchShown is how many of each kind the page shows.
const searchShown = 5

func notFound(err error) bool { return errors.Is(err, store.ErrNotFound) }

// search is GET /ui/search?q=: an id, a reference, a lock key, a label as NAME=VALUE, or an endpoint. What is found as one thing alone is
// gone to at once.
func (u *UI) search(r *request) (*answer, error) {
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
	for _, look := range []struct {
		name, link string
		filter     store.Filter
	}{
		{"search.byref", link("/orders", "ref", q), store.Filter{Ref: q}},
		{"search.bylock", link("/callbacks", "lock_key", q), store.Filter{LockKey: q}},
	} {
		if err := u.searchBy(r, p, look.name, look.link, look.filter); err != nil {
			return nil, err
		}
	}
	if name, value, ok := strings.Cut(q, "="); ok && name != "" && value != "" {
		if err := u.searchBy(r, p, "search.bylabel", link("/callbacks", labelPrefix+name, value), store.Filter{Labels: map[string]string{name: value}}); err != nil {
			return nil, err
		}
	}
	endpoints, err := u.Endpoints.Endpoints(r.ctx, r.who.project, store.EndpointFilter{Search: q, Now: r.now, Limit: searchShown})
	if err != nil {
		return nil, err
	}
	if len(endpoints) > 0 {
		p.Parts = append(p.Parts, searchPart{Name: p.T("search.endpoints"), Endpoints: endpoints, Link: link("/endpoints", "q", q)})
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

// searchID goes to what has the id, whatever it is of.
func (u *UI) searchID(r *request, q string) (*answer, error) {
	for _, kind := range []struct{ prefix, path string }{
		{store.CallbackPrefix, "/callbacks/"}, {store.EndpointPrefix, "/endpoints/"}, {store.SchedulePrefix, "/schedules/"}, {store.RedrivePrefix, "/redrives/"},
	} {
		if _, ok := store.BareID(kind.prefix, q); ok {
			return redirect(Root + kind.path + q)
		}
	}
	if id := strings.ToUpper(q); len(q) == 26 {
		if _, ok := store.BareID("", id); ok {
			switch _, err := u.Callbacks.Get(r.ctx, r.who.project, id); {
			case err == nil:
				return redirect(Root + "/callbacks/" + store.CallbackPrefix + id)
			case !notFound(err):
				return nil, err
			}
		}
	}
	return nil, nil
}

func (u *UI) searchBy(r *request, p *searchPage, name, link string, f store.Filter) error {
	f.Now, f.Limit = r.now, searchShown
	page, err := u.Callbacks.List(r.ctx, r.who.project, f)
	if err != nil {
		return err
	}
	if len(page.Callbacks) == 0 && page.Next == nil {
		return nil
	}
	part := searchPart{Name: p.T(name), Link: link}
	for i := range page.Callbacks {
		part.Rows = append(part.Rows, newRow(&page.Callbacks[i], r.now))
	}
	p.Parts = append(p.Parts, part)
	return nil
}
