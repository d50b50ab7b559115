package parse

import "testing"

func TestKeepIsBounded(t *testing.T) {
	t.Parallel()
	k := NewKeep[int, int](3)
	for i := range 10 {
		k.Put(i, i)
		if got, ok := k.Get(i); !ok || got != i || len(k.m) > 3 {
			t.Errorf("%d: %d, %v; %d are kept", i, got, ok, len(k.m))
		}
	}
}
