package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

func TestSpreads(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   spread
	}{
		{nil, spread{}},
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{9, 1, 4}, spread{2.5, 4, 6.5}},
		{[]float64{50, 10, 40, 20, 30}, spread{20, 30, 40}},
	} {
		if got := spreadOf(c.values); got != c.want {
			t.Errorf("spread of %v is %+v, want %+v", c.values, got, c.want)
		}
	}
	if (spread{0.97, 1, 1.03}).doubtful() || !(spread{0.9, 1, 1.03}).doubtful() {
		t.Error("a middle half of 6 % is doubtful, or one of 13 % is not")
	}
}

// The critical values are those of published tables for a two-sided test of 5 %.
func TestRanksAreThoseOfTheTables(t *testing.T) {
	for n, want := range map[int]int{5: -1, 6: 0, 10: 8, 15: 25, 20: 52, 30: 137} {
		if got := acceptedRank(n); got != want {
			t.Errorf("%d differences: %d, want %d", n, got, want)
		}
	}
}

// With 15 pairs whose true ratio is known, the interval must hold it in 95 of 100 cases, outliers or not.
func TestIntervalsHoldTheTrueRatio(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const trials, trueLoss = 2000, 0.02
	held := 0
	for range trials {
		var costs []float64
		for range 15 {
			noise := 0.05 * random.NormFloat64()
			if random.IntN(10) == 0 {
				noise *= 10 // another program ran beside one of the two
			}
			costs = append(costs, math.Exp(trueLoss+noise))
		}
		if l := newLoss(byRate, costs); l.low <= trueLoss && trueLoss <= l.high {
			held++
		}
	}
	if share := float64(held) / trials; share < 0.93 || share > 0.98 {
		t.Errorf("%.3f of the intervals hold the true ratio, want about 0.95", share)
	}
}

// synthetic are the costs of pairs around a ratio: evenly spaced, within the width on both sides.
func synthetic(pairs int, ratio, width float64) []float64 {
	costs := make([]float64, pairs)
	for i := range costs {
		costs[i] = ratio * math.Exp(width*(2*float64(i)/float64(pairs-1)-1))
	}
	return costs
}

// TestVerdictsOfPairs judges the synthetic costs of each line of verdicts.txt.
func TestVerdictsOfPairs(t *testing.T) {
	transcript.Run(t, "testdata/verdicts.txt", func(line string) string {
		var pairs int
		var ratio, width float64
		if _, err := fmt.Sscanf(line, "%d pairs, ratio %g, width %g", &pairs, &ratio, &width); err != nil {
			t.Error(err)
		}
		return newLoss(byRate, synthetic(pairs, ratio, width)).report(0.03)
	})
}

// As many further pairs as are announced suffice, when the noise stays as it was.
func TestFurtherPairsSuffice(t *testing.T) {
	const noise = 0.12
	bound := math.Log1p(0.03)
	few := newLoss(byRate, synthetic(15, 1, noise))
	if more := newLoss(byRate, synthetic(15+few.furtherPairs(bound)+5, 1, noise)); more.high >= bound {
		t.Errorf("with %d pairs the interval still ends at %.4f", more.pairs, more.high)
	}
}
