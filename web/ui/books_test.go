package ui

import (
	"fmt"
	"strings"
	"testing"
)

func TestManyThatAreMissing(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for n := range 250 {
		w.has.Comparison.Missing = append(w.has.Comparison.Missing, fmt.Sprintf("order-%d", n))
	}
	b := signedIn(t, w)
	res := b.post("/ui/books/compare", "from", "2026-11-01T00:00:00", "refs", "x").ok()
	res.has("#missing", "order-199")
	if strings.Contains(textOf(find(res.doc, "#missing")[0]), "order-200") {
		t.Error("more are shown than the page says")
	}
	all := b.post("/ui/books/compare", "from", "2026-11-01", "refs", "x", "preview", "true").ok()
	if got := strings.Count(all.body, "\n"); got != 250 {
		t.Errorf("the file has %d lines", got)
	}
	long := b.post("/ui/books/compare", "from", "2026-11-01", "refs", strings.Repeat("x\n", 10_001))
	long.has(".field .error", "more than 10,000")
}
