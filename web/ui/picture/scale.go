package picture

import "math"

// A Scale says how values become heights.
type Scale uint8

// The scales.
const (
	// Linear begins at zero.
	Linear Scale = iota
	// Log has a power of ten in equal steps: what is ten times as long is one step higher. Zero is at the
	// bottom.
	Log
)

// A scale places values between the bottom, 0, and the top, 1.
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

// linear is a scale from zero to a round number that is not below highest, with at most about so many steps
// of 1, 2 or 5 times a power of ten. Whole numbers have no steps below one.
func linear(highest float64, steps int, whole bool) scale {
	if !drawable(highest) || highest < smallest { // also where all is zero
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

// logarithmic is a scale between two round numbers, of which the lower is not above least and the upper not
// below highest, with a power of ten between them at least. Few powers of ten have ticks at their double and
// fivefold, too.
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

// roundUp is the smallest of 1, 2 and 5 times a power of ten that is not below v, which must be positive.
func roundUp(v float64) float64 {
	for e := exponent(v); ; e++ {
		for _, f := range []float64{1, 2, 5} {
			if r := decimal(f, e); r >= v*(1-1e-12) {
				return r
			}
		}
	}
}

// roundDown is the greatest of them that is not above v.
func roundDown(v float64) float64 {
	for e := exponent(v) + 1; ; e-- {
		for _, f := range []float64{5, 2, 1} {
			if r := decimal(f, e); r <= v*(1+1e-12) {
				return r
			}
		}
	}
}

// exponent is the power of ten that v, which must be positive, reaches.
func exponent(v float64) int { return int(math.Floor(math.Log10(v) + 1e-9)) }

// decimal is f times a power of ten, without the dust that multiplying by 0.1 leaves.
func decimal(f float64, e int) float64 {
	if e < 0 {
		return f / math.Pow10(-e)
	}
	return f * math.Pow10(e)
}

// multiple is i times a step without the dust that adding 0.1 leaves.
func multiple(i int, step float64) float64 {
	if step < 1 {
		return float64(i) / math.Round(1/step)
	}
	return float64(i) * step
}
