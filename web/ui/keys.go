package ui

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

const keysPath = systemPath + "/keys"

// endsSoon is how long before a key's expiry the page shows a warning.
const endsSoon = 14 * 24 * time.Hour

// keysPage is the list of the project's keys, newest first: the valid ones or the ended ones.
type keysPage struct {
	base
	Chips []chip
	Ended bool
	Rows  []*keyRow
	Next  string
}

// A keyRow is a key. Soon is true if it expires within endsSoon. Own is true if the viewer has signed in with
// it. Endpoint is the name of the endpoint that the key is bound to, EndpointPath its page. Endpoint is the
// id if the endpoint was deleted, and empty for a key of the whole project.
type keyRow struct {
	store.Key
	FullID                 string
	Soon, Own              bool
	Endpoint, EndpointPath string
}

func newKeyRow(r *request, k *store.Key) *keyRow {
	row := &keyRow{Key: *k, FullID: store.KeyPrefix + k.ID}
	row.Own = r.caller.Key != nil && r.caller.Key.ID == k.ID
	row.Soon = k.Valid(r.now) && k.ExpiresAt != 0 && k.ExpiresAt < r.now+endsSoon.Milliseconds()
	return row
}

// keys is GET /ui/system/keys.
func (u *UI) keys(r *request) (*response, error) {
	all, err := u.Engine.Keys(r.ctx, r.caller.Project)
	if err != nil {
		return nil, err
	}
	p := &keysPage{base: u.base(r, "system", "system.keys.title"), Ended: r.query("ended") == "true"}
	var counts [2]int64
	after, _ := store.BareID("", r.query("cursor"))
	for i := range all {
		ended := !all[i].Valid(r.now)
		if ended {
			counts[1]++
		} else {
			counts[0]++
		}
		switch {
		case ended != p.Ended, after != "" && all[i].ID >= after:
		case len(p.Rows) < pageSize:
			p.Rows = append(p.Rows, newKeyRow(r, &all[i]))
		case p.Next == "":
			p.Next = p.With("cursor", p.Rows[pageSize-1].ID)
		}
	}
	p.Chips = []chip{
		{Text: p.T("system.keys.valid"), Link: p.With("ended", ""), Count: counts[0], Counted: true,
			Current: !p.Ended},
		{Text: p.T("system.keys.ended"), Link: p.With("ended", "true"), Count: counts[1], Counted: true,
			Current: p.Ended},
	}
	if err := u.nameKeyEndpoints(r, p.Rows...); err != nil {
		return nil, err
	}
	return show("keys", p)
}

// nameKeyEndpoints sets the endpoints of keys that are bound to one.
func (u *UI) nameKeyEndpoints(r *request, rows ...*keyRow) error {
	var ids []string
	for _, row := range rows {
		if row.EndpointID != "" {
			ids = append(ids, store.EndpointPrefix+row.EndpointID)
		}
	}
	labels, err := u.endpointLabels(r, ids)
	for _, row := range rows {
		if row.EndpointID == "" {
			continue
		}
		id := store.EndpointPrefix + row.EndpointID
		row.Endpoint = cmp.Or(labels[id], id)
		if labels[id] != "" {
			row.EndpointPath = Root + "/endpoints/" + id
		}
	}
	return err
}

// keyEndpoints is how many endpoints the form of a key offers, the newest ones. The link on an endpoint's
// page offers its own.
const keyEndpoints = 200

// askEndpoint returns the field for the endpoint that a new key is bound to.
func (f *form) askEndpoint(r *request) (field, error) {
	x := f.ask("endpoint", choiceField, "system.keys.endpoint")
	found, err := f.ui.Store.Endpoints(r.ctx, r.caller.Project, store.EndpointFilter{Limit: keyEndpoints})
	if err != nil {
		return x, err
	}
	chosen := cmp.Or(r.value("endpoint"), r.query("endpoint"))
	if id, ok := store.BareID(store.EndpointPrefix, chosen); ok &&
		!slices.ContainsFunc(found, func(ep store.Endpoint) bool { return ep.ID == id }) {
		ep, err := f.ui.Store.Endpoint(r.ctx, r.caller.Project, id)
		switch {
		case err == nil:
			found = append(found, ep)
		case !errors.Is(err, store.ErrNotFound):
			return x, err
		}
	}
	x.Options = []option{{Text: f.T("system.keys.endpoint.none")}}
	for _, ep := range found {
		row := newEndpointRow(ep)
		x.Options = append(x.Options, option{Value: row.FullID, Text: row.Label, Data: true,
			Chosen: row.FullID == chosen})
	}
	slices.SortFunc(x.Options[1:], func(a, b option) int { return strings.Compare(a.Text, b.Text) })
	return x, nil
}

