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
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// errUncounted: counting would take longer than dryRunTime.
var errUncounted = accept.Invalid("filter", "matches too many callbacks to count in one request; narrow the "+
	"filter, or start without dry_run")

// CountRedrive validates a redrive and counts the callbacks that it would change now. If q.Most is not zero
// it counts at most that many, and more reports that there are others. Without labels in the filter it reads
// no more rows than that takes. Its error is a *store.InvalidError or the store's.
func (ct *Controller) CountRedrive(ctx context.Context, project string,
	q RedriveRequest) (matched int64, more bool, err error) {
	r, err := ct.draftRedrive(project, &q, store.Actor{}, ct.clock.Now())
	if err != nil {
		return 0, false, err
	}
	return ct.countRedrive(ctx, &r, q.Most)
}

const (
	// dryRunTime bounds the time of a count. countPage is how many callbacks one query reads.
	dryRunTime = 20 * time.Second
	countPage  = 500
)

// countRedrive counts the callbacks that a redrive would change, up to most; zero: all of them.
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
		// The limit of a page counts rows before their labels are compared. With labels, a small limit could
		// need many pages to find the last matches.
		if len(f.Labels) == 0 {
			f.Limit = int(min(countPage, most+1-matched))
		}
		page, err := ct.o.Store.List(ctx, r.Project, f)
		if err != nil {
			return 0, false, fmt.Errorf("count matching callbacks: %w", err)
		}
		matched += int64(len(page.Callbacks))
		switch {
		case matched > most:
			return most, true, nil
		case page.Next == nil:
			return matched, false, nil
		case time.Since(started) > dryRunTime:
			return 0, false, errUncounted
		}
		f.After = page.Next
	}
}

const (
	// redrivePause is the pause between two rounds. It keeps the number of callbacks that become due at once
	// small, so that live traffic is not delayed. redriveTurn is the length of a project's turn. redriveRetry
	// is the pause before the first round, and after an error or a lease that another process has.
	// redriveIdle is how often a process looks for new redrives.
	redrivePause = 50 * time.Millisecond
	redriveTurn  = 50 * time.Millisecond
	redriveRetry = 200 * time.Millisecond
	redriveIdle  = 5 * time.Second
	redriveLease = "redrive"
	// redriveBatch is the most callbacks of a step, redriveProjects the most projects whose redrives one
	// query reads.
	redriveBatch    = 200
	redriveProjects = 50
	// redriveRate is the default rate, in callbacks per second.
	redriveRate = 1000
)

// A RedriveRequest describes one action on all callbacks that a filter matches.
type RedriveRequest struct {
	Action string
	// Filter selects callbacks; FilterText is the filter's text as its caller wrote it. Without states it
	// selects dead callbacks for a retry, scheduled ones for a cancel and a reschedule, and both for a change
	// of the URL.
	Filter     store.Filter
	FilterText store.JSONText
	// Rate is in the format of store.ParseRate; empty: 1,000/s.
	Rate   string
	Ladder string
	URL    string
	// A reschedule has exactly one of DueAt, in Unix milliseconds, and Delay.
	DueAt *int64
	Delay *time.Duration
	// DryRun counts the callbacks and changes nothing. If Most is not zero it counts at most that many.
	DryRun  bool
	Most    int64
	Invalid []store.FieldError
}

// Redrive starts an action on all callbacks that the filter matches now; with DryRun it counts them.
// Callbacks that are accepted or begin to match later are not included.
func (ct *Controller) Redrive(ctx context.Context, project string, q RedriveRequest,
	by store.Actor) (store.Redrive, error) {
	now := ct.clock.Now()
	r, err := ct.draftRedrive(project, &q, by, now)
	if err != nil {
		return store.Redrive{}, err
	}
	if q.DryRun {
		r.ID, r.State = "", store.RedriveDone
		r.Matched, _, err = ct.countRedrive(ctx, &r, q.Most)
		return r, err
	}
	return ct.createRedrive(ctx, r, by)
}

func (ct *Controller) createRedrive(ctx context.Context, r store.Redrive,
	by store.Actor) (store.Redrive, error) {
	r, err := ct.o.Store.CreateRedrive(ctx, r, by)
	if err != nil {
		return r, fmt.Errorf("redrive: %w", err)
	}
	process.Wake(ct.redrives.woken)
	return r, nil
}

