package demo

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// check compares the results with the plan, prints both, and reports whether they agree.
func (d *demo) check(ctx context.Context) (bool, error) {
	all, err := d.list(ctx) // includes callbacks that are not in the plan
	if err != nil {
		return false, err
	}
	if err := d.readAttempts(ctx, all); err != nil {
		return false, err
	}
	d.shop.mu.Lock()
	defer d.shop.mu.Unlock()
	var wrong []string
	diverts := 0
	for i := range d.payments {
		p := &d.payments[i]
		wrong = append(wrong, p.problems()...)
		if p.scenario.locked {
			diverts += p.seen.DivertCount
		}
	}
	if diverts == 0 {
		wrong = append(wrong, "no callback was postponed, although pairs shared a lock key")
	}
	wrong = append(append(wrong, d.shop.problems()...), d.resultProblems()...)
	if len(all) != len(d.payments) { // such as a second result of the poll
		wrong = append(wrong, fmt.Sprintf("%d callbacks were accepted, not %d", len(all), len(d.payments)))
	}
	d.showScenarios()
	d.showSummary(all, len(wrong) == 0)
	fmt.Fprintln(d.c.Out)
	if len(wrong) == 0 {
		fmt.Fprintln(d.c.Out, d.c.Paint("Everything happened as expected.", console.Green, console.Bold))
		return true, nil
	}
	fmt.Fprintln(d.c.Out, d.c.Paint("Not everything happened as expected:", console.Red, console.Bold))
	for _, line := range wrong {
		fmt.Fprintln(d.c.Out, "  "+line)
	}
	return false, nil
}

// readAttempts reads the final state and the attempts of each payment.
func (d *demo) readAttempts(ctx context.Context, all map[string]client.Callback) error {
	for i := range d.payments {
		p := &d.payments[i]
		p.seen = all[p.id]
		if p.id == "" { // the poll has not ended, so there is no result
			continue
		}
		raw, err := remote.NewestAttempts(ctx, d.cl, p.id, 0)
		if err == nil {
			p.attempts, err = remote.DecodeAttempts(raw)
		}
		if err != nil {
			return fmt.Errorf("list the attempts of %s: %w", p.id, err)
		}
	}
	return nil
}

// problems returns what differs from the plan.
func (p *payment) problems() []string {
	var list []string
	refuse := func(format string, args ...any) {
		list = append(list, p.name()+": "+fmt.Sprintf(format, args...))
	}
	s, cb := &p.scenario, &p.seen
	if cb.State != s.state || cb.Reason != s.reason {
		refuse("is %s %s, not %s %s", cb.State, cb.Reason, s.state, s.reason)
	}
	if cb.AttemptCount != s.attempts {
		refuse("has %d counted attempts, not %d", cb.AttemptCount, s.attempts)
	}
	if len(p.visits) != len(p.attempts) {
		refuse("has %d recorded attempts, but the receiver got %d", len(p.attempts), len(p.visits))
	}
	for i := 1; i < len(p.visits) && i <= len(s.tiers); i++ {
		// The wait starts at the end of an attempt, which is later than the shop's time of the request.
		if gap := p.visits[i].Sub(p.visits[i-1]); gap < s.tiers[i-1] {
			refuse("attempt %d came %s after the one before, too early for a tier of %s", i+1,
				console.Brief(gap), console.Brief(s.tiers[i-1]))
		}
	}
	return list
}

// showScenarios prints the final table.
func (d *demo) showScenarios() {
	fmt.Fprintln(d.c.Out)
	t := d.c.NewTable("the shop", "attempts", "postponed", "ended", "as planned")
	t.Wrap(1, 25) // the table fits into 80 columns
	for _, s := range scenarios() {
		payments, asExpected, attempts, diverts, ended := 0, 0, 0, 0, ""
		for i := range d.payments {
			p := &d.payments[i]
			if p.scenario.name != s.name {
				continue
			}
			payments++
			if len(p.problems()) == 0 {
				asExpected++
			}
			attempts += p.seen.AttemptCount
			diverts += p.seen.DivertCount
			if state := remote.StateOf(&p.seen); ended == "" || ended == state {
				ended = state
			} else {
				ended = "differ"
			}
		}
		colour := console.Green
		if asExpected < payments {
			colour = console.Red
		}
		t.Row(s.name, fmt.Sprintf("%.3g", float64(attempts)/float64(payments)), diverts,
			d.c.Paint(ended, console.StateColour(s.state)),
			d.c.Paint(fmt.Sprintf("%d of %d", asExpected, payments), colour))
	}
	t.Render()
}

// showSummary prints the totals. Accepted callbacks equal the sum of all states.
func (d *demo) showSummary(all map[string]client.Callback, asExpected bool) {
	states := map[client.State]int{}
	for _, cb := range all {
		states[cb.State]++
	}
	requests, polls := 0, len(d.poll().visits)
	attempts, timed, late, worst := 0, 0, 0.0, 0.0
	for i := range d.payments {
		p := &d.payments[i]
		requests += len(p.visits)
		for _, a := range p.attempts {
			attempts++
			// The wait for a lock is no lateness of the dispatcher.
			if p.seen.DivertCount == 0 {
				timed++
				late += a.LatenessMs
				worst = max(worst, a.LatenessMs)
			}
		}
	}
	requests -= polls
	open := len(all) - states["succeeded"] - states["dead"] - states["canceled"]
	fmt.Fprintf(d.c.Out, "\n%d accepted, including the poll and its result\n"+
		"= %d succeeded + %d dead + %d canceled + %d open;\n"+
		"%d recorded attempts, %d requests at the shop and %d at the bank.\n",
		len(all), states["succeeded"], states["dead"], states["canceled"], open, attempts, requests, polls)
	if timed > 0 {
		early := ""
		if asExpected {
			early = ", none early"
		}
		fmt.Fprintf(d.c.Out, "Lateness of attempts: %.1f ms on average, %.1f ms at most%s\n"+
			"(without those that waited for a lock).\n", late/float64(timed), worst, early)
	}
	fmt.Fprintf(d.c.Out, "The shop verified %d of %d signatures.\n", requests-d.shop.forged, requests)
}
