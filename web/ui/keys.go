package ui

import (
	"errors"
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
// it.
type keyRow struct {
	store.Key
	FullID    string
	Soon, Own bool
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
	return show("keys", p)
}

func (u *UI) askCreateKey(r *request) (*form, error) {
	f := u.form(r, "system", "system.keys.new", keysPath, ".once")
	f.addFacts("frame.project", r.caller.Project)
	scopes := f.ask("scopes", checksField, "system.keys.scopes")
	scopes.Options = choose(&f.base, "system.scope.", "", store.Scopes[:]...)
	name := f.ask("name", lineField, "system.keys.name")
	name.Label, name.Required, name.Suggest = f.T("column.name"), true, "checkout"
	f.Fields = []field{name, scopes, f.askMono("expires_in", "system.keys.expires_in", "365d"), f.askReason()}
	return f, nil
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
	return show("key", &keyPage{base: u.base(r, "system", "system.key.title"), Key: newKeyRow(r, &key),
		Text: text})
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
	return newKeyRow(r, &key), nil
}

// beginKey adds the facts of a key to a form.
func (f *form) beginKey(key *keyRow) {
	var scopes []string
	for _, s := range key.Scopes {
		scopes = append(scopes, f.T("scope."+string(s)))
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
