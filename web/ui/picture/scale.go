package picture

import "math"

// A Scale is the kind of the value axis.
type Scale uint8

// The scales.
const (
	// Linear begins at zero.
	Linear Scale = iota
	// Log is logarithmic. Zero is drawn at the bottom.
	Log
)

// A scale maps values to heights from 0 (bottom) to 1 (top).
type scale struct {
	lo, hi float64
	log    bool
	ticks  []float64 // ascending, within lo and hi
}

func (s scale) at(v float64) float64 {
	lo, hi := s.lo, s.hi
	if s.log {
		v, lo, hi = math.Log10(max(v, s.lo)), math.Log10(s.lo), math.Log10(s.hi)
	}
	return min(max((v-lo)/(hi-lo), 0), 1)
}

// linear returns a scale from zero to a round number of at least highest. It has about that many steps, each
// 1, 2 or 5 times a power of ten. If whole is true no step is below one.
func linear(highest float64, steps int, whole bool) scale {
	if !drawable(highest) || highest < smallest { // no values, or all are zero
		highest, steps = 1, 1
	}
	step := roundUp(highest / float64(max(steps, 1)))
	if whole {
		step = max(step, 1)
	}
	var s scale
	for i := 0; s.hi < highest*(1-1e-12) || i < 2; i++ {
		s.hi = multiple(i, step)
		s.ticks = append(s.ticks, s.hi)
	}
	return s
}

// logarithmic returns a scale between two round numbers that include least and highest and differ by at least
// a factor of ten. floor replaces least if it is drawable. A narrow scale has ticks at 2 and 5 times a power
// of ten too.
func logarithmic(least, highest, floor float64) scale {
	if drawable(floor) && floor >= smallest {
		least = floor
	}
	if !drawable(least) || least < smallest {
		least = smallest
	}
	if !drawable(highest) || highest < least {
		highest = least
	}
	s := scale{lo: roundDown(least), log: true}
	s.hi = max(roundUp(highest), s.lo*10)
	wide := s.hi/s.lo > 200
	if wide {
		s.lo = decimal(1, exponent(s.lo))
		s.hi = decimal(1, int(math.Ceil(math.Log10(s.hi)-1e-9)))
	}
	first, last := exponent(s.lo), int(math.Ceil(math.Log10(s.hi)-1e-9))
	every := (last-first)/6 + 1
	for e := first; e <= last; e += every {
		for _, f := range []float64{1, 2, 5} {
			if v := decimal(f, e); v >= s.lo*(1-1e-9) && v <= s.hi*(1+1e-9) && (f == 1 || !wide) {
				s.ticks = append(s.ticks, v)
			}
		}
	}
	return s
}

// roundUp returns the smallest number of at least v that is 1, 2 or 5 times a power of ten. v must be
// positive.
func roundUp(v float64) float64 {
	for e := exponent(v); ; e++ {
		for _, f := range []float64{1, 2, 5} {
			if r := decimal(f, e); r >= v*(1-1e-12) {
				return r
			}
		}
	}
}

// roundDown returns the greatest such number of at most v.
func roundDown(v float64) float64 {
	for e := exponent(v) + 1; ; e-- {
		for _, f := range []float64{5, 2, 1} {
			if r := decimal(f, e); r <= v*(1+1e-12) {
				return r
			}
		}
	}
}

// exponent returns the exponent of the greatest power of ten of at most v. v must be positive.
func exponent(v float64) int { return int(math.Floor(math.Log10(v) + 1e-9)) }

// decimal returns f times 10^e. It divides for a negative e: multiplying by 0.1 would leave a rounding error.
func decimal(f float64, e int) float64 {
	if e < 0 {
		return f / math.Pow10(-e)
	}
	return f * math.Pow10(e)
}

// multiple returns i times a step. It avoids the rounding error of steps such as 0.1.
func multiple(i int, step float64) float64 {
	if step < 1 {
		return float64(i) / math.Round(1/step)
	}
	return float64(i) * step
}
