package alert

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sink"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// setSink seals a sink into an alert. key is that of the ids of sinks.
func (as *Alerts) setSink(a *store.Alert, c sink.Config, key []byte) error {
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode the sink: %w", err)
	}
	masked, err := json.Marshal(c.Masked())
	if err != nil {
		return fmt.Errorf("encode the sink: %w", err)
	}
	a.Sink = as.o.Keyring.SealText(secret.BindSink(a.Project, a.ID), string(text))
	a.SinkMasked, a.SinkID = store.JSONText(masked), c.Fingerprint(key)
	return nil
}

// openSink decrypts the sink of an alert.
func (as *Alerts) openSink(a *store.Alert) (c sink.Config, err error) {
	text, err := as.o.Keyring.OpenText(secret.BindSink(a.Project, a.ID), a.Sink)
	if as.o.Secrets.RecordOpen(err) != nil {
		return c, fmt.Errorf("the sink cannot be decrypted: %w", err)
	}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return c, fmt.Errorf("decode the sink: %w", err)
	}
	return c, nil
}

// ensureSink creates the endpoint of a sink, unless it is there with its secret. A process may have died
// before it created one of the two. Another credential makes another SinkID, so the secret that is there is
// the right one.
func (as *Alerts) ensureSink(ctx context.Context, a *store.Alert, c *sink.Config) error {
	name := store.SinkPrefix + a.SinkID
	found, err := as.o.Accept.Catalog.Named(ctx, a.Project, []string{name})
	if err != nil {
		return err
	}
	if ep := found[name]; ep != nil {
		owner := secret.Owner{Project: a.Project, Endpoint: ep.ID}
		own, err := as.o.Secrets.Owned(ctx, owner, as.clock.Now())
		if err != nil || len(own.ByUse[c.Delivery().Use]) > 0 {
			return err
		}
	}
	return as.putSink(ctx, a, c)
}

// putSink creates the endpoint of a sink with its secret, or brings it up to date.
func (as *Alerts) putSink(ctx context.Context, a *store.Alert, c *sink.Config) error {
	d := c.Delivery()
	key, err := sign.ParseSecretFor(d.Use, d.Secret)
	if err != nil {
		return fmt.Errorf("secret of the sink: %w", err)
	}
	return as.o.Endpoints.PutSink(ctx, store.Endpoint{
		Project: a.Project, ExternalID: store.SinkPrefix + a.SinkID,
		Name: "Alerts: " + c.Type + " " + c.Host(), URL: d.URL,
		Policy: store.PolicyChoice{Given: &d.Policy}, Success: d.Success, Signer: d.Signer,
		Rate: d.Rate, Concurrency: d.Concurrency,
	}, d.Use, key)
}

// removeUnusedSink deletes the endpoint of a sink that no alert uses any more.
func (as *Alerts) removeUnusedSink(ctx context.Context, project, sinkID string, by store.Actor) error {
	used, err := as.o.Store.SinkInUse(ctx, project, sinkID)
	if err != nil || used {
		return err
	}
	return as.o.Endpoints.RemoveSink(ctx, project, store.SinkPrefix+sinkID, by)
}

// A text is a message in the language of its sink.
type text func(c *sink.Config) sink.Message

// submission returns the callback that carries a message to the sink of an alert.
func (as *Alerts) submission(ctx context.Context, a *store.Alert, of text) (s accept.Submission, err error) {
	c, err := as.openSink(a)
	if err != nil {
		return s, err
	}
	if err := as.ensureSink(ctx, a, &c); err != nil {
		return s, err
	}
	m := of(&c)
	m.ID = store.AlertPrefix + a.ID
	body, contentType := c.Render(m)
	d := c.Delivery()
	return accept.Submission{
		Endpoint: store.SinkPrefix + a.SinkID, Method: d.Method, Topic: Topic, Ref: store.AlertPrefix + a.ID,
		Body: body, BodyField: "body", ContentType: contentType, ExpiresIn: &d.ExpiresIn,
		Route: accept.AlertsRoute, Labels: map[string]string{"alert": string(m.State)},
	}, nil
}

// draft returns the draft of a message.
func (as *Alerts) draft(ctx context.Context, a *store.Alert, of text) (*store.Draft, error) {
	s, err := as.submission(ctx, a, of)
	if err != nil {
		return nil, err
	}
	d, err := as.o.Accept.Draft(ctx, a.Project, s, as.clock.Now())
	if err != nil {
		return nil, fmt.Errorf("message: %w", err)
	}
	return &d, nil
}

// TestAlert sends a message to the sink of an alert that is marked as a test, and returns its callback. It
// neither counts as the alert's last message nor waits for a silence to end.
func (as *Alerts) TestAlert(ctx context.Context, project, id string, by store.Actor) (store.Callback, error) {
	fail := func(err error) (store.Callback, error) {
		return store.Callback{}, fmt.Errorf("test alert: %w", err)
	}
	a, err := as.o.Store.Alert(ctx, project, id)
	if err != nil {
		return fail(err)
	}
	now := as.clock.Now()
	s, err := as.submission(ctx, &a, func(c *sink.Config) sink.Message {
		return sink.Message{
			State: sink.Test, Title: a.Name, Lines: []string{wordsOf(c).test}, Link: as.link(&a, nil),
			At: at(&a, now),
		}
	})
	if err != nil {
		return fail(err)
	}
	accepted, err := as.o.Accept.Accept(ctx, project, []accept.Submission{s})
	if err == nil {
		err = accepted[0].Err
	}
	if err != nil {
		return fail(err)
	}
	cb := accepted[0].Callback
	return cb, as.o.Store.AppendAudit(ctx, store.AuditEntry{
		ID: as.ids.New(clock.TimeOf(now)), Project: project, At: now, Actor: by.Name, Address: by.Address,
		Reason: by.Reason, Action: "alert.test", Object: id,
		After: fmt.Sprintf(`{"callback":%q}`, store.CallbackPrefix+cb.ID),
	})
}
