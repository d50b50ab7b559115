package rule

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// A decimal is a number with all its digits, for amounts: no float64 comes near them. The zero one is zero.
type decimal struct {
	negative bool
	// digits are the significant ones, without zeros at either end; the number is 0.digits × 10^point.
	digits string
	point  int64
}

// maxExponent bounds exponents; what is beyond it is no number here. Nothing is ever written out at that
// length.
const maxExponent = 1_000_000_000

// parseDecimal reads a number as JSON writes them, and also with leading zeros or a plus, as texts do:
// "007.50", "+1e3".
func parseDecimal(s string) (d decimal, ok bool) {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		d.negative = s[0] == '-'
		s = s[1:]
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		exponent, err := strconv.ParseInt(s[i+1:], 10, 64)
		if err != nil || exponent > maxExponent || exponent < -maxExponent {
			return decimal{}, false
		}
		d.point, s = exponent, s[:i]
	}
	whole, fraction, split := strings.Cut(s, ".")
	if !parse.IsDigits(whole) || split && !parse.IsDigits(fraction) {
		return decimal{}, false
	}
	d.point += int64(len(whole))
	all := whole + fraction
	d.digits = strings.TrimLeft(all, "0")
	d.point -= int64(len(all) - len(d.digits))
	d.digits = strings.TrimRight(d.digits, "0")
	if d.digits == "" {
		return decimal{}, true
	}
	return d, true
}

// compare returns -1, 0 or 1 as d is less than, equal to or greater than o.
func (d decimal) compare(o decimal) int {
	if d.sign() != o.sign() {
		return cmp.Compare(d.sign(), o.sign())
	}
	size := cmp.Compare(d.point, o.point)
	if size == 0 {
		size = strings.Compare(d.digits, o.digits)
	}
	return size * d.sign()
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}
