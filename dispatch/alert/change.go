package alert

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sink"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// maxName bounds the name of an alert in characters, maxSilence the time of a silence.
const (
	maxName    = 128
	maxSilence = 400 * day
)

// A Digest is the time of the daily summary. An empty At turns it off.
type Digest struct{ At, Timezone string }

// A Change creates or changes an alert. Nil fields are not given. When and Sink replace the whole; of a Sink
// without credentials those of the old one are kept.
type Change struct {
	Name *string
	When *When
	Sink *sink.Config
	// SilenceUntil is in Unix milliseconds; zero ends the silence.
	SilenceUntil *int64
	Digest       *Digest
	Enabled      *bool
	Invalid      []store.FieldError
}

// CreateAlert creates an alert, enabled by default. Its error is store.ErrExists if the name is taken.
func (as *Alerts) CreateAlert(ctx context.Context, project string, ch Change, by store.Actor) (View, error) {
	now := as.clock.Now()
	a := store.Alert{
		ID: as.ids.New(clock.TimeOf(now)), Project: project, Enabled: true, CreatedAt: now, UpdatedAt: now,
	}
	f := accept.Findings(slices.Clone(ch.Invalid))
	for _, required := range []struct {
		field string
		given bool
	}{{"name", ch.Name != nil}, {"when", ch.When != nil}, {"sink", ch.Sink != nil}} {
		if !required.given && !slices.ContainsFunc(f, func(e store.FieldError) bool {
			return e.Field == required.field || strings.HasPrefix(e.Field, required.field+".")
		}) {
			f.Add(required.field, "is required")
		}
	}
	r, err := as.resolve(ctx, project, &ch, &f)
	if err == nil {
		err = as.apply(&a, &ch, r, now, f)
	}
	if err == nil {
		a, err = as.o.Store.CreateAlert(ctx, a, by)
	}
	if err != nil {
		return View{}, fmt.Errorf("create alert: %w", err)
	}
	as.prepareSink(ctx, &a)
	return as.viewOf(&a), nil
}

// PatchAlert changes the given fields of an alert. With another condition, or disabled, it starts from ok.
func (as *Alerts) PatchAlert(ctx context.Context, project, id string, ch Change,
	by store.Actor) (View, error) {
	now := as.clock.Now()
	f := accept.Findings(slices.Clone(ch.Invalid))
	r, err := as.resolve(ctx, project, &ch, &f)
	if err != nil {
		return View{}, fmt.Errorf("change alert: %w", err)
	}
	a, before, err := as.o.Store.ChangeAlert(ctx, project, id, func(a *store.Alert) error {
		return as.apply(a, &ch, r, now, f)
	}, now, by)
	if err == nil && a.Sink != before.Sink {
		as.prepareSink(ctx, &a)
	}
	if err == nil && a.SinkID != before.SinkID {
		err = as.removeUnusedSink(ctx, project, before.SinkID, by)
	}
	if err != nil {
		return View{}, fmt.Errorf("change alert: %w", err)
	}
	return as.Alert(ctx, project, id)
}

// DeleteAlert deletes an alert, and the endpoint of its sink if no other alert uses it. Its messages stay.
func (as *Alerts) DeleteAlert(ctx context.Context, project, id string, by store.Actor) error {
	a, err := as.o.Store.DeleteAlert(ctx, project, id, as.clock.Now(), by)
	if err != nil {
		return fmt.Errorf("delete alert: %w", err)
	}
	return as.removeUnusedSink(ctx, project, a.SinkID, by)
}

// prepareSink creates the endpoint of a sink, or brings it up to date. The alert is stored already, so an
// error becomes its LastError. The next message tries again.
func (as *Alerts) prepareSink(ctx context.Context, a *store.Alert) {
	failed := ""
	c, err := as.openSink(a)
	if err == nil {
		err = as.putSink(ctx, a, &c)
	}
	if err != nil {
		failed = clip("prepare the sink: " + err.Error())
		as.log.Warn("the sink of an alert cannot be prepared", "alert", store.AlertPrefix+a.ID, "err", err)
	}
	if failed == a.LastError {
		return
	}
	step := store.AlertStep{Alert: *a, Now: as.clock.Now(), NextDigest: a.NextDigest, LastError: failed}
	if _, err := as.o.Store.StepAlert(ctx, step); err != nil {
		as.log.Warn("the error of an alert cannot be stored", "alert", store.AlertPrefix+a.ID, "err", err)
	}
	a.LastError = failed
}

// A resolved change has what it needs from SQL: its condition, and the key of sinks' ids if it has a sink.
type resolved struct {
	when    store.AlertWhen
	sinkKey []byte
}

