package relay

import (
	"math"
	"time"
)

// beginning is the position before all rows.
const beginning = math.MinInt64

// A mark says that a row with a number was visible at a time. So all smaller numbers were given to INSERTs
// that ran before.
type mark struct {
	at  time.Time
	seq int64
}

const (
	// markGap is the least time between two marks, except the last one.
	markGap = 250 * time.Millisecond
	// markAge is how long marks are kept: windowReach, and the time between two window scans. If that is
	// longer, a window scan begins at the first row.
	markAge = 3 * time.Minute
)

// marks are the marks of one connection, ascending in both time and number. There are at most
// markAge/markGap + 3. The zero value has none.
type marks struct{ list []mark }

// add notes that the row seq is visible at a time, which is not before that of an earlier call.
func (m *marks) add(at time.Time, seq int64) {
	n := len(m.list)
	if n > 0 && seq <= m.list[n-1].seq {
		return
	}
	if n > 1 && m.list[n-1].at.Sub(m.list[n-2].at) < markGap {
		m.list = m.list[:n-1]
	}
	m.list = append(m.list, mark{at, seq})
	old := 0
	for old+1 < len(m.list) && at.Sub(m.list[old+1].at) > markAge {
		old++
	}
	m.list = append(m.list[:0], m.list[old:]...)
}

// before returns the highest number with a mark that is not after t; without one, beginning.
func (m *marks) before(t time.Time) int64 {
	for i := len(m.list) - 1; i >= 0; i-- {
		if !m.list[i].at.After(t) {
			return m.list[i].seq
		}
	}
	return beginning
}

// cut drops the marks from the number seq on: the next scan has to read that row.
func (m *marks) cut(seq int64) {
	n := len(m.list)
	for n > 0 && m.list[n-1].seq >= seq {
		n--
	}
	m.list = m.list[:n]
}
