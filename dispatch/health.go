package dispatch

import "context"

// A warner is an index on a server that may lose parts of it, as one that evicts does, and says why.
type warner interface{ Warnings() []string }

// Health says whether this process can do its work. SQL that cannot commit and a drain make it unready; an
// index that does not answer or is being rebuilt only degrades it, for accepting goes on.
func (e *Engine) Health(ctx context.Context) Health {
	h := Health{Ready: true}
	if e.indexer.Degraded() {
		h.Degraded = append(h.Degraded, "redis")
	}
	if w, ok := e.o.Schedule.(warner); ok && len(w.Warnings()) > 0 {
		h.Degraded = append(h.Degraded, "redis_unsafe")
	}
	if e.secrets.Unreadable() {
		h.Degraded = append(h.Degraded, "secrets")
	}
	if e.o.SendingOff {
		h.Degraded = append(h.Degraded, "held")
	}
	if e.runner.Draining() {
		h.Ready, h.Why = false, "draining"
		return h
	}
	if err := e.indexer.PingSQL(ctx); err != nil {
		h.Ready, h.Why = false, "SQL cannot commit"
	}
	return h
}

// Health is what /readyz answers from.
type Health struct {
	// Ready is false when SQL cannot commit, or while draining. Why says which.
	Ready bool
	Why   string
	// Degraded names what is lost without making the process unready: "redis" (the index does not answer, or
	// is being rebuilt), "redis_unsafe" (its server may drop parts of it), "secrets" (some cannot be
	// decrypted with the master keys of this process), "held" (sending is stopped).
	Degraded []string
}
