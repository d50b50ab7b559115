package outbound

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// maxRetryAfter is where a Retry-After saturates: no policy waits longer, and sums with it cannot overflow.
const maxRetryAfter = 10_000 * 24 * time.Hour

// retryAfter returns the wait that an answer asks for, and whether its Retry-After means anything. A number must be whole
// and not negative. A date is taken relative to the answer's own Date, so that a receiver's wrong clock does not matter,
// and to now when there is none; a date that has passed is zero.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0, false
	}
	if parse.IsDigits(value) {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), maxRetryAfter), true
}
