package store_test

import (
	"testing"
	"unicode"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestFold(t *testing.T) {
	t.Parallel()
	for _, same := range [][]string{
		{"ärzte", "ÄRZTE", "Ärzte"}, {"straße", "STRAẞE", "Straße"},
		{"istanbul", "İSTANBUL", "ISTANBUL", "ıstanbul"},
		{"οδος", "ΟΔΟΣ", "οδοσ"}, {"привет", "ПРИВЕТ"}, {"支付宝", "支付宝"}, {"a%_\\", "A%_\\"}, {""},
	} {
		for _, s := range same {
			if got, want := store.Fold(s), store.Fold(same[0]); got != want {
				t.Errorf("%q is folded to %q, and %q to %q", s, got, same[0], want)
			}
		}
	}
	if store.Fold("Ä") == store.Fold("A") || store.Fold("ß") == store.Fold("ss") {
		t.Error("different letters are folded to one")
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		want := store.Fold(string(r))
		for _, other := range []rune{unicode.ToUpper(r), unicode.ToLower(r), unicode.ToTitle(r)} {
			if got := store.Fold(string(other)); got != want {
				t.Errorf("%q is folded to %q, and %q to %q", r, want, other, got)
			}
		}
		if again := store.Fold(want); again != want {
			t.Errorf("%q is folded to %q, and folding that again gives %q", r, want, again)
		}
	}
}
