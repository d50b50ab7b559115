package query

import "time"

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
