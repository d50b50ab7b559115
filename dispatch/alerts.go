package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// AlertRows is what operational events are made from.
type AlertRows interface {
	// FeedReaders returns, by id, the first limit projects above after that have an endpoint which subscribes
	// to one of the operational topics, or a cursor of the name prefix and the project's id.
	FeedReaders(
		ctx context.Context, prefix string, topics []string, after string, limit int,
	) ([]store.FeedReader, error)
	// SetFeedCursor keeps how far a reader of the feed has come; nil forgets it.
	SetFeedCursor(ctx context.Context, name string, c *store.OutcomeCursor) error
	// TakeAlerts gives an event to endpoints that have failed since before failingBefore and had none after
	// alertedBefore, and returns them.
	TakeAlerts(ctx context.Context, failingBefore, alertedBefore, now int64, limit int) ([]store.Endpoint, error)
	// EndpointEvents returns what happened to endpoints and has yet to become an operational event, with ids
	// above after.
	EndpointEvents(ctx context.Context, after string, limit int) ([]store.EndpointEvent, error)
	// RemoveEndpointEvents removes what has become one.
	RemoveEndpointEvents(ctx context.Context, ids []string) error
}

// The topics of operational events. They are events as any: endpoints of the project subscribe to them, and what is sent is a callback.
// Callbacks of such events that die make none.
const (
	operational     = "dispatcher."
	TopicDead       = operational + "callback.dead"
	TopicUnresolved = operational + "poll.unresolved"
	TopicFailing    = operational + "endpoint.failing"
	TopicDisabled   = operational + "endpoint.disabled"
	TopicRecovered  = operational + "endpoint.recovered"
)

const (
	// alertsSpec is how often operational events are sent, failingSpec how often the program looks for
	// endpoints that fail. alertsTime bounds one such run, alertsPage the rows that it reads at once.
	alertsSpec  = "@every 5s"
	failingSpec = "@every 10m"
	alertsTime  = 1500 * time.Millisecond
	alertsPage  = 200
	// failingFor is how long an endpoint has failed before that is told, and failingAgain after how long it is told again.
	failingFor   = 24 * time.Hour
	failingAgain = 24 * time.Hour
	// alertsRoute separates the idempotency keys of operational events from those of callers.
	alertsRoute       = "operational events"
	alertCursorPrefix = "alerts."
)

// alerts makes operational events of what has happened since the last time. A repetition after a crash makes
// no event twice: each has an idempotency key by what it tells.
func (e *Engine) alerts(ctx context.Context) error {
	return errors.Join(e.publishEndpointEvents(ctx), e.publishEnded(ctx))
}

// publishEnded tells the endpoints of each project that subscribe to it what has died.
func (e *Engine) publishEnded(ctx context.Context) error {
	if e.o.Alone && !e.folded.Swap(false) {
		return nil // nothing has come into the feed
	}
	began := e.toldTo
	err := e.publishEndedFrom(ctx, time.Now().Add(alertsTime))
	if err != nil || began != "" || e.toldTo != "" {
		e.folded.Store(true) // there may be more
	}
	return err
}

// publishEndedFrom begins with the project after e.toldTo. Where the time is up, the next call goes on.
func (e *Engine) publishEndedFrom(ctx context.Context, deadline time.Time) error {
	topics := []string{TopicDead, TopicUnresolved}
	var errs []error
	for more := true; more; {
		readers, err := e.o.Store.FeedReaders(ctx, alertCursorPrefix, topics, e.toldTo, pageRows)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for i := range readers {
			r := &readers[i]
			e.toldTo = r.Project
			// One project's trouble is none of the others'.
			if err := e.tellEnded(ctx, r, deadline); err != nil {
				errs = append(errs, fmt.Errorf("tell what has ended in project %s: %w", r.Project, err))
			}
			if time.Now().After(deadline) {
				return errors.Join(errs...)
			}
		}
		more = len(readers) == pageRows
	}
	e.toldTo = ""
	return errors.Join(errs...)
}

// tellEnded goes on in a project's feed from its cursor. Without a subscriber no cursor is kept: a new
// subscriber is told of what ends from then on.
func (e *Engine) tellEnded(ctx context.Context, r *store.FeedReader, deadline time.Time) error {
	project := r.Project
	name := alertCursorPrefix + project
	switch {
	case !r.Wanted:
		return e.o.Store.SetFeedCursor(ctx, name, nil)
	case r.Cursor == nil:
		return e.o.Store.SetFeedCursor(ctx, name, &store.OutcomeCursor{Tx: e.clock.now()})
	}
	cursor := *r.Cursor
	for {
		ended, next, err := e.o.Store.Outcomes(ctx, project, cursor, alertsPage)
		if err != nil || len(ended) == 0 {
			return err
		}
		for i := range ended {
			if err := e.tellOne(ctx, project, &ended[i]); err != nil {
				return err
			}
			if time.Now().After(deadline) {
				return e.o.Store.SetFeedCursor(ctx, name, &ended[i].Cursor)
			}
		}
		cursor = next
		if err := e.o.Store.SetFeedCursor(ctx, name, &cursor); err != nil {
			return err
		}
		if len(ended) < alertsPage {
			return nil
		}
	}
}

