package loadtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// show prints the result: for machines as one object, for people as a table and what it means.
func (b *bench) show(json bool) error {
	b.bounds()
	if json {
		if err := b.c.PrintValue(&b.report); err != nil {
			return fmt.Errorf("print the report: %w", err)
		}
		return nil
	}
	r := &b.report
	if r.Books.Accepted == 0 {
		return nil // the error says it all
	}
	where := r.Server.URL
	if r.Server.Embedded {
		where = fmt.Sprintf("a server of its own (%s, index %s)", r.Server.Database, r.Server.Index)
	}
	fmt.Fprintf(b.c.Out, "%s  %s\n%s/%s, %d CPUs; bodies of %d bytes, %d connections; %s\n\n",
		b.c.Paint("dispatcher bench", console.Bold), console.Printable(where),
		r.Machine.OS, r.Machine.Arch, r.Machine.CPUs, r.Settings.BodyBytes, r.Settings.Concurrency, r.Version)
	b.showPhases()
	b.showBooks()
	for _, note := range r.Notes {
		fmt.Fprintf(b.c.Out, "%s\n", note)
	}
	return nil
}

// showPhases prints the table.
func (b *bench) showPhases() {
	p := &b.report.Phases
	t := b.c.NewTable("phase", "measured", "callbacks", "each second", "p50 ms", "p90 ms", "p99 ms", "max ms",
		"server CPU s/1,000")
	for i := 3; i <= 9; i++ {
		t.AlignRight(i)
	}
	row := func(phase, measured string, w *workFigures, rate float64, q *quantiles) {
		cells := []any{phase, measured, "", "", "", "", "", "", ""}
		if w != nil {
			cells[2] = w.Callbacks
			if w.ServerCPUSecondsPer1000 != nil {
				cells[8] = fmt.Sprintf("%.3f", *w.ServerCPUSecondsPer1000)
			}
		}
		if rate > 0 {
			cells[3] = fmt.Sprintf("%.0f", rate)
		}
		if q != nil {
			for i, ms := range []float64{q.P50, q.P90, q.P99, q.Max} {
				cells[4+i] = fmt.Sprintf("%.1f", ms)
			}
		}
		t.Row(cells...)
	}
	if f := p.Accept; f != nil {
		what := "request to its 202"
		if b.plan.Batch > 1 {
			what = fmt.Sprintf("request of %d to its answer", b.plan.Batch)
		}
		row(acceptPhase, what, &f.workFigures, f.AcceptedPerSecond, &f.RequestMs)
	}
	if f := p.Drain; f != nil {
		row(drainPhase, "backlog due at once", &f.workFigures, f.DeliveredPerSecond, nil)
	}
	if f := p.Steady; f != nil {
		row(steadyPhase, "request to arrival", &f.workFigures, f.AcceptedPerSecond, &f.RequestStartToArriveMs)
		row("", "202 to arrival", nil, 0, &f.AcceptedToArriveMs)
	}
	if f := p.Delayed; f != nil {
		row(delayedPhase, "due to arrival", &f.workFigures, 0, &f.LatenessMs)
	}
	if t.Rows() > 0 {
		t.Render()
		fmt.Fprintln(b.c.Out)
	}
}

// showBooks says what became of everything that was accepted.
func (b *bench) showBooks() {
	k := &b.report.Books
	missing := fmt.Sprintf("%d missing", k.Missing)
	if k.Missing > 0 {
		missing = b.c.Paint(missing, console.Red)
	}
	fmt.Fprintf(b.c.Out, "Those of the warm-up included: %d accepted = %d arrived + %d given up + %s",
		k.Accepted, k.Arrived, k.GivenUp, missing)
	for _, also := range []struct {
		n    int
		what string
	}{{k.Repeated, "arrivals repeated"}, {k.Early, "too early"}, {k.Changed, "changed on the way"},
		{k.Strange, "of no callback of this run"},
		{k.RefusedRequests, "requests made again, because the server was too busy"}} {
		if also.n > 0 {
			fmt.Fprintf(b.c.Out, "; %d %s", also.n, also.what)
		}
	}
	fmt.Fprintln(b.c.Out, ".")
	if b.plan.Server == "" {
		if peak := b.report.Server.PeakRSSBytes; peak != nil {
			fmt.Fprintf(b.c.Out, "The server's process took at most %s of memory.\n", console.SizeText(*peak))
		}
		return
	}
	if k.Canceled > 0 {
		fmt.Fprintf(b.c.Out, "Canceled at the end: %d.\n", k.Canceled)
	}
	if k.HistoryCallbacks > 0 && k.OpenLeft == 0 && b.finished {
		fmt.Fprintf(b.c.Out, "Nothing of the run is open. The server's history keeps its %d callbacks with "+
			"their attempts until retention ends: ref and lane %s.\n", k.HistoryCallbacks, b.plan.run)
	}
}