// deleteByRedrive starts the redrive that deletes an endpoint. It returns one without an ID if the endpoint
// has no open callback.
func (ct *Controller) deleteByRedrive(ctx context.Context, project, id string,
	by store.Actor) (store.Redrive, error) {
	var f accept.Findings
	checkReason(by, &f)
	if err := f.Err(); err != nil {
		return store.Redrive{}, err
	}
	if _, err := ct.o.Store.Endpoint(ctx, project, id); err != nil {
		return store.Redrive{}, fmt.Errorf("delete endpoint %s: %w", id, err)
	}
	now := ct.clock.Now()
	r := store.Redrive{
		ID: ct.ids.New(clock.TimeOf(now)), Project: project, Action: store.RedriveDelete, CreatedAt: now,
		ApprovalAbove: int64(ct.o.ApprovalAbove),
		Filter: store.Filter{
			EndpointID: id, States: []store.State{store.Scheduled, store.Attempting}, To: now + 1,
		},
		FilterText: store.JSONText(`{"endpoint":"` + store.EndpointPrefix + id +
			`","state":["scheduled","attempting"]}`),
	}
	switch open, _, err := ct.countRedrive(ctx, &r, 1); {
	case errors.Is(err, errUncounted): // the redrive takes the time to count
	case err != nil || open == 0:
		return store.Redrive{}, err
	}
	return ct.createRedrive(ctx, r, by)
}

// draftRedrive validates a request and returns the redrive to store. Its filter ends at now.
func (ct *Controller) draftRedrive(project string, q *RedriveRequest, by store.Actor,
	now int64) (store.Redrive, error) {
	f := accept.Findings(slices.Clone(q.Invalid))
	r := store.Redrive{
		ID: ct.ids.New(clock.TimeOf(now)), Project: project, Action: store.RedriveAction(q.Action),
		Filter: q.Filter, FilterText: q.FilterText,
		CreatedAt: now, Actor: by.Name, Reason: by.Reason, ApprovalAbove: int64(ct.o.ApprovalAbove),
	}
	checkReason(by, &f)
	if len(q.FilterText) <= len("{}") {
		f.Add("filter", "is required, with at least one condition")
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
			f.Add("ladder", `must be "once" or "restart"`)
		}
	case store.RedriveCancel:
		states = []store.State{store.Scheduled}
	case store.RedriveReschedule:
		states = []store.State{store.Scheduled}
		r.DueAt = checkMove(q.DueAt, q.Delay, now, &f)
		if q.Delay != nil {
			r.Delay = q.Delay.Milliseconds()
		}
	case store.RedriveSetURL:
		states = []store.State{store.Scheduled, store.Dead}
		if q.URL == "" {
			f.Add("url", "is required for set_url")
		} else if err := ct.accept.CheckURL(q.URL); err != nil {
			f.Add("url", "%s", err)
		}
		r.URL = q.URL
	default:
		f.Add("action", `must be "retry", "cancel", "reschedule" or "set_url"`)
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

// checkMove validates a reschedule to a due time or by a delay. It returns the due time in Unix milliseconds,
// at least now; zero for a delay.
func checkMove(due *int64, delay *time.Duration, now int64, f *accept.Findings) (at int64) {
	switch {
	case (due == nil) == (delay == nil):
		f.Add("due_at", "give exactly one of due_at and delay")
	case due != nil:
		at = max(*due, now)
		if at > now+accept.MaxDelay.Milliseconds() {
			f.Add("due_at", "is more than 400 days away")
		}
	case *delay < 0 || *delay > accept.MaxDelay:
		f.Add("delay", "must be 0s to 400d")
	}
	return at
}

// SetRedrive pauses, resumes, approves or cancels a redrive. A cancel leaves the callbacks that are already
// changed as they are. Its errors include store.ErrNotFound and store.ErrTerminal.
func (ct *Controller) SetRedrive(ctx context.Context, project, id string, to store.RedriveState,
	by store.Actor) (store.Redrive, error) {
	r, err := ct.o.Store.SetRedrive(ctx, project, id, to, ct.clock.Now(), by)
	if err != nil {
		return r, fmt.Errorf("redrive %s: %w", id, err)
	}
	process.Wake(ct.redrives.woken)
	return r, nil
}
