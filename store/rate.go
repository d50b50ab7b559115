package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Rate bounds how often something begins: Count times in each Per. The zero value is no bound.
type Rate struct {
	Count int64         `json:"count,omitempty"`
	Per   time.Duration `json:"per,omitempty"`
}

// MaxRate is the most that a Rate may say, in one second.
const MaxRate = 100_000

// rateUnits are the periods that a rate may be told in.
var rateUnits = [...]struct {
	name string
	per  time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}

// ParseRate reads "50/s", "300/m", "10/h" or "1/d".
func ParseRate(text string) (Rate, error) {
	count, unit, ok := strings.Cut(text, "/")
	n, err := strconv.ParseInt(count, 10, 64)
	if !ok || err != nil || n <= 0 {
		return Rate{}, fmt.Errorf(`%q is not a rate: a number from 1 on, and /s, /m, /h or /d, such as "50/s"`, clip(text))
	}
	for _, u := range rateUnits {
		if u.name != unit {
			continue
		}
		if r := (Rate{Count: n, Per: u.per}); n <= MaxRate*int64(u.per/time.Second) {
			return r, nil
		}
		return Rate{}, fmt.Errorf("%q is more than %d/s", clip(text), MaxRate)
	}
	return Rate{}, fmt.Errorf(`%q is not a rate: its unit is one of s, m, h and d, such as "50/s"`, clip(text))
}

// clip keeps a text that is shown in an error short.
func clip(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// String returns what ParseRate reads; empty: no bound.
func (r Rate) String() string {
	if r.Count <= 0 {
		return ""
	}
	for _, u := range rateUnits {
		if u.per == r.Per {
			return strconv.FormatInt(r.Count, 10) + "/" + u.name
		}
	}
	return fmt.Sprintf("%d/%s", r.Count, r.Per)
}

// Every is the mean time between two beginnings; zero: no bound.
func (r Rate) Every() time.Duration {
	if r.Count <= 0 || r.Per <= 0 {
		return 0
	}
	return max(r.Per/time.Duration(r.Count), 1)
}
