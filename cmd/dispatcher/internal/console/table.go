package console

import (
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

// A Column of a table of T: what stands above it, and what it shows of a row.
type Column[T any] struct {
	Name string
	Of   func(*T) any
	// Wrap is the width beyond which a text is broken into lines; zero: it is not.
	Wrap int
}

// ShowTable prints rows as a table.
func ShowTable[T any](c *Console, rows []T, columns []Column[T]) {
	var header []any
	for _, column := range columns {
		header = append(header, column.Name)
	}
	t := c.NewTable(header...)
	for i, column := range columns {
		if column.Wrap > 0 {
			t.Wrap(i+1, column.Wrap)
		}
	}
	for i := range rows {
		var cells []any
		for _, column := range columns {
			cells = append(cells, column.Of(&rows[i]))
		}
		t.Row(cells...)
	}
	t.Render()
}
