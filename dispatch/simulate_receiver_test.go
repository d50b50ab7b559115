package dispatch_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file has the receivers of a simulation, and the network between them and the processes.

// A simSender sends the requests of a process.
type simSender struct {
	*outbound.Client
	p *process
}

func (s *simSender) Send(ctx context.Context, r outbound.Request) outbound.Response {
	if strings.Contains(r.URL, "poison") {
		panic("a request that no process survives")
	}
	got, err := s.p.around(ctx, "Send", errCut, func(ctx context.Context) (any, error) {
		return s.Client.Send(ctx, r), nil
	})
	if err != nil { // the process is dead, so the result has no effect
		now := time.Now()
		return outbound.Response{Class: store.ClassInterrupted, Outcome: store.AttemptUnknown, StartedAt: now,
			EndedAt: now}
	}
	return got.(outbound.Response)
}

// A simArrival is a request that a receiver got.
type simArrival struct {
	id     string
	number int
	p      *process
	hash   [sha256.Size]byte
	at     time.Time
	// end is when the response was written or the sender gave up; zero before.
	end      time.Time
	answered bool
}

// A simReceiver plays all receivers of a simulation.
type simReceiver struct {
	mu       sync.Mutex
	scripts  map[string][]step // by body, which is unique to a callback
	asked    map[string]int    // requests by id, whether they arrived or not
	arrivals []*simArrival
}

// A network connects one process with the receivers.
type network struct{ p *process }

func (n network) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	resp, err := n.p.sim.receiver.take(req.Context(), n.p, req.Header, body)
	if !n.p.pass() {
		return nil, fmt.Errorf("write: %w", syscall.EPIPE)
	}
	return resp, err
}

// take responds to a request by the callback's script.
func (r *simReceiver) take(ctx context.Context, p *process, header http.Header,
	body []byte) (*http.Response, error) {
	id := bare(header.Get("webhook-id"))
	number, err := strconv.Atoi(header.Get("webhook-attempt"))
	if err != nil {
		return nil, fmt.Errorf("webhook-attempt: %w", err)
	}
	r.mu.Lock()
	script := r.scripts[string(body)]
	if len(script) == 0 {
		script = []step{{status: 599}} // no client submitted this body; the judge reports it
	}
	do := script[min(r.asked[id], len(script)-1)]
	r.asked[id]++
	if do.do == refuses {
		r.mu.Unlock()
		return nil, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	}
	a := &simArrival{id: id, number: number, p: p, hash: sha256.Sum256(body), at: time.Now()}
	r.arrivals = append(r.arrivals, a)
	r.mu.Unlock()
	answered, err := r.wait(ctx, p, do)
	r.mu.Lock()
	a.end, a.answered = time.Now(), answered
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	resp := answer(do.status, "")
	if do.retryAfter > 0 {
		resp.Header.Set("Retry-After", strconv.Itoa(do.retryAfter))
	}
	return resp, nil
}

// wait plays the receiver's work. It reports whether the whole response was written, and the error on the way
// back.
func (*simReceiver) wait(ctx context.Context, p *process, do step) (answered bool, err error) {
	var ready <-chan time.Time
	if do.do != stalls {
		// Each response takes some time: otherwise two requests would have the same time.
		timer := time.NewTimer(do.wait + 50*time.Microsecond)
		defer timer.Stop()
		ready = timer.C
	}
	select {
	case <-ready:
	case <-p.died:
		return false, fmt.Errorf("write: %w", syscall.EPIPE)
	case <-ctx.Done():
		// A stopped process does not close the connection.
		if !p.pass() {
			return false, fmt.Errorf("write: %w", syscall.EPIPE)
		}
		return false, ctx.Err()
	}
	switch do.do {
	case resets:
		return false, fmt.Errorf("read: %w", syscall.ECONNRESET)
	case loses:
		return true, fmt.Errorf("read: %w", syscall.ECONNRESET)
	}
	return true, nil
}

func (r *simReceiver) all() []*simArrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.arrivals)
}
