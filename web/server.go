// Package web is the one HTTP server of a dispatcher: two listeners, the middleware around every request, and
// the faces behind it.
//
// The public listener carries the API and the admin pages; the ops listener carries metrics, health and
// profiles, which the public one answers with 404. The package guarantees time-outs on everything that is
// read or written, that a panic of a handler ends that request only, that no log line carries a header, a
// body or a query value, and that a drain is announced on /readyz before anything closes. It decides nothing
// about callbacks, and serves no TLS.
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
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/web/api"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
	"github.com/seed-ff5a32d8/dispatcher/web/ui"
)

// Time-outs and limits of the public listener. A batch of 16 MiB must get through on a slow line; a header
// must not take its time.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 60 * time.Second
	writeTimeout      = 120 * time.Second
	idleTimeout       = 120 * time.Second
	maxHeaderBytes    = 64 << 10
)

// Health is what /readyz asks.
type Health interface {
	Health(ctx context.Context) dispatch.Health
}

// Options are what a server is made of. Health is required.
type Options struct {
	// Listen is the public address; empty: 127.0.0.1:8080. OpsListen is the ops one; empty: 127.0.0.1:8081.
	// Port 0 takes a free one.
	Listen, OpsListen string
	// API and UI are served on the public listener; where both are nil there is none.
	API    *api.API
	UI     *ui.UI
	Health Health
	// PublicURL is the address by which browsers come; an https one has them come over https from then on.
	PublicURL string
	// Pprof shows profiles on an ops listener that is not on loopback, too.
	Pprof bool
	// TrustedProxies are addresses or CIDRs whose X-Forwarded-For counts; none: no proxy is trusted.
	TrustedProxies []string
	// ShutdownTimeout bounds how long open requests may take to end; zero: 10 s.
	ShutdownTimeout time.Duration
	// Logger gets a line for each request; nil: none.
	Logger *slog.Logger
	// Registerer takes the server's own metrics, Gatherer is what /metrics shows; nil: none, an empty page.
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer
}

// A Server owns both listeners. Its zero value is not usable: see New.
type Server struct {
	o        Options
	log      *slog.Logger
	public   *http.Server // nil without an API and a UI
	ops      *http.Server
	draining atomic.Bool

	// listening guards the listeners, which are nil until Listen.
	listening         sync.Mutex
	publicLn, opsLn   net.Listener
	closePublicOnce   sync.Once
	closePublicResult error
}

// New returns a server that does not listen yet.
func New(o Options) (*Server, error) {
	if o.Health == nil {
		return nil, errors.New("the server needs a health to answer /readyz")
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

func (s *Server) httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// What net/http says of broken connections is noise that a stranger can make at will.
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// publicHandler builds the router of the public listener.
func (s *Server) publicHandler() (http.Handler, error) {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.HandleMethodNotAllowed = true
	engine.RedirectTrailingSlash = false
	// Not X-Real-Ip, which a proxy that does not know it hands on as the client wrote it.
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
	return engine, nil
}

// Handler returns what answers on the public listener, nil without an API and a UI; OpsHandler what answers
// on the ops one.
func (s *Server) Handler() http.Handler {
	if s.public == nil {
		return nil
	}
	return s.public.Handler
}

// OpsHandler returns what answers on the ops listener.
func (s *Server) OpsHandler() http.Handler { return s.ops.Handler }

// Listen opens the listeners, so that the addresses are known and taken before Run. Again it does nothing.
func (s *Server) Listen() error {
	s.listening.Lock()
	defer s.listening.Unlock()
	if s.opsLn != nil {
		return nil
	}
	ops, err := net.Listen("tcp", s.o.OpsListen)
	if err != nil {
		return fmt.Errorf("open the ops listener: %w", err)
	}
	if s.public != nil {
		public, err := net.Listen("tcp", s.o.Listen)
		if err != nil {
			return errors.Join(fmt.Errorf("open the listener: %w", err), ops.Close())
		}
		s.publicLn = public
	}
	s.opsLn = ops
	return nil
}

// Addr returns the public address, nil before Listen and without an API and a UI. OpsAddr returns the ops
// address.
func (s *Server) Addr() net.Addr { return s.addrOf(&s.publicLn) }

// OpsAddr returns the ops listener's address, nil before Listen.
func (s *Server) OpsAddr() net.Addr { return s.addrOf(&s.opsLn) }

func (s *Server) addrOf(ln *net.Listener) net.Addr {
	s.listening.Lock()
	defer s.listening.Unlock()
	if *ln == nil {
		return nil
	}
	return (*ln).Addr()
}

// BeginDrain makes /readyz answer 503 from now on. Nothing closes.
func (s *Server) BeginDrain() { s.draining.Store(true) }

// ClosePublic closes the public listener and waits until its open requests have ended, at most the shutdown
// time-out; then they are cut off. The ops listener goes on until Run ends, so that a drain can be watched.
func (s *Server) ClosePublic() error {
	s.closePublicOnce.Do(func() {
		if s.o.UI != nil {
			s.o.UI.Close() // streams would not end by themselves
		}
		s.closePublicResult = s.shutdown(s.public)
		s.listening.Lock()
		defer s.listening.Unlock()
		if s.publicLn != nil {
			// One that was opened but never served is not known to the http.Server.
			if err := s.publicLn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				s.closePublicResult = errors.Join(s.closePublicResult, err)
			}
		}
	})
	return s.closePublicResult
}

// shutdown ends a server gracefully, or after the time-out at once.
func (s *Server) shutdown(server *http.Server) error {
	if server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.o.ShutdownTimeout)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("requests were cut off: they did not end in time", "timeout", s.o.ShutdownTimeout)
		err = server.Close()
	}
	if err != nil {
		return fmt.Errorf("shut the server down: %w", err)
	}
	return nil
}

// Run serves until ctx ends, then closes both listeners, gracefully and in bounded time, and returns when all
// its goroutines have ended. It returns nil after an orderly end, and the error of a listener that failed.
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
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) &&
		!errors.Is(cause, context.DeadlineExceeded) {
		err = errors.Join(cause, err)
	}
	return err
}
