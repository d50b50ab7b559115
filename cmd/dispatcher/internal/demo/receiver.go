package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/listen"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A shop is the demo's receiver: it answers each payment as the plan says, and keeps a ledger that the demo's judgement
// rests on. It identifies payments by the path that they are sent to. Under a path of its own it is the bank, which is asked.
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
	// forged counts requests whose signature is wrong, changed those whose body is not what was handed over, mixed those
	// that came with another webhook-id than before.
	forged, changed, mixed int
}

// newShop returns a receiver for the payments.
func newShop(payments []payment, say func(*payment, int, reply)) *shop {
	return &shop{say: say, payments: payments, inside: map[string]int{}}
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

// The demo's poll: a bank, which is the receiver's other face, is asked what has become of a refund until that is final, and the shop is
// told of its end, once.

const (
	// refundResult is the topic of the callback that tells the shop.
	refundResult = "refund.result"
	// pollLimit is the poll's deadline, far beyond what it takes.
	pollLimit = time.Minute
	// refundDone is what the bank says when it is.
	refundDone = "SUCCESS"
)

// pollTier is the one wait between two questions, which repeats.
func pollTier() time.Duration { return time.Second }

// askedScenario is what the bank answers: that it works on it, twice, and then that it is done.
func askedScenario() scenario {
	pending := reply{status: http.StatusOK, body: `{"status": "PROCESSING"}`}
	return scenario{
		name: askedOften, replies: []reply{pending, pending, {status: http.StatusOK, body: `{"status": "` + refundDone + `"}`}},
		state: "succeeded", reason: "success", attempts: 3, tiers: slices.Repeat([]time.Duration{pollTier()}, 2), asked: true,
	}
}

// demoRefund returns the poll and its result as the rest of the demo knows payments.
func demoRefund(day time.Time) []payment {
	refund := orderNumber("refund", day, 1)
	var list []payment
	for _, s := range scenarios() {
		switch {
		case s.asked:
			list = append(list, payment{order: refund, topic: "refund", scenario: s, path: "/bank/" + refund})
		case s.told:
			list = append(list, payment{order: refund, topic: refundResult, scenario: s, path: "/notify/" + refund})
		}
	}
	return list
}

// refundContext is what the shop wants to see again in the result.
func refundContext(p *payment) json.RawMessage {
	return json.RawMessage(`{"order":"` + p.order + `","channel":"alipay"}`)
}

// ask hands the poll over. Its result goes to the shop, in the lane of the payments, so that the same secret signs.
func (d *demo) ask(ctx context.Context, p *payment) (client.Callback, error) {
	told := d.told()
	in := map[string]any{
		"ref": p.order, "lane": "demo-bank", "labels": map[string]string{"scenario": p.scenario.name},
		"request": map[string]any{"url": d.address(p), "signer": "none"},
		"policy":  map[string]any{"tiers": tierTexts([]time.Duration{pollTier()}), "repeat_last": true, "deadline": pollLimit.String(), "timeout": "5s"},
		"until":   map[string]any{"success": []any{map[string]any{"pointer": "/status", "in": []string{refundDone}}}},
		"context": json.RawMessage(refundContext(p)),
		"on_result": map[string]any{
			"url": d.address(told), "topic": told.topic, "lane": d.lane(), "success": "body-success",
			"policy": map[string]any{"tiers": tierTexts(demoTiers()), "timeout": "5s"},
			"labels": map[string]string{"scenario": told.scenario.name},
		},
	}
	var cb client.Callback
	_, err := d.cl.Call(ctx, http.MethodPost, "/v1/polls", in, &cb)
	return cb, err
}

// learnResult asks which callback tells the result, once the poll has ended.
func (d *demo) learnResult(ctx context.Context, byID map[string]client.Callback) error {
	id := d.asked().id
	if d.told().id != "" || byID[id].FinishedAt.IsZero() {
		return nil
	}
	var p struct {
		Poll struct {
			ResultCallbackID string `json:"result_callback_id"`
		} `json:"poll"`
	}
	if _, err := d.cl.Call(ctx, http.MethodGet, "/v1/polls/"+url.PathEscape(id), nil, &p); err != nil {
		return fmt.Errorf("look at the poll: %w", err)
	}
	d.told().id = p.Poll.ResultCallbackID
	return nil
}

// resultProblems says what is wrong with what the shop was told of the poll's end.
func (d *demo) resultProblems() []string {
	asked, told := d.asked(), d.told()
	var list []string
	wrong := func(format string, args ...any) {
		list = append(list, told.name()+": "+fmt.Sprintf(format, args...))
	}
	var r store.PollResult
	if err := json.Unmarshal(told.got, &r); err != nil {
		wrong("the shop was told %q, which is no result of a poll", told.got)
		return list
	}
	if r.PollID != asked.id || r.Ref != asked.order {
		wrong("tells of %s and %s, not of %s and %s", r.PollID, r.Ref, asked.id, asked.order)
	}
	if r.Outcome != store.PollSuccess || r.Polls != asked.scenario.attempts {
		wrong("tells of %q after %d questions, not of %q after %d", r.Outcome, r.Polls, store.PollSuccess, asked.scenario.attempts)
	}
	if context := refundContext(asked); !bytes.Equal(r.Context, context) {
		wrong("has the context %s, not %s", r.Context, context)
	}
	if last := asked.scenario.replies[asked.scenario.attempts-1]; r.Last == nil || r.Last.Body != last.body {
		wrong("does not have the bank's last answer, %s", last.body)
	}
	return list
}
