// Package web is the HTTP server of a dispatcher: two listeners, the middleware around every request, and the
// handlers behind it.
//
// The public listener serves the API and the UI. The ops listener serves metrics, health and profiles, which
// the public listener answers with 404.
//
// Guarantees:
//
//   - Every read and write has a timeout.
//   - A panic in a handler ends only its request.
//   - No log line contains a header, a body or a query value.
//   - /readyz announces a drain before a listener closes.
//
// The package makes no decisions about callbacks, and does not serve TLS.
package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
	"github.com/seed-ff5a32d8/dispatcher/web/ui"
)

// Timeouts and limits of both listeners. A batch of 16 MiB must arrive over a slow connection. A header is
// short, so its timeout is short.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 60 * time.Second
	writeTimeout      = 120 * time.Second
	idleTimeout       = 120 * time.Second
	maxHeaderBytes    = 64 << 10
)

// Health is the state that /readyz reports.
type Health interface {
	Health(ctx context.Context) dispatch.Health
}

// Options configure a Server. Health is required.
type Options struct {
	// Listen is the public address; empty: 127.0.0.1:8080. OpsListen is the ops address; empty:
	// 127.0.0.1:8081. Port 0 selects a free port.
	Listen, OpsListen string
	// API and UI are served on the public listener. If both are nil there is no public listener.
	API    *api.API
	UI     *ui.UI
	Health Health
	// PublicURL is the URL that browsers use. If its scheme is https, browsers are made to use https only.
	PublicURL string
	// Pprof also serves profiles on an ops listener that is not on loopback.
	Pprof bool
	// TrustedProxies are addresses or CIDRs whose X-Forwarded-For header is trusted. Empty: no proxy is
	// trusted.
	TrustedProxies []string
	// ShutdownTimeout limits the time for open requests to end. Zero: 10 s.
	ShutdownTimeout time.Duration
	// Logger gets a line for each request. Nil: no log.
	Logger *slog.Logger
	// Registerer gets the server's own metrics. Gatherer has the metrics of /metrics. Nil: no metrics.
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer
}

// A Server owns both listeners. Its zero value is not usable; see New.
type Server struct {
	o        Options
	log      *slog.Logger
	public   *http.Server // nil without an API and a UI
	ops      *http.Server
	draining atomic.Bool

	// listening guards the listeners, which are nil before Listen.
	listening         sync.Mutex
	publicLn, opsLn   net.Listener
	closePublicOnce   sync.Once
	closePublicResult error
}

// New returns a server that does not listen yet.
func New(o Options) (*Server, error) {
	if o.Health == nil {
		return nil, errors.New("new server: Health is required")
	}
	o.Listen, o.OpsListen = cmp.Or(o.Listen, "127.0.0.1:8080"), cmp.Or(o.OpsListen, "127.0.0.1:8081")
	if o.ShutdownTimeout <= 0 {
		o.ShutdownTimeout = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Gatherer == nil {
		o.Gatherer = prometheus.NewRegistry()
	}
	s := &Server{o: o, log: o.Logger}
	if o.API != nil || o.UI != nil {
		handler, err := s.publicHandler()
		if err != nil {
			return nil, err
		}
		s.public = s.httpServer(handler)
	}
	s.ops = s.httpServer(s.opsHandler())
	return s, nil
}

// httpServer returns an http.Server with the timeouts and limits of both listeners.
func (s *Server) httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// net/http logs broken connections here, and any stranger can cause them.
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// publicHandler returns the router of the public listener.
func (s *Server) publicHandler() (http.Handler, error) {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false
	// Not X-Real-Ip: a proxy that does not know it forwards the client's value.
	engine.RemoteIPHeaders = []string{"X-Forwarded-For"}
	if err := engine.SetTrustedProxies(s.o.TrustedProxies); err != nil {
		return nil, fmt.Errorf("trusted proxies: %w", err)
	}
	m, err := newMiddleware(s.log, s.o.Registerer)
	if err != nil {
		return nil, err
	}
	engine.Use(m.observe, m.recover, secure)
	if query.HTTPS(s.o.PublicURL) {
		engine.Use(httpsOnly)
	}
	engine.NoRoute(func(c *gin.Context) {
		if s.o.UI != nil && strings.HasPrefix(c.Request.URL.Path, ui.Root) {
			s.o.UI.NotFound(c)
			return
		}
		m.refuse(c, httperr.ErrNoRoute)
	})
	engine.NoMethod(func(c *gin.Context) { m.refuse(c, httperr.ErrMethod) })
	if s.o.API != nil {
		s.o.API.Register(engine)
	}
	if s.o.UI != nil {
		s.o.UI.Register(engine)
	}
	m.createSeries(engine.Routes())
	return engine, nil
}

// Handler returns the handler of the public listener, or nil without an API and a UI.
func (s *Server) Handler() http.Handler {
	if s.public == nil {
		return nil
	}
	return s.public.Handler
}

// OpsHandler returns the handler of the ops listener.
func (s *Server) OpsHandler() http.Handler { return s.ops.Handler }

// Listen opens the listeners, so that their addresses are known and reserved before Run. A second call does
// nothing.
func (s *Server) Listen() error {
	s.listening.Lock()
	defer s.listening.Unlock()
	if s.opsLn != nil {
		return nil
	}
	ops, err := listen("ops_listen", s.o.OpsListen)
	if err != nil {
		return err
	}
	if s.public != nil {
		public, err := listen("listen", s.o.Listen)
		if err != nil {
			return errors.Join(err, ops.Close())
		}
		s.publicLn = public
	}
	s.opsLn = ops
	return nil
}

// listen opens the address of a setting.
func listen(setting, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is in use; stop the program that listens there, or change the setting %s",
			address, setting)
	case err != nil:
		return nil, fmt.Errorf("open the address of the setting %s: %w", setting, err)
	}
	return l, nil
}

