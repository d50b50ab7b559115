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
	Nth    int // the how-manieth arrival of this id, from 1
	Path   string
	Body   []byte // nil where the receiver is lean, as Header
	Header http.Header
}

// Kind is the first segment of the path: tests tell callbacks apart by it.
func (a *Arrival) Kind() string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(a.Path, "/"), "/")
	return kind
}

// A Reply is what a receiver answers.
type Reply struct {
	Status int  // zero: 200
	Cut    bool // there is no answer: the connection is cut
	Body   string
	After  time.Duration
	Header http.Header
	// Stream writes the whole answer by itself, status and all; nil: the others say what it is.
	Stream func(http.ResponseWriter)
}

// A Script decides each answer of a receiver.
type Script = func(*Arrival) Reply

// A Receiver notes everything that arrives before it answers as its script says. It lives for the whole of a
// test, whatever dies around it.
type Receiver struct {
	URL    string // of its first address
	Server *http.Server
	// Lean keeps neither bodies nor headers: a trial has many thousand arrivals.
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
		r.Server.Close() // the listeners' errors say no more
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

// Listen opens one more address, and returns it: another host is another destination.
func (r *Receiver) Listen(tb testing.TB, address string) string {
	tb.Helper()
	l, err := net.Listen("tcp4", address)
	Check(tb, err)
	go r.Server.Serve(l) // returns when the server is closed
	return l.Addr().String()
}

// Answer changes the script.
func (r *Receiver) Answer(script Script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.script = script
}

// AnswerKind is Answer with a reply of one kind; all others have the usual ones.
func (r *Receiver) AnswerKind(kind string, reply Reply) { r.answerSome(kind, reply, false) }

// AnswerFirst is AnswerKind for the first arrival of each callback alone.
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
		return // the sender died in the middle of it: this was no arrival
	}
	// Zero where it is missing: the judge knows no attempt zero.
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
	// Before the answer leaves: the sender may go on at once with another callback of the same lock key.
	r.mu.Lock()
	a.End, a.Answered = time.Now(), !answer.Cut && req.Context().Err() == nil
	r.busy--
	r.mu.Unlock()
	switch {
	case answer.Stream != nil:
		answer.Stream(w)
	case answer.Cut:
		panic(http.ErrAbortHandler) // net/http's way to cut the connection
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

// Count is how many requests have arrived.
func (r *Receiver) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.arrivals)
}

// Times is how often an id has arrived.
func (r *Receiver) Times(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byID[id])
}

// InFlight is how many are being answered.
func (r *Receiver) InFlight() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.busy
}

// Always answers everything alike.
func Always(reply Reply) Script { return func(*Arrival) Reply { return reply } }

// ScriptOf reads a script. Each line of its file is
//
//	PATH [#NTH] STATUS [NAME=VALUE] BODY
//
// The first line answers whose path the arrival's begins with, and whose nth it is. NAME is a header's.
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

// Usual is the script that most faults need: "retry" fails at its first arrival, "slow" takes 300 ms, all
// else succeeds after 5 ms.
func Usual(a *Arrival) Reply {
	switch {
	case a.Kind() == "retry" && a.Nth == 1:
		return Reply{Status: 500}
	case a.Kind() == "slow":
		return Reply{After: 300 * time.Millisecond}
	}
	return Reply{After: 5 * time.Millisecond}
}
