package control

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// errUncounted: there are more than can be counted in the time of one request.
var errUncounted = errors.New("more callbacks match than can be counted at once; narrow the filter, or " +
	"begin without dry_run")

// CountRedrive judges a redrive and counts the callbacks that it would be done to now: at most q.Most, if
// that is not zero; more says that there are others. It reads no more rows than it takes to know that. Its
// error is a *store.InvalidError, or the store's.
func (ct *Controller) CountRedrive(ctx context.Context, project string,
	q RedriveRequest) (matched int64, more bool, err error) {
	r, err := ct.judgeRedrive(project, &q, store.Actor{}, ct.clock.Now())
	if err != nil {
		return 0, false, err
	}
	return ct.countRedrive(ctx, &r, q.Most)
}

const (
	// dryRunTime bounds how long a redrive that is only tried counts, countPage how many callbacks are read
	// at once for it.
	dryRunTime = 20 * time.Second
	countPage  = 500
)

// countRedrive counts what a redrive would be done to, up to most; zero: all of it.
func (ct *Controller) countRedrive(ctx context.Context, r *store.Redrive,
	most int64) (matched int64, more bool, err error) {
	if most <= 0 {
		most = math.MaxInt64 - 1
	}
	started := time.Now()
	f := r.Filter
	f.Now = r.CreatedAt
	for {
		f.Limit = countPage
		// labels are compared after rows are read: the last ones that are wanted may be far apart
		if len(f.Labels) == 0 {
			f.Limit = int(min(countPage, most+1-matched))
		}
		page, err := ct.o.Store.List(ctx, r.Project, f)
		if err != nil {
			return 0, false, fmt.Errorf("count what matches: %w", err)
		}
		matched += int64(len(page.Callbacks))
		switch {
		case matched > most:
			return most, true, nil
		case page.Next == nil:
			return matched, false, nil
		case time.Since(started) > dryRunTime:
			return 0, false, accept.Invalid("filter", errUncounted.Error())
		}
		f.After = page.Next
	}
}

const (
	// redriveEvery is the pause between two rounds: a step makes little due at once, and live traffic does
	// not wait for it. redriveLook is how often a process tries to take the lease from one that may have
	// died. redriveTurn is the length of a project's turn.
	redriveEvery = 50 * time.Millisecond
	redriveTurn  = 50 * time.Millisecond
	redriveLook  = 200 * time.Millisecond
	redriveIdle  = 5 * time.Second
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
	// Filter picks; Shown is it as its caller wrote it. Without states it picks the dead for a retry, the
	// scheduled for a cancel and a reschedule, both for an address.
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

// Redrive begins one action over all callbacks that the filter picks now, or with DryRun counts them.
// Whatever is accepted, or comes to match, after that is not of it.
func (ct *Controller) Redrive(ctx context.Context, project string, q RedriveRequest,
	by store.Actor) (store.Redrive, error) {
	now := ct.clock.Now()
	r, err := ct.judgeRedrive(project, &q, by, now)
	if err != nil {
		return store.Redrive{}, err
	}
	if q.DryRun {
		r.ID, r.State = "", store.RedriveDone
		r.Matched, _, err = ct.countRedrive(ctx, &r, q.Most)
		return r, err
	}
	r, err = ct.o.Store.CreateRedrive(ctx, r, by)
	if err != nil {
		return r, fmt.Errorf("redrive: %w", err)
	}
	part.Wake(ct.redrives.woken)
	return r, nil
}

func (ct *Controller) judgeRedrive(project string, q *RedriveRequest, by store.Actor,
	now int64) (store.Redrive, error) {
	f := accept.Findings(slices.Clone(q.Invalid))
	r := store.Redrive{
		ID: ct.ids.New(clock.TimeOf(now)), Project: project, Action: store.RedriveAction(q.Action),
		Filter: q.Filter, Shown: q.Shown,
		CreatedAt: now, Actor: by.Name, Reason: by.Reason,
	}
	checkReason(by, &f)
	if len(q.Shown) <= len("{}") {
		f.Add("filter", "is needed, with at least one condition: what is to be redriven")
	}
	var states []store.State
	switch r.Action {
	case store.RedriveRetry:
		states = []store.State{store.Dead}
		r.Ladder = store.Ladder(q.Ladder)
		switch r.Ladder {
		case "":
			r.Ladder = store.Restart
		case store.Once, store.Restart:
		default:
			f.Add("ladder", `is "once" or "restart"`)
		}
	case store.RedriveCancel:
		states = []store.State{store.Scheduled}
	case store.RedriveReschedule:
		states = []store.State{store.Scheduled}
		r.DueAt = judgeMove(q.DueAt, q.Delay, now, &f)
		if q.Delay != nil {
			r.Delay = q.Delay.Milliseconds()
		}
	case store.RedriveSetURL:
		states = []store.State{store.Scheduled, store.Dead}
		if err := ct.accept.JudgeURL(q.URL); err != nil {
			f.Add("url", "%s", err)
		}
		r.URL = q.URL
	default:
		f.Add("action", `is "retry", "cancel", "reschedule" or "set_url"`)
	}
	if len(r.Filter.States) == 0 {
		r.Filter.States = states
	}
	if q.Rate != "" {
		var err error
		r.Rate, err = store.ParseRate(q.Rate)
		if err != nil {
			f.Add("rate", "%s", err)
		}
	}
	if r.Filter.To == 0 || r.Filter.To > now+1 {
		r.Filter.To = now + 1
	}
	return r, f.Err()
}

// judgeMove judges where to a reschedule moves: to a due time, of which it returns the one that is meant, or
// by a delay.
func judgeMove(due *int64, delay *time.Duration, now int64, f *accept.Findings) (at int64) {
	switch {
	case (due == nil) == (delay == nil):
		f.Add("due_at", "give exactly one of due_at and delay")
	case due != nil:
		at = max(*due, now)
		if at > now+accept.MaxDelay.Milliseconds() {
			f.Add("due_at", "is more than 400 days away")
		}
	case *delay < 0 || *delay > accept.MaxDelay:
		f.Add("delay", "is 0s to 400d")
	}
	return at
}

// SetRedrive pauses a redrive, resumes it or cancels what it has not done yet: store.ErrNotFound,
// store.ErrTerminal.
func (ct *Controller) SetRedrive(ctx context.Context, project, id string, to store.RedriveState,
	by store.Actor) (store.Redrive, error) {
	r, err := ct.o.Store.SetRedrive(ctx, project, id, to, ct.clock.Now(), by)
	if err != nil {
		return r, fmt.Errorf("redrive %s: %w", id, err)
	}
	part.Wake(ct.redrives.woken)
	return r, nil
}
