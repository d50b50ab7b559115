// Package accept makes callbacks durable: it judges what a caller asks for by its project and endpoint, drafts it,
// commits it, and has the index told.
//
// When a call returns without an error, every receipt without one is in SQL. An index that hangs delays no accept.
// A repetition with the same idempotency key answers what the first call did.
//
// The package also keeps the catalog of what people have set (catalog.go), and learns what others have changed
// (settings.go). It sends nothing, and does not decide when a callback is due after its first time.
package accept

import (
	"log/slog"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
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
	// Alone says that no other process changes settings.
	Alone bool
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

	// settingsTurn has a token of the call that reads what has changed; lanesSeen is the version up to which that of
	// lanes was read.
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
