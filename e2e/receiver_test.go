package e2e

import (
	"crypto/sha256"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// An arrival is one request at a receiver, by the receiver's clock.
type arrival struct {
	id      string // webhook-id
	number  int    // webhook-attempt
	nth     int    // the how-manieth arrival of this id, from 1
	path    string
	at, end time.Time
	hash    [sha256.Size]byte
	body    []byte
	header  http.Header
}

// A reply is what a receiver answers.
type reply struct {
	status int
	body   string
	after  time.Duration
	// stream writes the whole answer by itself, status and all; nil: the others say what it is.
	stream func(http.ResponseWriter)
}

// A receiver records everything that arrives and answers as it is told.
type receiver struct {
	url string

	mu       sync.Mutex
	arrivals []*arrival
	byID     map[string][]*arrival
	present  map[string]int // requests being answered now, by path
	overlaps map[string]int // how often a request came while another one of its path was being answered
}

// listen starts a receiver on a free port; script decides each answer.
func listen(tb testing.TB, script func(*arrival) reply) *receiver {
	tb.Helper()
	r := &receiver{byID: map[string][]*arrival{}, present: map[string]int{}, overlaps: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { r.handle(w, req, script) }))
	r.url = server.URL
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return r
}

func (r *receiver) handle(w http.ResponseWriter, req *http.Request, script func(*arrival) reply) {
	at := time.Now()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the sender died in the middle of it: this was no arrival
	}
	number, _ := strconv.Atoi(req.Header.Get("webhook-attempt")) // zero where it is missing, which tests would see
	a := &arrival{
		id: req.Header.Get("webhook-id"), number: number, path: req.URL.Path, at: at,
		hash: sha256.Sum256(body), body: body, header: req.Header,
	}
	r.mu.Lock()
	r.byID[a.id] = append(r.byID[a.id], a)
	a.nth = len(r.byID[a.id])
	r.arrivals = append(r.arrivals, a)
	r.present[a.path]++
	if r.present[a.path] > 1 {
		r.overlaps[a.path]++
	}
	r.mu.Unlock()

	answer := script(a)
	if answer.after > 0 {
		timer := time.NewTimer(answer.after)
		select {
		case <-timer.C:
		case <-req.Context().Done():
			timer.Stop()
		}
	}
	r.mu.Lock()
	r.present[a.path]--
	a.end = time.Now()
	r.mu.Unlock()
	if answer.stream != nil {
		answer.stream(w)
		return
	}
	w.WriteHeader(answer.status)
	io.WriteString(w, answer.body)
}

// of returns the arrivals of one callback, in order.
func (r *receiver) of(id string) []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return values(r.byID[id])
}

// all returns every arrival, in order.
func (r *receiver) all() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return values(r.arrivals)
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.arrivals)
}

func values(ps []*arrival) []arrival {
	vs := make([]arrival, len(ps))
	for i, p := range ps {
		vs[i] = *p
	}
	return vs
}

// always answers everything alike.
func always(status int, body string) func(*arrival) reply {
	return func(*arrival) reply { return reply{status: status, body: body} }
}

// hangers listens on n ports that take every connection and never answer. It returns their addresses and a count of
// the connections each has now.
func hangers(tb testing.TB, n int) []string {
	tb.Helper()
	var urls []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		go swallow(l)
		tb.Cleanup(func() { l.Close() })
		urls = append(urls, "http://"+l.Addr().String())
	}
	return urls
}

// swallow reads what comes on each connection and answers nothing, until the other side gives up.
func swallow(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			io.Copy(io.Discard, conn) // ends when the sender closes
		}()
	}
}

// quantile returns the q-th part of the durations, by nearest rank; zero of none.
func quantile(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(ds))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
