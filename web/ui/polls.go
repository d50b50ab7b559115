package ui

import (
	"bytes"
	"encoding/json"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// polls is GET /ui/polls: the list of callbacks of the kind poll.
func (u *UI) polls(r *request) (*response, error) {
	return u.listCallbacks(r, "polls", store.Poll)
}

// readSeen reads the last attempt of each poll in a list.
func (u *UI) readSeen(r *request, rows []*callbackRow) error {
	byID := make(map[string]*callbackRow, len(rows))
	ids := make([]string, len(rows))
	for i, row := range rows {
		ids[i], byID[row.ID] = row.ID, row
	}
	attempts, err := u.Store.AttemptsOf(r.ctx, r.caller.Project, ids, 1)
	for i := range attempts {
		byID[attempts[i].CallbackID].Seen = &attempts[i]
	}
	return err
}

// pollOf reads the part of a callback's page that only polls have.
func (u *UI) pollOf(r *request, p *callbackPage) (*control.PollView, error) {
	view, err := u.Engine.Poll(r.ctx, r.caller.Project, p.ID)
	return &view, err
}

// Indented formats JSON with indentation.
func (b *base) Indented(text store.JSONText) string { return indented(string(text)) }

// indented formats JSON with indentation. It returns a text that is not JSON unchanged.
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
