// Package control is what people and their programs do to what was accepted: cancel, retry, edit, endpoints,
// lanes, projects, keys, redrives, schedules, and asking why a callback is not sent.
//
// SQL decides each change, in one audited transaction, and the index is told afterwards: a claim that the
// index still gives out is refused by the stamp. Every call is scoped by project. Who may call is for the
// faces to decide.
package control

import (
	"context"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Options are what a Controller is made of. Those of the first block are required.
type Options struct {
	Store    Store
	Schedule Schedule
	Index    *index.Index
	Accept   *accept.Accepter
	Secrets  *secret.Secrets
	Keyring  *secret.Keyring
	Clock    *clock.Clock
	Observer Observer
	Logger   *slog.Logger
	Metrics  part.Metrics
	Times    part.Times
	// Name of this process, for leases.
	Name string
	// Processes returns the dispatchers that run. Crowded says that this one has so much to do that redrives
	// wait.
	Processes func(ctx context.Context) ([]store.Dispatcher, error)
	Crowded   func() bool
	// Embedded says that no other process makes redrives or schedules.
	Embedded bool
	PanGuard store.PanGuard
	// CheckURL is the early check of an address; nil accepts any.
	CheckURL func(rawURL string) error
	// RetentionPayload and RetentionMetadata are how long terminal callbacks keep their bytes, and their
	// rows.
	RetentionPayload  time.Duration
	RetentionMetadata time.Duration
}

// A Controller changes and explains. Its methods may be called from many goroutines.
type Controller struct {
	o        Options
	log      *slog.Logger
	clock    *clock.Clock
	ids      clock.IDs
	metrics  *metrics
	observer Observer
	index    *index.Index
	accept   *accept.Accepter
	secret   *secret.Secrets

	apiKeys   keyCache
	redrives  *redriver
	scheduler *scheduler
	// purged is when retention last looked. Only the purge touches it.
	purged lastPurge
	// auditHead is the head of the audit's chain. Only the function that chains touches it.
	auditHead auditHead
}

// New returns a Controller whose redrives and schedules do not run yet.
func New(o Options) *Controller {
	ct := &Controller{
		o: o, log: o.Logger, clock: o.Clock, metrics: newMetrics(o.Metrics), observer: o.Observer,
		index: o.Index, accept: o.Accept, secret: o.Secrets,
	}
	ct.redrives, ct.scheduler = newRedriver(ct), newScheduler(ct)
	return ct
}

// RunRedrives does redrives until ctx ends.
func (ct *Controller) RunRedrives(ctx context.Context) { ct.redrives.run(ctx) }

// RunSchedules makes the callbacks of schedules until ctx ends.
func (ct *Controller) RunSchedules(ctx context.Context) { ct.scheduler.run(ctx) }

// changed says what failed to change a setting, or has the change take effect.
func (ct *Controller) changed(ctx context.Context, op string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	ct.accept.SettingsChanged(ctx)
	return nil
}

// audit records what has no row of its own to be recorded with. After is what it has brought, as JSON.
func (ct *Controller) audit(
	ctx context.Context, project, action, object, after string, by store.Actor,
) error {
	now := ct.clock.Now()
	err := ct.o.Store.AppendAudit(ctx, store.AuditEntry{
		ID: ct.ids.New(clock.TimeOf(now)), Project: project, At: now, Actor: by.Name, Address: by.Address,
		Action: action, Object: object, Reason: by.Reason, After: after, Detail: after,
	})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// checkReason judges why a person does something.
func checkReason(by store.Actor, f *accept.Findings) {
	if utf8.RuneCountInString(by.Reason) > MaxPauseReason {
		f.Add("reason", "is longer than %d characters", MaxPauseReason)
	}
}
