package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
	_ "time/tzdata" // the zones of schedules must be there on a machine that has none, such as a container of this program alone

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
	"github.com/seed-ff5a32d8/dispatcher/web"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
	"github.com/seed-ff5a32d8/dispatcher/web/ui"
)

// databaseFileName is SQLite's file in the data directory.
const databaseFileName = "dispatcher.db"

// A server is everything that a serving process is made of, opened and wired. close ends what openServer opened.
type server struct {
	s      *Settings
	log    *slog.Logger
	engine *dispatch.Engine
	web    *web.Server
	lock   *indexLock
	// closers run in reverse.
	closers []func() error
}

// databaseURL returns the address that the database is opened with: SQLite in the data directory where none is set.
func (s *Settings) databaseURL() string {
	if s.DatabaseURL == "" {
		return "sqlite:" + filepath.Join(s.DataDir, databaseFileName)
	}
	return s.DatabaseURL
}

// openServer opens and wires everything that the settings ask for. Nothing is sent and nobody is answered until run,
// but the addresses are taken.
func openServer(ctx context.Context, c *console, s *Settings, log *slog.Logger) (srv *server, err error) {
	srv = &server{s: s, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, srv.close())
			srv = nil
		}
	}()
	if !s.postgres() {
		if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
			return srv, fmt.Errorf("make the data directory: %w", err)
		}
	}
	registry := newRegistry()
	if srv.lock, err = acquireIndexLock(ctx, s, log); err != nil {
		return srv, err
	}
	srv.onClose(func() error { srv.lock.release(); return nil })
	db, err := srv.openDatabase(ctx, registry)
	if err != nil {
		return srv, err
	}
	if err := completeKeys(c, s, log); err != nil {
		return srv, err
	}
	keyring, err := dispatch.NewKeyring(s.MasterKey)
	if err != nil {
		return srv, err
	}
	index, err := srv.openIndex(ctx, registry)
	if err != nil {
		return srv, err
	}
	guard, err := outbound.NewGuard(s.EgressAllow)
	if err != nil {
		return srv, err
	}
	sender, err := outbound.New(outbound.Options{Guard: guard, Version: programVersion(), MaxIdlePerHost: max(s.LaneConcurrency, s.Workers), Logger: log})
	if err != nil {
		return srv, err
	}
	srv.onClose(func() error { sender.CloseIdle(); return nil })
	srv.engine, err = dispatch.New(dispatch.Options{
		Store: db, Schedule: index, Sender: sender, Keyring: keyring,
		PanGuard: store.PanGuard(s.PanGuard), CheckURL: guard.CheckURL, ReadTemplate: api.ReadTemplate,
		Version: programVersion(), Roles: s.Roles, Prefix: s.RedisPrefix, Alone: s.embedded(), Hold: s.Hold, NoWorker: !s.has(roleWorker),
		Horizon: s.Horizon, Workers: s.Workers, LaneConcurrency: s.LaneConcurrency, DrainTimeout: s.DrainTimeout,
		RetentionPayload: s.RetentionPayload, RetentionMetadata: s.RetentionMetadata,
		Logger: log, Registerer: registry,
	})
	if err != nil {
		return srv, err
	}
	if err := srv.checkKeys(ctx); err != nil {
		return srv, err
	}
	if err := srv.openWeb(db, registry); err != nil {
		return srv, err
	}
	guard.RefuseOwn(srv.web.Addr(), srv.web.OpsAddr())
	return srv, nil
}

// checkKeys refuses master keys that cannot decrypt what is stored: every signed attempt would be put off for
// ever.
func (srv *server) checkKeys(ctx context.Context) error {
	problems, err := srv.engine.CheckKeys(ctx)
	if err != nil {
		return fmt.Errorf("check the master keys: %w", err)
	}
	if len(problems) == 0 {
		return nil
	}
	usage := &usageError{}
	for _, p := range problems {
		usage.lines = append(usage.lines, "master_key: "+p.String())
	}
	usage.lines = append(usage.lines, `give every key that was used, the present one first (--master-key NEW,OLD); "dispatcher doctor" says more`)
	return usage
}

// newRegistry returns a registry with what every process shows of itself.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "dispatcher_build_info",
		Help:        "Always 1; the label says which version runs.",
		ConstLabels: prometheus.Labels{"version": programVersion()},
	})
	build.Set(1)
	registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

func (srv *server) onClose(f func() error) { srv.closers = append(srv.closers, f) }

// close closes what was opened, the last first.
func (srv *server) close() error {
	var err error
	for i := len(srv.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, srv.closers[i]())
	}
	srv.closers = nil
	return err
}

// openDatabase opens SQL and migrates it, or refuses a schema that is not up to date.
func (srv *server) openDatabase(ctx context.Context, registry prometheus.Registerer) (*sqlstore.DB, error) {
	s := srv.s
	db, err := sqlstore.Open(ctx, sqlstore.Options{URL: s.databaseURL(), MaxConns: s.DatabaseMaxConns, Logger: srv.log, Registerer: registry})
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	srv.onClose(db.Close)
	if s.Migrate {
		if err := sqlstore.Migrate(ctx, db); err != nil {
			return nil, fmt.Errorf("migrate the database: %w", err)
		}
		return db, nil
	}
	status, err := sqlstore.MigrationStatus(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("look at the migrations: %w", err)
	}
	for _, m := range status {
		if !m.Applied {
			return nil, fmt.Errorf("migration %d (%s) is not applied; run \"dispatcher migrate\", or serve without --migrate=false", m.Version, m.Name)
		}
	}
	return db, nil
}

