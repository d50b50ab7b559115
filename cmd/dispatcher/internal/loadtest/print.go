package loadtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// print prints the report: as one JSON object, or as a table with notes.
func (b *bench) print(json bool) error {
	b.noteLimits()
	if json {
		if err := b.c.PrintValue(&b.report); err != nil {
			return fmt.Errorf("print the report: %w", err)
		}
		return nil
	}
	r := &b.report
	if r.Tally.Accepted == 0 {
		return nil // the error is enough
	}
	where := r.Server.URL
	if r.Server.Embedded {
		where = fmt.Sprintf("bench's own server (%s, index %s)", r.Server.Database, r.Server.Index)
	}
	fmt.Fprintf(b.c.Out, "%s  %s\n%s/%s, %d CPUs; bodies of %d bytes, %d connections; %s\n\n",
		b.c.Paint("dispatcher bench", console.Bold), console.Printable(where),
		r.Machine.OS, r.Machine.Arch, r.Machine.CPUs, r.Settings.BodyBytes, r.Settings.Concurrency, r.Version)
	b.printPhases()
	b.printTally()
	for _, note := range r.Notes {
		fmt.Fprintf(b.c.Out, "%s\n", note)
	}
	return nil
}

// printPhases prints the table.
func (b *bench) printPhases() {
	p := &b.report.Phases
	t := b.c.NewTable("phase", "measured", "callbacks", "per second", "p50 ms", "p90 ms", "p99 ms", "max ms",
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
		what := "request to 202"
		if b.plan.Batch > 1 {
			what = fmt.Sprintf("request of %d to response", b.plan.Batch)
		}
		row(acceptPhase, what, &f.workFigures, f.AcceptedPerSecond, &f.RequestMs)
	}
	if f := p.Drain; f != nil {
		row(drainPhase, "backlog with one due time", &f.workFigures, f.DeliveredPerSecond, nil)
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

// printTally prints what happened to all accepted callbacks.
func (b *bench) printTally() {
	k := &b.report.Tally
	missing := fmt.Sprintf("%d missing", k.Missing)
	if k.Missing > 0 {
		missing = b.c.Paint(missing, console.Red)
	}
	fmt.Fprintf(b.c.Out, "With the warm-up: %d accepted = %d arrived + %d given up + %s",
		k.Accepted, k.Arrived, k.GivenUp, missing)
	for _, also := range []struct {
		n    int
		what string
	}{
		{k.Repeated, "repeated arrivals"}, {k.Early, "early"}, {k.Changed, "changed"},
		{k.Strange, "not of this run"},
		{k.RefusedRequests, "requests repeated because the server was too busy"},
	} {
		if also.n > 0 {
			fmt.Fprintf(b.c.Out, "; %d %s", also.n, also.what)
		}
	}
	fmt.Fprintln(b.c.Out, ".")
	if b.plan.Server == "" {
		if peak := b.report.Server.PeakRSSBytes; peak != nil {
			fmt.Fprintf(b.c.Out, "Peak memory of the server's process: %s.\n", console.SizeText(*peak))
		}
		return
	}
	if k.Canceled > 0 {
		fmt.Fprintf(b.c.Out, "Canceled at the end: %d.\n", k.Canceled)
	}
	if k.HistoryCallbacks > 0 && k.OpenLeft == 0 && b.finished {
		fmt.Fprintf(b.c.Out, "No callback of the run is open. The server keeps the %d callbacks with their "+
			"attempts until retention ends: ref and lane %s.\n", k.HistoryCallbacks, b.plan.run)
	}
}

const (
	// busyShare: if this share of the usable CPUs is busy, the CPUs limit a phase.
	busyShare = 0.85
	// The CPUs of the machine are used up if at most fullMachine of them is idle. The run is waiting if at
	// least idleMachine is idle.
	fullMachine, idleMachine = 0.15, 0.4
)

// noteLimits adds notes on what limited the results, as far as bench can know.
func (b *bench) noteLimits() {
	p := &b.report.Phases
	if p.Accept != nil {
		b.noteLimit(acceptPhase, &p.Accept.workFigures, "database commits")
	}
	if p.Drain != nil && !b.limitedByReceiver(p.Drain) {
		b.noteLimit(drainPhase, &p.Drain.workFigures, "database commits or the index")
	}
	if f := p.Steady; f != nil && f.RequestStartedLateMs.P99 > 5 {
		b.note("steady: requests started up to %.1f ms late (p99): the generator could not keep the rate, "+
			"and the measured times include that.", f.RequestStartedLateMs.P99)
	}
	if by := b.report.Server.ClockAheadMs; by != 0 {
		b.note("The server's clock is %.1f ms ahead of this machine's clock (± %.1f ms); due times and "+
			"lateness are corrected by that.", by, b.report.Server.ClockPrecisionMs)
	}
	if b.plan.DatabaseURL != "" || b.plan.RedisURL != "" {
		b.note("CPU time is that of the dispatcher, without PostgreSQL and Redis.")
	}
}

// noteLimit adds a note on what limited one phase that runs at full speed.
func (b *bench) noteLimit(phase string, w *workFigures, otherwise string) {
	cpus := float64(b.report.Machine.CPUs)
	own, server := w.OwnCPUsBusy, w.ServerCPUsBusy
	idle := w.MachineIdleShare
	switch {
	case own == nil:
	case server == nil && *own >= busyShare*cpus/2:
		b.note("%s: bench itself used %.1f of this machine's %.0f CPUs, which may be the limit; run it on "+
			"another machine to measure the server.", phase, *own, cpus)
	case server == nil:
	case *own+*server >= busyShare*cpus:
		b.note("%s: limited by this machine's %.0f CPUs: the server used %.1f of them, and bench (which "+
			"generates and receives) %.1f.", phase, cpus, *server, *own)
	case idle == nil:
	case *idle <= fullMachine:
		b.note("%s: limited by this machine's CPUs. This run used %.1f of them, and other programs the "+
			"rest%s. Without these, the machine can do more.", phase, *own+*server, b.others())
	case *idle >= idleMachine:
		b.note("%s: this machine's CPUs were %.0f %% idle: the run waited, probably for %s.",
			phase, 100**idle, otherwise)
	}
}

// others names programs whose CPU time does not count as the run's.
func (b *bench) others() string {
	if b.plan.DatabaseURL == "" && b.plan.RedisURL == "" {
		return ""
	}
	return " (with PostgreSQL and Redis, if they run here)"
}

// limitedByReceiver reports whether the receiver's delay limited a drain, and adds a note.
func (b *bench) limitedByReceiver(f *drainFigures) bool {
	if b.plan.delay == 0 {
		return false
	}
	most := float64(f.MostAtOnce) / b.plan.delay.Seconds()
	if f.DeliveredPerSecond < most/2 {
		return false
	}
	b.note("drain: limited by the receiver: %d requests at once, each for %s, allow %s per second. The "+
		"setting lane_concurrency decides how many are sent at once.",
		f.MostAtOnce, console.Brief(b.plan.delay), strings.TrimSuffix(fmt.Sprintf("%.1f", most), ".0"))
	return true
}

// benchBar shows the progress of each phase: bars on a terminal, else a line at its begin and its end.
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

// begin shows a phase of total callbacks. value returns how many are done. The returned function ends the
// phase.
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
