package memq

import (
	"cmp"
	"testing"

	"github.com/oklog/ulid/v2"
)

// FuzzKey compares keys with the library that makes ids: the same ones are ids, and they are ordered as their
// texts are.
func FuzzKey(f *testing.F) {
	for _, s := range [][2]string{
		{"01JD6QZ0000000000000000001", "01JD6QZ0000000000000000002"}, {"7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
			"00000000000000000000000000"},
		{"01JD6QZ000000G000000000000", "01JD6QZ000000FZZZZZZZZZZZZ"}, {"8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
			"01jd6qz0000000000000000001"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, okX := parseKey(a)
		y, okY := parseKey(b)
		if want, err := ulid.ParseStrict(a); okX != (err == nil && want.String() == a) {
			t.Errorf("%q is an id: %t, the library reads %s, %v", a, okX, want, err)
		}
		if okX && okY && cmp.Or(cmp.Compare(x.hi, y.hi), cmp.Compare(x.lo, y.lo)) != cmp.Compare(a, b) {
			t.Errorf("%s and %s are ordered as %v and %v", a, b, x, y)
		}
	})
}
