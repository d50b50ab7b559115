package dispatch_test

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
)

// Each code of a block has a course in blocks.txt in which it comes first and states its start.
func TestEveryBlockIsExplained(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/courses/blocks.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range control.BlockCodes {
		_, course, _ := strings.Cut(string(text), "\n== "+code+"\n")
		course, _, _ = strings.Cut(course, "\n== ")
		if _, first, _ := strings.Cut(course, "\n  Code "); !strings.HasPrefix(first, code+", Since +") {
			t.Errorf("no course shows since when %s blocks a callback", code)
		}
	}
}

func (b *fixture) explain(id string) control.Explanation {
	b.Helper()
	synctest.Wait()
	return must(b.engine.Explain(b.Context(), project, id))
}

// first returns the first block of a callback.
func (b *fixture) first(id string) control.Block {
	b.Helper()
	if x := b.explain(id); len(x.Blocking) > 0 {
		return x.Blocking[0]
	}
	return control.Block{}
}
