package sqldb

import (
	"fmt"
	"testing"
)

// TestStatement checks that parameters around a multi-row input are renumbered in the order of their first
// appearance.
func TestStatement(t *testing.T) {
	t.Parallel()
	d := postgresDialect()
	rows := Texts("id", []string{"a", "b"})
	for _, c := range []struct {
		name, text string
		args       []any
		want       string
		ordered    string // the arguments in their new order
		fails      bool
	}{
		{
			name: "no input", text: "SELECT $2, $1, $i", args: []any{1, 2}, ordered: "[1 2]",
			want: "SELECT $2, $1, $i",
		},
		{
			name: "order of the text", text: "UPDATE t SET a = $2 FROM $i WHERE b = $1 AND c = $2",
			args: []any{"b", "a", rows}, ordered: "[a [a b] b]",
			want: "UPDATE t SET a = $1 FROM unnest($2::text[]) AS i (id) WHERE b = $3 AND c = $1",
		},
		{
			name: "input twice", text: "SELECT 1 FROM $i UNION SELECT 2 FROM $i", args: []any{rows},
			ordered: "[[a b]]",
			want: "SELECT 1 FROM unnest($1::text[]) AS i (id) UNION SELECT 2 FROM unnest($1::text[]) AS " +
				"i (id)",
		},
		{name: "number too high", text: "SELECT $2 FROM $i", args: []any{1, rows}, fails: true},
		{name: "number zero", text: "SELECT $0 FROM $i", args: []any{1, rows}, fails: true},
		{name: "not a parameter", text: "SELECT $id FROM $i", args: []any{1, rows}, fails: true},
	} {
		text, ordered, err := d.Statement(c.text, c.args)
		if (err != nil) != c.fails || text != c.want || !c.fails && fmt.Sprint(ordered) != c.ordered {
			t.Errorf("%s: %q with %v, %v; want %q with %s", c.name, text, ordered, err, c.want, c.ordered)
		}
	}
}
