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

// shop is the demo's receiver. It responds to each payment according to the plan, and records the requests
// for the final check. The path of a request identifies the payment. One path is the bank of the poll.
type shop struct {
	// secret verifies signatures. It is set before the first request.
	secret []byte
	// report is called with every response.
	report func(p *payment, attempt int, r reply)

	mu       sync.Mutex
	payments []payment
	// inside counts, by lock key, the requests that are being processed.
	inside map[string]int
	// overlaps counts requests that came while another one with the same lock key was being processed.
	overlaps int
	// forged counts requests with a wrong signature, changed those with another body than submitted, and
	// mixed those with another webhook-id than before.
	forged, changed, mixed int
}

// ServeHTTP responds according to the plan.
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
	s.report(p, attempt, r)
	kind := "text/plain; charset=utf-8"
	if p.scenario.poll {
		kind = "application/json"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(r.status)
	// The sender may be gone; the request is recorded anyway.
	_, _ = io.WriteString(w, r.body)
}

// enter records a request. It returns its payment, nil if unknown, and the number of the request, from 1.
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
	// The poll is not signed: banks have their own signatures.
	if !p.scenario.poll && sign.Verify("", []sign.Secret{{Key: s.secret}}, req.Header, nil, body, 0) != nil {
		s.forged++
	}
	// The body of the result is not known in advance; resultProblems checks it.
	if !p.scenario.result && !bytes.Equal(body, p.body) {
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

// problems returns what is wrong in the shop's records. The caller holds mu.
func (s *shop) problems() (list []string) {
	for _, p := range []struct {
		count int
		what  string
	}{
		{s.overlaps, "requests came while another one with the same lock key was being processed"},
		{s.forged, "requests had a wrong signature"},
		{s.changed, "requests had another body than submitted"},
		{s.mixed, "requests had another webhook-id than the attempt before"},
	} {
		if p.count > 0 {
			list = append(list, fmt.Sprintf("%d %s", p.count, p.what))
		}
	}
	return list
}
