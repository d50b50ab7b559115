package web

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	runtimepprof "runtime/pprof"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A healthResponse is the body of /healthz and /readyz.
type healthResponse struct {
	Status   string   `json:"status"`
	Degraded []string `json:"degraded,omitempty"`
	Why      string   `json:"why,omitempty"`
}

// opsHandler handles the ops listener: metrics, health and profiles. It needs no key; anyone who can connect
// may read. Profiles are only served on loopback, unless the setting pprof allows more.
func (s *Server) opsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.o.Gatherer, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}))
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	for pattern, handler := range map[string]http.HandlerFunc{
		"{$}": s.profiles, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
		"{name}": func(w http.ResponseWriter, r *http.Request) {
			pprof.Handler(r.PathValue("name")).ServeHTTP(w, r)
		},
	} {
		mux.HandleFunc("GET /debug/pprof/"+pattern, func(w http.ResponseWriter, r *http.Request) {
			if !s.showsProfiles() {
				http.NotFound(w, r)
				return
			}
			handler(w, r)
		})
	}
	return mux
}

// showsProfiles reports whether profiles are served. Profiles reveal what the process works on, and cost CPU
// time.
func (s *Server) showsProfiles() bool {
	addr, ok := s.OpsAddr().(*net.TCPAddr)
	return s.o.Pprof || ok && addr.IP.IsLoopback()
}

// profiles lists the profiles. It replaces the index of package pprof, which also links to the command line,
// which may contain keys.
func (s *Server) profiles(w http.ResponseWriter, _ *http.Request) {
	names := []string{"profile?seconds=10", "trace?seconds=1"}
	for _, p := range runtimepprof.Profiles() {
		names = append(names, p.Name()+"?debug=1")
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if _, err := io.WriteString(w, strings.Join(names, "\n")+"\n"); err != nil {
		s.log.Debug("list of profiles not written", "error", err)
	}
}

// healthz responds with 200 as long as the process responds. It checks nothing else.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	s.healthResponse(w, http.StatusOK, healthResponse{Status: "ok"})
}

// readyz responds with 503 while the server drains or SQL cannot commit. Without the index it responds with
// 200 and lists what is degraded.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		s.healthResponse(w, http.StatusServiceUnavailable, healthResponse{Status: "unready", Why: "draining"})
		return
	}
	h := s.o.Health.Health(r.Context())
	switch {
	case !h.Ready:
		s.healthResponse(w, http.StatusServiceUnavailable,
			healthResponse{Status: "unready", Degraded: h.Degraded, Why: h.Why})
	case len(h.Degraded) > 0:
		s.healthResponse(w, http.StatusOK, healthResponse{Status: "degraded", Degraded: h.Degraded})
	default:
		s.healthResponse(w, http.StatusOK, healthResponse{Status: "ok"})
	}
}

func (s *Server) healthResponse(w http.ResponseWriter, status int, a healthResponse) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(a); err != nil {
		s.log.Debug("health response not written", "error", err)
	}
}
