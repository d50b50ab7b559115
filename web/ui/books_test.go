package ui

import (
	"fmt"
	"strings"
	"testing"
)

func TestBooksAsAFile(t *testing.T) {
	t.Parallel()
	const counted = `"Accepted":10,"Succeeded":6,"Dead":2,"Canceled":1,"Open":1}`
	b := signedIn(t, newWorld(`books {"Group":"=1+1",`+counted+` {"Group":"a \"b\"",`+counted))
	res := b.get("/ui/books?from=2026-11-01&group_by=topic&as=csv").ok()
	if want := "group,accepted,succeeded,dead,canceled,open\n'=1+1,10,6,2,1,1\n\"a \"\"b\"\"\",10,6,2,1,1\n"; res.body != want {
		t.Errorf("the file is %q", res.body)
	}
	if kind := res.header.Get("Content-Type"); kind != "text/plain; charset=utf-8" {
		t.Errorf("it is a %s", kind)
	}
}

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