// Addr returns the public address, or nil before Listen and without an API and a UI.
func (s *Server) Addr() net.Addr { return s.addrOf(&s.publicLn) }

// OpsAddr returns the ops address, or nil before Listen.
func (s *Server) OpsAddr() net.Addr { return s.addrOf(&s.opsLn) }

func (s *Server) addrOf(ln *net.Listener) net.Addr {
	s.listening.Lock()
	defer s.listening.Unlock()
	if *ln == nil {
		return nil
	}
	return (*ln).Addr()
}

// BeginDrain makes /readyz respond with 503. It closes nothing.
func (s *Server) BeginDrain() { s.draining.Store(true) }

// ClosePublic closes the public listener and waits for its open requests, at most ShutdownTimeout; then it
// aborts them. The ops listener stays open until Run ends, so that operators can watch a drain.
func (s *Server) ClosePublic() error {
	s.closePublicOnce.Do(func() {
		if s.o.UI != nil {
			s.o.UI.Close() // ends the streams, which stay open otherwise
		}
		s.closePublicResult = s.shutdown(s.public)
		s.listening.Lock()
		defer s.listening.Unlock()
		if s.publicLn != nil {
			// The http.Server does not close a listener that was opened but never served.
			if err := s.publicLn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				s.closePublicResult = errors.Join(s.closePublicResult, err)
			}
		}
	})
	return s.closePublicResult
}

// shutdown ends a server gracefully. After the timeout it aborts the open requests.
func (s *Server) shutdown(server *http.Server) error {
	if server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.o.ShutdownTimeout)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("open requests aborted at shutdown", "timeout", s.o.ShutdownTimeout)
		err = server.Close()
	}
	if err != nil {
		return fmt.Errorf("shut down the server: %w", err)
	}
	return nil
}

// Run serves until ctx ends. Then it closes both listeners, gracefully and within the timeouts, and returns
// after all its goroutines have ended. It returns nil after an orderly end, or the error of a listener.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	serve := func(server *http.Server, ln net.Listener, name string) {
		wg.Go(func() {
			if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				stop(fmt.Errorf("serve on the %s listener: %w", name, err))
			}
		})
	}
	if s.public != nil {
		serve(s.public, s.publicLn, "public")
	}
	serve(s.ops, s.opsLn, "ops")
	<-ctx.Done()
	s.BeginDrain()
	err := errors.Join(s.ClosePublic(), s.shutdown(s.ops))
	wg.Wait()
	cause := context.Cause(ctx)
	orderly := errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded)
	if !orderly {
		err = errors.Join(cause, err)
	}
	return err
}
