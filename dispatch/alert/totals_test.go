package alert

import (
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A window begins at most a part of it and a minute too early, whatever this process sampled before another
// one evaluated.
func TestOldSamplesBeginNoWindow(t *testing.T) {
	t.Parallel()
	const window = 5 * time.Minute
	w := totalWindows{windows: make(map[windowKey]*totalWindow)}
	now := int64(1_000_000)
	begins := func() int64 {
		t.Helper()
		s, err := w.since(windowKey{"p", window}, now, []store.EndpointTotal{{ID: "e"}})
		if err != nil {
			t.Fatal(err)
		}
		return now - s.at
	}
	for range 100 {
		if age := begins(); age > (window + window/windowParts).Milliseconds() {
			t.Fatalf("the window begins %d ms ago", age)
		}
		now += 10_000
	}
	now += time.Minute.Milliseconds()
	if age := begins(); age < window.Milliseconds() || age > (window+2*time.Minute).Milliseconds() {
		t.Errorf("after a short break the window begins %d ms ago", age)
	}
	now += 3 * time.Hour.Milliseconds()
	if age := begins(); age != 0 || w.samples != 1 {
		t.Errorf("after 3 h the window begins %d ms ago, with %d samples", age, w.samples)
	}
}
