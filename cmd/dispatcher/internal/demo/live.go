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

// live shows the demo as it goes: one line for everything that happens, and on a terminal a bar below them
// that counts the terminal callbacks. Its methods may be called from any goroutine.
type live struct {
	c *console.Console

	mu      sync.Mutex
	began   time.Time
	bar     *console.Drawing
	tracker *console.Tracker
}

func newLive(c *console.Console, total int) *live {
	l := &live{c: c, began: time.Now()}
	if !c.OutTerminal {
		return l
	}
	l.bar = c.NewDrawing(c.Out)
	l.bar.SetMessageLength(20)
	l.bar.Style().Visibility.ETA = false
	l.bar.Style().Visibility.Percentage = false
	l.tracker = &console.Tracker{Message: "terminal callbacks", Total: int64(total)}
	return l
}

// start begins the live part.
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

// stop ends the live part; later events are not shown.
func (l *live) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bar.End()
	l.bar = nil
}

// say shows one line; the lock is held.
func (l *live) say(format string, args ...any) {
	line := fmt.Sprintf("%6.2fs  ", time.Since(l.began).Seconds()) + fmt.Sprintf(format, args...)
	if l.bar != nil {
		l.bar.Log("%s", line)
		return
	}
	fmt.Fprintln(l.c.Out, line)
}

// accepted shows that a payment was handed over.
func (l *live) accepted(p *payment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what := "accepted"
	if p.scenario.asked {
		what += " as a poll: the bank is asked until its answer is final"
	}
	l.say("%-30s %s", p.name(), what)
}

// answered shows what the shop answered.
func (l *live) answered(p *payment, attempt int, r reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	colour := console.Green
	if !strings.Contains(strings.ToLower(r.body), "success") {
		colour = console.Yellow
	}
	l.say("%-30s attempt %d  %s", p.name(), attempt,
		l.c.Paint(fmt.Sprintf("%d %s", r.status, r.body), colour))
}

// observed shows what has changed on a callback since it was last seen.
func (l *live) observed(p *payment, cb *client.Callback) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := p.seen
	p.seen = *cb
	if cb.DivertCount > before.DivertCount {
		l.say("%-30s %s", p.name(), l.c.Paint("was diverted: its order was locked; no attempt was charged",
			console.Cyan))
	}
	if cb.FinishedAt.IsZero() || !before.FinishedAt.IsZero() {
		return
	}
	if l.tracker != nil {
		l.tracker.Increment(1)
	}
	if cb.State != "succeeded" || cb.AttemptCount > 1 {
		l.say("%-30s %s after %d attempts", p.name(),
			l.c.Paint(remote.StateOf(cb), console.StateColour(cb.State)), cb.AttemptCount)
	}
}
