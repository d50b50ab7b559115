package demo

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/listen"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
)

// A shop is the demo's receiver: it answers each payment as the plan says, and keeps a ledger that the demo's judgement
// rests on. It identifies payments by the path that they are sent to. Under a path of its own it is the bank, which is asked.
type shop struct {
	// secret verifies signatures; it is set before anything is sent.
	secret []byte
	// say is told of every answer.
	say func(p *payment, attempt int, r reply)

	mu sync.Mutex
	// visits by path.
	visits map[string]*visits
	// inside counts, by lock key, the requests that are being answered.
	inside map[string]int
	// overlaps counts requests that came while another one with their lock key was being answered.
	overlaps int
	// forged counts requests whose signature is wrong, changed those whose body is not what was handed over, mixed those
	// that came with another webhook-id than before.
	forged, changed, mixed int
}

// visits are the requests for one payment.
type visits struct {
	payment *payment
	id      string
	// at is when each came, body what the last one brought.
	at   []time.Time
	body []byte
}

// newShop returns a receiver for the payments.
func newShop(payments []payment, say func(*payment, int, reply)) *shop {
	s := &shop{say: say, visits: map[string]*visits{}, inside: map[string]int{}}
	for i := range payments {
		s.visits[payments[i].path] = &visits{payment: &payments[i]}
	}
	return s
}

// ServeHTTP answers as the plan says.
func (s *shop) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, listen.MaxReceived))
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	v, attempt := s.enter(req, body)
	if v == nil {
		http.NotFound(w, req)
		return
	}
	p := v.payment
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
func (s *shop) enter(req *http.Request, body []byte) (*visits, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.visits[req.URL.Path]
	if v == nil {
		return nil, 0
	}
	v.at = append(v.at, time.Now())
	id := req.Header.Get("webhook-id")
	if v.id != "" && v.id != id {
		s.mixed++
	}
	v.id, v.body = id, body
	// Banks want signatures of their own: the poll has none.
	if !v.payment.scenario.asked && sign.Verify("", []sign.Secret{{Key: s.secret}}, req.Header, nil, body, 0) != nil {
		s.forged++
	}
	// What the result says is known when it is there.
	if !v.payment.scenario.told && !bytes.Equal(body, v.payment.body) {
		s.changed++
	}
	if key := v.payment.lockKey; key != "" {
		if s.inside[key] > 0 {
			s.overlaps++
		}
		s.inside[key]++
	}
	return v, len(v.at)
}

func (s *shop) leave(p *payment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.lockKey != "" {
		s.inside[p.lockKey]--
	}
}

// A shopReport is what the receiver saw.
type shopReport struct {
	// requests are those at the shop, asked those at the bank.
	requests, asked                  int
	overlaps, forged, changed, mixed int
	// visits by index of the payment.
	visits [][]time.Time
	// result is what the shop was told of the poll's end.
	result []byte
}

// report returns the ledger.
func (s *shop) report(payments []payment) shopReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := shopReport{overlaps: s.overlaps, forged: s.forged, changed: s.changed, mixed: s.mixed}
	for i := range payments {
		v := s.visits[payments[i].path]
		switch {
		case payments[i].scenario.asked:
			r.asked += len(v.at)
		default:
			r.requests += len(v.at)
		}
		if payments[i].scenario.told {
			r.result = v.body
		}
		r.visits = append(r.visits, append([]time.Time(nil), v.at...))
	}
	return r
}
