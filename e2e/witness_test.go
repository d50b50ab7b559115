package e2e

import (
	"context"
	"crypto/sha256"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A witness is the receiver of the fault tests: it writes down on disk what arrives before it answers, and keeps in memory
// only how often each id came. It lives for the whole of a test, whatever dies around it.
type witness struct {
	tb      testing.TB
	url     string // of its first address
	journal *journal
	seq     sequence
	server  *http.Server

	mu     sync.Mutex
	nth    map[string]int
	script func(*hit) reply
	busy   int // requests being answered now
	most   int // the most that were at once
	total  int
}

// A hit is one request, as a script sees it.
type hit struct {
	id     string
	number int
	nth    int // the how-manieth arrival of this id, from 1
	path   string
	host   string
	ctx    context.Context // ends when the sender hangs up
}

// kind is the first segment of the path: tests tell callbacks apart by it.
func (h *hit) kind() string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(h.path, "/"), "/")
	return kind
}

// newWitness listens on a free port of 127.0.0.1; script decides each answer and may be changed later. A reply with status
// zero is no answer: the connection is cut.
func newWitness(tb testing.TB, script func(*hit) reply) *witness {
	tb.Helper()
	w := &witness{tb: tb, journal: openJournal(tb), nth: map[string]int{}, script: script}
	w.server = &http.Server{Handler: w, ReadHeaderTimeout: time.Minute}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	w.url = "http://" + l.Addr().String()
	w.serve(l)
	tb.Cleanup(func() {
		w.server.Close() // the listeners' errors say no more
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := w.server.Shutdown(ctx); err != nil {
			tb.Errorf("close the witness: %v", err)
		}
		for w.now() > 0 && ctx.Err() == nil {
			pause()
		}
		if err := w.journal.close(); err != nil {
			tb.Errorf("the witness's journal: %v", err)
		}
	})
	return w
}

// serve answers on one more listener, which ends with the witness or when it is closed.
func (w *witness) serve(l net.Listener) {
	go w.server.Serve(l) // returns when either is closed
}

// behave changes the script.
func (w *witness) behave(script func(*hit) reply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.script = script
}

func (w *witness) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	at := time.Now()
	hash := sha256.New()
	if _, err := io.Copy(hash, req.Body); err != nil {
		return // the sender died in the middle of it: this was no arrival
	}
	number, err := strconv.Atoi(req.Header.Get("webhook-attempt"))
	if err != nil {
		number = 0 // the judge knows no attempt zero
	}
	h := &hit{id: req.Header.Get("webhook-id"), number: number, path: req.URL.Path, host: req.Host, ctx: req.Context()}
	seq := w.seq.next()
	w.journal.arrived(seq, h.id, h.number, at, [sha256.Size]byte(hash.Sum(nil)))

	w.mu.Lock()
	w.nth[h.id]++
	h.nth = w.nth[h.id]
	w.total++
	w.busy++
	w.most = max(w.most, w.busy)
	script := w.script
	w.mu.Unlock()

	answer := script(h)
	if answer.after > 0 {
		timer := time.NewTimer(answer.after)
		select {
		case <-timer.C:
		case <-req.Context().Done():
			timer.Stop()
		}
	}
	gone := req.Context().Err() != nil || answer.status == 0 && answer.stream == nil
	// Before the answer leaves: the sender may go on at once with another callback of the same lock key.
	w.journal.ended(seq, time.Now(), !gone)
	w.mu.Lock()
	w.busy--
	w.mu.Unlock()
	if answer.stream != nil {
		answer.stream(rw)
		return
	}
	if answer.status == 0 {
		panic(http.ErrAbortHandler) // net/http's way to cut the connection
	}
	rw.WriteHeader(answer.status)
	io.WriteString(rw, answer.body)
}

// count is how many requests have arrived.
func (w *witness) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// now is how many are being answered; peak, the most that were at once.
func (w *witness) now() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.busy
}

func (w *witness) peak() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most
}

// times is how often an id has arrived.
func (w *witness) times(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nth[id]
}

// usual is the script that most faults need: "retry" fails at its first arrival, "slow" takes 300 ms, all else succeeds
// after 5 ms.
func usual(h *hit) reply {
	switch {
	case h.kind() == "retry" && h.nth == 1:
		return reply{status: 500}
	case h.kind() == "slow":
		return reply{status: 200, after: 300 * time.Millisecond}
	}
	return reply{status: 200, after: 5 * time.Millisecond}
}
