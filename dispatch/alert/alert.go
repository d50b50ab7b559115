// Package alert evaluates the alerts of projects and sends their messages.
//
// An alert watches a condition. The evaluation reads aggregates that exist for other purposes, every 10 s in
// one process. A condition that holds for long enough fires, and one that is met for long enough resolves.
// The state is in SQL, and a step of it commits together with its message. So a crash or another process
// neither loses a message nor sends it twice.
//
// A message is a callback to an endpoint that belongs to the sink. Dead messages fire no alert.
package alert

import (
	"context"
	"log/slog"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Topic is the topic of the messages.
const Topic = store.OwnTopics + "alert"

// Store is the part of SQL that this package uses. sqlstore.DB implements it.
type Store interface {
	// CreateAlert returns store.ErrExists for a name that is taken, and a *store.InvalidError if the project
	// has too many alerts.
	CreateAlert(ctx context.Context, a store.Alert, by store.Actor) (store.Alert, error)
	// ChangeAlert changes an alert under its row lock, and returns it after and before. If change returns an
	// error, nothing changes and that error is returned. change may be called more than once.
	ChangeAlert(ctx context.Context, project, id string, change func(*store.Alert) error, now int64,
		by store.Actor) (after, before store.Alert, err error)
	DeleteAlert(ctx context.Context, project, id string, now int64, by store.Actor) (store.Alert, error)
	Alert(ctx context.Context, project, id string) (store.Alert, error)
	Alerts(ctx context.Context, project string, f store.AlertFilter) ([]store.Alert, error)
	AlertProjects(ctx context.Context, after string, limit int) ([]string, error)
	LiveFirings(ctx context.Context, project string, limit int) ([]store.AlertFiring, error)
	AlertFirings(ctx context.Context, project, id string, limit int) ([]store.AlertFiring, error)
	FiringsSince(ctx context.Context, project string, since int64, limit int) ([]store.AlertFiring, error)
	// StepAlert stores a step with its message, unless the alert has changed since it was read.
	StepAlert(ctx context.Context, s store.AlertStep) (store.AlertStepResult, error)
	SinkInUse(ctx context.Context, project, sinkID string) (bool, error)
	SinkLanes(ctx context.Context, limit int) ([]int64, error)
	AppendAudit(ctx context.Context, e store.AuditEntry) error

	// What alerts watch.
	Activity(ctx context.Context, project string, lane int64, span store.Span, from, to int64,
	) ([]store.Activity, error)
	Counts(ctx context.Context, project string) (store.Counts, error)
	OverdueLanes(ctx context.Context, after store.Cursor, before, now int64) (store.OverduePage, error)
	Stop(ctx context.Context) (store.Stop, error)
	EndpointTotals(ctx context.Context, project string, limit int) ([]store.EndpointTotal, error)
	EndpointsByID(ctx context.Context, ids []string) ([]store.Endpoint, error)
	HeldLanes(ctx context.Context, project string, others []int64, now int64, limit int) ([]string, error)
	LanesByKey(ctx context.Context, project string, keys []string) ([]store.Lane, error)
	LateSchedules(ctx context.Context, project string, before int64, limit int) ([]store.Schedule, error)
	Schedule(ctx context.Context, project, id string) (store.Schedule, error)
	Project(ctx context.Context, id string) (store.Project, error)
	RelaySources(ctx context.Context, project string) ([]store.RelaySource, error)
	ReconcileReports(ctx context.Context, project, before string, limit int) ([]store.ReconcileReport, error)
}

// Index is the part of the index that this package uses. *index.Index implements it.
type Index interface {
	OpenBreakers(ctx context.Context) ([]int64, error)
	AskIndex(ctx context.Context, refs []schedule.Ref, lanes []int64,
	) ([]schedule.Position, []schedule.LaneState, error)
}

// Endpoints creates and deletes the endpoints of sinks. *control.Controller implements it.
type Endpoints interface {
	// PutSink creates or changes the endpoint with ep's external id, with its secret.
	PutSink(ctx context.Context, ep store.Endpoint, use string, key []byte) error
	// RemoveSink deletes the endpoint with that external id, if there is one.
	RemoveSink(ctx context.Context, project, externalID string, by store.Actor) error
}

// Options configure the Alerts. The fields of the first block are required.
type Options struct {
	Store     Store
	Index     Index
	Endpoints Endpoints
	Accept    *accept.Accepter
	Secrets   *secret.Secrets
	Keyring   *secret.Keyring
	Clock     *clock.Clock
	Logger    *slog.Logger
	Metrics   process.Metrics
	// CheckURL validates the URL of a sink; nil accepts any.
	CheckURL func(rawURL string) error
	// PublicURL is the address of the admin UI, for links in messages. Empty: messages have no link.
	PublicURL string
}

// Alerts are the alerts of all projects. It is safe for concurrent use.
type Alerts struct {
	o     Options
	log   *slog.Logger
	clock *clock.Clock
	ids   clock.IDs
	// EvaluateAlerts uses these, and its cron job never runs twice at once.
	nextProject string
	overdue     overdueWalk
	totals      totalWindows
	firing      map[string]float64
	exported    *process.Lapsing
}

// New returns Alerts.
func New(o Options) *Alerts {
	kinds := make([]string, 0, len(store.AlertKinds()))
	for _, kind := range store.AlertKinds() {
		kinds = append(kinds, string(kind))
	}
	o.PublicURL = strings.TrimSuffix(o.PublicURL, "/")
	return &Alerts{
		o: o, log: o.Logger, clock: o.Clock, firing: make(map[string]float64),
		totals: totalWindows{windows: make(map[windowKey]*totalWindow)},
		exported: o.Metrics.Lapsing("alerts_firing",
			"Firing alerts of all projects by kind, each alert once however many instances it has.",
			"kind", kinds...),
	}
}
