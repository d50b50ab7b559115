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

// benchReceiver responds with 200 to everything and is the ledger of a run: when each callback was submitted,
// accepted, and received. The last part of a path is the number of the callback in the run.
type benchReceiver struct {
	listener net.Listener
	// base is the URL under which the server reaches the receiver; run is the first part of every path.
	base, run string
	body      []byte
	delay     time.Duration

	// Times are relative to began, on this process's monotonic clock.
	began time.Time
	// The goroutine that submits a callback writes its ids, started and accepted before others read them. An
	// empty id means that it was not accepted.
	ids               []string
	started, accepted []time.Duration
	// arrived is the time of the first arrival in nanoseconds; zero: not yet.
	arrived []atomic.Int64

	arrivals                   atomic.Int64 // callbacks that arrived
	repeated, changed, strange atomic.Int64
	// inside is the number of requests that are being processed; most is its maximum since most was last set
	// to zero.
	inside, most atomic.Int64
}

// openBenchReceiver listens. Its ledger has room for all callbacks of the plan.
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

// BenchBody is the body of every callback: JSON of exactly size bytes, at least 16.
func BenchBody(size int) []byte {
	const head, tail = `{"filler":"`, `"}`
	return []byte(head + strings.Repeat("x", size-len(head)-len(tail)) + tail)
}

// host is the receiver's host, for the server's egress_allow.
func (r *benchReceiver) host() string {
	u, err := url.Parse(r.base)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// path is the URL of one callback.
func (r *benchReceiver) path(number int) string {
	return r.base + "/" + r.run + "/" + strconv.Itoa(number)
}

// serve runs the receiver until ctx ends.
func (r *benchReceiver) serve(ctx context.Context) error {
	return listen.ServeUntilDone(ctx, r.listener, r)
}

// ServeHTTP records the arrival and responds with 200 after the delay.
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
		// The server retries a request that broke off; it is no arrival.
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

// number returns the number of the callback of a path, and whether it is one of this run.
func (r *benchReceiver) number(address string) (int, bool) {
	dir, digits := path.Split(address)
	n, err := strconv.Atoi(digits)
	return n, err == nil && strings.HasSuffix(dir, "/"+r.run+"/") && n >= 0 && n < len(r.ids)
}

// span is n callbacks, numbered from first.
type span struct{ first, n int }

// each calls f for every accepted callback of the span.
func (r *benchReceiver) each(s span, f func(number int)) {
	for i := s.first; i < s.first+s.n; i++ {
		if r.ids[i] != "" {
			f(i)
		}
	}
}

// count returns how many of the span were accepted.
func (r *benchReceiver) count(s span) (n int) {
	r.each(s, func(int) { n++ })
	return n
}

// arrivedOf returns how many accepted callbacks of the span have arrived.
func (r *benchReceiver) arrivedOf(s span) (n int) {
	r.each(s, func(i int) {
		if r.arrived[i].Load() != 0 {
			n++
		}
	})
	return n
}

// missing returns the numbers of accepted callbacks that have not arrived.
func (r *benchReceiver) missing(s span) (numbers []int) {
	r.each(s, func(i int) {
		if r.arrived[i].Load() == 0 {
			numbers = append(numbers, i)
		}
	})
	return numbers
}

// last returns the time of the last arrival of the span; zero if there is none.
func (r *benchReceiver) last(s span) (last time.Duration) {
	r.each(s, func(i int) { last = max(last, time.Duration(r.arrived[i].Load())) })
	return last
}

// times returns a duration for every accepted callback of the span that arrived.
func (r *benchReceiver) times(
	s span, of func(number int, arrived time.Duration) time.Duration,
) []time.Duration {
	list := make([]time.Duration, 0, s.n)
	r.each(s, func(i int) {
		if at := time.Duration(r.arrived[i].Load()); at != 0 {
			list = append(list, of(i, at))
		}
	})
	return slices.Clip(list)
}
