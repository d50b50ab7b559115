package store_test

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestIDTime(t *testing.T) {
	for id, want := range map[string]int64{
		"01ARYZ6S410000000000000000": 1469918176385, "01ARYZ6S41ZZZZZZZZZZZZZZZZ": 1469918176385, "00000000000000000000000001": 0,
		"7ZZZZZZZZZZZZZZZZZZZZZZZZZ": 1<<48 - 1, "8ZZZZZZZZZZZZZZZZZZZZZZZZZ": 0, "": 0, "01ARYZ6S41": 0, "01aryz6s410000000000000000": 0,
		"01ARYZ6S4I0000000000000000": 0, "cb_01ARYZ6S410000000000000": 0,
	} {
		if got := store.IDTime(id); got != want {
			t.Errorf("%q was made at %d, want %d", id, got, want)
		}
	}
}
