package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// pairCommand measures two dispatchers in turns, A B B A A B …, and reports the cost of the second relative
// to the first.
func pairCommand(args []string) error {
	flags, b := newFlags("pair")
	var builds [2]build
	var further [2]string
	for i, name := range []string{"a", "b"} {
		flags.StringVar(&builds[i].program, name, "", "built dispatcher `file` "+strings.ToUpper(name))
		flags.StringVar(&further[i], name+"-args", "",
			"further `arguments` of its serve, such as \"--workers 64\"")
	}
	pairs := flags.Int("pairs", 15, "how often each is measured; more pairs narrow the intervals")
	percent := flags.Float64("limit", 3, "the loss to exclude, in `percent`")
	systemList := flags.String("systems", "sqlite", "`list` of dispatchers: sqlite, postgres")
	phaseList := flags.String("phases", "drain", "`list` of phases with a rate: drain, single, batch, mixed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	some, err1 := pick(*systemList, only(systems, func(s system) bool { return s.args != nil }))
	parts, err2 := pick(*phaseList, only(phases, func(p phase) bool { return p.rated }))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for i := range builds {
		if builds[i].program == "" {
			return errors.New("set both dispatchers, with -a and -b")
		}
		builds[i].args = strings.Fields(further[i])
	}
	return outside(func(tb testing.TB) {
		b.receiver = startReceiver(tb)
		for _, s := range some {
			for _, p := range parts {
				must(tb, b.pair(tb, builds, s, p, *pairs, *percent/100))
			}
		}
	})
}

func only[T any](all []T, wanted func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(item T) bool { return !wanted(item) })
}

// pair measures one phase of one system with both builds, and prints the result.
func (b *bench) pair(tb testing.TB, builds [2]build, s system, p phase, pairs int, limit float64) error {
	all := results{}
	names := [2]string{"A", "B"}
	began := loadNow(tb)
	for i := range pairs {
		for turn := range 2 {
			which := (i + turn) % 2 // A B, B A, A B, …
			f, err := b.within(builds[which], s, p.measure)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", names[which], p.name, err)
			}
			if f[cpuTime] == 0 {
				return errors.New("-n is too small: no CPU time was counted")
			}
			at := cell{p.name, names[which]}
			all[at] = append(all[at], f)
			logf("pair %d of %d: %s %s", i+1, pairs, names[which], f.summary())
		}
	}
	fmt.Printf("\n%s: %s. %d pairs of %d callbacks; other programs used %.0f %% of the CPU time.\n",
		s.label, p.text, pairs, b.n, loadNow(tb).othersSince(began))
	ca, cb := cell{p.name, "A"}, cell{p.name, "B"}
	fmt.Print(newLoss(byRate, all.ratios(ca, cb, rate)).report(limit))
	fmt.Print(newLoss(byCPU, all.ratios(cb, ca, cpuTime)).report(limit))
	return nil
}

// A measure is the cost of a callback by which B is compared with A: its time, which is the inverse of the
// rate, or its CPU time.
type measure struct {
	figure, loss, worse, better string
	inverse                     bool // the figure is the inverse of the cost
}

var (
	byRate = measure{"per second", "a slowdown", "B is slower", "B is faster", true}
	byCPU  = measure{"CPU s per 1,000", "a growth", "B is dearer", "B is cheaper", false}
)

// A loss is the result of paired measurements: the logarithm of B's cost as a multiple of A's, and the
// interval that contains it with the probability confidence.
type loss struct {
	measure
	centre, low, high float64
	pairs             int
}

func newLoss(by measure, costs []float64) loss {
	logs := make([]float64, len(costs))
	for i, c := range costs {
		logs[i] = math.Log(c)
	}
	l := loss{measure: by, pairs: len(costs)}
	l.centre, l.low, l.high = signedRank(logs)
	return l
}

// report returns the ratio of B's figure to A's, its interval, and whether a loss of that share can be
// excluded.
func (l loss) report(limit float64) string {
	centre, low, high := l.centre, l.low, l.high
	if l.inverse {
		centre, low, high = -l.centre, -l.high, -l.low
	}
	return fmt.Sprintf("  %-16s B ÷ A = %.3f (95 %%: %.3f to %.3f): %s;\n%19s%s\n",
		l.figure, math.Exp(centre), math.Exp(low), math.Exp(high), l.difference(), "", l.conclusion(limit))
}

// difference returns whether A and B differ at all.
func (l loss) difference() string {
	switch {
	case l.low > 0:
		return l.worse
	case l.high < 0:
		return l.better
	}
	return "no difference is shown"
}

// furtherPairs estimates how many more pairs bring the upper end of the interval below a bound that is above
// the centre. The interval narrows with the square root of the number of pairs, around the same centre.
func (l loss) furtherPairs(bound float64) int {
	needed := float64(l.pairs) * math.Pow((l.high-l.centre)/(bound-l.centre), 2)
	return max(1, int(math.Ceil(needed))-l.pairs)
}

// mostFurther is the highest number of further pairs that a report recommends.
const mostFurther = 200

// conclusion returns whether a loss of that share can be excluded.
func (l loss) conclusion(limit float64) string {
	what, bound := fmt.Sprintf("%s of %.3g %%", l.loss, 100*limit), math.Log1p(limit)
	switch {
	case l.pairs < leastPairs:
		return fmt.Sprintf("%s cannot be excluded: an interval needs %d more pairs", what, leastPairs-l.pairs)
	case l.high < bound:
		return what + " can be excluded"
	case l.low >= bound:
		return what + " is shown"
	case l.centre >= bound:
		return what + " cannot be excluded: the estimate itself is beyond it"
	case l.furtherPairs(bound) > mostFurther:
		return what + " cannot be excluded: the estimate is too near to it"
	}
	return fmt.Sprintf("%s cannot be excluded: about %d more pairs are needed", what, l.furtherPairs(bound))
}
