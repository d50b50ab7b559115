package demo

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/listen"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
)

// A shop is the demo's receiver: it answers each payment as the plan says, and keeps a ledger that the demo's
// judgement rests on. It identifies payments by the path that they are sent to. Under a path of its own it is
// the bank, which is asked.
type shop struct {
	// secret verifies signatures; it is set before anything is sent.
	secret []byte
	// say is told of every answer.
	say func(p *payment, attempt int, r reply)

	mu       sync.Mutex
	payments []payment
	// inside counts, by lock key, the requests that are being answered.
	inside map[string]int
	// overlaps counts requests that came while another one with their lock key was being answered.
	overlaps int
	// forged counts requests whose signature is wrong, changed those whose body is not what was handed over,
	// mixed those that came with another webhook-id than before.
	forged, changed, mixed int
}

// ServeHTTP answers as the plan says.
func (s *shop) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, listen.MaxReceived))
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	p, attempt := s.enter(req, body)
	if p == nil {
		http.NotFound(w, req)
		return
	}
	defer s.leave(p)
	r := p.scenario.replies[min(attempt, len(p.scenario.replies))-1]
	console.Pause(req.Context(), r.delay)
	s.say(p, attempt, r)
	kind := "text/plain; charset=utf-8"
	if p.scenario.asked {
		kind = "application/json"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(r.status)
	// A sender that has gone away sees nothing of it; the ledger has the visit either way.
	_, _ = io.WriteString(w, r.body)
}

// enter writes a request into the ledger and says which one of its payment it is.
func (s *shop) enter(req *http.Request, body []byte) (*payment, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := first(s.payments, func(p *payment) bool { return p.path == req.URL.Path })
	if p == nil {
		return nil, 0
	}
	p.visits = append(p.visits, time.Now())
	id := req.Header.Get("webhook-id")
	if p.webhookID != "" && p.webhookID != id {
		s.mixed++
	}
	p.webhookID, p.got = id, body
	// Banks want signatures of their own: the poll has none.
	if !p.scenario.asked && sign.Verify("", []sign.Secret{{Key: s.secret}}, req.Header, nil, body, 0) != nil {
		s.forged++
	}
	// What the result says is known when it is there.
	if !p.scenario.told && !bytes.Equal(body, p.body) {
		s.changed++
	}
	if key := p.lockKey; key != "" {
		if s.inside[key] > 0 {
			s.overlaps++
		}
		s.inside[key]++
	}
	return p, len(p.visits)
}

func (s *shop) leave(p *payment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.lockKey != "" {
		s.inside[p.lockKey]--
	}
}

// problems says what the shop's ledger has against the dispatcher; the lock is held.
func (s *shop) problems() (list []string) {
	for _, p := range []struct {
		count int
		what  string
	}{
		{s.overlaps, "requests came while another one with the same lock key was being answered"},
		{s.forged, "requests had a wrong signature"},
		{s.changed, "requests had other bytes than were handed over"},
		{s.mixed, "requests had another webhook-id than the attempt before"},
	} {
		if p.count > 0 {
			list = append(list, fmt.Sprintf("%d %s", p.count, p.what))
		}
	}
	return list
}
