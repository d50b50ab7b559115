package demo

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// The demo's plan: thirty payment notifications and a poll with its result, what the receiver answers to
// each, and how each must end. Everything here is foreseen, so that the demo can judge itself.

// demoTiers are the waits of the payment policy, shortened to seconds.
var demoTiers = []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}

// A reply is one answer of the demo's receiver.
type reply struct {
	status int
	body   string
	// delay before the answer.
	delay time.Duration
}

// A scenario is a kind of payment: how the receiver treats it, and how it must end.
type scenario struct {
	name string
	// replies come one after the other; the last one repeats.
	replies []reply
	// state, reason and attempts are how each callback must end.
	state    client.State
	reason   client.TerminalReason
	attempts int
	// tiers are the waits between attempts.
	tiers []time.Duration
	// locked ones come in pairs that share a lock key: at least one of a pair must be diverted, and they must
	// never be at the receiver at once.
	locked bool
	// asked ones are polls, which go to the bank; told ones their results, which nobody hands over.
	asked, told bool
}

// Names of the scenarios.
const (
	paidAtOnce   = "answers success at once"
	failsOnce    = "answers 500, then success"
	failsTwice   = "answers 500 twice, then success"
	wrongAnswer  = "answers 200 with FAIL, then success"
	lockConflict = "gets two callbacks for one order at once"
	neverAnswers = "answers 500 to everything"
	askedOften   = "(the bank) is asked for a refund until it is final"
	toldOnce     = "is told of that refund's end"
)

// scenarios lists the kinds of payment in the order of the final table.
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
		askedScenario(),
		{name: toldOnce, replies: []reply{success}, state: "succeeded", attempts: 1, told: true},
	}
	for i := range list {
		if !list[i].asked {
			list[i].tiers = demoTiers
		}
	}
	return list
}

// A payment is one notification of the demo.
type payment struct {
	order    string
	topic    string
	scenario scenario
	lockKey  string
	body     []byte
	// path is where it goes at the receiver.
	path string

	// id is its callback's, once it is accepted; seen is the callback as it was last looked at.
	id   string
	seen client.Callback
	// attempts are what the server has on record of it at the end.
	attempts []client.Attempt
	// The receiver's ledger, which its lock guards: when each request came, and what the last one brought.
	visits    []time.Time
	webhookID string
	got       []byte
}

// demoOrder says which kind the payments are, in the order in which they are sent. The one that dies comes
// early: it takes longest. The pairs stand side by side.
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

// demoPayments returns the thirty payments. The day stands in the order numbers, as it does in real ones.
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
				// The second one of a pair is about the first one's order.
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

// name is how the live lines call a payment.
func (p *payment) name() string {
	switch p.topic {
	case "payment.settled":
		return p.order + " (settled)"
	case refundResult:
		return p.order + " (result)"
	}
	return p.order
}
