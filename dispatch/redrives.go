package dispatch

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// RedriveRows keeps redrives, and does them step by step.
type RedriveRows interface {
	// CreateRedrive returns store.ErrTooManyRedrives if the project has store.MaxOpenRedrives already.
	CreateRedrive(ctx context.Context, r store.Redrive, by store.Actor) (store.Redrive, error)
	// GatherRedrive writes down one more page of what its filter picks.
	GatherRedrive(ctx context.Context, project, id string, now int64) (store.Redrive, error)
	// StepRedrive does it to up to limit callbacks, in one transaction that forgets them.
	StepRedrive(ctx context.Context, id string, limit int, now int64) (store.RedriveStep, error)
	// SetRedrive pauses, resumes or cancels one: store.ErrNotFound, store.ErrTerminal.
	SetRedrive(ctx context.Context, project, id string, to store.RedriveState, now int64, by store.Actor) (store.Redrive, error)
	Redrive(ctx context.Context, project, id string) (store.Redrive, error)
	// RedrivesToDo returns, by project and id, the redrives that are neither paused nor ended, of the first
	// limit projects above after that have any.
	RedrivesToDo(ctx context.Context, after string, limit int) ([]store.Redrive, error)
	// List is for a redrive that is only tried.
	List(ctx context.Context, project string, f store.Filter) (store.Page, error)
}

const (
	// redriveEvery is the pause between two rounds: a step makes little due at once, and live traffic does
	// not wait for it. redriveLook is how often a process tries to take the lease from one that may have
	// died. redriveTurn is the length of a project's turn.
	redriveEvery = 50 * time.Millisecond
	redriveTurn  = 50 * time.Millisecond
	redriveLook  = 200 * time.Millisecond
	redriveLease = "redrive"
	// redriveBatch is the most callbacks of a step, redriveProjects the most projects of a page of redrives.
	redriveBatch    = 200
	redriveProjects = 50
	// redriveRate is the rate of redrives that ask for none: live traffic goes first.
	redriveRate = 1000
)

// A RedriveRequest asks for one action over all that a filter picks.
type RedriveRequest struct {
	Action string
	// Filter picks; Shown is it as its caller wrote it. Without states it picks the dead for a retry, the scheduled for a cancel and a
	// reschedule, both for an address.
	Filter store.Filter
	Shown  store.JSONText
	// Rate is a rate as store.ParseRate reads it; empty: 1,000/s.
	Rate   string
	Ladder string
	URL    string
	// DueAt in Unix milliseconds or Delay, exactly one for a reschedule.
	DueAt *int64
	Delay *time.Duration
	// DryRun only counts: at most Most callbacks, if that is not zero, however many match.
	DryRun  bool
	Most    int64
	Invalid []store.FieldError
}

// Redrive begins one action over all callbacks that the filter picks now, or with DryRun counts them. Whatever is accepted, or comes to
// match, after that is not of it.
func (e *Engine) Redrive(ctx context.Context, project string, q RedriveRequest, by store.Actor) (store.Redrive, error) {
	now := e.clock.now()
	r, err := e.judgeRedrive(project, &q, by, now)
	if err != nil {
		return store.Redrive{}, err
	}
	if q.DryRun {
		r.ID, r.State = "", store.RedriveDone
		r.Matched, _, err = e.countRedrive(ctx, &r, q.Most)
		return r, err
	}
	if r, err = e.o.Store.CreateRedrive(ctx, r, by); err != nil {
		return r, fmt.Errorf("redrive: %w", err)
	}
	e.redrives.wake()
	return r, nil
}

func (e *Engine) judgeRedrive(project string, q *RedriveRequest, by store.Actor, now int64) (store.Redrive, error) {
	f := findings(slices.Clone(q.Invalid))
	r := store.Redrive{
		ID: e.ids.make(timeOf(now)), Project: project, Action: store.RedriveAction(q.Action), Filter: q.Filter, Shown: q.Shown,
		CreatedAt: now, Actor: by.Name, Reason: by.Reason,
	}
	if utf8.RuneCountInString(by.Reason) > MaxPauseReason {
		f.add("reason", "is longer than %d characters", MaxPauseReason)
	}
	if len(q.Shown) <= len("{}") {
		f.add("filter", "is needed, with at least one condition: what is to be redriven")
	}
	var states []store.State
	switch r.Action {
	case store.RedriveRetry:
		states = []store.State{store.Dead}
		switch r.Ladder = store.Ladder(q.Ladder); r.Ladder {
		case "":
			r.Ladder = store.Restart
		case store.Once, store.Restart:
		default:
			f.add("ladder", `is "once" or "restart"`)
		}
	case store.RedriveCancel:
		states = []store.State{store.Scheduled}
	case store.RedriveReschedule:
		states = []store.State{store.Scheduled}
		e.judgeMove(q, &r, now, &f)
	case store.RedriveSetURL:
		states = []store.State{store.Scheduled, store.Dead}
		if err := e.judgeURL(q.URL); err != nil {
			f.add("url", "%s", err)
		}
		r.URL = q.URL
	default:
		f.add("action", `is "retry", "cancel", "reschedule" or "set_url"`)
	}
	if len(r.Filter.States) == 0 {
		r.Filter.States = states
	}
	if q.Rate != "" {
		var err error
		if r.Rate, err = store.ParseRate(q.Rate); err != nil {
			f.add("rate", "%s", err)
		}
	}
	if r.Filter.To == 0 || r.Filter.To > now+1 {
		r.Filter.To = now + 1
	}
	if len(f) > 0 {
		return r, &store.InvalidError{Fields: f}
	}
	return r, nil
}

// judgeMove judges where to a reschedule moves.
func (e *Engine) judgeMove(q *RedriveRequest, r *store.Redrive, now int64, f *findings) {
	switch {
	case (q.DueAt == nil) == (q.Delay == nil):
		f.add("due_at", "give exactly one of due_at and delay")
	case q.DueAt != nil:
		if r.DueAt = max(*q.DueAt, now); r.DueAt > now+MaxDelay.Milliseconds() {
			f.add("due_at", "is more than 400 days away")
		}
	case *q.Delay < 0 || *q.Delay > MaxDelay:
		f.add("delay", "is 0s to 400d")
	default:
		r.Delay = q.Delay.Milliseconds()
	}
}

// SetRedrive pauses a redrive, resumes it or cancels what it has not done yet: store.ErrNotFound, store.ErrTerminal.
func (e *Engine) SetRedrive(ctx context.Context, project, id string, to store.RedriveState, by store.Actor) (store.Redrive, error) {
	r, err := e.o.Store.SetRedrive(ctx, project, id, to, e.clock.now(), by)
	if err != nil {
		return r, fmt.Errorf("redrive %s: %w", id, err)
	}
	e.redrives.wake()
	return r, nil
}
