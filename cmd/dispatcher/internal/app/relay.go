package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/web"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
)

// relayTimeout limits one call of a relay to the API. The server gives up a call after 30 s.
const relayTimeout = 40 * time.Second

// RelayCommand reads outbox tables in a separate process. It needs neither SQL nor Redis of the dispatcher,
// only its API.
type RelayCommand struct {
	Settings config.Flags `embed:""`
	Server   remote.Flags `embed:""`
}

// Help is the text below the summary of relay run --help.
func (*RelayCommand) Help() string {
	return "Reads the tables of the setting relay, as serve does with the role relay, and submits their " +
		"rows through the API of a server. The key needs the scope send. It decides the project; that of " +
		"a source is ignored. Of a settings file, only relay, ops_listen, pprof, log_format and log_level " +
		"count. Several processes may have the same sources: one reads, and another takes over when it ends."
}

// Run reads until the first SIGINT or SIGTERM. Then it finishes the pages in hand.
func (cmd *RelayCommand) Run(ctx context.Context, c *console.Console) error {
	l, err := config.LoadRelay(c, &cmd.Settings)
	if err != nil {
		return err
	}
	s := &l.Settings
	log := NewLogger(c, s)
	AdoptLibraries(log)
	p, err := NewRelayProcess(c, s, cmd.Server, log)
	if err != nil {
		return s.Clean(err)
	}
	return s.Clean(p.Run(ctx))
}

// RelayProcess is a process that only reads outbox tables.
type RelayProcess struct {
	Web     *web.Server
	log     *slog.Logger
	relay   *relay.Relay
	manager serviceManager
	api     *client.Client
	server  string
}

// NewRelayProcess listens on ops_listen. Until Run it reads nothing.
func NewRelayProcess(
	c *console.Console, s *config.Settings, server remote.Flags, log *slog.Logger,
) (*RelayProcess, error) {
	p := &RelayProcess{log: log, manager: newServiceManager(c, log)}
	remote, err := remote.New(c, server)
	if err != nil {
		return nil, err
	}
	// The relay itself calls again. It must know of each failure, for its back-off and its health.
	p.api, err = remote.Once(relayTimeout)
	if err != nil {
		return nil, err
	}
	p.server = remote.Base
	// There is no build_info: alerts expect of each process with it that it measures an installation.
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	sink := relaySink{p.api}
	p.relay, err = newRelay(s, func(string) relay.Sink { return sink }, log, registry)
	if err != nil {
		return nil, err
	}
	p.Web, err = web.New(web.Options{
		OpsListen: s.OpsListen, Pprof: s.Pprof, Health: relayHealth{p.relay},
		Logger: log, Registerer: registry, Gatherer: registry,
	})
	if err != nil {
		return nil, err
	}
	return p, p.Web.Listen()
}

// Run reads until ctx ends or the ops listener fails. Then it finishes the pages in hand, and returns when
// all goroutines have ended.
func (p *RelayProcess) Run(ctx context.Context) error {
	defer p.api.CloseIdleConnections()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	opsCtx, endOps := context.WithCancel(context.WithoutCancel(ctx))
	defer endOps()
	served, read := make(chan error, 1), make(chan error, 1)
	go func() {
		err := p.Web.Run(opsCtx)
		fail(err)
		served <- err
	}()
	go func() { read <- p.relay.Run(ctx) }()
	p.log.Info("relay is running", "server", p.server, "ops", p.Web.OpsAddr().String())
	p.manager.notify("READY=1", "STATUS=reading outbox tables")

	<-ctx.Done()
	p.log.Info("shutting down")
	p.manager.notify("STOPPING=1", "STATUS=finishing pages",
		fmt.Sprint("EXTEND_TIMEOUT_USEC=", relayAllowance.Microseconds()))
	p.Web.BeginDrain()
	err := <-read
	endOps()
	if err := errors.Join(err, <-served); err != nil {
		return err
	}
	p.log.Info("relay has ended")
	return nil
}

// relayAllowance is the most that a relay takes to end: the page in hand, and the return of the lease.
const relayAllowance = 20 * time.Second

// newRelay returns the relay of a process.
func newRelay(s *config.Settings, sink func(project string) relay.Sink, log *slog.Logger,
	registry prometheus.Registerer) (*relay.Relay, error) {
	sources, wrong := s.Sources()
	if len(wrong) > 0 {
		return nil, fmt.Errorf("relay: %s %s", wrong[0].Field, wrong[0].Message)
	}
	host, err := os.Hostname()
	if err != nil {
		log.Warn("the host has no name for leases", "error", err)
	}
	return relay.New(relay.Options{
		Sources: sources, Sink: sink, Connect: connectSource,
		// The token distinguishes processes in containers, whose host names and ids may be equal.
		Holder: fmt.Sprintf("%.60s, pid %d, %.8s", cmp.Or(host, "unknown host"), os.Getpid(),
			clock.NewToken()),
		Logger: log, Registerer: registry,
	})
}

// connectSource opens an outbox table for the relay.
func connectSource(ctx context.Context, c relay.SourceConfig) (relay.Conn, error) {
	s, err := OpenSource(&c)
	if err != nil {
		return nil, err
	}
	return s.Connect(ctx)
}

// OpenSource returns an outbox table of the settings, without a connection. It reads the password file each
// time, so the next connection has a new password.
func OpenSource(c *relay.SourceConfig) (*source.Source, error) {
	o := source.Options{DSN: c.DSN, Table: c.Table, Keep: c.Keep > 0}
	if c.PasswordFile == "" {
		return source.Open(o)
	}
	var err error
	o.Password, err = config.ReadSecretFile(c.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("password_file: %w", err)
	}
	return source.Open(o)
}

// openRelay creates the relay of a server. Without the role relay, or without sources, it does nothing.
func (srv *App) openRelay() (err error) {
	s := *srv.Settings
	if !s.Has(config.RoleRelay) {
		s.Relay = ""
	}
	srv.relay, err = newRelay(&s, func(project string) relay.Sink {
		return api.NewRelaySink(srv.Engine, project, srv.Log)
	}, srv.Log, srv.Metrics)
	return err
}

// A relaySink is a dispatcher behind its API.
type relaySink struct{ api *client.Client }

// Submit implements relay.Sink.
func (s relaySink) Submit(
	ctx context.Context, source string, b client.RelayBatch,
) (client.RelayReply, error) {
	return s.api.Relay(ctx, source, b)
}

// relayHealth is the state of a process that only reads outbox tables. It is always ready.
type relayHealth struct{ relay *relay.Relay }

// Health implements web.Health.
func (h relayHealth) Health(context.Context) dispatch.Health {
	return dispatch.Health{Ready: true, Degraded: h.relay.Degraded()}
}
