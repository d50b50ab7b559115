package control

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// sinkActor makes the changes of endpoints that belong to alerts. The change of the alert has its own entry.
var sinkActor = store.Actor{Name: "dispatcher", Reason: "sink of an alert"}

// PutSink creates or changes the endpoint with ep's external id, which alerts send their messages to. It
// stores a secret of the use; the one before ends at once. A pause stays. After an error the endpoint may be
// there without the secret.
func (ct *Controller) PutSink(ctx context.Context, ep store.Endpoint, use string, key []byte) error {
	now := ct.clock.Now()
	done, err := ct.o.Store.UpsertEndpoints(ctx, ep.Project, []store.EndpointUpsert{{
		ExternalID: ep.ExternalID,
		Change: func(e *store.Endpoint) error {
			e.Name, e.URL, e.URLOverride = ep.Name, ep.URL, store.OverrideDeny
			e.Policy, e.Success, e.Signer = ep.Policy, ep.Success, ep.Signer
			e.Rate, e.Concurrency = ep.Rate, ep.Concurrency
			return nil
		},
	}}, now, sinkActor)
	if err == nil {
		err = done[0].Err
	}
	if err != nil {
		return fmt.Errorf("put the endpoint of a sink: %w", err)
	}
	row := store.Secret{Project: ep.Project, Owner: done[0].Endpoint.ID, Use: use, CreatedAt: now}
	if _, err := ct.secret.Add(ctx, row, key, now, false, sinkActor); err != nil {
		return fmt.Errorf("store the secret of a sink: %w", err)
	}
	ct.secret.Forget(ep.Project)
	ct.accept.SettingsChanged(ctx)
	return nil
}

// RemoveSink deletes the endpoint with that external id, if there is one. Its open messages are canceled.
func (ct *Controller) RemoveSink(ctx context.Context, project, externalID string, by store.Actor) error {
	found, err := ct.accept.Catalog.Named(ctx, project, []string{externalID})
	if err != nil || found[externalID] == nil {
		return err
	}
	return ct.deleteEndpoint(ctx, project, found[externalID].ID, by)
}

// errSink is the error of a change by a caller to an endpoint that alerts send to.
var errSink = accept.Invalid("id", "belongs to alerts: change the sink of the alert")

// isSink returns errSink for an endpoint that alerts send to.
func (ct *Controller) isSink(ctx context.Context, project, id string) error {
	found, err := ct.o.Store.EndpointsByID(ctx, []string{id})
	if err == nil && len(found) > 0 && found[0].Project == project && found[0].IsSink() {
		err = errSink
	}
	return err
}
