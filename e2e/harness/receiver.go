package harness

import (
	"crypto/sha256"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// An arrival is one request at a receiver, by the receiver's clock.
type Arrival struct {
	ID      string // webhook-id
	Number  int    // webhook-attempt
	Nth     int    // the how-manieth arrival of this id, from 1
	Path    string
	At, End time.Time
	Hash    [sha256.Size]byte
	Body    []byte
	Header  http.Header
}

// A reply is what a receiver answers.
type Reply struct {
	Status int
	Body   string
	After  time.Duration
	// Stream writes the whole answer by itself, status and all; nil: the others say what it is.
	Stream func(http.ResponseWriter)
}

// A receiver records everything that arrives and answers as it is told.
type Receiver struct {
	URL string

	mu       sync.Mutex
	Arrivals []*Arrival
	byID     map[string][]*Arrival
}

// NewReceiver starts a receiver on a free port; script decides each answer.
func NewReceiver(tb testing.TB, script func(*Arrival) Reply) *Receiver {
	tb.Helper()
	r := &Receiver{byID: map[string][]*Arrival{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.handle(w, req, script)
	}))
	r.URL = server.URL
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return r
}

func (r *Receiver) handle(w http.ResponseWriter, req *http.Request, script func(*Arrival) Reply) {
	at := time.Now()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the sender died in the middle of it: this was no arrival
	}
	// zero where it is missing, which tests would see
	number, _ := strconv.Atoi(req.Header.Get("webhook-attempt"))
	a := &Arrival{
		ID: req.Header.Get("webhook-id"), Number: number, Path: req.URL.Path, At: at,
		Hash: sha256.Sum256(body), Body: body, Header: req.Header,
	}
	r.mu.Lock()
	r.byID[a.ID] = append(r.byID[a.ID], a)
	a.Nth = len(r.byID[a.ID])
	r.Arrivals = append(r.Arrivals, a)
	r.mu.Unlock()

	answer := script(a)
	if answer.After > 0 {
		timer := time.NewTimer(answer.After)
		select {
		case <-timer.C:
		case <-req.Context().Done():
			timer.Stop()
		}
	}
	r.mu.Lock()
	a.End = time.Now()
	r.mu.Unlock()
	if answer.Stream != nil {
		answer.Stream(w)
		return
	}
	w.WriteHeader(answer.Status)
	io.WriteString(w, answer.Body)
}

// Of returns the arrivals of one callback, in order.
func (r *Receiver) Of(id string) []Arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return values(r.byID[id])
}

// All returns every arrival, in order.
func (r *Receiver) All() []Arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return values(r.Arrivals)
}

func (r *Receiver) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.Arrivals)
}

func values(ps []*Arrival) []Arrival {
	vs := make([]Arrival, len(ps))
	for i, p := range ps {
		vs[i] = *p
	}
	return vs
}

// Always answers everything alike.
func Always(status int, body string) func(*Arrival) Reply {
	return func(*Arrival) Reply { return Reply{Status: status, Body: body} }
}

// Quantile returns the q-th part of the durations, by nearest rank; zero of none.
func Quantile(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(ds))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
