package importer

import (
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// A Bar shows on a terminal how far an import is; elsewhere it only says what goes wrong.
type Bar struct {
	c       *console.Console
	Bar     *console.Drawing
	tracker *console.Tracker
	// said is when a complaint was last shown.
	said time.Time
}

// sayEvery bounds how often a complaint is repeated where nobody sees a bar.
const sayEvery = 10 * time.Second

// NewBar begins to draw; lines is zero where nobody knows how many there are.
func NewBar(c *console.Console, lines, done int) *Bar {
	b := &Bar{c: c}
	if !c.ErrTerminal {
		return b
	}
	b.Bar = c.NewDrawing(c.Err)
	b.Bar.Style().Visibility.Speed = true
	b.tracker = &console.Tracker{Message: "lines", Total: int64(lines)}
	b.tracker.SetValue(int64(done))
	b.Bar.AppendTracker(b.tracker)
	b.Bar.Begin()
	return b
}

// At shows that everything up to the line is done.
func (b *Bar) At(line int) {
	if b.tracker != nil {
		b.tracker.SetValue(int64(line))
	}
}

// say shows what the import waits for.
func (b *Bar) say(text string) {
	if time.Since(b.said) < sayEvery {
		return
	}
	b.said = time.Now()
	if b.Bar != nil {
		b.Bar.Log("%s", console.Printable(text))
		return
	}
	fmt.Fprintf(b.c.Err, "dispatcher: %s\n", console.Printable(text))
}

// End stops drawing; broken says that the import did not come to its end.
func (b *Bar) End(broken bool) {
	if b.Bar == nil {
		return
	}
	console.EndTracker(b.tracker, broken)
	b.Bar.End()
}
