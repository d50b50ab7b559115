package ui

import (
	"cmp"
	"errors"
	"slices"
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// timelineInto fills in a part of what happened: the newest attempts, which were read already, or those
// before the one that the address names. Acts are shown beside the attempts of their time.
func (u *UI) timelineInto(r *request, p *callbackPage, newest []store.Attempt) error {
	attempts := newest
	acts := store.AuditFilter{Object: p.ID, Limit: shownAudit}
	if n, err := strconv.Atoi(r.query("before")); err == nil && n > 1 {
		newer, err := u.Callbacks.Attempt(r.ctx, r.who.project, p.ID, n)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err == nil {
			p.NewestLink, acts.To = p.With("before", ""), newer.StartedAt
			attempts, err = u.Callbacks.Attempts(r.ctx, r.who.project, p.ID, n, shownAttempts)
			if err != nil {
				return err
			}
		}
	}
	if n := len(attempts); n > 0 && attempts[n-1].Number > 1 {
		oldest := &attempts[n-1]
		p.Older, p.OlderLink = oldest.Number-1, p.With("before", strconv.Itoa(oldest.Number))
		acts.From = oldest.StartedAt
	}
	audit, err := u.Audit.Audit(r.ctx, r.who.project, acts)
	if err != nil {
		return err
	}
	p.timeline(attempts, audit.Entries)
	return nil
}

// timeline puts in order what happened, the newest first, as attempts and audit are.
func (p *callbackPage) timeline(attempts []store.Attempt, audit []store.AuditEntry) {
	if p.FinishedAt != 0 && p.NewestLink == "" {
		kind := map[store.State]string{store.Succeeded: "good", store.Dead: "bad"}[p.Callback.State]
		p.Timeline = append(p.Timeline, timelineItem{
			At: p.FinishedAt, Kind: kind,
			What: p.T("timeline.ended", "state", p.T("state."+string(p.Callback.State))),
		})
	}
	for len(attempts) > 0 || len(audit) > 0 {
		if len(audit) == 0 || len(attempts) > 0 && attempts[0].StartedAt >= audit[0].At {
			a := &attempts[0]
			part := newAttempt(a, p.Kind, shownBody, p.FullID)
			p.Timeline = append(p.Timeline, timelineItem{
				At: a.StartedAt, Kind: part.Kind(), What: p.T("timeline.attempt", "number", a.Number),
				Attempt: &part,
			})
			attempts = attempts[1:]
			continue
		}
		p.Timeline = append(p.Timeline, timelineItem{
			At: audit[0].At, Kind: "busy", What: p.Or("action.", audit[0].Action), Audit: &audit[0],
		})
		audit = audit[1:]
	}
	if p.Older == 0 {
		p.Timeline = append(p.Timeline, timelineItem{At: p.CreatedAt, What: p.T("timeline.created")})
	}
	slices.SortStableFunc(p.Timeline, func(a, b timelineItem) int { return cmp.Compare(b.At, a.At) })
}

// attemptPage is one attempt with all that was kept of it.
type attemptPage struct {
	base
	FullID  string
	Attempt *attemptPart
}

// attempt is GET /ui/callbacks/{id}/attempts/{number}.
func (u *UI) attempt(r *request) (*answer, error) {
	id, err := r.bareID(store.CallbackPrefix)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(r.params["number"])
	if err != nil {
		return nil, store.ErrNotFound
	}
	c, err := u.Callbacks.Get(r.ctx, r.who.project, id)
	if err != nil {
		return nil, err
	}
	a, err := u.Callbacks.Attempt(r.ctx, r.who.project, id, number)
	if err != nil {
		return nil, err
	}
	part := newAttempt(&a, c.Kind, len(a.ResponseBody), store.CallbackPrefix+id)
	return show("attempt", &attemptPage{
		base:   u.base(r, "callbacks", "attempt.title", "number", number),
		FullID: store.CallbackPrefix + id, Attempt: &part,
	})
}