// tellOne tells of one callback that has ended, if it is dead.
func (e *Engine) tellOne(ctx context.Context, project string, o *store.TerminalEvent) error {
	if o.State != store.Dead || strings.HasPrefix(o.Topic, operational) {
		return nil
	}
	topic := TopicDead
	if o.Kind == store.Poll { // whatever its reason: its outcome is not known
		topic = TopicUnresolved
	}
	data := map[string]any{
		"id": store.CallbackPrefix + o.ID, "kind": o.Kind, "topic": o.Topic, "ref": o.Ref, "labels": o.Labels, "reason": o.Reason,
		"attempt_count": o.AttemptCount, "last_status": o.LastStatus, "last_class": o.LastClass, "finished_at": instant(o.At),
	}
	if o.EndpointID != "" {
		data["endpoint_id"] = store.EndpointPrefix + o.EndpointID
	}
	return e.tell(ctx, project, topic, o.Ref, fmt.Sprintf("%d.%d.%d", o.Cursor.Tx, o.Cursor.Group, o.Cursor.Item), o.At, data)
}

// tellFailing tells of endpoints that have failed for long.
func (e *Engine) tellFailing(ctx context.Context) error {
	now := e.clock.now()
	failing, err := e.o.Store.TakeAlerts(ctx, now-failingFor.Milliseconds(), now-failingAgain.Milliseconds(), now, alertsPage)
	if err != nil {
		return err
	}
	for i := range failing {
		ep := &failing[i]
		e.log.Warn("an endpoint fails for long", "endpoint", store.EndpointPrefix+ep.ID, "project", ep.Project, "since", instant(ep.FailingSince))
	}
	return nil
}

// publishEndpointEvents makes operational events of what happened to endpoints. What cannot be made one
// stays, and keeps no other from it: where the time is up, the next call goes on.
func (e *Engine) publishEndpointEvents(ctx context.Context) error {
	deadline := time.Now().Add(alertsTime)
	var errs []error
	for more := true; more; {
		events, err := e.o.Store.EndpointEvents(ctx, e.publishedTo, alertsPage)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		var done []string
		more = len(events) == alertsPage
		for i := range events {
			e.publishedTo = events[i].ID
			if err := e.publishEndpointEvent(ctx, &events[i]); err != nil {
				errs = append(errs, err)
			} else {
				done = append(done, events[i].ID)
			}
			// The rest of ctx is for what is done: it would all be made again.
			if time.Now().After(deadline) {
				return errors.Join(append(errs, e.removeEndpointEvents(ctx, done))...)
			}
		}
		errs = append(errs, e.removeEndpointEvents(ctx, done))
	}
	e.publishedTo = ""
	return errors.Join(errs...)
}

func (e *Engine) removeEndpointEvents(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return e.o.Store.RemoveEndpointEvents(ctx, ids)
}

func (e *Engine) publishEndpointEvent(ctx context.Context, event *store.EndpointEvent) error {
	ep, err := e.catalog.endpoint(ctx, event.EndpointID)
	if notFound(err) {
		e.log.Error("an operational event is left out: its endpoint is not there",
			"endpoint", store.EndpointPrefix+event.EndpointID)
		return nil
	}
	if err != nil {
		return fmt.Errorf("endpoint event %s: %w", event.ID, err)
	}
	data := map[string]any{
		"endpoint_id": store.EndpointPrefix + ep.ID, "external_id": ep.ExternalID, "name": ep.Name, "url": store.MaskURL(ep.URL),
	}
	var topic string
	switch event.Kind {
	case store.EndpointDisabled:
		topic, data["reason"] = TopicDisabled, string(store.Gone)
	case store.EndpointRecovered:
		topic, data["failed_since"] = TopicRecovered, instant(event.Since)
	default:
		topic, data["failing_since"] = TopicFailing, instant(event.Since)
	}
	return e.tell(ctx, event.Project, topic, ep.ExternalID, event.ID, event.At, data)
}

// tell accepts one operational event, unless it was told before: key says what it tells.
func (e *Engine) tell(ctx context.Context, project, topic, ref, key string, at int64, data map[string]any) error {
	body, err := json.Marshal(map[string]any{"type": topic, "timestamp": instant(at), "data": data})
	if err != nil {
		return fmt.Errorf("encode %s: %w", topic, err)
	}
	_, err = e.AcceptEvent(ctx, project, Submission{
		Topic: topic, Ref: ref, Body: body, BodyField: "payload", IdempotencyKey: key, Route: alertsRoute, Fingerprint: []byte(key),
	})
	if _, refused := errors.AsType[*store.InvalidError](err); refused {
		// Retrying cannot help, and the next event must not wait.
		e.log.Error("an operational event is not told", "topic", topic, "project", project, "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("tell %s: %w", topic, err)
	}
	return nil
}
