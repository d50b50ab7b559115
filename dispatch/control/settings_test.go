package control

import (
	"slices"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestTopics(t *testing.T) {
	for topic, right := range map[string]bool{"*": true, "payment.*": true, "a": true, "": false,
		"*.paid": false, "pay*": false, "a.*.b": false, ".*": false} {
		var f accept.Findings
		checkTopics([]string{topic}, &f)
		if right != (len(f) == 0) {
			t.Errorf("topic %q: %v", topic, f)
		}
	}
}

// FuzzReencryptPlace: a cursor that parses is written as it was read.
func FuzzReencryptPlace(f *testing.F) {
	for _, table := range store.SealedTables() {
		f.Add(string(table) + "/0011aabb/01JD6QZ0000000000000000001")
	}
	for _, s := range []string{"", "/", "//", "x/y/z", "a/b/c/d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseCursor(text)
		if err == nil && text != "" && (p.String() != text ||
			!slices.Contains(store.SealedTables(), p.table)) {
			t.Errorf("%q is the cursor %q", text, p)
		}
	})
}
