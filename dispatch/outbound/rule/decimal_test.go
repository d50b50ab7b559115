package rule

import (
	"math/big"
	"testing"
)

func TestDecimalsCompare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"0", "-0.00", 0}, {"1.50", "1.5", 0}, {"0.1", "0.10e0", 0}, {"100", "1e2", 0}, {"0.001", "1E-3", 0}, {"12e+1", "120", 0},
		{"007.50", "7.5", 0}, {"+3", "3", 0}, {"1", "2", -1}, {"-1", "-2", 1}, {"-1", "1", -1}, {"0", "1e-1000000000", -1}, {"0", "-0.1", 1},
		{"9.99", "10", -1}, {"0.1", "0.09", 1}, {"12345678901234567890", "12345678901234567891", -1}, {"1e1000000000", "9e999999999", 1},
		{"0.30000000000000004", "0.3", 1}, {"1000000", "999999.9999999999999999999999", 1},
	} {
		a, okA := parseDecimal(c.a)
		b, okB := parseDecimal(c.b)
		if !okA || !okB || a.compare(b) != c.want || b.compare(a) != -c.want {
			t.Errorf("%s against %s: %d (%v, %v), want %d", c.a, c.b, a.compare(b), okA, okB, c.want)
		}
	}
	for _, s := range []string{"", "-", "+", ".", ".5", "5.", "1e", "1e+", "1.2.3", "0x10", "1_000", "Inf", "NaN", " 1", "1 ", "１", "1e1000000001", "--1", "1e1.5", "1e99999999999999999999"} {
		if d, ok := parseDecimal(s); ok {
			t.Errorf("%q is read as %+v", s, d)
		}
	}
}

func FuzzDecimal(f *testing.F) {
	f.Add("1.50", "15e-1")
	f.Add("-0", "00.0")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, okX := parseDecimal(a)
		y, okY := parseDecimal(b)
		if !okX || !okY || max(x.point, -x.point, y.point, -y.point) > 1000 {
			return // math/big would write them out
		}
		p, okP := new(big.Rat).SetString(a)
		q, okQ := new(big.Rat).SetString(b)
		if !okP || !okQ || x.compare(y) != p.Cmp(q) {
			t.Fatalf("%s against %s: %d", a, b, x.compare(y))
		}
	})
}
