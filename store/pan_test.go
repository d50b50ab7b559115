package store

import (
	"bytes"
	"testing"
)

// TestPiecesCostLittle checks that HasPAN reads a text of many short pieces about once, although each piece
// may begin a card number.
func TestPiecesCostLittle(t *testing.T) {
	const pieces = 10_000
	text := bytes.Repeat([]byte("1 "), pieces)
	if n := testing.AllocsPerRun(3, func() { HasPAN(text) }); n > 2*pieces {
		t.Errorf("%.0f allocations for %d pieces", n, pieces)
	}
}

// FuzzMaskPAN checks that a masked text has no card number, is not longer than the text, and is not changed
// by a second MaskPAN.
func FuzzMaskPAN(f *testing.F) {
	for _, seed := range []string{
		"4111 1111 1111 3782 822463 10005", "4111111111111111 4111-1111-1111-1111", `\u0034111111111111111`,
		"%34%3", `\`, `\u00`, "%", "\xff4",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		given := bytes.Clone(text)
		redacted, masked := MaskPAN(text)
		if !bytes.Equal(given, text) {
			t.Fatal("the text itself was changed")
		}
		if masked != HasPAN(text) || len(redacted) > len(text) || HasPAN(redacted) {
			t.Fatalf("%q: masked %v, %q", text, masked, redacted)
		}
		if again, more := MaskPAN(redacted); more || !bytes.Equal(again, redacted) {
			t.Fatalf("%q, masked again: %q", redacted, again)
		}
	})
}
