package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The topics of operational events. Endpoints of the project subscribe to them like to any topic, and a
// callback is sent. A dead callback of such an event creates no further event.
const (
	TopicDead       = store.OwnTopics + "callback.dead"
	TopicUnresolved = store.OwnTopics + "poll.unresolved"
	TopicFailing    = store.OwnTopics + "endpoint.failing"
	TopicDisabled   = store.OwnTopics + "endpoint.disabled"
	TopicRecovered  = store.OwnTopics + "endpoint.recovered"
	TopicUnbalanced = store.OwnTopics + "reconcile.unbalanced"
)

const (
	// AlertsSpec and FailingSpec are the cron specs of PublishEvents and AlertFailing. alertsTime bounds one
	// run of PublishEvents. alertsPage is how many rows one query reads.
	AlertsSpec  = "@every 5s"
	FailingSpec = "@every 10m"
	alertsTime  = 1500 * time.Millisecond
	alertsPage  = 200
	// failingFor is how long an endpoint fails before its event, and failingAgain the time until the next
	// event.
	failingFor        = 24 * time.Hour
	failingAgain      = 24 * time.Hour
	alertCursorPrefix = "alerts."
)

// PublishEvents publishes operational events for what happened since the last run. It may publish an event
// again after a crash; the idempotency key of the event makes that a replay.
func (rp *Reporter) PublishEvents(ctx context.Context) error {
	return errors.Join(rp.publishEndpointEvents(ctx), rp.publishReconciles(ctx), rp.publishEnded(ctx))
}

// publishEnded publishes dead callbacks to the subscribed endpoints of each project. It starts after
// publishedProject. When alertsTime is over, the next call continues.
func (rp *Reporter) publishEnded(ctx context.Context) error {
	deadline := time.Now().Add(alertsTime)
	topics := []string{TopicDead, TopicUnresolved}
	var errs []error
	for more := true; more; {
		after := rp.publishedProject
		readers, err := rp.o.Store.FeedReaders(ctx, alertCursorPrefix, topics, after, index.PageRows)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for i := range readers {
			r := &readers[i]
			rp.publishedProject = r.Project
			// An error of one project must not delay the others.
			if err := rp.publishProject(ctx, r, deadline); err != nil {
				errs = append(errs, fmt.Errorf("publish dead callbacks of project %s: %w", r.Project, err))
			}
			if time.Now().After(deadline) {
				return errors.Join(errs...)
			}
		}
		more = len(readers) == index.PageRows
	}
	rp.publishedProject = ""
	return errors.Join(errs...)
}

// publishProject continues in a project's feed at its cursor. Without a subscriber no cursor is kept, so a
// new subscriber receives only later events.
func (rp *Reporter) publishProject(ctx context.Context, r *store.FeedReader, deadline time.Time) error {
	project := r.Project
	name := alertCursorPrefix + project
	switch {
	case !r.Wanted:
		return rp.o.Store.SetFeedCursor(ctx, name, nil)
	case r.Cursor == nil:
		return rp.o.Store.SetFeedCursor(ctx, name, &store.OutcomeCursor{Tx: rp.clock.Now()})
	}
	cursor := *r.Cursor
	for {
		ended, next, err := rp.o.Store.Outcomes(ctx, project, cursor, alertsPage)
		if err != nil || len(ended) == 0 {
			return err
		}
		for i := range ended {
			if err := rp.publishDead(ctx, project, &ended[i]); err != nil {
				return err
			}
			if time.Now().After(deadline) {
				return rp.o.Store.SetFeedCursor(ctx, name, &ended[i].Cursor)
			}
		}
		cursor = next
		if err := rp.o.Store.SetFeedCursor(ctx, name, &cursor); err != nil {
			return err
		}
		if len(ended) < alertsPage {
			return nil
		}
	}
}

// publishDead publishes one event of the feed if the callback is dead.
func (rp *Reporter) publishDead(ctx context.Context, project string, o *store.TerminalEvent) error {
	if o.State != store.Dead || strings.HasPrefix(o.Topic, store.OwnTopics) {
		return nil
	}
	topic := TopicDead
	if o.Kind == store.Poll { // a dead poll has no outcome, whatever its reason
		topic = TopicUnresolved
	}
	data := map[string]any{
		"id": store.CallbackPrefix + o.ID, "kind": o.Kind, "topic": o.Topic, "ref": o.Ref, "labels": o.Labels,
		"reason": o.Reason, "finished_at": clock.Instant(o.At),
		"attempt_count": o.AttemptCount, "last_status": o.LastStatus, "last_class": o.LastClass,
	}
	if o.EndpointID != "" {
		data["endpoint_id"] = store.EndpointPrefix + o.EndpointID
	}
	return rp.publish(ctx, project, topic, o.Ref,
		fmt.Sprintf("%d.%d.%d", o.Cursor.Tx, o.Cursor.Group, o.Cursor.Item), o.At, data)
}

