package console

import (
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Drawing shows one or more progress bars on a terminal. A nil Drawing can be ended and does nothing.
type Drawing struct {
	progress.Writer
	ended chan struct{}
}

// NewDrawing returns a drawing that has not started.
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

// Tracker is one bar of a drawing.
type Tracker = progress.Tracker

// EndTracker marks a bar as done or failed.
func EndTracker(t *Tracker, failed bool) {
	if failed {
		t.MarkAsErrored()
		return
	}
	t.MarkAsDone()
}

// Begin starts to draw.
func (d *Drawing) Begin() {
	d.ended = make(chan struct{})
	go func() {
		defer close(d.ended)
		d.Render()
	}()
}

// End draws the last state and stops. It does nothing on a drawing that has not started.
func (d *Drawing) End() {
	if d == nil || d.ended == nil {
		return
	}
	// Stop has no effect before the first rendering.
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

// Table is a table that Render prints.
type Table struct {
	w       table.Writer
	columns []table.ColumnConfig
}

// NewTable returns a table that Render writes to the console's output.
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

// Wrap limits the width of a column, counted from 1, and wraps its texts.
func (t *Table) Wrap(column, width int) {
	t.columns = append(t.columns, table.ColumnConfig{Number: column, WidthMax: width,
		WidthMaxEnforcer: text.WrapSoft})
}

// AlignRight aligns a column, counted from 1, to the right. Numbers are always aligned to the right.
func (t *Table) AlignRight(column int) {
	t.columns = append(t.columns, table.ColumnConfig{Number: column, Align: text.AlignRight,
		AlignHeader: text.AlignRight})
}

// Row adds a row.
func (t *Table) Row(cells ...any) { t.w.AppendRow(cells) }

// Rows returns the number of rows.
func (t *Table) Rows() int { return t.w.Length() }

// Render prints the table.
func (t *Table) Render() {
	t.w.SetColumnConfigs(t.columns)
	t.w.Render()
}

// ShowTable prints rows as a table. header names the columns, separated by commas.
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
