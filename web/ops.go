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

// A healthAnswer is the body of /healthz and /readyz.
type healthAnswer struct {
	Status   string   `json:"status"`
	Degraded []string `json:"degraded,omitempty"`
	Why      string   `json:"why,omitempty"`
}

// opsHandler serves what is for operators and their machines only, and needs no key: all who reach the ops
// listener may look, at profiles those on the machine alone.
func (s *Server) opsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.o.Gatherer, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}))
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	for pattern, show := range map[string]http.HandlerFunc{
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
			show(w, r)
		})
	}
	return mux
}

// showsProfiles says whether profiles are shown: they tell what the process works on, and cost it time.
func (s *Server) showsProfiles() bool {
	addr, ok := s.OpsAddr().(*net.TCPAddr)
	return s.o.Pprof || ok && addr.IP.IsLoopback()
}

// profiles lists the profiles. The index of package pprof would name the command line too, which may have
// keys.
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

// healthz says that the process answers, and looks at nothing else.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	s.healthAnswer(w, http.StatusOK, healthAnswer{Status: "ok"})
}

// readyz is 503 while draining and while SQL cannot commit; without the index it is 200 and says what is
// degraded.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		s.healthAnswer(w, http.StatusServiceUnavailable, healthAnswer{Status: "unready", Why: "draining"})
		return
	}
	h := s.o.Health.Health(r.Context())
	switch {
	case !h.Ready:
		s.healthAnswer(w, http.StatusServiceUnavailable,
			healthAnswer{Status: "unready", Degraded: h.Degraded, Why: h.Why})
	case len(h.Degraded) > 0:
		s.healthAnswer(w, http.StatusOK, healthAnswer{Status: "degraded", Degraded: h.Degraded})
	default:
		s.healthAnswer(w, http.StatusOK, healthAnswer{Status: "ok"})
	}
}

func (s *Server) healthAnswer(w http.ResponseWriter, status int, a healthAnswer) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(a); err != nil {
		s.log.Debug("health answer not written", "error", err)
	}
}
