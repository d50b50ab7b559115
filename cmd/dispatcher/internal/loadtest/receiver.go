package loadtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/listen"
)

// A benchReceiver answers everything with 200, and keeps the ledger of one run: when each callback was handed
// over, when it was accepted, and when it arrived. Callbacks are known by their number in the run, which
// stands at the end of their path.
type benchReceiver struct {
	listener net.Listener
	// base is the address under which the server reaches it; run is the first part of every path.
	base, run string
	body      []byte
	delay     time.Duration

	// Times are counted from began, on this process's monotonic clock.
	began time.Time
	// ids, started and accepted are written by the one who hands the callback over, before others are told;
	// an empty id was not accepted.
	ids               []string
	started, accepted []time.Duration
	// arrived is when each came first, in nanoseconds; zero: not yet.
	arrived []atomic.Int64

	arrivals                   atomic.Int64 // callbacks that came
	repeated, changed, strange atomic.Int64
	// inside is how many requests are being answered, most the most of them since it was last set to zero.
	inside, most atomic.Int64
}

// openBenchReceiver listens. Its ledger has room for the whole plan.
func openBenchReceiver(p *benchPlan) (*benchReceiver, error) {
	listener, err := net.Listen("tcp", p.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for bench's receiver: %w", err)
	}
	n := p.total()
	return &benchReceiver{
		listener: listener, base: cmp.Or(strings.TrimRight(p.Receiver, "/"),
			"http://"+listener.Addr().String()), run: p.run, body: BenchBody(p.Size), delay: p.delay,
		began: time.Now(), ids: make([]string, n), started: make([]time.Duration, n),
		accepted: make([]time.Duration, n), arrived: make([]atomic.Int64, n),
	}, nil
}

// BenchBody is the body of every callback: JSON of exactly so many bytes, at least 16.
func BenchBody(size int) []byte {
	const head, tail = `{"filler":"`, `"}`
	return []byte(head + strings.Repeat("x", size-len(head)-len(tail)) + tail)
}

// host is the receiver's host as the server's guard sees it.
func (r *benchReceiver) host() string {
	u, err := url.Parse(r.base)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// path is the address of one callback.
func (r *benchReceiver) path(number int) string {
	return r.base + "/" + r.run + "/" + strconv.Itoa(number)
}

// serve answers until ctx ends.
func (r *benchReceiver) serve(ctx context.Context) error {
	return listen.ServeUntilDone(ctx, r.listener, r)
}

// ServeHTTP writes the arrival into the ledger and answers 200, after the delay.
func (r *benchReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	at := time.Since(r.began)
	now := r.inside.Add(1)
	defer r.inside.Add(-1)
	for most := r.most.Load(); now > most && !r.most.CompareAndSwap(most, now); most = r.most.Load() {
	}
	number, ours := r.number(req.URL.Path)
	body, err := io.ReadAll(io.LimitReader(req.Body, int64(len(r.body))+1))
	switch {
	case err != nil:
		// Whoever broke off comes again; this was no arrival.
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	case !ours:
		r.strange.Add(1)
		http.NotFound(w, req)
		return
	case !bytes.Equal(body, r.body):
		r.changed.Add(1)
	}
	if r.arrived[number].CompareAndSwap(0, int64(at)) {
		r.arrivals.Add(1)
	} else {
		r.repeated.Add(1)
	}
	console.Pause(req.Context(), r.delay)
	w.WriteHeader(http.StatusOK)
}

// number returns the callback that a path is of.
func (r *benchReceiver) number(address string) (int, bool) {
	dir, digits := path.Split(address)
	n, err := strconv.Atoi(digits)
	return n, err == nil && strings.HasSuffix(dir, "/"+r.run+"/") && n >= 0 && n < len(r.ids)
}

// A span is callbacks that go together: those numbered from first, so many.
type span struct{ first, n int }

// each calls f for every accepted callback of the span.
func (r *benchReceiver) each(s span, f func(number int)) {
	for i := s.first; i < s.first+s.n; i++ {
		if r.ids[i] != "" {
			f(i)
		}
	}
}

// count is how many of the span were accepted.
func (r *benchReceiver) count(s span) (n int) {
	r.each(s, func(int) { n++ })
	return n
}

// arrivedOf is how many accepted callbacks of the span have arrived.
func (r *benchReceiver) arrivedOf(s span) (n int) {
	r.each(s, func(i int) {
		if r.arrived[i].Load() != 0 {
			n++
		}
	})
	return n
}

// missing returns the numbers of those that were accepted and have not arrived.
func (r *benchReceiver) missing(s span) (numbers []int) {
	r.each(s, func(i int) {
		if r.arrived[i].Load() == 0 {
			numbers = append(numbers, i)
		}
	})
	return numbers
}

// last is when the last one of the span came; zero: none did.
func (r *benchReceiver) last(s span) (last time.Duration) {
	r.each(s, func(i int) { last = max(last, time.Duration(r.arrived[i].Load())) })
	return last
}

// times returns something of every accepted callback of the span that arrived.
func (r *benchReceiver) times(s span, of func(number int,
	arrived time.Duration) time.Duration) []time.Duration {
	list := make([]time.Duration, 0, s.n)
	r.each(s, func(i int) {
		if at := time.Duration(r.arrived[i].Load()); at != 0 {
			list = append(list, of(i, at))
		}
	})
	return slices.Clip(list)
}
