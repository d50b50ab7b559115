package console

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

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
	t.columns = append(t.columns, table.ColumnConfig{Number: column, WidthMax: width, WidthMaxEnforcer: text.WrapSoft})
}

// AlignRight aligns a column, counted from 1, to the right; numbers are anyway.
func (t *Table) AlignRight(column int) {
	t.columns = append(t.columns, table.ColumnConfig{Number: column, Align: text.AlignRight, AlignHeader: text.AlignRight})
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