// openIndex opens the index on Redis, or makes the one in this process.
func (srv *server) openIndex(ctx context.Context, registry prometheus.Registerer) (dispatch.Schedule, error) {
	s := srv.s
	if s.embedded() {
		return memq.New(memq.Options{}), nil
	}
	// The client library writes to the standard error by itself; what matters comes back as an error as well.
	redis.SetLogger(redisLogger{srv.log})
	index, err := redisq.Open(ctx, redisq.Options{URL: s.RedisURL, Prefix: s.RedisPrefix, Logger: srv.log, Registerer: registry})
	if err != nil {
		return nil, fmt.Errorf("open the index: %w", err)
	}
	srv.onClose(index.Close)
	return index, nil
}

// redisLogger passes the lines of the Redis client on to the log, for those who look closely.
type redisLogger struct{ log *slog.Logger }

// Printf implements the client's logger.
func (l redisLogger) Printf(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, "redis client", "line", fmt.Sprintf(format, args...))
}

// openWeb makes the HTTP server and takes its addresses.
func (srv *server) openWeb(db *sqlstore.DB, registry *prometheus.Registry) error {
	s := srv.s
	guesses := new(query.Guesses) // one for both faces: a key is worth the same to either
	o := web.Options{
		Listen: s.Listen, OpsListen: s.OpsListen, PublicURL: s.PublicURL, Pprof: s.Pprof, Health: srv.engine,
		TrustedProxies: s.TrustedProxies,
		Logger:         srv.log, Registerer: registry, Gatherer: registry,
	}
	if s.has(roleAPI) {
		e := srv.engine
		face, err := api.New(api.Options{
			Engine: e, Store: shownDB{db, store.PanGuard(s.PanGuard)}, AdminKey: s.AdminKey, Guesses: guesses,
			RequestsPerSecond: s.RequestsPerSecond, Logger: srv.log,
		})
		if err != nil {
			return err
		}
		o.API = face
	}
	if s.has(roleUI) {
		pages, err := srv.openPages(db, guesses)
		if err != nil {
			return err
		}
		o.UI = pages
	}
	var err error
	if srv.web, err = web.New(o); err != nil {
		return err
	}
	return srv.web.Listen()
}

// announce logs what serves where.
func (srv *server) announce() {
	s := srv.s
	database, index := "sqlite", "embedded"
	if s.postgres() {
		database = "postgresql"
	}
	if !s.embedded() {
		index = "redis"
	}
	attrs := []any{"version", programVersion(), "roles", strings.Join(s.Roles, ","), "database", database, "index", index, "ops", srv.web.OpsAddr().String()}
	if addr := srv.web.Addr(); addr != nil {
		if s.has(roleAPI) {
			attrs = append(attrs, "api", "http://"+addr.String())
		}
		if s.has(roleUI) {
			attrs = append(attrs, "ui", "http://"+addr.String()+ui.Root+"/")
		}
	}
	srv.log.Info("dispatcher is serving", attrs...)
	addr, tcp := srv.web.Addr().(*net.TCPAddr)
	if tcp && !addr.IP.IsLoopback() && !query.HTTPS(s.PublicURL) {
		srv.log.Warn("keys and sessions cross the network in clear; put a proxy with https in front of listen, "+
			"and set public_url to its https address", "listen", addr.String())
	}
	if s.Hold {
		srv.log.Warn("sending is held by the setting hold: callbacks are accepted and none is attempted; to go on, stop this process and start it without --hold")
	}
}

// run serves until ctx ends or a part fails, and drains: readiness ends and claiming stops at once; after
// shutdown_delay the API closes; attempts in flight end within drain_timeout. It returns when everything has ended.
func (srv *server) run(ctx context.Context) error {
	// Parts outlive ctx: they end in the order of the drain. failed ends with the first part that fails.
	life := context.WithoutCancel(ctx)
	failed, fail := context.WithCancelCause(life)
	defer fail(nil)
	start := func(name string, run func(context.Context) error) (end func()) {
		part, stop := context.WithCancel(life)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := run(part); err != nil {
				fail(fmt.Errorf("%s: %w", name, err))
			}
		}()
		return func() { stop(); <-ended }
	}
	endLock := start("index lock", srv.lock.run)
	endWeb := start("web server", srv.web.Run)
	endEngine := start("engine", srv.engine.Run)
	endCollector := start("collector", tendCollector)

	select {
	case <-ctx.Done():
		srv.log.Info("shutting down", "shutdown_delay", srv.s.ShutdownDelay, "drain_timeout", srv.s.DrainTimeout)
		// An orderly end keeps the API open for a while, so that load balancers can take notice.
		srv.drain()
		pause(failed, srv.s.ShutdownDelay)
	case <-failed.Done():
		srv.drain()
	}
	if err := srv.web.ClosePublic(); err != nil {
		srv.log.Warn("close the API", "error", err)
	}
	endEngine()
	endWeb()
	endCollector()
	endLock()
	if err := context.Cause(failed); err != nil {
		return err
	}
	srv.log.Info("dispatcher has ended")
	return nil
}

// drain ends readiness and claiming at once.
func (srv *server) drain() {
	srv.web.BeginDrain()
	srv.engine.BeginDrain()
}

// pause waits for d, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
