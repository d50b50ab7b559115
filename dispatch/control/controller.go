// Package control changes accepted callbacks and the settings on behalf of people and API clients: cancel,
// retry, edit, endpoints, lanes, projects, keys, redrives, schedules. It also explains why a callback is not
// sent.
//
// SQL decides each change in one audited transaction. The index is updated afterwards and may be late: the
// stamp refuses a claim of a callback that SQL has changed. Every method is scoped to a project. The API and
// the admin UI check permissions before they call.
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
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Options configure a Controller. The fields of the first block are required.
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
	Metrics  process.Metrics
	Times    process.Times
	// Name of this process, for leases in SQL.
	Name string
	// Processes returns the running dispatchers. Crowded reports that this process has no capacity left for
	// redrives.
	Processes func(ctx context.Context) ([]store.Dispatcher, error)
	Crowded   func() bool
	// Embedded: no other process runs redrives or schedules.
	Embedded bool
	PanGuard store.PanGuard
	// ApprovalAbove is the most callbacks that a redrive may match without an approval. Zero: any number.
	ApprovalAbove int
	// CheckURL validates an endpoint's URL before it is stored; nil accepts any.
	CheckURL func(rawURL string) error
	// RetentionPayload is how long terminal callbacks keep their payloads, RetentionMetadata how long they
	// keep their rows.
	RetentionPayload  time.Duration
	RetentionMetadata time.Duration
}

// A Controller changes and explains callbacks and settings. It is safe for concurrent use.
type Controller struct {
	o       Options
	log     *slog.Logger
	clock   *clock.Clock
	ids     clock.IDs
	metrics *metrics
	// installation are the metrics that RunMeasure sets.
	installation installation
	observer     Observer
	index        *index.Index
	accept       *accept.Accepter
	secret       *secret.Secrets

	apiKeys   keyCache
	redrives  *redriver
	scheduler *scheduler
	// purged is the state of the last purge. Only Purge uses it, and its cron job never runs twice at once.
	purged lastPurge
	// auditHead is the last link of the audit chain. Only ChainAudit uses it, and its cron job never runs
	// twice at once.
	auditHead auditHead
	// retryRuns are the projects whose daily reconciliation failed, with the times at which they are tried
	// again. Only RunReconciles uses it, and its cron job never runs twice at once.
	retryRuns map[string]int64
}

// New returns a Controller. RunRedrives and RunSchedules start its loops.
func New(o Options) *Controller {
	ct := &Controller{
		o: o, log: o.Logger, clock: o.Clock, metrics: newMetrics(o.Metrics),
		installation: newInstallation(o.Metrics), observer: o.Observer,
		index: o.Index, accept: o.Accept, secret: o.Secrets,
		retryRuns: make(map[string]int64),
	}
	ct.redrives, ct.scheduler = newRedriver(ct), newScheduler(ct)
	return ct
}

// RunRedrives works on redrives until ctx ends.
func (ct *Controller) RunRedrives(ctx context.Context) { ct.redrives.run(ctx) }

// RunSchedules runs due schedules until ctx ends.
func (ct *Controller) RunSchedules(ctx context.Context) { ct.scheduler.run(ctx) }

// settingsChanged wraps the error of op. Without an error it applies the changed setting to this process and
// the index at once. Other processes read it within a second.
func (ct *Controller) settingsChanged(ctx context.Context, op string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	ct.accept.SettingsChanged(ctx)
	return nil
}

// audit records an action that changes no row, such as reading a secret. after is its result as JSON.
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

// checkReason checks the length of the reason that a person gives.
func checkReason(by store.Actor, f *accept.Findings) {
	if utf8.RuneCountInString(by.Reason) > MaxPauseReason {
		f.Add("reason", "is longer than %d characters", MaxPauseReason)
	}
}
