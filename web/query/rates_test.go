package query

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestRates checks that a key can make its requests of one second at once, and that keys do not affect each
// other.
func TestRates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewRates(3)
		for second := range 3 {
			for i := range 3 {
				if wait := r.Take("a"); wait != 0 {
					t.Errorf("second %d: request %d waits %s", second, i+1, wait)
				}
			}
			if wait := r.Take("a"); wait <= 0 || wait > time.Second {
				t.Errorf("second %d: one more waits %s", second, wait)
			}
			if wait := r.Take(fmt.Sprint("another ", second)); wait != 0 {
				t.Errorf("another key waits %s", wait)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	r := NewRates(0)
	for range 1000 {
		if wait := r.Take("a"); wait != 0 {
			t.Fatalf("waits %s", wait)
		}
	}
}

func TestRatesMemoryIsLimited(t *testing.T) {
	t.Parallel()
	r := NewRates(1)
	for i := range 5 * maxRecent {
		r.Take(fmt.Sprint(i))
	}
	if n := len(r.keys.young) + len(r.keys.old); n > 2*maxRecent {
		t.Errorf("%d keys are remembered", n)
	}
}
