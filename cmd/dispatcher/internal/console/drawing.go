package console

import (
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// A Drawing is one or several progress bars on a terminal, in the program's style. The nil drawing draws nothing.
type Drawing struct {
	progress.Writer
	ended chan struct{}
}

// NewDrawing returns a drawing that has not begun.
func (c *Console) NewDrawing(to io.Writer) *Drawing {
	d := &Drawing{Writer: progress.NewWriter()}
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

// A Tracker is one bar of a drawing.
type Tracker = progress.Tracker

// EndTracker says of a bar that its work has ended, or has failed.
func EndTracker(t *Tracker, failed bool) {
	if failed {
		t.MarkAsErrored()
		return
	}
	t.MarkAsDone()
}

// Begin begins to draw.
func (d *Drawing) Begin() {
	d.ended = make(chan struct{})
	go func() {
		defer close(d.ended)
		d.Render()
	}()
}

// End draws the last state and ends. It does nothing on a drawing that has not begun.
func (d *Drawing) End() {
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
