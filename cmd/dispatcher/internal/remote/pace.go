package remote

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// leastPause and mostPause bound the pauses between two tries.
const (
	LeastPause = 500 * time.Millisecond
	mostPause  = 30 * time.Second
)

// ParseRate reads "500/s", "6000/m", "100/h" or a plain number for each second; empty is no limit, which is zero.
func ParseRate(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	number, unit, found := strings.Cut(text, "/")
	seconds, known := map[string]float64{"": 1, "s": 1, "m": 60, "h": 3600}[unit]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !known || found && unit == "" || !(n > 0 && n <= 1e9) {
		return 0, fmt.Errorf("%q is not a rate such as 500/s or 6000/m", text)
	}
	return n / seconds, nil
}

// Backoff says how long to wait after an error, and whether another try makes sense.
func Backoff(err error, try int) (wait time.Duration, again bool) {
	wait = min(LeastPause<<min(try, 10), mostPause)
	wait += rand.N(wait / 4) // so that several imports do not come back together
	if problem, ok := errors.AsType[*client.Error](err); ok {
		switch problem.Status {
		case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
			http.StatusGatewayTimeout:
			return max(wait, problem.RetryAfter), true
		}
		return 0, false
	}
	_, away := errors.AsType[*client.NoAnswerError](err)
	_, busy := errors.AsType[*BusyError](err)
	return wait, away || busy
}

// A BusyError is a batch of which the server could not take some lines now.
type BusyError struct{ Left, Of int }

func (e *BusyError) Error() string {
	return fmt.Sprintf("the server could not take %d of %d lines", e.Left, e.Of)
}
