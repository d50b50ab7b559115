// Package app wires a server. It opens SQL and the index of the settings and gives them to the engine and the
// web server. It is the only package that knows concrete technologies.
//
// New listens on the addresses but sends nothing, Run serves and drains, and Close ends what New opened.
// Rules of sending, storing and scheduling are in other packages.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
	// schedules need time zones, also on a machine without them, such as a container with only this program
	_ "time/tzdata"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/trace"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/watchdog"
	"github.com/seed-ff5a32d8/dispatcher/internal/metric"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
	"github.com/seed-ff5a32d8/dispatcher/web"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
	"github.com/seed-ff5a32d8/dispatcher/web/signin"
	"github.com/seed-ff5a32d8/dispatcher/web/ui"
)

// ServeCommand runs the dispatcher.
type ServeCommand struct {
	config.Flags
}

// Run serves until the first SIGINT or SIGTERM, then drains.
func (cmd *ServeCommand) Run(ctx context.Context, c *console.Console) error {
	l, err := config.Load(c, &cmd.Flags)
	if err != nil {
		return err
	}
	s := &l.Settings
	log := NewLogger(c, s)
	AdoptLibraries(log)
	srv, err := New(ctx, c, s, log)
	if err != nil {
		return s.Clean(err)
	}
	srv.Announce()
	return s.Clean(errors.Join(srv.Run(ctx), srv.Close()))
}

// App holds all opened and wired parts of a serving process.
type App struct {
	Settings *config.Settings
	Log      *slog.Logger
	version  string
	Engine   *dispatch.Engine
	Web      *web.Server
	// Metrics has the metrics that the ops listener exports.
	Metrics *prometheus.Registry
	tracer  *trace.Tracer // nil without a collector
	lock    *indexLock
	// watchdog has no sinks without alert_sink. Then it does not run.
	watchdog *watchdog.Watchdog
	// relay has no sources without the role relay or the setting.
	relay   *relay.Relay
	manager serviceManager
	// drainEnd is when the drain is out of time; zero before it begins.
	drainEnd time.Time
	// Close calls closers in reverse order.
	closers []func() error
}

// New opens and wires the parts that the settings name. It listens on the addresses, but until Run nothing is
// sent and no request is served.
func New(
	ctx context.Context, c *console.Console, s *config.Settings, log *slog.Logger,
) (srv *App, err error) {
	srv = &App{Settings: s, Log: log, version: c.Version, manager: newServiceManager(c, log)}
	defer func() {
		if err != nil {
			err = errors.Join(err, srv.Close())
			srv = nil
		}
	}()
	if !s.Postgres() {
		if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
			return srv, fmt.Errorf("create the data directory: %w", err)
		}
	}
	srv.Metrics = NewRegistry(c.Version, c.Revision)
	if !s.Postgres() {
		srv.Metrics.MustRegister(disk{path: s.SQLitePath(), dir: filepath.Dir(s.SQLitePath())})
	}
	if err := srv.openTracer(ctx, srv.Metrics); err != nil {
		return srv, err
	}
	srv.lock, err = acquireIndexLock(ctx, s, log)
	if err != nil {
		return srv, err
	}
	srv.onClose(func() error { srv.lock.release(); return nil })
	db, err := srv.OpenDatabase(ctx, srv.Metrics)
	if err != nil {
		return srv, err
	}
	if err := completeKeys(c, s, log); err != nil {
		return srv, err
	}
	keyring, err := secret.NewKeyring(s.MasterKey)
	if err != nil {
		return srv, err
	}
	index, err := srv.OpenIndex(ctx, srv.Metrics)
	if err != nil {
		return srv, err
	}
	guard, err := outbound.NewGuard(s.EgressAllow)
	if err != nil {
		return srv, err
	}
	sender, err := outbound.New(outbound.Options{Guard: guard, Version: srv.version,
		MaxIdlePerHost: max(s.LaneConcurrency, s.Workers), Logger: log})
	if err != nil {
		return srv, err
	}
	srv.onClose(func() error { sender.CloseIdle(); return nil })
	srv.Engine, err = dispatch.New(dispatch.Options{
		Store: db, Schedule: index, Sender: sender, Keyring: keyring,
		PanGuard: store.PanGuard(s.PanGuard), CheckURL: guard.CheckURL, ReadTemplate: api.ReadTemplate,
		PublicURL: s.PublicURL,
		Version:   srv.version, Roles: s.Roles, Prefix: s.RedisPrefix, Embedded: s.Embedded(),
		SendingOff: s.Hold, NoWorker: !s.Has(config.RoleWorker),
		Horizon: s.Horizon, Workers: s.Workers, LaneConcurrency: s.LaneConcurrency,
		DrainTimeout:     s.DrainTimeout,
		ApprovalAbove:    s.ApprovalAbove,
		Unread:           func() []string { return srv.relay.Degraded() },
		RetentionPayload: s.RetentionPayload, RetentionMetadata: s.RetentionMetadata,
		Tracer: srv.tracer, Logger: log, Registerer: srv.Metrics,
	})
	if err != nil {
		return srv, err
	}
	if err := srv.checkKeys(ctx); err != nil {
		return srv, err
	}
	srv.watchdog, err = srv.newWatchdog(sender)
	if err != nil {
		return srv, err
	}
	if err := srv.openRelay(); err != nil {
		return srv, err
	}
	if err := srv.openWeb(db); err != nil {
		return srv, err
	}
	guard.RefuseOwn(srv.Web.Addr(), srv.Web.OpsAddr())
	return srv, nil
}

