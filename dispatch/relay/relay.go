// Package relay hands the rows of outbox tables over to a dispatcher. An application inserts a row into such
// a table in the transaction of its own business change, so a callback exists if and only if that change was
// committed.
//
// The loop of a source: read a page of rows, hand it over, remove what was accepted, move aside what was
// refused. It guarantees:
//
//   - A row leaves its table only after the dispatcher committed its acceptance, or together with its copy
//     in the refused table.
//   - A row that is handed over again, after a crash or by a second relay, is a replay: its idempotency key
//     is SOURCE/ID.
//   - The first completed scan that begins after a commit reads the row, if the commit came within two
//     seconds of the INSERT. Scans that reach further back find later commits.
//   - At most one page of a source is accepted and not removed. Single locked rows do not count.
//
// One relay at a time reads a source, by a lease in the dispatcher. It saves double work; nothing above
// depends on it. The package knows no SQL and no HTTP: a Conn is a source, and a Sink is a dispatcher.
package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
)

// Options configure a Relay. Sink and Connect are required.
type Options struct {
	// Sources are those of ParseSources. None: Run waits for the end of its context.
	Sources []SourceConfig
	// Sink returns the dispatcher for a project.
	Sink func(project string) Sink
	// Connect opens a source and checks that it can be read. Its errors say what to change.
	Connect func(ctx context.Context, c SourceConfig) (Conn, error)
	// Holder is the name of this start of this process. Empty: a random one.
	Holder string
	// Logger defaults to one that discards. A nil Registerer registers no metrics.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// A Relay reads sources. It is safe for concurrent use.
type Relay struct {
	readers []*reader
}

// New returns a relay. Run starts it.
func New(o Options) (*Relay, error) {
	if o.Sink == nil || o.Connect == nil {
		return nil, errors.New("relay: Sink and Connect are required")
	}
	if o.Holder == "" {
		o.Holder = clock.NewToken()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := process.Metrics{Registerer: o.Registerer}
	m := newMetrics(p, o.Sources)
	r := &Relay{readers: make([]*reader, len(o.Sources))}
	for i, c := range o.Sources {
		r.readers[i] = newReader(&o, m, c)
	}
	watch(p, r.readers)
	return r, nil
}

// Run reads the sources until ctx ends. Then it finishes the pages in hand and gives the leases back.
func (r *Relay) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, rd := range r.readers {
		all.Go(func() { rd.run(ctx) })
	}
	<-ctx.Done()
	all.Wait()
	return nil
}

// Degraded returns "relay:NAME" for each source that this process should read and has not read for 30 s. A
// source that another relay holds is not one of them.
func (r *Relay) Degraded() []string {
	var list []string
	for _, rd := range r.readers {
		if rd.state.degraded(time.Now()) {
			list = append(list, "relay:"+rd.c.Label())
		}
	}
	return list
}
