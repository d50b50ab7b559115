package relay

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A world is a table, a server and the setting of a source, in a bubble of synctest.
type world struct {
	*testing.T
	tb  *table
	srv *server
	c   SourceConfig
	// connect opens the table, and sink is the server.
	connect func(context.Context, SourceConfig) (Conn, error)
	sink    Sink
	log     *slog.Logger
}

// inWorld runs a test in a world.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		sources, wrong := ParseSources([]byte(`[{"name":"pay","dsn":"mysql://relay@db/pay"}]`))
		if wrong != nil {
			t.Fatal(wrong)
		}
		tb, srv := newTable(), newServer()
		test(&world{T: t, tb: tb, srv: srv, c: sources[0], connect: tb.connect, sink: srv,
			log: slog.New(slog.DiscardHandler)})
	})
}

// A running is a relay of one process.
type running struct {
	*Relay
	registry *prometheus.Registry
	// end ends the process and waits for it.
	end func()
}

// start starts a process. The test ends it.
func (w *world) start(holder string) *running {
	w.Helper()
	p := &running{registry: prometheus.NewRegistry()}
	var err error
	p.Relay, err = New(Options{
		Sources: []SourceConfig{w.c}, Sink: func(string) Sink { return w.sink }, Connect: w.connect,
		Holder: holder, Registerer: p.registry, Logger: w.log,
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- p.Run(ctx)
		close(ended)
	}()
	p.end = func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	}
	w.Cleanup(p.end)
	return p
}

// pass lets a time pass, until all goroutines wait. What the test changed before is visible to them.
func (w *world) pass(d time.Duration) {
	w.tb.fence.pass()
	w.srv.fence.pass()
	time.Sleep(d)
	synctest.Wait()
}

// insert commits rows at once.
func (w *world) insert(ids ...string) {
	for _, id := range ids {
		w.tb.insert(id, 0)
	}
}

// wants checks how many rows wait, and that exactly the given ones are accepted.
func (w *world) wants(waiting int, accepted ...string) {
	w.Helper()
	synctest.Wait()
	for _, id := range accepted {
		if !w.srv.has(id) {
			w.Errorf("%s is not accepted", id)
		}
	}
	if n := get(w.srv, func() int { return len(w.srv.accepted) }); n != len(accepted) {
		w.Errorf("%d rows are accepted, want %d", n, len(accepted))
	}
	if n := w.tb.count(); n != waiting {
		w.Errorf("%d rows wait, want %d", n, waiting)
	}
}

// series returns the series of a process by their text, such as dispatcher_relay_leader{source="pay"}.
func (p *running) series(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := p.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			all[strings.TrimPrefix(f.GetName(), "dispatcher_relay_")+"{"+strings.Join(labels, ",")+"}"] =
				m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return all
}

// metric checks a series of the source.
func (w *world) metric(p *running, series string, want float64) {
	w.Helper()
	all := p.series(w.T)
	if got, found := all[series]; !found || got != want {
		w.Errorf("%s is %v, want %v; there are %v", series, got, want, all)
	}
}

// A fence makes what one goroutine wrote before it visible to those that pass it later.
type fence struct{ mu sync.Mutex }

func (f *fence) pass() {
	f.mu.Lock()
	defer f.mu.Unlock()
}
