package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// A finding is what is known of one payment at the end.
type finding struct {
	payment  *payment
	callback client.Callback
	attempts []client.Attempt
	visits   []time.Time
}

// judge compares what happened with what was foreseen, shows both, and says whether they agree.
func (d *demo) judge(ctx context.Context) (bool, error) {
	findings, report, all, err := d.findings(ctx)
	if err != nil {
		return false, err
	}
	var wrong []string
	groups := map[string]*group{}
	for i := range findings {
		f := &findings[i]
		g := groups[f.payment.scenario.name]
		if g == nil {
			g = &group{}
			groups[f.payment.scenario.name] = g
		}
		problems := f.problems()
		g.add(f, len(problems) == 0)
		wrong = append(wrong, problems...)
	}
	for _, s := range scenarios() {
		if g := groups[s.name]; s.locked && g != nil && g.diverts == 0 {
			wrong = append(wrong, "no callback was diverted, although pairs shared a lock key")
		}
	}
	wrong = append(append(wrong, report.problems()...), d.resultProblems(report.result)...)
	if len(all) != len(findings) { // such as a second result of the poll
		wrong = append(wrong, fmt.Sprintf("%d callbacks were accepted, not %d", len(all), len(findings)))
	}
	d.showGroups(groups)
	d.showSummary(findings, all, report, len(wrong) == 0)
	fmt.Fprintln(d.c.Out)
	if len(wrong) == 0 {
		fmt.Fprintln(d.c.Out, d.c.Paint("Everything happened as foreseen.", console.Green, console.Bold))
		return true, nil
	}
	fmt.Fprintln(d.c.Out, d.c.Paint("Not everything happened as foreseen:", console.Red, console.Bold))
	for _, line := range wrong {
		fmt.Fprintln(d.c.Out, "  "+line)
	}
	return false, nil
}

// findings reads everything about every payment. all are the server's callbacks, whether they were foreseen or not.
func (d *demo) findings(ctx context.Context) (list []finding, report shopReport, all map[string]client.Callback, err error) {
	if all, err = d.look(ctx); err != nil {
		return nil, report, nil, err
	}
	report = d.shop.report(d.payments)
	list = make([]finding, len(d.payments))
	for i, id := range d.ids {
		list[i] = finding{payment: &d.payments[i], visits: report.visits[i]}
		if id == "" { // the result of a poll that has not ended
			continue
		}
		raw, err := remote.NewestAttempts(ctx, d.cl, id, 0)
		if err == nil {
			list[i].attempts, err = remote.DecodeAttempts(raw)
		}
		if err != nil {
			return nil, report, nil, fmt.Errorf("look at the attempts of %s: %w", id, err)
		}
		list[i].callback = all[id]
	}
	return list, report, all, nil
}

// problems says what is not as foreseen.
func (f *finding) problems() []string {
	var list []string
	refuse := func(format string, args ...any) {
		list = append(list, f.payment.name()+": "+fmt.Sprintf(format, args...))
	}
	s, cb := f.payment.scenario, &f.callback
	if cb.State != s.state || cb.Reason != s.reason {
		refuse("is %s %s, not %s %s", cb.State, cb.Reason, s.state, s.reason)
	}
	if cb.AttemptCount != s.attempts {
		refuse("has %d charged attempts, not %d", cb.AttemptCount, s.attempts)
	}
	if len(f.visits) != len(f.attempts) {
		refuse("has %d attempts on record, and the receiver saw %d", len(f.attempts), len(f.visits))
	}
	tiers := s.tiers
	for i := 1; i < len(f.visits) && i <= len(tiers); i++ {
		// The wait runs from the end of an attempt, which is after the shop began to see it.
		if gap := f.visits[i].Sub(f.visits[i-1]); gap < tiers[i-1] {
			refuse("attempt %d came %s after the one before, which is too early for a tier of %s", i+1, console.Brief(gap), console.Brief(tiers[i-1]))
		}
	}
	return list
}

// problems says what the shop's ledger has against the dispatcher.
func (r *shopReport) problems() []string {
	var list []string
	for _, p := range []struct {
		count int
		what  string
	}{
		{r.overlaps, "requests came while another one with the same lock key was being answered"},
		{r.forged, "requests had a wrong signature"},
		{r.changed, "requests had other bytes than were handed over"},
		{r.mixed, "requests had another webhook-id than the attempt before"},
	} {
		if p.count > 0 {
			list = append(list, fmt.Sprintf("%d %s", p.count, p.what))
		}
	}
	return list
}

// A group sums the findings of one scenario.
type group struct {
	payments, asForeseen, attempts, diverts int
	ended                                   string
}

func (g *group) add(f *finding, asForeseen bool) {
	g.payments++
	if asForeseen {
		g.asForeseen++
	}
	g.attempts += f.callback.AttemptCount
	g.diverts += f.callback.DivertCount
	ended := remote.StateOf(&f.callback)
	if g.ended != "" && g.ended != ended {
		ended = "differ"
	}
	g.ended = ended
}

// showGroups prints the final table.
func (d *demo) showGroups(groups map[string]*group) {
	fmt.Fprintln(d.c.Out)
	t := d.c.NewTable("the shop", "callbacks", "attempts each", "diverts", "ended", "as foreseen")
	for _, s := range scenarios() {
		g := groups[s.name]
		if g == nil {
			continue
		}
		each := fmt.Sprintf("%.3g", float64(g.attempts)/float64(g.payments))
		verdict := d.c.Paint(fmt.Sprintf("%d of %d", g.asForeseen, g.payments), console.Green)
		if g.asForeseen < g.payments {
			verdict = d.c.Paint(fmt.Sprintf("%d of %d", g.asForeseen, g.payments), console.Red)
		}
		t.Row(s.name, g.payments, each, g.diverts, d.c.Paint(g.ended, console.StateColour(s.state)), verdict)
	}
	t.Render()
}

// showSummary prints the books: they must balance.
func (d *demo) showSummary(findings []finding, all map[string]client.Callback, report shopReport, asForeseen bool) {
	states := map[client.State]int{}
	for _, cb := range all {
		states[cb.State]++
	}
	attempts, timed, late, worst := 0, 0, 0.0, 0.0
	for i := range findings {
		for _, a := range findings[i].attempts {
			attempts++
			// Who waited for a lock was not late by the dispatcher's doing.
			if findings[i].callback.DivertCount == 0 {
				timed++
				late += a.LatenessMs
				worst = max(worst, a.LatenessMs)
			}
		}
	}
	open := len(all) - states["succeeded"] - states["dead"] - states["canceled"]
	fmt.Fprintf(d.c.Out, "\n%d accepted, the poll and its result among them = %d succeeded + %d dead + %d canceled + %d open;\n"+
		"%d attempts on record, %d requests at the shop and %d at the bank.\n",
		len(all), states["succeeded"], states["dead"], states["canceled"], open, attempts, report.requests, report.asked)
	if timed > 0 {
		early := ""
		if asForeseen {
			early = ", and none too early"
		}
		fmt.Fprintf(d.c.Out, "Attempts started %.1f ms after they were due on average, %.1f ms at worst%s (those that waited for a lock left out).\n", late/float64(timed), worst, early)
	}
	fmt.Fprintf(d.c.Out, "The shop verified %d of %d signatures.\n", report.requests-report.forged, report.requests)
}
