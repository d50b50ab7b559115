package console

import (
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// A Column of a table of T: what stands above it, and what it shows of a row. Numbers are aligned to the right.
type Column[T any] struct {
	Name string
	Of   func(*T) any
	// Wrap is the width beyond which a text is broken into lines; zero: it is not.
	Wrap int
}

// ShowTable prints rows as a table.
func ShowTable[T any](c *Console, rows []T, columns []Column[T]) {
	var header []any
	var configs []table.ColumnConfig
	for i, column := range columns {
		header = append(header, column.Name)
		if column.Wrap > 0 {
			configs = append(configs, table.ColumnConfig{
				Number: i + 1, WidthMax: column.Wrap, WidthMaxEnforcer: text.WrapSoft,
			})
		}
	}
	t := c.NewTable(header...)
	t.SetColumnConfigs(configs)
	for i := range rows {
		var cells []any
		for _, column := range columns {
			cells = append(cells, column.Of(&rows[i]))
		}
		t.AppendRow(cells)
	}
	t.Render()
}
