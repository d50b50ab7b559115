package web

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A healthAnswer is the body of /healthz and /readyz.
type healthAnswer struct {
	Status   string   `json:"status"`
	Degraded []string `json:"degraded,omitempty"`
	Why      string   `json:"why,omitempty"`
}

// opsHandler serves what is for operators and their machines only, and needs no key: whoever reaches the ops listener
// may look.
func (s *Server) opsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.o.Gatherer, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}))
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// healthz says that the process answers, and looks at nothing else.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	s.healthAnswer(w, http.StatusOK, healthAnswer{Status: "ok"})
}

// readyz is 503 while draining and while SQL cannot commit; without the index it is 200 and says what is degraded.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		s.healthAnswer(w, http.StatusServiceUnavailable, healthAnswer{Status: "unready", Why: "draining"})
		return
	}
	h := s.o.Health.Health(r.Context())
	switch {
	case !h.Ready:
		s.healthAnswer(w, http.StatusServiceUnavailable, healthAnswer{Status: "unready", Degraded: h.Degraded, Why: h.Why})
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
