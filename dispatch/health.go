package dispatch

import "context"

// A warnable is an index whose server may lose parts of it, such as a Redis that evicts keys. Warnings
// describe why.
type warnable interface{ Warnings() []string }

// Health reports whether this process can work. It is not ready while SQL rejects writes or while it drains.
// Without the index it is only degraded, because it still accepts callbacks.
func (e *Engine) Health(ctx context.Context) Health {
	h := Health{Ready: true}
	if e.indexer.Degraded() {
		h.Degraded = append(h.Degraded, "redis")
	}
	if w, ok := e.o.Schedule.(warnable); ok && len(w.Warnings()) > 0 {
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

// Health is the answer of /readyz.
type Health struct {
	// Ready is false while SQL rejects writes and while the process drains. Why is the reason.
	Ready bool
	Why   string
	// Degraded lists what does not work while the process is ready: "redis" (the index does not answer or is
	// being rebuilt), "redis_unsafe" (its server may lose parts of it), "secrets" (some cannot be decrypted
	// with this process's master keys), "held" (sending is off).
	Degraded []string
}
