package api_test

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

const (
	bareRedrive = "01JD6QZ000000000000000000R"
	oneRedrive  = "rd_" + bareRedrive
)

func someRedrive() store.Redrive {
	return store.Redrive{
		ID: bareRedrive, Project: store.DefaultProject, Action: store.RedriveRetry, Shown: `{"state":"dead","topic":"payment.succeeded"}`, Ladder: store.Restart,
		Rate: store.Rate{Count: 100, Per: 1e9}, Actor: "admin key", Reason: "the merchant is back", State: store.RedriveRunning, Matched: 1500, Done: 700, Failed: 3,
		CreatedAt: nowMS, UpdatedAt: nowMS + 7000,
	}
}

// Redrive answers with what it was asked to do.
func (e *engine) Redrive(_ context.Context, project string, q dispatch.RedriveRequest, by store.Actor) (store.Redrive, error) {
	if len(q.Invalid) > 0 {
		return store.Redrive{}, &store.InvalidError{Fields: q.Invalid}
	}
	r := someRedrive()
	r.Action, r.Shown, r.Ladder, r.URL = store.RedriveAction(q.Action), q.Shown, store.Ladder(q.Ladder), q.URL
	if q.Delay != nil {
		r.Delay = q.Delay.Milliseconds()
	}
	return r, e.noted("Redrive", project, "", by, q)
}

func (e *engine) SetRedrive(_ context.Context, project, id string, to store.RedriveState, by store.Actor) (store.Redrive, error) {
	r := someRedrive()
	r.State = to
	return r, e.noted("SetRedrive", project, id, by, to)
}

// redriveRows stand for the store's: its method Redrive reads what the engine's makes.
type redriveRows struct{ e *engine }

func (e *engine) redriveReads() api.RedriveReads { return redriveRows{e} }

func (r redriveRows) Redrive(_ context.Context, project, id string) (store.Redrive, error) {
	if id != bareRedrive {
		return store.Redrive{}, store.ErrNotFound
	}
	return someRedrive(), r.e.noted("ReadRedrive", project, id, store.Actor{}, nil)
}

// Redrives are three, with the ids 3, 2 and 1.
func (r redriveRows) Redrives(_ context.Context, project, after string, limit int) ([]store.Redrive, error) {
	var redrives []store.Redrive
	for _, id := range []string{"3", "2", "1"} {
		one := someRedrive()
		one.ID = id
		redrives = append(redrives, one)
	}
	redrives = behind(redrives, after, limit, func(one store.Redrive) string { return one.ID })
	return redrives, r.e.noted("Redrives", project, after, store.Actor{}, limit)
}
