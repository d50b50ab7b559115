package app

import "testing"

func TestCollectorPercent(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{0: 1000, 1 << 20: 1000, 16 << 20: 400, 64 << 20: 100,
		1 << 30: 100} {
		if got := collectorPercent(live); got != want {
			t.Errorf("with %d live bytes GOGC is %d, want %d", live, got, want)
		}
	}
}
