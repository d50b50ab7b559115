// Package report counts what happens and says it: the activity by minute and lane, the health of endpoints,
// the processes that run, the feed of what has ended, and operational events.
//
// It is for people and alerts. What it loses, in a crash or while SQL is away for long, changes no callback.
package report

import (
	"log/slog"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
)

// Options are what a Reporter is made of. Those of the first block are required.
type Options struct {
	Store  Store
	Accept *accept.Accepter
	Counts *Counts
	Clock  *clock.Clock
	Logger *slog.Logger
	// Name of this process; Version and Roles are what it says of itself to others.
	Name    string
	Version string
	Roles   []string
	// Embedded says that no other process asks. Hold and NoWorker: this one sends nothing.
	Embedded   bool
	SendingOff bool
	NoWorker   bool
	Workers    int
	// InFlight is how many attempts are under way, Draining whether claiming has stopped for good; Drain is
	// closed when it does.
	InFlight func() int
	Draining func() bool
	Drain    <-chan struct{}
}

// A Reporter writes what this process has counted, and reads what all have.
type Reporter struct {
	o        Options
	log      *slog.Logger
	clock    *clock.Clock
	accept   *accept.Accepter
	counts   *Counts
	presence *presence
	// publishedTo is the endpoint event, and toldTo the project, after which the alerts go on. Only the
	// alerts touch them.
	publishedTo, toldTo string
}

// New returns a Reporter.
func New(o Options) *Reporter {
	return &Reporter{o: o, log: o.Logger, clock: o.Clock, accept: o.Accept, counts: o.Counts,
		presence: newPresence()}
}
