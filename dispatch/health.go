package dispatch

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
)

// A warnable is an index whose server may lose parts of it, such as a Redis that evicts keys. Warnings
// describe why.
type warnable interface{ Warnings() []string }

// Health reports whether this process can work. It is not ready while SQL rejects writes or while it drains.
// Without the index it is only degraded, because it still accepts callbacks.
func (e *Engine) Health(ctx context.Context) Health {
	h := Health{Ready: true}
	for _, d := range e.degradations() {
		if d.is() {
			h.Degraded = append(h.Degraded, d.reason)
		}
	}
	if e.o.Unread != nil {
		h.Degraded = append(h.Degraded, e.o.Unread()...)
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

// A degradation is a reason for which a process is degraded while is returns true. is calls neither SQL nor
// the index.
type degradation struct {
	reason string
	is     func() bool
}

func (e *Engine) degradations() []degradation {
	return []degradation{
		{"redis", e.indexer.Degraded},
		{"redis_unsafe", func() bool {
			w, ok := e.o.Schedule.(warnable)
			return ok && len(w.Warnings()) > 0
		}},
		{"secrets", e.secrets.Unreadable},
		{"held", func() bool { return e.o.SendingOff }},
		{"stopped", e.indexer.Stopped},
	}
}

// exportDegradations registers the gauge of each reason.
func (e *Engine) exportDegradations(m process.Metrics) {
	read := make(map[string]func() float64)
	for _, d := range e.degradations() {
		read[d.reason] = func() float64 { return process.Truth(d.is()) }
	}
	m.Gauges("degraded", "1 while this process is degraded for a reason: redis (the index does not answer "+
		"or is rebuilt), redis_unsafe (Redis may evict keys), secrets (some cannot be decrypted), held "+
		"(sending is off by the setting hold), stopped (all sending of the installation is stopped).",
		"reason", read)
}

// DegradedRelay begins the code of an outbox table that is not read; the name of the source follows.
const DegradedRelay = "relay:"

// Health is the answer of /readyz.
type Health struct {
	// Ready is false while SQL rejects writes and while the process drains. Why is the reason.
	Ready bool
	Why   string
	// Degraded lists what does not work while the process is ready: "redis" (the index does not answer or is
	// being rebuilt), "redis_unsafe" (its server may lose parts of it), "secrets" (some cannot be decrypted
	// with this process's master keys), "held" (sending is off by the setting hold), "stopped" (all sending
	// of the installation is stopped), "relay:NAME" (this process cannot read the outbox table NAME).
	Degraded []string
}
