package console

import (
	"fmt"
	"io"
	"time"
)

// plainInterval is the time between two lines of a progress that is not drawn.
const plainInterval = 10 * time.Second

// A Progress shows on the error output how far a command is: as a bar on a terminal, elsewhere as a line
// every ten seconds. It never writes to the standard output, which may be JSON. Its methods are for one
// goroutine.
type Progress struct {
	out     io.Writer
	what    string
	drawing *Drawing
	tracker *Tracker
	began   time.Time
	// last is the time of the last line.
	last time.Time
}

// NewProgress starts to show a progress. what names the things that are counted, such as "rows", in at most
// ten characters. A total of zero is unknown.
func (c *Console) NewProgress(what string, total int) *Progress {
	now := time.Now()
	p := &Progress{out: c.Err, what: what, began: now, last: now}
	if !c.ErrTerminal {
		return p
	}
	p.drawing = c.NewDrawing(c.Err)
	p.drawing.SetTrackerLength(16) // the whole line has less than 80 columns
	p.drawing.Style().Visibility.Speed = true
	p.tracker = &Tracker{Message: what, Total: int64(total), AutoStopDisabled: true}
	p.drawing.AppendTracker(p.tracker)
	p.drawing.Begin()
	return p
}

// Drawn reports whether the progress is a bar.
func (p *Progress) Drawn() bool { return p.drawing != nil }

// Set shows that n of total things are done. A total of zero is unknown.
func (p *Progress) Set(n, total int) {
	if p.Drawn() {
		if total > 0 {
			p.tracker.UpdateTotal(int64(total))
		}
		p.tracker.SetValue(int64(n))
		return
	}
	now := time.Now()
	if now.Sub(p.last) < plainInterval {
		return
	}
	p.last = now
	count := fmt.Sprint(n)
	if total > 0 {
		count += fmt.Sprintf(" of %d", total)
	}
	fmt.Fprintf(p.out, "%s %s after %s\n", count, p.what, now.Sub(p.began).Round(time.Second))
}

// Log prints a line, on a terminal above the bar.
func (p *Progress) Log(line string) {
	if p.Drawn() {
		p.drawing.Log("%s", line)
		return
	}
	fmt.Fprintln(p.out, line)
}

// End stops to show the progress. failed says that the command stopped early.
func (p *Progress) End(failed bool) {
	if !p.Drawn() {
		return
	}
	EndTracker(p.tracker, failed)
	p.drawing.End()
}
