// Package report counts what happens and publishes it: the activity by minute and lane, the health of
// endpoints, the running processes, the feed of outcomes, and operational events.
//
// It serves people and alerts. A loss of its data, by a crash or a long outage of SQL, changes no callback.
package report

import (
	"log/slog"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
)

// Options configure a Reporter. The fields of the first block are required.
type Options struct {
	Store  Store
	Accept *accept.Accepter
	Counts *Counts
	Clock  *clock.Clock
	Logger *slog.Logger
	// Name, Version and Roles of this process, for its heartbeat.
	Name    string
	Version string
	Roles   []string
	// Embedded: no other process reads heartbeats. SendingOff and NoWorker: this process sends nothing.
	Embedded   bool
	SendingOff bool
	NoWorker   bool
	Workers    int
	// InFlight returns the number of attempts in flight, Draining whether claiming has stopped for good.
	// Drain is closed when that happens.
	InFlight func() int
	Draining func() bool
	Drain    <-chan struct{}
}

// A Reporter writes what this process has counted, and reads what all processes have written.
type Reporter struct {
	o        Options
	log      *slog.Logger
	clock    *clock.Clock
	accept   *accept.Accepter
	counts   *Counts
	presence *presence
	// publishedEvent is the endpoint event, and publishedProject the project, after which Alerts continues.
	// Only the cron job of Alerts uses them.
	publishedEvent, publishedProject string
}

// New returns a Reporter.
func New(o Options) *Reporter {
	return &Reporter{o: o, log: o.Logger, clock: o.Clock, accept: o.Accept, counts: o.Counts,
		presence: newPresence()}
}
