package main

import (
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// An importBar shows on a terminal how far an import is; elsewhere it only says what goes wrong.
type importBar struct {
	c       *console
	bar     *drawing
	tracker *progress.Tracker
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
	b.bar = c.newDrawing(c.err)
	b.bar.Style().Visibility.Speed = true
	b.tracker = &progress.Tracker{Message: "lines", Total: int64(lines)}
	b.tracker.SetValue(int64(done))
	b.bar.AppendTracker(b.tracker)
	b.bar.begin()
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
	b.bar.end()
}
