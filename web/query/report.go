package query

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// ReportCSV returns all findings of the report of a day as CSV; an empty kind: of all kinds. A report keeps a
// bounded number of findings.
func ReportCSV(ctx context.Context, s Store, project, day string, kind store.ItemKind) ([]byte, error) {
	if _, err := s.ReconcileReport(ctx, project, day); err != nil {
		return nil, err
	}
	const page = 1000 // items of one read
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	rows := [][]string{{"kind", "ref", "topic", "state", "callback_id", "callbacks"}}
	for after, more := int64(0), true; more; {
		items, err := s.ReconcileItems(ctx, project, day, kind, after, page)
		if err != nil {
			return nil, err
		}
		for i := range items {
			rows = append(rows, findingCells(&items[i]))
			after = items[i].Number
		}
		if err := w.WriteAll(rows); err != nil {
			return nil, fmt.Errorf("write CSV: %w", err)
		}
		rows, more = rows[:0], len(items) == page
	}
	return b.Bytes(), nil
}

func findingCells(i *store.ReconcileItem) []string {
	cells := []string{string(i.Kind), i.Ref, i.Topic, string(i.State), "", ""}
	if i.CallbackID != "" {
		cells[4] = store.CallbackPrefix + i.CallbackID
	}
	if i.Callbacks > 0 {
		cells[5] = strconv.FormatInt(i.Callbacks, 10)
	}
	for j := range cells {
		cells[j] = SafeCell(cells[j])
	}
	return cells
}
