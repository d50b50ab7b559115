package accept

import (
	"context"
	"errors"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// errNoTemplates: the engine was not given a reader of templates.
var errNoTemplates = errors.New("schedules need a reader of templates")

// TemplateDraft makes a callback out of a template. Its error is a *store.InvalidError, or the store's.
func (ac *Accepter) TemplateDraft(ctx context.Context, project string, template []byte,
	now int64) (store.Draft, error) {
	if ac.o.ReadTemplate == nil {
		return store.Draft{}, errNoTemplates
	}
	sub, err := ac.o.ReadTemplate(template)
	if err != nil {
		return store.Draft{}, err
	}
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

// Made tells the index of a callback that was accepted by a schedule.
func (ac *Accepter) Made(ctx context.Context, a *store.Accepted) {
	ac.observer.Accepted([]store.Accepted{*a}, ac.clock.Now())
	if len(a.Superseded) > 0 {
		ac.observer.Ended(len(a.Superseded), store.Canceled, store.Superseded)
		ac.index.Ended(ctx, a.Superseded)
	}
	if a.Callback.State == store.Scheduled {
		ac.tellPause(ctx, a.Callback.Project, a.Callback.LaneID)
		ac.index.Add(index.Item(&a.Callback))
	}
}
