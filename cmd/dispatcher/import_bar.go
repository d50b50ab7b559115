package main

import (
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// An importBar shows on a terminal how far an import is; elsewhere it only says what goes wrong.
type importBar struct {
	c       *console
	bar     progress.Writer
	tracker *progress.Tracker
	ended   chan struct{}
	// said is when a complaint was last shown.
	said time.Time
}

// sayEvery bounds how often a complaint is repeated where nobody sees a bar.
const sayEvery = 10 * time.Second

// newImportBar begins to draw; lines is zero where nobody knows how many there are.
func newImportBar(c *console, lines, done int) *importBar {
	b := &importBar{c: c}
	if !c.errTerminal {
		return b
	}
	b.bar = progress.NewWriter()
	b.bar.SetOutputWriter(c.err)
	b.bar.SetUpdateFrequency(100 * time.Millisecond)
	b.bar.SetTrackerLength(30)
	b.bar.SetStyle(progress.StyleBlocks)
	b.bar.SetTrackerPosition(progress.PositionRight)
	b.bar.Style().Options.TimeInProgressPrecision = 100 * time.Millisecond
	b.bar.Style().Options.TimeDonePrecision = 100 * time.Millisecond
	b.bar.Style().Visibility.Speed = true
	if c.colour() {
		b.bar.Style().Colors = progress.StyleColorsExample
	}
	b.tracker = &progress.Tracker{Message: "lines", Total: int64(lines)}
	b.tracker.SetValue(int64(done))
	b.bar.AppendTracker(b.tracker)
	b.ended = make(chan struct{})
	go func() {
		defer close(b.ended)
		b.bar.Render()
	}()
	return b
}

// at shows that everything up to the line is done.
func (b *importBar) at(line int) {
	if b.tracker != nil {
		b.tracker.SetValue(int64(line))
	}
}

// say shows what the import waits for.
func (b *importBar) say(text string) {
	if time.Since(b.said) < sayEvery {
		return
	}
	b.said = time.Now()
	if b.bar != nil {
		b.bar.Log("%s", printable(text))
		return
	}
	fmt.Fprintf(b.c.err, "dispatcher: %s\n", printable(text))
}

// end stops drawing; broken says that the import did not come to its end.
func (b *importBar) end(broken bool) {
	if b.bar == nil {
		return
	}
	if broken {
		b.tracker.MarkAsErrored()
	} else {
		b.tracker.MarkAsDone()
	}
	// A bar that has not begun to draw does not hear Stop.
	for !b.bar.IsRenderInProgress() {
		select {
		case <-b.ended:
			return
		case <-time.After(time.Millisecond):
		}
	}
	b.bar.Stop()
	<-b.ended
}
