package store

import (
	"bytes"
	"testing"
)

// TestPiecesCostLittle: a text of many short pieces, which could each begin a card number, is read about
// once.
func TestPiecesCostLittle(t *testing.T) {
	const pieces = 10_000
	text := bytes.Repeat([]byte("1 "), pieces)
	if n := testing.AllocsPerRun(3, func() { HasPAN(text) }); n > 2*pieces {
		t.Errorf("%.0f allocations for %d pieces", n, pieces)
	}
}

// FuzzMaskPAN: whatever the text, the result has no card number, masking it again changes nothing, and it is
// no longer.
func FuzzMaskPAN(f *testing.F) {
	for _, seed := range []string{
		"4111 1111 1111 3782 822463 10005", "4111111111111111 4111-1111-1111-1111", `\u0034111111111111111`,
		"%34%3", `\`, `\u00`, "%", "\xff4",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		given := bytes.Clone(text)
		shown, masked := MaskPAN(text)
		if !bytes.Equal(given, text) {
			t.Fatal("the text itself was changed")
		}
		if masked != HasPAN(text) || len(shown) > len(text) || HasPAN(shown) {
			t.Fatalf("%q: masked %v, %q", text, masked, shown)
		}
		if again, more := MaskPAN(shown); more || !bytes.Equal(again, shown) {
			t.Fatalf("%q, masked again: %q", shown, again)
		}
	})
}
