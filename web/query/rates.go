package query

import (
	"sync"
	"time"
)

// Rates bounds how many requests each key makes a second, in this process. A second's worth may come at once.
// It is safe for concurrent use; nil bounds nothing.
type Rates struct {
	terms terms
	mu    sync.Mutex
	keys  recent[string, bucket]
}

// NewRates bounds each key to that many requests a second, at most a million; 0: to none.
func NewRates(perSecond int) *Rates {
	if perSecond <= 0 {
		return nil
	}
	return &Rates{terms: terms{every: time.Second / time.Duration(perSecond), burst: perSecond}}
}

// Take counts a request of the key that has the id, or returns how long it must wait; zero: it may go on.
func (r *Rates) Take(id string) (wait time.Duration) {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	b, _ := r.keys.get(id)
	if wait = b.wait(r.terms, now); wait == 0 {
		r.keys.put(id, b.less(1, r.terms, now))
	}
	return wait
}
