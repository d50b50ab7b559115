// Package accept makes callbacks durable: it judges what a caller asks for by its project and endpoint,
// drafts it, commits it, and has the index told.
//
// A callback whose answer has no error is in SQL. An index that hangs delays no accept.
// A repetition with the same idempotency key answers what the first call did.
//
// The package also keeps the catalog of what people have set (catalog.go), and learns what others have
// changed (below). It sends nothing, and does not decide when a callback is due after its first time.
package accept

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Options are what an Accepter is made of. Those of the first block are required.
type Options struct {
	Store    Store
	Index    *index.Index
	Secrets  *secret.Secrets
	Keyring  *secret.Keyring
	Clock    *clock.Clock
	Observer Observer
	Logger   *slog.Logger
	// Embedded says that no other process changes settings.
	Embedded bool
	// PanGuard says what becomes of card numbers; empty: nothing.
	PanGuard store.PanGuard
	// CheckURL is the early check of an address; nil accepts any.
	CheckURL func(rawURL string) error
	// ReadTemplate decodes the template of a schedule; nil: there are no schedules.
	ReadTemplate func(raw []byte) (Submission, error)
}

// An Accepter accepts callbacks, events and polls. Its methods may be called from many goroutines.
type Accepter struct {
	o        Options
	log      *slog.Logger
	clock    *clock.Clock
	ids      clock.IDs
	index    *index.Index
	secret   *secret.Secrets
	observer Observer

	Catalog *Catalog
	open    *openBook
	keys    progress

	// settingsTurn has a token of the call that reads what has changed; lanesSeen is the version up to which
	// that of lanes was read.
	settingsTurn chan struct{}
	lanesSeen    int64
	// settingsLeft has a token while something that has changed may not have been read.
	settingsLeft chan struct{}
}

// New returns an Accepter.
func New(o Options) *Accepter {
	return &Accepter{
		o: o, log: o.Logger, clock: o.Clock, index: o.Index, secret: o.Secrets, observer: o.Observer,
		Catalog: NewCatalog(o.Store), open: newOpenBook(o.Store),
		settingsTurn: make(chan struct{}, 1), settingsLeft: make(chan struct{}, 1),
	}
}

// An Observer counts what is accepted. Times are by the index's clock.
type Observer interface {
	// Accepted has what SQL answered; replays and refused ones are among it.
	Accepted(list []store.Accepted, now int64)
	// Spawned has a callback that the store has made by itself.
	Spawned(r *store.OpenRow, now int64)
	// Ended says that callbacks became terminal without a result.
	Ended(n int, state store.State, reason store.Reason)
}

// RunSettings learns, until ctx ends, what other processes have changed: lanes, endpoints, projects. Whoever
// is alone changes everything itself.
func (ac *Accepter) RunSettings(ctx context.Context) {
	l := part.Loop{
		Every: catalogEvery, AtOnce: true, Wake: ac.settingsLeft, Log: ac.log,
		Failing:   "settings of lanes and endpoints cannot be read; those known are kept",
		Recovered: "settings of lanes and endpoints are read again",
	}
	if ac.o.Embedded {
		l.Every, l.AtOnce = 0, false // only what could not be told when it was changed is left
	}
	l.Run(ctx, func(ctx context.Context) (time.Duration, error) {
		if err := ac.refreshSettings(ctx); err != nil {
			return catalogEvery, err
		}
		return 0, nil
	})
}

// refreshSettings reads what has changed since the last time.
func (ac *Accepter) refreshSettings(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, index.SQLTimeout)
	defer cancel()
	select {
	case ac.settingsTurn <- struct{}{}:
		defer func() { <-ac.settingsTurn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := ac.Catalog.refresh(ctx)
	seen, lanesErr := ac.index.SetLanes(ctx, ac.lanesSeen)
	ac.lanesSeen = seen
	return errors.Join(err, lanesErr)
}

// SettingsChanged has what this process has just changed take effect at once, and waits for it. What cannot
// be told now is told within catalogEvery, or by the next rebuild.
func (ac *Accepter) SettingsChanged(ctx context.Context) {
	if err := ac.refreshSettings(context.WithoutCancel(ctx)); err != nil {
		ac.log.Warn("a changed setting could not be told to the index yet", "error", err)
		part.Wake(ac.settingsLeft) // runSettings reads again what has changed
	}
}
