package ui

import (
	"cmp"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// A creator is what created a callback, in words. Link is its page, or "".
type creator struct{ Text, Link string }

// creators returns the creators of callbacks by Callback.CreatedBy. An unknown creator is the zero value.
func (u *UI) creators(r *request, b *base, callbacks []store.Callback) (map[string]creator, error) {
	all := make(map[string]creator)
	var names map[string]string
	for i := range callbacks {
		by, id := callbacks[i].CreatedBy, query.CreatorID(&callbacks[i])
		_, scheduled := store.BareID(store.SchedulePrefix, id)
		_, polled := store.BareID(store.CallbackPrefix, id)
		switch {
		case scheduled:
			all[by] = creator{b.T("creator.schedule"), Root + "/schedules/" + id}
		case polled:
			all[by] = creator{b.T("creator.poll"), Root + "/callbacks/" + id}
		case id == "relay": // rows of outbox tables, by a relay in this process
			all[by] = creator{b.T("menu.relay"), Root + "/relay"}
		case id == "admin key":
			all[by] = creator{Text: b.T("creator.admin")}
		case by == id:
			all[by] = creator{Text: b.actorText(id)}
		default:
			if names == nil {
				var err error
				names, err = u.keyNames(r)
				if err != nil {
					return nil, err
				}
			}
			all[by] = creator{Text: b.T("creator.key", "name", cmp.Or(names[by], id))}
		}
	}
	return all, nil
}

// keyNames returns the names of the project's keys by their bare ids.
func (u *UI) keyNames(r *request) (map[string]string, error) {
	keys, err := u.Engine.Keys(r.ctx, r.caller.Project)
	names := make(map[string]string, len(keys))
	for i := range keys {
		names[keys[i].ID] = keys[i].Name
	}
	return names, err
}
