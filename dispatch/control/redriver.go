package control

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A redriver works on redrives, in one process at a time: the leader of a lease in SQL. In each round every
// project with open redrives gets one turn of redriveTurn, so that no project can delay the others. A turn
// works on the project's redrives one after another, and begins after the redrive at which the last turn
// stopped.
//
// The lease only saves work. StepRedrive of the store locks the redrive and removes the ids that it handles
// in the same transaction. So no callback is changed twice, and a crash loses nothing: the next leader
// continues after the last step.
type redriver struct {
	ct    *Controller
	woken chan struct{}
	// budgets are those of the redrives of the last round, by id.
	budgets map[string]*redriveBudget
	// last is the id of the redrive at which a project's last turn stopped, by project.
	last   map[string]string
	leader *index.Leader
}

// A redriveBudget is a token bucket: how many callbacks of a redrive may change now.
type redriveBudget struct {
	callbacks float64
	at        time.Time
}

func newRedriver(ct *Controller) *redriver {
	return &redriver{
		ct: ct, leader: ct.index.NewLeader(redriveLease, ct.o.Times.Leader), woken: make(chan struct{}, 1),
		budgets: make(map[string]*redriveBudget), last: make(map[string]string),
	}
}

// run works on redrives until ctx ends. A process that shares SQL polls for redrives every redriveIdle. An
// embedded process creates every redrive, so it only waits to be woken, unless an approval may expire.
func (d *redriver) run(ctx context.Context) {
	l := process.Loop{
		Every: redriveIdle, AtOnce: true, Wake: d.woken, Log: d.ct.log,
		Failing: "redrives failed, retrying", Recovered: "redrives continue",
	}
	if d.ct.o.Embedded {
		l.Every = 0
	}
	waited := false
	l.Run(ctx, func(ctx context.Context) (time.Duration, error) {
		if !waited { // the first round follows after redriveRetry, not after Every
			waited = true
			return redriveRetry, nil
		}
		pause, err := d.round(ctx)
		if err != nil {
			pause = redriveRetry
		}
		return pause, err
	})
}

// round gives each project its turn and returns the pause until the next round. Zero: there are no open
// redrives. A redrive that awaits its approval expires even if the setting no longer asks for approvals.
func (d *redriver) round(ctx context.Context) (pause time.Duration, err error) {
	budgets, last := make(map[string]*redriveBudget), make(map[string]string)
	var errs []error
	after, more := "", true
	for more && ctx.Err() == nil {
		page, err := d.ct.o.Store.RedrivesToDo(ctx, after, redriveProjects)
		if err != nil {
			return redriveRetry, errors.Join(append(errs, err)...)
		}
		projects := 0
		for len(page) > 0 && ctx.Err() == nil {
			after = page[0].Project
			n := slices.IndexFunc(page, func(r store.Redrive) bool { return r.Project != after })
			if n < 0 {
				n = len(page)
			}
			if leads, err := d.leader.Lead(ctx); err != nil || !leads {
				return redriveRetry, errors.Join(append(errs, err)...)
			}
			errs = append(errs, d.turn(ctx, page[:n]))
			for i := range page[:n] {
				budgets[page[i].ID] = d.budgets[page[i].ID]
			}
			last[after] = d.last[after]
			page = page[n:]
			projects++
		}
		more = projects == redriveProjects
	}
	d.budgets, d.last = budgets, last // the entries of ended and paused redrives are dropped
	awaiting, err := d.ct.o.Store.ExpireRedrives(ctx, d.ct.clock.Now(), redriveProjects)
	errs = append(errs, err)
	switch {
	case len(budgets) > 0:
		pause = redrivePause
	case awaiting:
		pause = redriveIdle
	}
	return pause, errors.Join(errs...)
}

// turn advances the redrives of one project until redriveTurn has passed.
func (d *redriver) turn(ctx context.Context, of []store.Redrive) error {
	began := time.Now()
	for i := range of {
		d.refill(&of[i], began)
	}
	first := max(0, slices.IndexFunc(of, func(r store.Redrive) bool { return r.ID > d.last[r.Project] }))
	var errs []error
	for i := range of {
		r := &of[(first+i)%len(of)]
		if ctx.Err() != nil || i > 0 && time.Since(began) >= redriveTurn {
			break
		}
		errs = append(errs, d.advance(ctx, r, began))
		d.last[r.Project] = r.ID
	}
	return errors.Join(errs...)
}

// refill adds the tokens of the time since the last call, at most 2 s. A budget holds at most the tokens of
// one second, and at least one.
func (d *redriver) refill(r *store.Redrive, now time.Time) {
	c := d.budgets[r.ID]
	if c == nil {
		c = &redriveBudget{at: now.Add(-redrivePause)}
		d.budgets[r.ID] = c
	}
	perSecond := float64(redriveRate)
	if every := r.Rate.Every(); every > 0 {
		perSecond = float64(time.Second) / float64(every)
	}
	c.callbacks = min(c.callbacks+perSecond*min(now.Sub(c.at), 2*time.Second).Seconds(), max(perSecond, 1))
	c.at = now
}

// advance works on one redrive until its budget is spent or the turn that began at began is over. First it
// collects the ids that the filter matches. Then it changes callbacks in steps of one transaction each, and
// updates the index after each step.
func (d *redriver) advance(ctx context.Context, r *store.Redrive, began time.Time) error {
	if r.State == store.RedriveGathering {
		for more := true; more; {
			now, err := d.ct.o.Store.GatherRedrive(ctx, r.Project, r.ID, d.ct.clock.Now())
			if err != nil {
				return err
			}
			more = now.State == store.RedriveGathering && time.Since(began) < redriveTurn
		}
		return nil
	}
	budget := d.budgets[r.ID]
	for more := true; more && budget.callbacks >= 1 && !d.ct.o.Crowded(); { // live traffic goes first
		n := min(int(budget.callbacks), redriveBatch)
		step, err := d.ct.o.Store.StepRedrive(ctx, r.ID, n, d.ct.clock.Now())
		if err != nil {
			return err
		}
		budget.callbacks -= float64(n)
		d.ct.applyRedriveStep(ctx, &step)
		more = step.Redrive.State == store.RedriveRunning && time.Since(began) < redriveTurn
	}
	return nil
}

// applyRedriveStep updates the index after a step was committed.
func (ct *Controller) applyRedriveStep(ctx context.Context, step *store.RedriveStep) {
	if len(step.Canceled) > 0 {
		ct.observer.Ended(len(step.Canceled), store.Canceled, store.Requested)
		ct.index.Ended(ctx, step.Canceled)
	}
	if len(step.Left) > 0 {
		ct.index.Remove(ctx, step.Left)
		ct.accept.SettingsChanged(ctx) // a new lane may be paused with its project
	}
	if step.Deleted {
		ct.accept.SettingsChanged(ctx)
		ct.cancelDeleted(ctx)
	}
	if len(step.Placed) > 0 {
		ct.index.Place(ctx, step.Placed...)
	}
}
