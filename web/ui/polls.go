package ui

import (
	"bytes"
	"encoding/json"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (u *UI) pollRoutes() []Route {
	return []Route{page("/polls", u.polls)}
}

// polls is GET /ui/polls: the callbacks that are polls.
func (u *UI) polls(r *request) (*answer, error) {
	return u.listCallbacks(r, "polls", "/polls", new(store.Poll))
}

// A pollPart is what a poll has beside its callback.
type pollPart struct {
	Outcome store.PollOutcome
	// ResultID is the callback that tells the result, with its prefix; empty: none does yet.
	ResultID string
	// Rule and Context are JSON, written over several lines.
	Rule, Context, Data string
	Errors              int
	CanResolve          bool
}

func (u *UI) pollOf(r *request, p *callbackPage) (*pollPart, error) {
	view, err := u.Engine.Poll(r.ctx, r.who.Project, p.ID)
	if err != nil {
		return nil, err
	}
	part := &pollPart{
		Outcome: view.Callback.PollOutcome(), Rule: indented(string(view.Rule)), Context: indented(string(view.Detail.Context)),
		Data: indented(string(view.Detail.Data)), Errors: view.Detail.Errors,
		CanResolve: !p.Callback.State.Terminal() && p.Can(string(store.ScopeSend)),
	}
	if view.Detail.ResultID != "" {
		part.ResultID = store.CallbackPrefix + view.Detail.ResultID
	}
	return part, nil
}

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
