package ui

import (
	"bytes"
	"encoding/json"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// polls is GET /ui/polls: the callbacks that are polls.
func (u *UI) polls(r *request) (*answer, error) {
	return u.listCallbacks(r, "polls", store.Poll)
}

// A pollPart is what a poll has beside its callback.
type pollPart struct {
	control.PollView
	CanResolve bool
}

func (u *UI) pollOf(r *request, p *callbackPage) (*pollPart, error) {
	view, err := u.Engine.Poll(r.ctx, r.who.Project, p.ID)
	return &pollPart{view, !p.Callback.State.Terminal() && p.Can(string(store.ScopeSend))}, err
}

// Indented writes JSON over several lines.
func (b *base) Indented(text store.JSONText) string { return indented(string(text)) }

// indented writes JSON over several lines; what is not JSON, as it is.
func indented(text string) string {
	if text == "" {
		return ""
	}
	var out bytes.Buffer
	if err := json.Indent(&out, []byte(text), "", "  "); err != nil {
		return text
	}
	return out.String()
}
