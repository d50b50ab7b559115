package control

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A redriver does redrives, in one process at a time. In a round each project with redrives to do gets one
// turn of redriveTurn. Within its turn the project's redrives go on one after the other; the next turn begins
// after the redrive at which this one ended.
type redriver struct {
	e     *Controller
	woken chan struct{}
	// rates are those of the redrives of the last round, by id.
	rates map[string]*redriveCredit
	// last is the id of the redrive at which a project's last turn ended, by project.
	last   map[string]string
	leader *index.Leader
}

// A redriveCredit is how many callbacks of a redrive may be done now, by its rate.
type redriveCredit struct {
	callbacks float64
	at        time.Time
}

func newRedriver(e *Controller) *redriver {
	return &redriver{
		e: e, leader: e.index.NewLeader(redriveLease), woken: make(chan struct{}, 1),
		rates: make(map[string]*redriveCredit), last: make(map[string]string),
	}
}

// run does redrives until ctx ends. Between two looks it sleeps longer while there is none, and a process
// that is alone until wake: it makes every redrive itself.
func (d *redriver) run(ctx context.Context) {
	l := part.Loop{
		Every: redriveIdle, AtOnce: true, Wake: d.woken, Log: d.e.log,
		Failing: "redrives are put off", Recovered: "redrives go on",
	}
	if d.e.o.Embedded {
		l.Every = 0
	}
	looks := false
	l.Run(ctx, func(ctx context.Context) (time.Duration, error) {
		if !looks {
			looks = true
			return redriveLook, nil
		}
		pace, err := d.round(ctx)
		if err != nil {
			pace = redriveLook
		}
		return pace, err
	})
}

// round gives each project its turn, and returns the time until the next round; zero: nothing is to do.
func (d *redriver) round(ctx context.Context) (pace time.Duration, err error) {
	rates, last := make(map[string]*redriveCredit), make(map[string]string)
	var errs []error
	after, more := "", true
	for more && ctx.Err() == nil {
		page, err := d.e.o.Store.RedrivesToDo(ctx, after, redriveProjects)
		if err != nil {
			return redriveLook, errors.Join(append(errs, err)...)
		}
		projects := 0
		for len(page) > 0 && ctx.Err() == nil {
			after = page[0].Project
			n := slices.IndexFunc(page, func(r store.Redrive) bool { return r.Project != after })
			if n < 0 {
				n = len(page)
			}
			if leads, err := d.leader.Lead(ctx); err != nil || !leads {
				return redriveLook, errors.Join(append(errs, err)...)
			}
			errs = append(errs, d.turn(ctx, page[:n]))
			for i := range page[:n] {
				rates[page[i].ID] = d.rates[page[i].ID]
			}
			last[after] = d.last[after]
			page = page[n:]
			projects++
		}
		more = projects == redriveProjects
	}
	d.rates, d.last = rates, last // without those that have ended or are paused
	if len(rates) > 0 {
		pace = redriveEvery
	}
	return pace, errors.Join(errs...)
}

// turn takes the redrives of one project further, until its time is over.
func (d *redriver) turn(ctx context.Context, of []store.Redrive) error {
	began := time.Now()
	for i := range of {
		d.earn(&of[i], began)
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

// earn adds the credit of the time since the last call, of 2 s at most. A redrive holds credit for one second
// at most.
func (d *redriver) earn(r *store.Redrive, now time.Time) {
	c := d.rates[r.ID]
	if c == nil {
		c = &redriveCredit{at: now.Add(-redriveEvery)}
		d.rates[r.ID] = c
	}
	perSecond := float64(redriveRate)
	if every := r.Rate.Every(); every > 0 {
		perSecond = float64(time.Second) / float64(every)
	}
	c.callbacks = min(c.callbacks+perSecond*min(now.Sub(c.at), 2*time.Second).Seconds(), max(perSecond, 1))
	c.at = now
}

// advance gathers pages of a redrive, or does callbacks while its rate has room, until the turn that began
// then ends.
func (d *redriver) advance(ctx context.Context, r *store.Redrive, began time.Time) error {
	if r.State == store.RedriveGathering {
		for more := true; more; {
			now, err := d.e.o.Store.GatherRedrive(ctx, r.Project, r.ID, d.e.clock.Now())
			if err != nil {
				return err
			}
			more = now.State == store.RedriveGathering && time.Since(began) < redriveTurn
		}
		return nil
	}
	credit := d.rates[r.ID]
	for more := true; more && credit.callbacks >= 1 && !d.e.o.Crowded(); { // live traffic goes first
		n := min(int(credit.callbacks), redriveBatch)
		step, err := d.e.o.Store.StepRedrive(ctx, r.ID, n, d.e.clock.Now())
		if err != nil {
			return err
		}
		credit.callbacks -= float64(n)
		d.e.redriven(ctx, &step)
		more = step.Redrive.State == store.RedriveRunning && time.Since(began) < redriveTurn
	}
	return nil
}

// redriven tells the index what a step of a redrive changed.
func (ct *Controller) redriven(ctx context.Context, step *store.RedriveStep) {
	if len(step.Canceled) > 0 {
		ct.observer.Ended(len(step.Canceled), store.Canceled, store.Requested)
		ct.index.Ended(ctx, step.Canceled)
	}
	if len(step.Left) > 0 {
		ct.index.Remove(ctx, step.Left)
		ct.accept.SettingsChanged(ctx) // a lane that was just made may be paused with its project
	}
	if len(step.Placed) > 0 {
		ct.index.Place(ctx, step.Placed...)
	}
}
