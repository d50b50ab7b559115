package console

import (
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// A Drawing is one or several progress bars on a terminal, in the program's style. The nil drawing draws
// nothing.
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

// A Table is printed when all its rows are there.
type Table struct {
	w       table.Writer
	columns []table.ColumnConfig
}

// NewTable returns a table with the header that writes to the console's output when it is rendered.
func (c *Console) NewTable(header ...any) *Table {
	w := table.NewWriter()
	w.SetOutputMirror(c.Out)
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Format.Footer = text.FormatDefault
	style.Options.DrawBorder = false
	style.Options.SeparateColumns = false
	w.SetStyle(style)
	if len(header) > 0 {
		w.AppendHeader(header)
	}
	return &Table{w: w}
}

// Wrap has the texts of a column, counted from 1, broken into lines of a width.
func (t *Table) Wrap(column, width int) {
	t.columns = append(t.columns, table.ColumnConfig{Number: column, WidthMax: width,
		WidthMaxEnforcer: text.WrapSoft})
}

// AlignRight aligns a column, counted from 1, to the right; numbers are anyway.
func (t *Table) AlignRight(column int) {
	t.columns = append(t.columns, table.ColumnConfig{Number: column, Align: text.AlignRight,
		AlignHeader: text.AlignRight})
}

// Row adds one.
func (t *Table) Row(cells ...any) { t.w.AppendRow(cells) }

// Rows is how many there are.
func (t *Table) Rows() int { return t.w.Length() }

// Render prints the table.
func (t *Table) Render() {
	t.w.SetColumnConfigs(t.columns)
	t.w.Render()
}

// ShowTable prints rows as a table. The header names the columns, with commas between them.
func ShowTable[T any](c *Console, rows []T, header string, cells func(*T) []any) {
	var names []any
	for name := range strings.SplitSeq(header, ", ") {
		names = append(names, name)
	}
	t := c.NewTable(names...)
	for i := range rows {
		t.Row(cells(&rows[i])...)
	}
	t.Render()
}
