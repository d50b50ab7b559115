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

// The topics of operational events. They are events as any: endpoints of the project subscribe to them, and
// what is sent is a callback. Callbacks of such events that die make none.
const (
	operational     = "dispatcher."
	TopicDead       = operational + "callback.dead"
	TopicUnresolved = operational + "poll.unresolved"
	TopicFailing    = operational + "endpoint.failing"
	TopicDisabled   = operational + "endpoint.disabled"
	TopicRecovered  = operational + "endpoint.recovered"
)

const (
	// AlertsSpec is how often operational events are sent, failingSpec how often the program looks for
	// endpoints that fail. alertsTime bounds one such run, alertsPage the rows that it reads at once.
	AlertsSpec  = "@every 5s"
	FailingSpec = "@every 10m"
	alertsTime  = 1500 * time.Millisecond
	alertsPage  = 200
	// failingFor is how long an endpoint has failed before that is told, and failingAgain after how long it
	// is told again.
	failingFor        = 24 * time.Hour
	failingAgain      = 24 * time.Hour
	alertCursorPrefix = "alerts."
)

// Alerts makes operational events of what has happened since the last time. A repetition after a crash makes
// no event twice: each has an idempotency key by what it tells.
func (rp *Reporter) Alerts(ctx context.Context) error {
	return errors.Join(rp.publishEndpointEvents(ctx), rp.publishEnded(ctx))
}

// publishEnded tells the endpoints of each project that subscribe to it what has died. It begins with the
// project after toldTo. Where the time is up, the next call goes on.
func (rp *Reporter) publishEnded(ctx context.Context) error {
	deadline := time.Now().Add(alertsTime)
	topics := []string{TopicDead, TopicUnresolved}
	var errs []error
	for more := true; more; {
		readers, err := rp.o.Store.FeedReaders(ctx, alertCursorPrefix, topics, rp.toldTo, index.PageRows)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for i := range readers {
			r := &readers[i]
			rp.toldTo = r.Project
			// One project's trouble is none of the others'.
			if err := rp.tellEnded(ctx, r, deadline); err != nil {
				errs = append(errs, fmt.Errorf("tell what has ended in project %s: %w", r.Project, err))
			}
			if time.Now().After(deadline) {
				return errors.Join(errs...)
			}
		}
		more = len(readers) == index.PageRows
	}
	rp.toldTo = ""
	return errors.Join(errs...)
}

// tellEnded goes on in a project's feed from its cursor. Without a subscriber no cursor is kept: a new
// subscriber is told of what ends from then on.
func (rp *Reporter) tellEnded(ctx context.Context, r *store.FeedReader, deadline time.Time) error {
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
			if err := rp.tellOne(ctx, project, &ended[i]); err != nil {
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

// tellOne tells of one callback that has ended, if it is dead.
func (rp *Reporter) tellOne(ctx context.Context, project string, o *store.TerminalEvent) error {
	if o.State != store.Dead || strings.HasPrefix(o.Topic, operational) {
		return nil
	}
	topic := TopicDead
	if o.Kind == store.Poll { // whatever its reason: its outcome is not known
		topic = TopicUnresolved
	}
	data := map[string]any{
		"id": store.CallbackPrefix + o.ID, "kind": o.Kind, "topic": o.Topic, "ref": o.Ref, "labels": o.Labels,
		"reason":        o.Reason,
		"attempt_count": o.AttemptCount, "last_status": o.LastStatus, "last_class": o.LastClass,
		"finished_at": clock.Instant(o.At),
	}
	if o.EndpointID != "" {
		data["endpoint_id"] = store.EndpointPrefix + o.EndpointID
	}
	return rp.tell(ctx, project, topic, o.Ref,
		fmt.Sprintf("%d.%d.%d", o.Cursor.Tx, o.Cursor.Group, o.Cursor.Item), o.At, data)
}

// TellFailing tells of endpoints that have failed for long.
func (rp *Reporter) TellFailing(ctx context.Context) error {
	now := rp.clock.Now()
	failing, err := rp.o.Store.TakeAlerts(ctx, now-failingFor.Milliseconds(), now-failingAgain.Milliseconds(),
		now, alertsPage)
	if err != nil {
		return err
	}
	for i := range failing {
		ep := &failing[i]
		rp.log.Warn("an endpoint fails for long", "endpoint", store.EndpointPrefix+ep.ID, "project",
			ep.Project, "since", clock.Instant(ep.FailingSince))
	}
	return nil
}

// publishEndpointEvents makes operational events of what happened to endpoints. What cannot be made one
// stays, and keeps no other from it: where the time is up, the next call goes on.
func (rp *Reporter) publishEndpointEvents(ctx context.Context) error {
	deadline := time.Now().Add(alertsTime)
	var errs []error
	for more := true; more; {
		events, err := rp.o.Store.EndpointEvents(ctx, rp.publishedTo, alertsPage)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		var done []string
		more = len(events) == alertsPage
		for i := range events {
			rp.publishedTo = events[i].ID
			if err := rp.publishEndpointEvent(ctx, &events[i]); err != nil {
				errs = append(errs, err)
			} else {
				done = append(done, events[i].ID)
			}
			// The rest of ctx is for what is done: it would all be made again.
			if time.Now().After(deadline) {
				return errors.Join(append(errs, rp.removeEndpointEvents(ctx, done))...)
			}
		}
		errs = append(errs, rp.removeEndpointEvents(ctx, done))
	}
	rp.publishedTo = ""
	return errors.Join(errs...)
}

func (rp *Reporter) removeEndpointEvents(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return rp.o.Store.RemoveEndpointEvents(ctx, ids)
}

func (rp *Reporter) publishEndpointEvent(ctx context.Context, event *store.EndpointEvent) error {
	ep, err := rp.accept.Catalog.Endpoint(ctx, event.EndpointID)
	if errors.Is(err, store.ErrNotFound) {
		rp.log.Error("an operational event is left out: its endpoint is not there",
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
	return rp.tell(ctx, event.Project, topic, ep.ExternalID, event.ID, event.At, data)
}

// tell accepts one operational event, unless it was told before: key says what it tells.
func (rp *Reporter) tell(ctx context.Context, project, topic, ref, key string, at int64,
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
		// Retrying cannot help, and the next event must not wait.
		rp.log.Error("an operational event is not told", "topic", topic, "project", project, "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("tell %s: %w", topic, err)
	}
	return nil
}