// publishReconciles publishes the reconciliations that found something wrong.
func (rp *Reporter) publishReconciles(ctx context.Context) error {
	reports, err := rp.o.Store.UnannouncedReports(ctx, alertsPage)
	if err != nil {
		return err
	}
	var errs []error
	for i := range reports {
		r := &reports[i]
		err := rp.publish(ctx, r.Project, TopicUnbalanced, r.Day, r.RunID, r.RunAt, map[string]any{
			"date": r.Day, "timezone": r.Timezone, "wrong": r.Wrong(),
			"accepted": r.Books.Accepted, "succeeded": r.Books.Succeeded, "dead": r.Books.Dead,
			"canceled": r.Books.Canceled, "open": r.Books.Open,
			"listed": r.Listed, "missing": r.Missing, "unfinished": r.Unfinished,
			"duplicates": r.Duplicates, "extra": r.Extra,
		})
		if err == nil {
			err = rp.o.Store.MarkAnnounced(ctx, r.RunID)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// AlertFailing stores an event for each endpoint that has failed for failingFor, and logs it. PublishEvents
// publishes the events.
func (rp *Reporter) AlertFailing(ctx context.Context) error {
	now := rp.clock.Now()
	failing, err := rp.o.Store.TakeAlerts(ctx, now-failingFor.Milliseconds(), now-failingAgain.Milliseconds(),
		now, alertsPage)
	if err != nil {
		return err
	}
	for i := range failing {
		ep := &failing[i]
		rp.log.Warn("endpoint has been failing for a day or longer", "endpoint", store.EndpointPrefix+ep.ID,
			"project", ep.Project, "since", clock.Instant(ep.FailingSince))
	}
	return nil
}

// publishEndpointEvents publishes what happened to endpoints. An event that cannot be published stays and
// delays no other. When alertsTime is over, the next call continues.
func (rp *Reporter) publishEndpointEvents(ctx context.Context) error {
	deadline := time.Now().Add(alertsTime)
	var errs []error
	for more := true; more; {
		events, err := rp.o.Store.EndpointEvents(ctx, rp.publishedEvent, alertsPage)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		var done []string
		more = len(events) == alertsPage
		for i := range events {
			rp.publishedEvent = events[i].ID
			if err := rp.publishEndpointEvent(ctx, &events[i]); err != nil {
				errs = append(errs, err)
			} else {
				done = append(done, events[i].ID)
			}
			// The rest of the context's time is for the removal. Events that are not removed are published
			// again.
			if time.Now().After(deadline) {
				return errors.Join(append(errs, rp.removeEndpointEvents(ctx, done))...)
			}
		}
		errs = append(errs, rp.removeEndpointEvents(ctx, done))
	}
	rp.publishedEvent = ""
	return errors.Join(errs...)
}

func (rp *Reporter) removeEndpointEvents(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return rp.o.Store.RemoveEndpointEvents(ctx, ids)
}

// publishEndpointEvent publishes one event of an endpoint. The id of the event is its idempotency key. So an
// event that was published, but not removed because of a crash, becomes a replay.
func (rp *Reporter) publishEndpointEvent(ctx context.Context, event *store.EndpointEvent) error {
	ep, err := rp.accept.Catalog.Endpoint(ctx, event.EndpointID)
	if errors.Is(err, store.ErrNotFound) {
		rp.log.Error("operational event dropped, its endpoint does not exist",
			"endpoint", store.EndpointPrefix+event.EndpointID)
		return nil
	}
	if err != nil {
		return fmt.Errorf("endpoint event %s: %w", event.ID, err)
	}
	data := map[string]any{
		"endpoint_id": store.EndpointPrefix + ep.ID, "external_id": ep.ExternalID, "name": ep.Name,
		"url": store.MaskURL(ep.URL),
	}
	var topic string
	switch event.Kind {
	case store.EndpointDisabled:
		topic, data["reason"] = TopicDisabled, string(store.Gone)
	case store.EndpointRecovered:
		topic, data["failed_since"] = TopicRecovered, clock.Instant(event.Since)
	default:
		topic, data["failing_since"] = TopicFailing, clock.Instant(event.Since)
	}
	return rp.publish(ctx, event.Project, topic, ep.ExternalID, event.ID, event.At, data)
}

// publish accepts one operational event. key identifies the event, so that a repetition is a replay.
func (rp *Reporter) publish(ctx context.Context, project, topic, ref, key string, at int64,
	data map[string]any) error {
	body, err := json.Marshal(map[string]any{"type": topic, "timestamp": clock.Instant(at), "data": data})
	if err != nil {
		return fmt.Errorf("encode %s: %w", topic, err)
	}
	_, err = rp.accept.AcceptEvent(ctx, project, accept.Submission{
		Topic: topic, Ref: ref, Body: body, BodyField: "payload", IdempotencyKey: key,
		Route: accept.AlertsRoute, Fingerprint: []byte(key),
	})
	if _, refused := errors.AsType[*store.InvalidError](err); refused {
		// A retry would fail again, and the next event must not wait.
		rp.log.Error("invalid operational event dropped", "topic", topic, "project", project, "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("publish %s: %w", topic, err)
	}
	return nil
}
