package web

import (
	"sync"
	"time"
)

// refusalLines is how many lines a second the log has at most of requests that were refused because a
// database or an index is away, or because too many came. Callers ask again and again then, and would fill
// the log's disk; why it is so stands in it once, and the metrics count all.
const refusalLines = 5

// refusals thins the lines of refused requests out.
type refusals struct {
	mu     sync.Mutex
	second int64
	lines  int
	// left are those without a line since the last one that has one.
	left int
}

// line says whether a refusal gets a line, and how many before it got none.
func (r *refusals) line(now time.Time) (ok bool, left int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Requests that end together do not come here in the order of their ends.
	if second := now.Unix(); second > r.second {
		r.second, r.lines = second, 0
	}
	if r.lines >= refusalLines {
		r.left++
		return false, 0
	}
	r.lines++
	left, r.left = r.left, 0
	return true, left
}