// checkKeys refuses to start if a master key that SQL names is missing or wrong: attempts that need its
// secrets would be postponed forever. It tries one row for each table and master key.
func (srv *App) checkKeys(ctx context.Context) error {
	problems, err := srv.Engine.CheckKeys(ctx)
	if err != nil {
		return fmt.Errorf("check the master keys: %w", err)
	}
	if len(problems) == 0 {
		return nil
	}
	usage := &console.UsageError{}
	for _, p := range problems {
		usage.Add("master_key: %s", p)
	}
	usage.Add(`give all keys that were used, the current one first (--master-key NEW,OLD); ` +
		`"dispatcher doctor" shows details`)
	return usage
}

// NewRegistry returns a registry with the metrics of every process.
func NewRegistry(version, revision string) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: metric.Prefix + "build_info",
		Help: "Always 1. The labels are the running version, the revision of its source and the version " +
			"of Go.",
		ConstLabels: prometheus.Labels{
			"version": version, "revision": cmp.Or(revision, builtRevision()), "goversion": runtime.Version(),
		},
	})
	build.Set(1)
	registry.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// builtRevision returns the commit that the go command recorded in the program, or "unknown".
func builtRevision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}

func (srv *App) onClose(f func() error) { srv.closers = append(srv.closers, f) }

// Close closes what New opened, in reverse order.
func (srv *App) Close() error {
	var err error
	for i := len(srv.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, srv.closers[i]())
	}
	srv.closers = nil
	return err
}

// OpenDatabase opens SQL and migrates it. Without the setting migrate, it refuses a schema that is not up to
// date.
func (srv *App) OpenDatabase(ctx context.Context, registry prometheus.Registerer) (*sqlstore.DB, error) {
	s := srv.Settings
	db, err := sqlstore.Open(ctx, sqlstore.Options{URL: s.Database(), MaxConns: s.DatabaseMaxConns,
		Logger: srv.Log, Registerer: registry})
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
		return nil, fmt.Errorf("read the status of migrations: %w", err)
	}
	for _, m := range status {
		if !m.Applied {
			return nil, fmt.Errorf("migration %d (%s) is not applied; run \"dispatcher migrate\", "+
				"or serve without --migrate=false", m.Version, m.Name)
		}
	}
	return db, nil
}

// OpenIndex opens the index on Redis, or creates the embedded one.
func (srv *App) OpenIndex(ctx context.Context, registry prometheus.Registerer) (dispatch.Schedule, error) {
	s := srv.Settings
	if s.Embedded() {
		return memq.New(memq.Options{}), nil
	}
	// go-redis prints to the standard error. It also returns the errors that matter.
	redis.SetLogger(libraryLog{srv.Log})
	index, err := redisq.Open(ctx, redisq.Options{URL: s.RedisURL, Prefix: s.RedisPrefix, Logger: srv.Log,
		Registerer: registry})
	if err != nil {
		return nil, fmt.Errorf("open the index: %w", err)
	}
	srv.onClose(index.Close)
	return index, nil
}

// openWeb creates the HTTP server and listens on its addresses.
func (srv *App) openWeb(db *sqlstore.DB) error {
	s := srv.Settings
	masked := maskedDB{db, store.PanGuard(s.PanGuard)}
	guesses := new(query.Guesses) // API and pages share it: a key opens both
	merchants := query.NewMerchantLimits()
	o := web.Options{
		Listen: s.Listen, OpsListen: s.OpsListen, PublicURL: s.PublicURL, Pprof: s.Pprof, Health: srv.Engine,
		TrustedProxies: s.TrustedProxies,
		Logger:         srv.Log, Registerer: srv.Metrics, Gatherer: srv.Metrics,
	}
	if s.Has(config.RoleAPI) {
		reports, err := ui.ReportTexts()
		if err != nil {
			return err
		}
		handler, err := api.New(api.Options{
			Engine: srv.Engine, Store: masked, AdminKey: s.AdminKey, Guesses: guesses,
			Merchants: merchants, PublicURL: s.PublicURL, ReportTexts: reports,
			RequestsPerSecond: s.RequestsPerSecond, Logger: srv.Log, Tracer: srv.tracer,
		})
		if err != nil {
			return err
		}
		o.API = handler
	}
	if s.Has(config.RoleUI) {
		provider, grants, err := srv.signIn()
		if err != nil {
			return err
		}
		pages, err := ui.New(ui.Options{
			Engine: srv.Engine, Store: pagesDB{masked}, AdminKey: s.AdminKey, Guesses: guesses,
			Merchants: merchants,
			PublicURL: s.PublicURL, Version: srv.version, Logger: srv.Log,
			SignIn: provider, Grants: grants, ApprovalAbove: s.ApprovalAbove,
		})
		if err != nil {
			return err
		}
		o.UI = pages
	}
	var err error
	srv.Web, err = web.New(o)
	if err != nil {
		return err
	}
	return srv.Web.Listen()
}

