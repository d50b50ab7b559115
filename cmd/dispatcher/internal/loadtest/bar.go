package loadtest

import (
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// A benchBar shows how far each phase is: bars on a terminal, a line for the beginning and the end of each elsewhere.
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

// begin shows a phase of total callbacks, of which value says how many are done. The function that it returns ends it.
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
