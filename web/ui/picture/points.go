package picture

import (
	"math"
	"time"
)

// points are the times to draw, ascending, with a row of values for each series. A gap is NaN.
type points struct {
	at   []time.Time
	rows [][]float64
}

// read returns the points from from to to; a zero end is no bound. It skips times that are not after the
// previous one.
func read(times []time.Time, series []Series, from, to time.Time) points {
	p := points{rows: make([][]float64, len(series))}
	for i, t := range times {
		outside := !from.IsZero() && t.Before(from) || !to.IsZero() && t.After(to)
		if n := len(p.at); outside || n > 0 && !t.After(p.at[n-1]) {
			continue
		}
		p.at = append(p.at, t)
		for s := range series {
			v, ok := series[s].at(i)
			if !ok {
				v = math.NaN()
			}
			p.rows[s] = append(p.rows[s], v)
		}
	}
	return p
}

// ends returns the least value above zero and the greatest value. some is false if all values are gaps.
func (p points) ends() (least, greatest float64, some bool) {
	least = math.Inf(1)
	for _, row := range p.rows {
		for _, v := range row {
			if math.IsNaN(v) {
				continue
			}
			some = true
			greatest = max(greatest, v)
			if v > 0 {
				least = min(least, v)
			}
		}
	}
	return least, greatest, some
}

// highest returns the greatest sum of the series at one time.
func (p points) highest() float64 {
	highest := 0.0
	for i := range p.at {
		sum := 0.0
		for _, row := range p.rows {
			if !math.IsNaN(row[i]) {
				sum += row[i]
			}
		}
		highest = max(highest, sum)
	}
	return min(highest, biggest)
}

// thinned merges neighbours so that at most that many points remain. Of each group it keeps the value that
// differs most from the previous kept value. So peaks and dips remain visible.
func (p points) thinned(limit int) points {
	thin, _ := p.grouped(limit, farthest)
	return thin
}

// summed sums neighbours so that at most that many points remain. every is the size of a group.
func (p points) summed(limit int) (sums points, every int) { return p.grouped(limit, sum) }

// grouped merges neighbours so that at most that many points remain. join returns the value of a group;
// before is the value of the previous group. every is the size of a group.
func (p points) grouped(
	limit int, join func(group []float64, before float64) float64,
) (joined points, every int) {
	every = max((len(p.at)+limit-1)/limit, 1)
	if every == 1 {
		return p, 1
	}
	joined.rows = make([][]float64, len(p.rows))
	for i := 0; i < len(p.at); i += every {
		joined.at = append(joined.at, p.at[i])
		for s, row := range p.rows {
			before := math.NaN()
			if n := len(joined.rows[s]); n > 0 {
				before = joined.rows[s][n-1]
			}
			joined.rows[s] = append(joined.rows[s], join(row[i:min(i+every, len(row))], before))
		}
	}
	return joined, every
}

// farthest returns the value that differs most from another one. If from is a gap it returns the first value
// that is no gap.
func farthest(group []float64, from float64) float64 {
	best := math.NaN()
	for _, v := range group {
		switch {
		case math.IsNaN(v):
		case math.IsNaN(best), math.Abs(v-from) > math.Abs(best-from):
			best = v
		}
	}
	return best
}

// sum returns the sum of the values without gaps, or a gap if all are gaps.
func sum(group []float64, _ float64) float64 {
	sum := math.NaN()
	for _, v := range group {
		switch {
		case math.IsNaN(v):
		case math.IsNaN(sum):
			sum = v
		default:
			sum = min(sum+v, biggest)
		}
	}
	return sum
}
