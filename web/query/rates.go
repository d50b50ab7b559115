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
	wait = b.wait(r.terms, now)
	if wait == 0 {
		r.keys.put(id, b.less(1, r.terms, now))
	}
	return wait
}

// terms are how a bucket fills: by one each every, up to burst.
type terms struct {
	every time.Duration
	burst int
}

// A bucket holds tokens. It is the time at which it is full again; the zero value is full.
type bucket time.Time

// wait returns how long it takes until the bucket has a token; zero: it has one.
func (b bucket) wait(t terms, now time.Time) time.Duration {
	after := time.Time(b.less(1, t, now)).Sub(now)
	return max(after-time.Duration(t.burst)*t.every, 0)
}

// less returns the bucket with n tokens less; a negative n gives tokens back.
func (b bucket) less(n int, t terms, now time.Time) bucket {
	full := time.Time(b)
	if full.Before(now) {
		full = now
	}
	return bucket(full.Add(time.Duration(n) * t.every))
}

// maxRecent is half of the entries that a recent map has at most.
const maxRecent = 10_000

// recent is a map that forgets the entries that were used longest ago. An entry is kept as long as fewer than
// maxRecent others are used after it. The zero value is ready.
type recent[K comparable, V any] struct{ young, old map[K]V }

// get returns the key's value, which counts as a use.
func (r *recent[K, V]) get(key K) (V, bool) {
	value, ok := r.young[key]
	if ok {
		return value, true
	}
	value, ok = r.old[key]
	if ok {
		r.put(key, value)
	}
	return value, ok
}

// put keeps a value.
func (r *recent[K, V]) put(key K, value V) {
	if _, there := r.young[key]; !there && len(r.young) >= maxRecent || r.young == nil {
		r.young, r.old = make(map[K]V), r.young
	}
	r.young[key] = value
}

// forget removes a key.
func (r *recent[K, V]) forget(key K) {
	delete(r.young, key)
	delete(r.old, key)
}
