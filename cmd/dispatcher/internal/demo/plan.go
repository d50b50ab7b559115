package demo

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// This file is the plan of the demo: thirty payment notifications and a poll with its result, the responses
// of the receiver, and the expected end of each callback.

// demoTiers are the waits of the payment policy, shortened to seconds.
var demoTiers = []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}

// reply is one response of the demo's receiver.
type reply struct {
	status int
	body   string
	// delay is the time before the response.
	delay time.Duration
}

// scenario is a kind of payment: the receiver's responses and the expected end.
type scenario struct {
	name string
	// replies are sent one after the other; the last one repeats.
	replies []reply
	// state, reason and attempts are the expected end of each callback.
	state    client.State
	reason   client.TerminalReason
	attempts int
	// tiers are the waits between attempts.
	tiers []time.Duration
	// locked payments come in pairs that share a lock key. The receiver must never get both at once, and at
	// least one callback of all pairs must be diverted.
	locked bool
	// poll: the payment is the poll of the bank. result: it is the callback with the poll's result, which the
	// dispatcher creates.
	poll, result bool
}

// Names of the scenarios.
const (
	paidAtOnce   = "answers success at once"
	failsOnce    = "answers 500, then success"
	failsTwice   = "answers 500 twice, then success"
	wrongAnswer  = "answers 200 with FAIL, then success"
	lockConflict = "gets two callbacks for one order at the same time"
	neverAnswers = "always answers 500"
	polledOften  = "(bank) is polled until the refund is final"
	getsResult   = "gets the result of the refund"
)

// scenarios returns the kinds of payment in the order of the final table.
func scenarios() []scenario {
	success := reply{status: http.StatusOK, body: "success"}
	broken := reply{status: http.StatusInternalServerError, body: "database is down"}
	list := []scenario{
		{name: paidAtOnce, replies: []reply{success}, state: "succeeded", attempts: 1},
		{name: failsOnce, replies: []reply{broken, success}, state: "succeeded", attempts: 2},
		{name: failsTwice, replies: []reply{broken, broken, success}, state: "succeeded", attempts: 3},
		{name: wrongAnswer, replies: []reply{{status: http.StatusOK, body: "FAIL"}, success},
			state: "succeeded", attempts: 2},
		{name: lockConflict, replies: []reply{
			{status: http.StatusOK, body: "success", delay: 800 * time.Millisecond}},
			state: "succeeded", attempts: 1, locked: true},
		{name: neverAnswers, replies: []reply{broken}, state: "dead", reason: "exhausted",
			attempts: len(demoTiers) + 1},
		pollScenario(),
		{name: getsResult, replies: []reply{success}, state: "succeeded", attempts: 1, result: true},
	}
	for i := range list {
		if !list[i].poll {
			list[i].tiers = demoTiers
		}
	}
	return list
}

// payment is one notification of the demo.
type payment struct {
	order    string
	topic    string
	scenario scenario
	lockKey  string
	body     []byte
	// path is its path at the receiver.
	path string

	// id is its callback's id, empty until it is accepted. seen is the last known state of the callback.
	id   string
	seen client.Callback
	// attempts are its attempts in the server's records, read at the end.
	attempts []client.Attempt
	// The receiver's records, guarded by its lock: the times of the requests, and the last webhook-id and
	// body.
	visits    []time.Time
	webhookID string
	got       []byte
}

// demoOrder returns the kinds of the payments in the order of sending. The dead one is early, because it
// takes longest. The two of a pair are neighbours.
func demoOrder() []string {
	order := []string{paidAtOnce, failsOnce, neverAnswers, lockConflict, lockConflict, failsTwice,
		wrongAnswer, paidAtOnce, failsOnce, lockConflict, lockConflict}
	for len(order) < 30 {
		kind := paidAtOnce
		switch len(order) {
		case 14, 18, 22:
			kind = failsOnce
		case 16:
			kind = failsTwice
		}
		order = append(order, kind)
	}
	return order
}

// demoPayments returns the thirty payments. Their order numbers contain the day, like real ones.
func demoPayments(day time.Time) ([]payment, error) {
	kinds := scenarios()
	var list []payment
	pair := ""
	for i, name := range demoOrder() {
		s := kinds[slices.IndexFunc(kinds, func(s scenario) bool { return s.name == name })]
		p := payment{order: orderNumber("order", day, i+1), topic: "payment.succeeded", scenario: s,
			path: fmt.Sprintf("/notify/%d", i+1)}
		if s.locked {
			if pair == "" {
				pair = p.order
			} else {
				// The second one of a pair has the order number of the first.
				p.order, p.topic, pair = pair, "payment.settled", ""
			}
			p.lockKey = p.order
		}
		body, err := json.Marshal(map[string]any{
			"event": p.topic, "order": p.order, "amount": 1000 + 137*i, "currency": "CNY",
			"paid_at": day.UTC().Format(time.RFC3339),
		})
		if err != nil {
			return nil, fmt.Errorf("encode payment %d: %w", i+1, err)
		}
		p.body = body
		list = append(list, p)
	}
	return list, nil
}

func orderNumber(of string, day time.Time, n int) string {
	return fmt.Sprintf("%s-%s-%04d", of, day.Format("20060102"), n)
}

// name is the name of a payment in the live output.
func (p *payment) name() string {
	switch p.topic {
	case "payment.settled":
		return p.order + " (settled)"
	case refundResult:
		return p.order + " (result)"
	}
	return p.order
}