// signIn returns the identity provider of the settings and the grants of its groups, or nil.
func (srv *App) signIn() (*signin.Provider, []signin.Grant, error) {
	s := srv.Settings
	if s.OIDCIssuer == "" {
		return nil, nil, nil
	}
	grants, err := signin.ParseGrants(s.OIDCGroups)
	if err != nil {
		return nil, nil, fmt.Errorf("oidc_groups %w", err)
	}
	provider := signin.New(s.SignIn())
	srv.onClose(func() error { provider.CloseIdle(); return nil })
	return provider, grants, nil
}

// Announce logs the addresses and roles of the process, and warnings about its settings.
func (srv *App) Announce() {
	s := srv.Settings
	database, index := "sqlite", "embedded"
	if s.Postgres() {
		database = "postgresql"
	}
	if !s.Embedded() {
		index = "redis"
	}
	attrs := []any{"version", srv.version, "roles", strings.Join(s.Roles, ","), "database", database, "index",
		index, "ops", srv.Web.OpsAddr().String()}
	if addr := srv.Web.Addr(); addr != nil {
		if s.Has(config.RoleAPI) {
			attrs = append(attrs, "api", "http://"+addr.String())
		}
		if s.Has(config.RoleUI) {
			attrs = append(attrs, "ui", "http://"+addr.String()+ui.Root+"/")
		}
	}
	srv.Log.Info("dispatcher is serving", attrs...)
	addr, tcp := srv.Web.Addr().(*net.TCPAddr)
	if tcp && !addr.IP.IsLoopback() && !query.HTTPS(s.PublicURL) {
		srv.Log.Warn("API keys and sessions cross the network unencrypted; put an https proxy in front of "+
			"listen and set public_url to its URL", "listen", addr.String())
	}
	if s.Hold {
		srv.Log.Warn("sending is off by the setting hold: callbacks are accepted, but not sent; " +
			"restart without --hold to send")
	}
}

// pagesDB is the database as the pages read it.
type pagesDB struct{ maskedDB }

// Migrations returns the migrations of this version.
func (db pagesDB) Migrations(ctx context.Context) ([]ui.Migration, error) {
	status, err := sqlstore.MigrationStatus(ctx, db.DB)
	if err != nil {
		return nil, err
	}
	list := make([]ui.Migration, len(status))
	for i, m := range status {
		list[i] = ui.Migration{Version: m.Version, Name: m.Name, AppliedAt: m.AppliedAt}
	}
	return list, nil
}

// maskedDB is the database as the API and the pages read it, with card numbers masked if pan_guard says so.
// Attempts are sent from the database itself, without masks.
type maskedDB struct {
	*sqlstore.DB
	guard store.PanGuard
}

// Payload returns a body, masked if necessary.
func (db maskedDB) Payload(ctx context.Context, project, id string) (store.Payload, error) {
	p, err := db.DB.Payload(ctx, project, id)
	if err == nil && db.guard.Masks() {
		p.Body, p.Masked = store.MaskPAN(p.Body)
	}
	return p, err
}

// Attempts returns attempts, with masked responses if necessary.
func (db maskedDB) Attempts(
	ctx context.Context, project, id string, before, limit int,
) ([]store.Attempt, error) {
	attempts, err := db.DB.Attempts(ctx, project, id, before, limit)
	if err == nil && db.guard.Masks() {
		store.MaskAttempts(attempts)
	}
	return attempts, err
}

// Attempt returns an attempt, with a masked response if necessary.
func (db maskedDB) Attempt(ctx context.Context, project, id string, number int) (store.Attempt, error) {
	a, err := db.DB.Attempt(ctx, project, id, number)
	if err != nil || !db.guard.Masks() {
		return a, err
	}
	one := []store.Attempt{a}
	store.MaskAttempts(one)
	return one[0], nil
}
