package accept

import (
	"context"
	"errors"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/trace"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// errNoTemplates: Options.ReadTemplate is nil.
var errNoTemplates = errors.New("schedules need a reader of templates")

// TemplateDraft returns the draft of the callback that a schedule's template describes. Its error is a
// *store.InvalidError, or the store's.
func (ac *Accepter) TemplateDraft(ctx context.Context, project string, template []byte,
	now int64) (store.Draft, error) {
	if ac.o.ReadTemplate == nil {
		return store.Draft{}, errNoTemplates
	}
	sub, err := ac.o.ReadTemplate(template)
	if err != nil {
		return store.Draft{}, err
	}
	return ac.Draft(ctx, project, sub, now)
}

// Draft returns the draft of a callback that the caller commits itself. Its error is a *store.InvalidError,
// or the store's.
func (ac *Accepter) Draft(ctx context.Context, project string, sub Submission,
	now int64) (store.Draft, error) {
	v, err := ac.view(ctx, project, []Submission{sub})
	if err != nil {
		return store.Draft{}, err
	}
	d, err := ac.draft(v, project, &sub, clock.TimeOf(now))
	if err != nil {
		return d, err
	}
	return d, ac.secure(ctx, &d)
}

// Trace gives the draft of a schedule its trace context. The caller ends the creation if the store accepts
// the draft.
func (ac *Accepter) Trace(ctx context.Context, d *store.Draft) *trace.Creation {
	one := []store.Draft{*d}
	c := ac.o.Tracer.Create(ctx, one)
	*d = one[0]
	return c
}

// Enqueue adds a callback to the index that the store accepted for a schedule, and counts it.
func (ac *Accepter) Enqueue(ctx context.Context, a *store.Accepted) {
	ac.observer.Accepted([]store.Accepted{*a}, ac.clock.Now())
	if len(a.Superseded) > 0 {
		ac.observer.Ended(len(a.Superseded), store.Canceled, store.Superseded)
		ac.index.Ended(ctx, a.Superseded)
	}
	if a.Callback.State == store.Scheduled {
		ac.syncPause(ctx, a.Callback.Project, a.Callback.LaneID)
		ac.index.Add(index.Item(&a.Callback))
	}
}
