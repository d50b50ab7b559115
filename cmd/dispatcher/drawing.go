package main

import (
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// A drawing is one or several progress bars on a terminal, in the program's style. The nil drawing draws nothing.
type drawing struct {
	progress.Writer
	ended chan struct{}
}

// newDrawing returns a drawing that has not begun.
func (c *console) newDrawing(to io.Writer) *drawing {
	d := &drawing{Writer: progress.NewWriter()}
	d.SetOutputWriter(to)
	d.SetUpdateFrequency(100 * time.Millisecond)
	d.SetTrackerLength(30)
	d.SetStyle(progress.StyleBlocks)
	d.SetTrackerPosition(progress.PositionRight)
	d.Style().Options.TimeInProgressPrecision = 100 * time.Millisecond
	d.Style().Options.TimeDonePrecision = 100 * time.Millisecond
	if c.colour() {
		d.Style().Colors = progress.StyleColorsExample
	}
	return d
}

// begin begins to draw.
func (d *drawing) begin() {
	d.ended = make(chan struct{})
	go func() {
		defer close(d.ended)
		d.Render()
	}()
}

// end draws the last state and ends. It does nothing on a drawing that has not begun.
func (d *drawing) end() {
	if d == nil || d.ended == nil {
		return
	}
	// A bar that has not begun to draw does not hear Stop.
	for !d.IsRenderInProgress() {
		select {
		case <-d.ended:
			return
		case <-time.After(time.Millisecond):
		}
	}
	d.Stop()
	<-d.ended
}
