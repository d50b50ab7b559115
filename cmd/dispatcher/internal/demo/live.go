package demo

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// live prints the progress of the demo: one line per event and, on a terminal, a bar that counts the terminal
// callbacks. Its methods can be called from any goroutine.
type live struct {
	c *console.Console

	mu      sync.Mutex
	began   time.Time
	bar     *console.Drawing
	tracker *console.Tracker
}

// newLive returns a live output for total callbacks, with a bar if the output is a terminal.
func newLive(c *console.Console, total int) *live {
	l := &live{c: c, began: time.Now()}
	if !c.OutTerminal {
		return l
	}
	l.bar = c.NewDrawing(c.Out)
	l.bar.SetMessageLength(20)
	l.bar.Style().Visibility.ETA = false
	l.bar.Style().Visibility.Percentage = false
	l.tracker = &console.Tracker{Message: "finished callbacks", Total: int64(total)}
	return l
}

// start starts the clock and the bar.
func (l *live) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = time.Now()
	if l.bar == nil {
		return
	}
	l.bar.AppendTracker(l.tracker)
	l.bar.Begin()
}

// stop ends the bar.
func (l *live) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bar.End()
	l.bar = nil
}

// print prints one line. The caller holds mu.
func (l *live) print(format string, args ...any) {
	line := fmt.Sprintf("%6.2fs  ", time.Since(l.began).Seconds()) + fmt.Sprintf(format, args...)
	if l.bar != nil {
		l.bar.Log("%s", line)
		return
	}
	fmt.Fprintln(l.c.Out, line)
}

// accepted prints that a payment was accepted.
func (l *live) accepted(p *payment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what := "accepted"
	if p.scenario.poll {
		what += " as a poll of the bank"
	}
	l.print("%-30s %s", p.name(), what)
}

// responded prints a response of the shop.
func (l *live) responded(p *payment, attempt int, r reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	colour := console.Green
	if !strings.Contains(strings.ToLower(r.body), "success") {
		colour = console.Yellow
	}
	l.print("%-30s attempt %d  %s", p.name(), attempt,
		l.c.Paint(fmt.Sprintf("%d %s", r.status, r.body), colour))
}

// observed prints what changed on a callback since the last call.
func (l *live) observed(p *payment, cb *client.Callback) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := p.seen
	p.seen = *cb
	if cb.DivertCount > before.DivertCount {
		l.print("%-30s %s", p.name(),
			l.c.Paint("postponed: its order is locked", console.Cyan))
	}
	if cb.FinishedAt.IsZero() || !before.FinishedAt.IsZero() {
		return
	}
	if l.tracker != nil {
		l.tracker.Increment(1)
	}
	if cb.State != "succeeded" || cb.AttemptCount > 1 {
		l.print("%-30s %s after %d attempts", p.name(),
			l.c.Paint(remote.StateOf(cb), console.StateColour(cb.State)), cb.AttemptCount)
	}
}