// resolve looks up what a change names, before its transaction.
func (as *Alerts) resolve(ctx context.Context, project string, ch *Change,
	f *accept.Findings) (r resolved, err error) {
	r.when, err = as.condition(ctx, project, ch.When, f)
	if err == nil && ch.Sink != nil {
		r.sinkKey, err = as.o.Secrets.SinkKey(ctx)
	}
	return r, err
}

// condition validates a condition and looks up what it names. Its error is the store's.
func (as *Alerts) condition(ctx context.Context, project string, w *When,
	f *accept.Findings) (store.AlertWhen, error) {
	if w == nil {
		return store.AlertWhen{}, nil
	}
	before := len(*f)
	c := w.condition(f)
	if len(*f) > before {
		return c, nil
	}
	if w.Endpoint != "" {
		found, err := as.o.Accept.Catalog.Named(ctx, project, []string{w.Endpoint})
		if err != nil {
			return c, err
		}
		if ep := found[w.Endpoint]; ep != nil && !ep.IsSink() {
			c.Endpoint = ep.ID
		} else {
			f.Add("when.endpoint", "there is no endpoint with that id or external_id")
		}
	}
	if w.Schedule != "" {
		id, ok := store.BareID(store.SchedulePrefix, w.Schedule)
		if ok {
			_, err := as.o.Store.Schedule(ctx, project, id)
			if err != nil && !isNotFound(err) {
				return c, err
			}
			ok = err == nil
		}
		c.Schedule = id
		if !ok {
			f.Add("when.schedule", "there is no schedule with that id")
		}
	}
	accept.CheckText("when.lane", w.Lane, 2*accept.MaxLane+64, f)
	c.Lane = w.Lane
	return c, nil
}

// apply makes a change in an alert. f contains the errors that are known already. A transaction may call
// apply more than once, so it does not change f.
func (as *Alerts) apply(
	a *store.Alert, ch *Change, r resolved, now int64, f accept.Findings,
) error {
	f = slices.Clone(f)
	if ch.Name != nil {
		a.Name = *ch.Name
		if a.Name == "" {
			f.Add("name", "is empty")
		}
		accept.CheckText("name", a.Name, maxName, &f)
	}
	if ch.When != nil {
		a.When = r.when
	}
	if ch.SilenceUntil != nil {
		a.SilenceUntil = *ch.SilenceUntil
		if a.SilenceUntil-now > maxSilence.Milliseconds() {
			f.Add("silence_until", "must be at most 400d away")
		}
	}
	if ch.Enabled != nil {
		a.Enabled = *ch.Enabled
	}
	if ch.Digest != nil {
		a.DigestAt, a.DigestZone = ch.Digest.At, ch.Digest.Timezone
		checkDigest(ch.Digest, &f)
	}
	if ch.Digest != nil || ch.Enabled != nil {
		a.NextDigest = nextDigest(a, now)
	}
	return as.applySink(a, ch.Sink, r.sinkKey, f)
}

func checkDigest(d *Digest, f *accept.Findings) {
	if _, err := time.Parse("15:04", d.At); d.At != "" && (err != nil || len(d.At) != len("15:04")) {
		f.Add("digest.at", `must be a time such as "09:00"`)
	}
	if _, err := schedule.ParseZone(d.Timezone); err != nil {
		f.Add("digest.timezone", "%s", err)
	}
}

// applySink sets the sink of an alert; nil leaves it as it is. It returns all findings as an error.
func (as *Alerts) applySink(a *store.Alert, c *sink.Config, key []byte, f accept.Findings) error {
	if c == nil {
		return f.Err()
	}
	config := *c
	if a.Sink != "" {
		// Without the old one nothing can be kept, and Validate says what is missing.
		if old, err := as.openSink(a); err == nil {
			config = config.Keep(old)
		}
	}
	f.Under("sink", config.Validate())
	if as.o.CheckURL != nil && config.URL != "" && !f.Has("sink.url") {
		if err := as.o.CheckURL(config.URL); err != nil {
			f.Add("sink.url", "%s", err)
		}
	}
	if len(f) > 0 {
		return f.Err()
	}
	return as.setSink(a, config, key)
}

// Alert returns an alert of the project. Its error is store.ErrNotFound for an unknown one.
func (as *Alerts) Alert(ctx context.Context, project, id string) (View, error) {
	a, err := as.o.Store.Alert(ctx, project, id)
	if err != nil {
		return View{}, err
	}
	views, err := as.views(ctx, project, []store.Alert{a})
	if err != nil {
		return View{}, err
	}
	return views[0], nil
}

// Alerts returns a page of the project's alerts, newest first.
func (as *Alerts) Alerts(ctx context.Context, project string, f store.AlertFilter) ([]View, error) {
	list, err := as.o.Store.Alerts(ctx, project, f)
	if err != nil {
		return nil, err
	}
	return as.views(ctx, project, list)
}
