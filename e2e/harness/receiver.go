package harness

import (
	"cmp"
	"context"
	"crypto/sha256"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// An Arrival is one request at a receiver, by the receiver's clock.
type Arrival struct {
	judge.Arrival
	Nth    int // number of this arrival among those of its id, from 1
	Path   string
	Body   []byte // nil if the receiver is lean, like Header
	Header http.Header
}

// Kind is the first segment of the path. Tests use it to distinguish callbacks.
func (a *Arrival) Kind() string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(a.Path, "/"), "/")
	return kind
}

// Reply is the response of a receiver.
type Reply struct {
	Status int  // zero: 200
	Cut    bool // no response: the connection is cut
	Body   string
	After  time.Duration
	Header http.Header
	// Stream writes the whole response, with its status. If it is set the other fields are ignored.
	Stream func(http.ResponseWriter)
}

// A Script chooses each response of a receiver.
type Script = func(*Arrival) Reply

// Receiver records every arrival before it responds as its script says. It lives until the test's end,
// whichever processes die.
type Receiver struct {
	URL    string // of the first address
	Server *http.Server
	// Lean drops bodies and headers, because a trial has many thousand arrivals.
	Lean bool

	mu       sync.Mutex
	script   Script
	arrivals []*Arrival
	byID     map[string][]*Arrival
	busy     int // requests being answered now
}

// NewReceiver starts a receiver on a free port of 127.0.0.1.
func NewReceiver(tb testing.TB, script Script) *Receiver {
	tb.Helper()
	r := &Receiver{byID: map[string][]*Arrival{}, script: script}
	r.Server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	r.URL = "http://" + r.Listen(tb, "127.0.0.1:0")
	tb.Cleanup(func() {
		r.Server.Close() // an error of a listener does not matter here
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := r.Server.Shutdown(ctx); err != nil {
			tb.Errorf("close a receiver: %v", err)
		}
		for r.InFlight() > 0 && ctx.Err() == nil {
			Pause()
		}
	})
	return r
}

// Listen opens another address and returns it. Another host is another destination.
func (r *Receiver) Listen(tb testing.TB, address string) string {
	tb.Helper()
	l, err := net.Listen("tcp4", address)
	Check(tb, err)
	go r.Server.Serve(l) // returns when the server is closed
	return l.Addr().String()
}

// Answer replaces the script.
func (r *Receiver) Answer(script Script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.script = script
}

// AnswerKind replaces the reply of one kind. Other kinds keep the usual replies.
func (r *Receiver) AnswerKind(kind string, reply Reply) { r.answerSome(kind, reply, false) }

// AnswerFirst is AnswerKind for the first arrival of each callback.
func (r *Receiver) AnswerFirst(kind string, reply Reply) { r.answerSome(kind, reply, true) }

func (r *Receiver) answerSome(kind string, reply Reply, first bool) {
	r.Answer(func(a *Arrival) Reply {
		if a.Kind() == kind && (a.Nth == 1 || !first) {
			return reply
		}
		return Usual(a)
	})
}

func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	at := time.Now()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the sender died while sending, so nothing arrived
	}
	// A missing number is zero. The judge knows no attempt zero.
	number, _ := strconv.Atoi(req.Header.Get("webhook-attempt"))
	a := &Arrival{Path: req.URL.Path, Arrival: judge.Arrival{
		ID: req.Header.Get("webhook-id"), Number: number, At: at, Hash: sha256.Sum256(body)}}
	if !r.Lean {
		a.Body, a.Header = body, req.Header
	}
	r.mu.Lock()
	r.arrivals = append(r.arrivals, a)
	r.byID[a.ID] = append(r.byID[a.ID], a)
	a.Nth = len(r.byID[a.ID])
	r.busy++
	script := r.script
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
	// Note the end before the response: the sender may send the next callback of the lock key at once.
	r.mu.Lock()
	a.End, a.Answered = time.Now(), !answer.Cut && req.Context().Err() == nil
	r.busy--
	r.mu.Unlock()
	switch {
	case answer.Stream != nil:
		answer.Stream(w)
	case answer.Cut:
		panic(http.ErrAbortHandler) // cuts the connection in net/http
	default:
		maps.Copy(w.Header(), answer.Header)
		w.WriteHeader(cmp.Or(answer.Status, http.StatusOK))
		io.WriteString(w, answer.Body)
	}
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
	return values(r.arrivals)
}

func values(ps []*Arrival) []Arrival {
	vs := make([]Arrival, len(ps))
	for i, p := range ps {
		vs[i] = *p
	}
	return vs
}

// Count returns the number of arrivals.
func (r *Receiver) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.arrivals)
}

// Times returns the number of arrivals of an id.
func (r *Receiver) Times(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byID[id])
}

// InFlight returns the number of requests without a response so far.
func (r *Receiver) InFlight() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.busy
}

// Always gives the same reply to every arrival.
func Always(reply Reply) Script { return func(*Arrival) Reply { return reply } }

// ScriptOf reads a script from a file. Each line is
//
//	PATH [#NTH] STATUS [NAME=VALUE] BODY
//
// The first line whose PATH is a prefix of the arrival's path, and whose NTH is the arrival's, gives the
// reply. NAME is a header.
func ScriptOf(tb testing.TB, file string) Script {
	tb.Helper()
	lines := Lines(tb, file)
	return func(a *Arrival) (reply Reply) {
		for _, line := range lines {
			words := strings.Fields(line)
			if !strings.HasPrefix(a.Path, words[0]) {
				continue
			}
			if nth, named := strings.CutPrefix(words[1], "#"); named {
				if nth != strconv.Itoa(a.Nth) {
					continue
				}
				words = words[1:]
			}
			var err error
			reply.Status, err = strconv.Atoi(words[1])
			if err != nil {
				tb.Errorf("the line %q gives no status: %v", line, err)
			}
			words = words[2:]
			if name, value, found := strings.Cut(words[0], "="); found {
				reply.Header = http.Header{name: {value}}
				words = words[1:]
			}
			reply.Body = strings.Join(words, " ")
			return reply
		}
		return Reply{Cut: true}
	}
}

// Usual is the script of most faults: "retry" fails on its first arrival, "slow" takes 300 ms, and all others
// succeed after 5 ms.
func Usual(a *Arrival) Reply {
	switch {
	case a.Kind() == "retry" && a.Nth == 1:
		return Reply{Status: 500}
	case a.Kind() == "slow":
		return Reply{After: 300 * time.Millisecond}
	}
	return Reply{After: 5 * time.Millisecond}
}
