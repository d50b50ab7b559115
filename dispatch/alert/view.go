package alert

import (
	"context"
	"errors"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The states of an alert.
const (
	StateOK       = "ok"
	StatePending  = "pending"
	StateFiring   = "firing"
	StateDisabled = "disabled"
)

// A View is an alert with what it has found.
type View struct {
	store.Alert
	State string
	// Since is when the first instance of the state began; zero for StateOK and StateDisabled.
	Since int64
	// Firing and Pending are the numbers of instances.
	Firing, Pending int
	// Silenced: it sends no messages now.
	Silenced bool
}

// viewOf returns an alert that has found nothing.
func (as *Alerts) viewOf(a *store.Alert) View {
	v := View{Alert: *a, State: StateOK, Silenced: a.Silenced(as.clock.Now())}
	if !a.Enabled {
		v.State = StateDisabled
	}
	return v
}

// views adds to alerts what they have found.
func (as *Alerts) views(ctx context.Context, project string, list []store.Alert) ([]View, error) {
	live, err := as.o.Store.LiveFirings(ctx, project, store.MaxAlerts*maxInstances)
	if err != nil {
		return nil, err
	}
	views := make([]View, len(list))
	byID := make(map[string]*View, len(list))
	for i := range list {
		views[i] = as.viewOf(&list[i])
		byID[list[i].ID] = &views[i]
	}
	for i := range live {
		if v := byID[live[i].AlertID]; v != nil && v.Enabled {
			v.count(&live[i])
		}
	}
	return views, nil
}

func (v *View) count(r *store.AlertFiring) {
	state, since := StatePending, r.PendingSince
	switch {
	case r.ResolvedAt != 0:
		return
	case r.FiredAt != 0:
		state, since = StateFiring, r.FiredAt
		v.Firing++
	default:
		v.Pending++
	}
	if state == StatePending && v.State == StateFiring {
		return
	}
	if v.State != state || since < v.Since {
		v.State, v.Since = state, since
	}
}

// AlertFirings returns the last firings of an alert, newest first. Its error is store.ErrNotFound for an
// unknown alert.
func (as *Alerts) AlertFirings(ctx context.Context, project, id string) ([]store.AlertFiring, error) {
	return as.o.Store.AlertFirings(ctx, project, id, store.KeptFirings)
}

func isNotFound(err error) bool { return errors.Is(err, store.ErrNotFound) }
