package store

import (
	"bytes"
	"testing"
)

// The numbers are those that issuers publish for tests.
func TestMaskPAN(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"card":"4111111111111111"}`:             `{"card":"411111******1111"}`,
		`{"card":4111111111111111}`:               `{"card":411111******1111}`,
		"4111 1111 1111 1111":                     "4111 11** **** 1111",
		"4111-1111-1111-1111":                     "4111-11**-****-1111",
		"3782 822463 10005":                       "3782 82**** *0005",
		"378282246310005":                         "378282*****0005",
		"card=4111+1111+1111+1111&x=1":            "card=4111+11**+****+1111&x=1",
		"card=4111%201111%201111%201111":          "card=4111%2011**%20****%201111",
		"%34111111111111111":                      "%3411111******1111",
		`"\u0034\u0031111111111111\u0031\u0031"`:  `"\u0034\u00311111******11\u0031\u0031"`,
		`a\n4111111111111111\n`:                   `a\n411111******1111\n`,
		"卡号4111111111111111号":                     "卡号411111******1111号",
		"5555555555554444,6200000000000005":       "555555******4444,620000******0005",
		"4222222222222":                           "422222***2222",
		"30569309025904":                          "305693****5904",
		"4111 1111 1111 1111 4111 1111 1111 1111": "4111 11** **** 1111 4111 11** **** 1111",
	} {
		shown, masked := MaskPAN([]byte(text))
		if string(shown) != want || !masked || !HasPAN([]byte(text)) {
			t.Errorf("%s: %s, want %s", text, shown, want)
		}
	}
	for _, text := range []string{
		"", "4111111111111112", "41111111111111111", "1234567890123456", "20261121100000000007",
		"1790000000000",
		"x4111111111111111",
		"4111111111111111a", "4111  1111  1111  1111", "4111-1111 1111-1111", "411 111111 1111111",
		"4200001899202611211234567890",
		"9999999999999995", "4.111111111111111e15", "411111111111",
	} {
		if shown, masked := MaskPAN([]byte(text)); masked || string(shown) != text || HasPAN([]byte(text)) {
			t.Errorf("%s is masked: %s", text, shown)
		}
	}
}

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
