package query

import (
	"sync"
	"time"
)

// Rates limits the requests per second of each key in this process. The requests of one second may come at
// once. It is safe for concurrent use. A nil Rates has no limit.
type Rates struct {
	limit bucketLimit
	mu    sync.Mutex
	keys  recent[string, bucket]
}

// NewRates returns a limit for each key of perSecond requests, at most a million. 0: no limit.
func NewRates(perSecond int) *Rates {
	if perSecond <= 0 {
		return nil
	}
	return &Rates{limit: bucketLimit{every: time.Second / time.Duration(perSecond), burst: perSecond}}
}

// Take counts a request of the key with that id, or returns how long the request must wait. Zero: it may
// proceed.
func (r *Rates) Take(id string) (wait time.Duration) {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	b, _ := r.keys.get(id)
	wait = b.wait(r.limit, now)
	if wait == 0 {
		r.keys.put(id, b.less(1, r.limit, now))
	}
	return wait
}

// giveBack undoes a Take that returned zero.
func (r *Rates) giveBack(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, _ := r.keys.get(id)
	r.keys.put(id, b.less(-1, r.limit, time.Now()))
}

// A bucketLimit says how a bucket fills: one token each every, up to burst tokens.
type bucketLimit struct {
	every time.Duration
	burst int
}

// A bucket holds tokens. Its value is the time at which it is full again; the zero value is full.
type bucket time.Time

// wait returns the time until the bucket has a token. Zero: it has one.
func (b bucket) wait(l bucketLimit, now time.Time) time.Duration {
	after := time.Time(b.less(1, l, now)).Sub(now)
	return max(after-time.Duration(l.burst)*l.every, 0)
}

// less returns the bucket with n tokens less. A negative n returns tokens.
func (b bucket) less(n int, l bucketLimit, now time.Time) bucket {
	full := time.Time(b)
	if full.Before(now) {
		full = now
	}
	return bucket(full.Add(time.Duration(n) * l.every))
}

// maxRecent is half of the maximum number of entries in a recent map.
const maxRecent = 10_000

// A recent is a map that evicts the entries that were not used for the longest time. It keeps an entry as
// long as fewer than maxRecent others are used after it. The zero value is ready.
type recent[K comparable, V any] struct{ young, old map[K]V }

// get returns the value of a key. It counts as a use.
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

// put stores a value.
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