// keyEndpoint returns the bare id of the endpoint that the form chose.
func (u *UI) keyEndpoint(r *request, id string) (string, error) {
	bare, ok := store.BareID(store.EndpointPrefix, id)
	err := store.ErrNotFound
	if ok {
		_, err = u.Store.Endpoint(r.ctx, r.caller.Project, bare)
	}
	if errors.Is(err, store.ErrNotFound) {
		return "", invalid("endpoint", "is not an endpoint of this project")
	}
	return bare, err
}

// askCreateKey asks for a key of the project, or of one endpoint: the parameter endpoint.
func (u *UI) askCreateKey(r *request) (*form, error) {
	f := u.form(r, "system", "system.keys.new", keysPath, ".once")
	f.addFacts("frame.project", r.caller.Project)
	scopes := f.ask("scopes", checksField, "system.keys.scopes")
	var likely store.Scope
	if r.query("endpoint") != "" {
		likely = store.ScopeRead
	}
	scopes.Options = choose(&f.base, "system.scope.", likely, append(store.Scopes[:], store.ScopeResend)...)
	name := f.ask("name", lineField, "system.keys.name")
	name.Label, name.Required, name.Suggest = f.T("column.name"), true, "checkout"
	endpoint, err := f.askEndpoint(r)
	f.Fields = []field{name, endpoint, scopes, f.askMono("expires_in", "system.keys.expires_in", "365d"),
		f.askReason()}
	return f, err
}

// keyPage shows the text of a new key. No other page shows it.
type keyPage struct {
	base
	Key  *keyRow
	Text string
}

// createKey creates a key and shows its text. An invalid expiry goes to the engine in q.Invalid, so that one
// response reports all invalid fields.
func (u *UI) createKey(r *request) (*response, error) {
	q := control.KeyRequest{Name: r.value("name"), Scopes: r.form["scopes"]}
	if id := r.value("endpoint"); id != "" {
		var err error
		q.EndpointID, err = u.keyEndpoint(r, id)
		if err != nil {
			return nil, err
		}
	}
	expires, err := r.duration("expires_in")
	var wrong *store.InvalidError
	q.ExpiresIn = expires
	if errors.As(err, &wrong) {
		q.Invalid = wrong.Fields
	}
	key, text, err := u.Engine.CreateKey(r.ctx, r.caller.Project, q, r.by())
	if err != nil {
		return nil, err
	}
	row := newKeyRow(r, &key)
	if err := u.nameKeyEndpoints(r, row); err != nil {
		return nil, err
	}
	return show("key", &keyPage{base: u.base(r, "system", "system.key.title"), Key: row, Text: text})
}

func (u *UI) keyActs() []Route {
	return actsOn(u, kind[*keyRow]{
		path: "/system/keys/:id/", texts: "system.keys.", section: "system", prefix: store.KeyPrefix,
		find: u.findKey, begin: (*form).beginKey, page: func(*request) string { return keysPath },
	}, []actOn[*keyRow]{
		{name: "revoke", scope: store.ScopeAdmin, ask: (*form).askRevokeKey, respond: u.revokeKey,
			danger: true},
	})
}

func (u *UI) findKey(r *request, id string) (*keyRow, error) {
	key, err := query.FindKey(r.ctx, u.Engine, r.caller.Project, id)
	if err != nil {
		return nil, err
	}
	row := newKeyRow(r, &key)
	return row, u.nameKeyEndpoints(r, row)
}

// beginKey adds the facts of a key to a form.
func (f *form) beginKey(key *keyRow) {
	var scopes []string
	for _, s := range key.Scopes {
		scopes = append(scopes, f.T("scope."+string(s)))
	}
	if key.Endpoint != "" {
		f.addFacts("column.endpoint", key.Endpoint)
	}
	f.addFacts("column.name", key.Name, "column.id", key.FullID, "system.keys.hint", "…"+key.Hint,
		"system.keys.used", f.Absolute(key.LastUsedAt), "system.keys.scopes", strings.Join(scopes, ", "))
}

func (f *form) askRevokeKey(key *keyRow) error {
	used := "system.keys.revoke.used"
	if key.LastUsedAt == 0 {
		used = "system.keys.revoke.unused"
	}
	f.Effects = append(f.Effects, f.T(used))
	if key.Own {
		f.Effects = append(f.Effects, f.T("system.keys.revoke.own"))
	}
	return nil
}

// revokeKey revokes a key. The engine accepts a second revocation; this form reports it as a conflict.
func (u *UI) revokeKey(r *request, id string) (*response, error) {
	key, err := u.findKey(r, id)
	if err != nil {
		return nil, err
	}
	if key.RevokedAt != 0 {
		return nil, store.ErrTerminal
	}
	if err := u.Engine.RevokeKey(r.ctx, r.caller.Project, id, r.by()); err != nil {
		return nil, err
	}
	return u.returnDone(r, keysPath, r.lang.text("system.keys.revoke.done", "name", key.Name))
}
