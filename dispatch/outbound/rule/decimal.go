package rule

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// A decimal is a number with all its digits. Amounts need it, because float64 is not exact. The zero value is
// zero.
type decimal struct {
	negative bool
	// digits are the significant digits without zeros at either end. The number is 0.digits × 10^point.
	digits string
	point  int64
}

// maxExponent bounds exponents; a larger one is not a number here. No number is ever expanded to that length.
const maxExponent = 1_000_000_000

// parseDecimal parses a number in JSON form. It also accepts leading zeros and a plus sign, which texts may
// have: "007.50", "+1e3".
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

// compare returns -1, 0 or 1 if d is less than, equal to or greater than o.
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