const (
	// busyShare is the share of the CPUs that this program may use from which they are what bounds a phase.
	busyShare = 0.85
	// fullMachine is up to how idle the machine's CPUs may be to count as used up, idleMachine from how idle
	// they are waiting.
	fullMachine, idleMachine = 0.15, 0.4
)

// bounds notes what bounds the results, as far as that can be told from here.
func (b *bench) bounds() {
	p := &b.report.Phases
	if p.Accept != nil {
		b.boundOf(acceptPhase, &p.Accept.workFigures, "the database's commits")
	}
	if p.Drain != nil && !b.boundByReceiver(p.Drain) {
		b.boundOf(drainPhase, &p.Drain.workFigures, "the database's commits, or the index")
	}
	if f := p.Steady; f != nil && f.RequestStartedLateMs.P99 > 5 {
		b.note("steady: requests started up to %.1f ms late (p99): the generator could not keep the rate "+
			"evenly, and what it measured has that in it.", f.RequestStartedLateMs.P99)
	}
	if by := b.report.Server.ClockAheadMs; by != 0 {
		b.note("The server's clock is %.1f ms ahead of this machine's, to within %.1f ms; due times and "+
			"lateness are corrected by that.", by, b.report.Server.ClockPrecisionMs)
	}
	if b.plan.DatabaseURL != "" || b.plan.RedisURL != "" {
		b.note("CPU time is the dispatcher's alone, without that of PostgreSQL and Redis.")
	}
}

// boundOf notes what one phase that goes as fast as it can is bound by.
func (b *bench) boundOf(phase string, w *workFigures, otherwise string) {
	cpus := float64(b.report.Machine.CPUs)
	own, server := w.OwnCPUsBusy, w.ServerCPUsBusy
	idle := w.MachineIdleShare
	switch {
	case own == nil:
	case server == nil && *own >= busyShare*cpus/2:
		b.note("%s: bench itself used %.1f of this machine's %.0f CPUs, which may be the bound; from "+
			"another machine it would tell more of the server.", phase, *own, cpus)
	case server == nil:
	case *own+*server >= busyShare*cpus:
		b.note("%s: bound by this machine's %.0f CPUs: the server used %.1f of them, bench (which "+
			"generates and receives) %.1f.", phase, cpus, *server, *own)
	case idle == nil:
	case *idle <= fullMachine:
		b.note("%s: bound by this machine's CPUs, of which this run had %.1f: the rest was used by "+
			"others%s. Idle, the machine can do more.", phase, *own+*server, b.others())
	case *idle >= idleMachine:
		b.note("%s: this machine's CPUs were %.0f %% idle: it waited, most likely for %s.", phase, 100**idle,
			otherwise)
	}
}

// others names those whose CPU time is not counted as the run's.
func (b *bench) others() string {
	if b.plan.DatabaseURL == "" && b.plan.RedisURL == "" {
		return ""
	}
	return ", PostgreSQL and Redis among them if they run here"
}

// boundByReceiver notes that a drain went as fast as a slow receiver let it.
func (b *bench) boundByReceiver(f *drainFigures) bool {
	if b.plan.delay == 0 {
		return false
	}
	most := float64(f.MostAtOnce) / b.plan.delay.Seconds()
	if f.DeliveredPerSecond < most/2 {
		return false
	}
	b.note("drain: at most %d requests were at the receiver at once, each for %s: that alone allows %s "+
		"each second. The lane's concurrency (lane_concurrency) decides how many.",
		f.MostAtOnce, console.Brief(b.plan.delay), strings.TrimSuffix(fmt.Sprintf("%.1f", most), ".0"))
	return true
}

// A benchBar shows how far each phase is: bars on a terminal, a line for the beginning and the end of each
// elsewhere.
type benchBar struct {
	c   *console.Console
	bar *console.Drawing
}

func newBenchBar(c *console.Console) *benchBar {
	b := &benchBar{c: c}
	if !c.ErrTerminal {
		return b
	}
	b.bar = c.NewDrawing(c.Err)
	b.bar.SetMessageLength(8)
	b.bar.Style().Visibility.ETA = false
	b.bar.Begin()
	return b
}

// begin shows a phase of total callbacks, of which value says how many are done. The function that it returns
// ends it.
func (b *benchBar) begin(phase string, total int, value func() int64) (end func(error)) {
	if b.bar == nil {
		began := time.Now()
		fmt.Fprintf(b.c.Err, "bench: %s: %d callbacks\n", phase, total)
		return func(err error) {
			if err == nil {
				fmt.Fprintf(b.c.Err, "bench: %s: ended after %s\n", phase, console.Brief(time.Since(began)))
			}
		}
	}
	tracker := &console.Tracker{Message: phase, Total: int64(total), AutoStopDisabled: true}
	b.bar.AppendTracker(tracker)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				tracker.SetValue(value())
			case <-stop:
				tracker.SetValue(value())
				return
			}
		}
	}()
	return func(err error) {
		close(stop)
		<-stopped
		console.EndTracker(tracker, err != nil)
	}
}

// end stops drawing.
func (b *benchBar) end() { b.bar.End() }
