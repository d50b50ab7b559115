package demo

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
)

// TestResultProblems changes one field of a correct result at a time.
func TestResultProblems(t *testing.T) {
	t.Parallel()
	d := &demo{payments: demoRefund(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC))}
	d.poll().id, d.result().id = cmdtest.SomeID, "cb_2"
	problems := func(body string) []string {
		d.result().got = []byte(body)
		return d.resultProblems()
	}
	good := `{"poll_id":"` + cmdtest.SomeID + `","ref":"refund-20261121-0001",` +
		`"context":{"order":"refund-20261121-0001","channel":"alipay"},` +
		`"outcome":"success","reason":"success",` +
		`"last":{"status_code":200,"body":"{\"status\": \"SUCCESS\"}"},` +
		`"polls":3,"observed_at":"2026-11-21T10:00:02.000Z"}`
	if problems := problems(good); len(problems) != 0 {
		t.Errorf("problems of a correct result: %v", problems)
	}
	for name, bad := range map[string]string{
		"nothing": "", "another poll": cmdtest.With(t, good, `{"poll_id":"cb_2"}`),
		"another ref":     cmdtest.With(t, good, `{"ref":"order-1"}`),
		"another outcome": cmdtest.With(t, good, `{"outcome":"unresolved"}`),
		"too few polls":   cmdtest.With(t, good, `{"polls":2}`),
		"no context":      cmdtest.With(t, good, `{"context":null}`),
		"no response":     cmdtest.With(t, good, `{"last":null}`),
	} {
		if problems := problems(bad); len(problems) != 1 ||
			!strings.HasPrefix(problems[0], "refund-20261121-0001 (result): ") {
			t.Errorf("%s: found %v", name, problems)
		}
	}
}

// TestProblems makes one fact of a correct payment wrong at a time.
func TestProblems(t *testing.T) {
	t.Parallel()
	payments, err := demoPayments(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(payments, func(p payment) bool { return p.scenario.name == failsTwice })
	start := time.Now()
	at := func(seconds ...float64) []time.Time {
		var list []time.Time
		for _, s := range seconds {
			list = append(list, start.Add(time.Duration(s*float64(time.Second))))
		}
		return list
	}
	good := payments[i]
	good.seen = client.Callback{State: "succeeded", AttemptCount: 3}
	good.attempts, good.visits = make([]client.Attempt, 3), at(0, 1.001, 3.1)
	if problems := good.problems(); len(problems) != 0 {
		t.Errorf("problems of a correct result: %v", problems)
	}
	for name, spoil := range map[string]func(*payment){
		"state":          func(p *payment) { p.seen.State = "dead" },
		"attempts":       func(p *payment) { p.seen.AttemptCount = 2 },
		"too early":      func(p *payment) { p.visits = at(0, 0.9, 3.1) },
		"not recorded":   func(p *payment) { p.attempts = p.attempts[:2] },
		"sent too often": func(p *payment) { p.visits = at(0, 1.1, 3.2, 9) },
	} {
		bad := good
		spoil(&bad)
		if problems := bad.problems(); len(problems) != 1 {
			t.Errorf("%s: found %v", name, problems)
		}
	}
	bad := shop{overlaps: 1, forged: 2, changed: 3, mixed: 4}
	if problems := bad.problems(); len(problems) != 4 {
		t.Errorf("problems of the shop: %v", problems)
	}
}
