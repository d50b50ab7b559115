package harness

import (
	"context"
	"crypto/sha256"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// A recorder is the receiver of the fault tests: it writes down on disk what arrives before it answers, and
// keeps in memory only how often each id came. It lives for the whole of a test, whatever dies around it.
type Recorder struct {
	tb      testing.TB
	URL     string // of its first address
	Journal *arrivalLog
	seq     atomic.Int64
	Server  *http.Server

	mu     sync.Mutex
	nth    map[string]int
	script func(*Request) Reply
	busy   int // requests being answered now
	most   int // the most that were at once
	total  int
}

// A Request is one, as a script sees it.
type Request struct {
	id   string
	Nth  int // the how-manieth arrival of this id, from 1
	Path string
}

// Kind is the first segment of the path: tests tell callbacks apart by it.
func (h *Request) Kind() string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(h.Path, "/"), "/")
	return kind
}

// NewRecorder listens on a free port of 127.0.0.1; script decides each answer and may be changed later. A
// reply with status zero is no answer: the connection is cut.
func NewRecorder(tb testing.TB, script func(*Request) Reply) *Recorder {
	tb.Helper()
	w := &Recorder{tb: tb, Journal: openArrivalLog(tb), nth: map[string]int{}, script: script}
	w.Server = &http.Server{Handler: w, ReadHeaderTimeout: time.Minute}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	w.URL = "http://" + l.Addr().String()
	w.Serve(l)
	tb.Cleanup(func() {
		w.Server.Close() // the listeners' errors say no more
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := w.Server.Shutdown(ctx); err != nil {
			tb.Errorf("close the recorder: %v", err)
		}
		for w.InFlight() > 0 && ctx.Err() == nil {
			Pause()
		}
		if err := w.Journal.close(); err != nil {
			tb.Errorf("the recorder's log: %v", err)
		}
	})
	return w
}

// Serve answers on one more listener, which ends with the recorder or when it is closed.
func (w *Recorder) Serve(l net.Listener) {
	go w.Server.Serve(l) // returns when either is closed
}

// SetScript changes the script.
func (w *Recorder) SetScript(script func(*Request) Reply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.script = script
}

func (w *Recorder) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	at := time.Now()
	hash := sha256.New()
	if _, err := io.Copy(hash, req.Body); err != nil {
		return // the sender died in the middle of it: this was no arrival
	}
	number, err := strconv.Atoi(req.Header.Get("webhook-attempt"))
	if err != nil {
		number = 0 // the judge knows no attempt zero
	}
	h := &Request{id: req.Header.Get("webhook-id"), Path: req.URL.Path}
	seq := w.seq.Add(1)
	w.Journal.arrived(seq, judge.Arrival{ID: h.id, Number: number, At: at,
		Hash: [sha256.Size]byte(hash.Sum(nil))})

	w.mu.Lock()
	w.nth[h.id]++
	h.Nth = w.nth[h.id]
	w.total++
	w.busy++
	w.most = max(w.most, w.busy)
	script := w.script
	w.mu.Unlock()

	answer := script(h)
	if answer.After > 0 {
		timer := time.NewTimer(answer.After)
		select {
		case <-timer.C:
		case <-req.Context().Done():
			timer.Stop()
		}
	}
	gone := req.Context().Err() != nil || answer.Status == 0 && answer.Stream == nil
	// Before the answer leaves: the sender may go on at once with another callback of the same lock key.
	w.Journal.ended(seq, time.Now(), !gone)
	w.mu.Lock()
	w.busy--
	w.mu.Unlock()
	if answer.Stream != nil {
		answer.Stream(rw)
		return
	}
	if answer.Status == 0 {
		panic(http.ErrAbortHandler) // net/http's way to cut the connection
	}
	rw.WriteHeader(answer.Status)
	io.WriteString(rw, answer.Body)
}

// Count is how many requests have arrived.
func (w *Recorder) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// InFlight is how many are being answered; peak, the most that were at once.
func (w *Recorder) InFlight() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.busy
}

func (w *Recorder) Peak() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most
}

// Times is how often an id has arrived.
func (w *Recorder) Times(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nth[id]
}

// Usual is the script that most faults need: "retry" fails at its first arrival, "slow" takes 300 ms, all
// else succeeds after 5 ms.
func Usual(h *Request) Reply {
	switch {
	case h.Kind() == "retry" && h.Nth == 1:
		return Reply{Status: 500}
	case h.Kind() == "slow":
		return Reply{Status: 200, After: 300 * time.Millisecond}
	}
	return Reply{Status: 200, After: 5 * time.Millisecond}
}

// ListenElsewhere opens one more address of the recorder, which is another destination, and returns its URL.
func (w *Recorder) ListenElsewhere(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		tb.Fatal(err)
	}
	w.Serve(l)
	return "http://" + l.Addr().String()
}
