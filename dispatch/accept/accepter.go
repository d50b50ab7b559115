// Package accept makes callbacks durable. It validates a request against its project and endpoint, commits
// the callback, and adds it to the index.
//
// A callback whose result has no error is in SQL. An index that hangs delays no accept. A repetition with the
// same idempotency key returns the result of the first request.
//
// The package also caches settings (Catalog) and reads the changes of other processes (RunSettings). It sends
// nothing, and decides no due time but the first.
package accept

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/trace"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Options configure an Accepter. The fields of the first block are required.
type Options struct {
	Store    Store
	Index    *index.Index
	Secrets  *secret.Secrets
	Keyring  *secret.Keyring
	Clock    *clock.Clock
	Observer Observer
	Logger   *slog.Logger
	// Tracer records the creation of callbacks; nil: nothing is recorded.
	Tracer *trace.Tracer
	// Embedded: no other process changes settings.
	Embedded bool
	// PanGuard is how card numbers are treated; empty: they are accepted.
	PanGuard store.PanGuard
	// CheckURL validates a URL before it is stored; nil accepts any.
	CheckURL func(rawURL string) error
	// ReadTemplate decodes the template of a schedule; nil: there are no schedules.
	ReadTemplate func(raw []byte) (Submission, error)
}

// An Accepter accepts callbacks, events and polls. It is safe for concurrent use.
type Accepter struct {
	o        Options
	log      *slog.Logger
	clock    *clock.Clock
	ids      clock.IDs
	index    *index.Index
	secret   *secret.Secrets
	observer Observer

	Catalog *Catalog
	open    *openCounter
	keys    keysInUse

	// settingsLock holds a token while a call reads changed settings. lanesSeen is the version of the last
	// lane that was read; the holder of the token owns it.
	settingsLock chan struct{}
	lanesSeen    int64
	// settingsRetry holds a token after a failed read of changed settings.
	settingsRetry chan struct{}
}

// New returns an Accepter.
func New(o Options) *Accepter {
	return &Accepter{
		o: o, log: o.Logger, clock: o.Clock, index: o.Index, secret: o.Secrets, observer: o.Observer,
		Catalog: NewCatalog(o.Store), open: newOpenCounter(o.Store),
		settingsLock: make(chan struct{}, 1), settingsRetry: make(chan struct{}, 1),
	}
}

// An Observer counts accepted callbacks. Times are by the index's clock, in Unix milliseconds.
type Observer interface {
	// Accepted reports the results of a commit, replays and refusals included.
	Accepted(list []store.Accepted, now int64)
	// Spawned reports a callback that the store created, such as the result of a poll.
	Spawned(r *store.OpenRow, now int64)
	// Ended reports n callbacks that a newer one superseded. state and reason are those of their end.
	Ended(n int, state store.State, reason store.Reason)
}

// RunSettings reads settings that other processes changed (lanes, endpoints, projects) until ctx ends. The
// embedded index has one writer, so an embedded process does not poll: it only retries its own failed
// updates.
func (ac *Accepter) RunSettings(ctx context.Context) {
	l := process.Loop{
		Every: catalogEvery, AtOnce: true, Wake: ac.settingsRetry, Log: ac.log,
		Failing:   "reading changed settings failed, using the last known ones",
		Recovered: "changed settings are read again",
	}
	if ac.o.Embedded {
		l.Every, l.AtOnce = 0, false
	}
	l.Run(ctx, func(ctx context.Context) (time.Duration, error) {
		if err := ac.refreshSettings(ctx); err != nil {
			return catalogEvery, err
		}
		return 0, nil
	})
}

// refreshSettings drops changed endpoints and projects from the catalog, and passes changed lanes to the
// index. One call runs at a time.
func (ac *Accepter) refreshSettings(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, index.SQLTimeout)
	defer cancel()
	select {
	case ac.settingsLock <- struct{}{}:
		defer func() { <-ac.settingsLock }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := ac.Catalog.refresh(ctx)
	seen, lanesErr := ac.index.SetLanes(ctx, ac.lanesSeen)
	ac.lanesSeen = seen
	return errors.Join(err, lanesErr)
}

// SettingsChanged applies a setting that this process just changed, and waits for that. If it fails,
// RunSettings tries again within catalogEvery.
func (ac *Accepter) SettingsChanged(ctx context.Context) {
	if err := ac.refreshSettings(context.WithoutCancel(ctx)); err != nil {
		ac.log.Warn("applying changed settings failed, retrying", "error", err)
		process.Wake(ac.settingsRetry)
	}
}
