package schedule

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bounds of tiers. Within them, a float64 score and an int64 of milliseconds hold every due time exactly.
const (
	// MaxTiers is the most tiers of a list.
	MaxTiers = 100
	// MaxTier is the longest single wait.
	MaxTier = 400 * 24 * time.Hour
)

// Tiers are the waits between attempts: tier i, counted from 1, is the wait after failed attempt i. Nine
// tiers make ten attempts. An empty list makes one attempt.
type Tiers []time.Duration

// Payment returns the default tiers: ten attempts in 25 h 13 m 15 s.
func Payment() Tiers {
	return Tiers{
		15 * time.Second, 3 * time.Minute, 10 * time.Minute, 30 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 6 * time.Hour, 15 * time.Hour,
	}
}

// Wait returns the wait after failed attempt number made, counted from 1, and false if no tier is left. With
// repeatLast the last tier repeats for ever; an empty list still has no tier. Numbers below 1 count as 1.
func (t Tiers) Wait(made int, repeatLast bool) (time.Duration, bool) {
	made = max(made, 1)
	if made <= len(t) {
		return t[made-1], true
	}
	if repeatLast && len(t) > 0 {
		return t[len(t)-1], true
	}
	return 0, false
}

// Sum returns the sum of all tiers. It does not overflow within the bounds of Validate.
func (t Tiers) Sum() time.Duration {
	var sum time.Duration
	for _, d := range t {
		sum += d
	}
	return sum
}

// Validate returns an error if there are more than MaxTiers tiers, or one is not between 0 and MaxTier. The
// error is the end of a sentence whose subject the caller writes.
func (t Tiers) Validate() error {
	if len(t) > MaxTiers {
		return fmt.Errorf("has %d tiers; at most %d are allowed", len(t), MaxTiers)
	}
	for i, d := range t {
		if d < 0 || d > MaxTier {
			return fmt.Errorf("tier %d is %s; a tier is 0s to %s", i+1, FormatDuration(d),
				FormatDuration(MaxTier))
		}
	}
	return nil
}

// String returns the tiers as settings write them: "15s 3m 10m".
func (t Tiers) String() string {
	parts := make([]string, len(t))
	for i, d := range t {
		parts[i] = FormatDuration(d)
	}
	return strings.Join(parts, " ")
}

// ParseTiers reads tiers that are separated by spaces, tabs or commas. The empty string is the empty list.
func ParseTiers(s string) (Tiers, error) {
	fields := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
	t := make(Tiers, 0, len(fields))
	for _, f := range fields {
		d, err := ParseDuration(f)
		if err != nil {
			return nil, err
		}
		t = append(t, d)
	}
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return t, nil
}

// DueAfter returns the time that is wait after end, in whole Unix milliseconds. It rounds up, because
// rounding down would let an attempt begin too early.
func DueAfter(end time.Time, wait time.Duration) int64 {
	return CeilMillis(end.Add(wait))
}

// CeilMillis returns t in whole Unix milliseconds, rounded up.
func CeilMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms
}

const day = 24 * time.Hour

// ParseDuration reads a Go duration string that may begin with days, whole or fractional: "15s", "2d",
// "1d12h", "-1.5h". It refuses a number without a unit, except 0.
func ParseDuration(s string) (time.Duration, error) {
	refuse := func() (time.Duration, error) {
		return 0, fmt.Errorf("%q is not a duration such as 15s, 3m, 1h30m or 2d", s)
	}
	rest, sign := s, time.Duration(1)
	switch {
	case strings.HasPrefix(rest, "-"):
		rest, sign = rest[1:], -1
	case strings.HasPrefix(rest, "+"):
		rest = rest[1:]
	}
	if rest == "" || rest[0] == '-' || rest[0] == '+' {
		return refuse()
	}
	var total time.Duration
	if i := strings.IndexByte(rest, 'd'); i >= 0 {
		n := rest[:i]
		if strings.Trim(n, "0123456789.") != "" {
			return refuse()
		}
		days, err := strconv.ParseFloat(n, 64)
		if err != nil || days*float64(day) > math.MaxInt64/2 {
			return refuse()
		}
		total = time.Duration(math.Round(days * float64(day)))
		rest = rest[i+1:]
		if rest == "" {
			return sign * total, nil
		}
		if strings.Trim(rest[:1], "0123456789.") != "" {
			return refuse()
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d > math.MaxInt64-total {
		return refuse()
	}
	return sign * (total + d), nil
}

// FormatDuration returns a short text that ParseDuration reads as d: "15s", "1h30m", "2d", "0s".
func FormatDuration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	if d == math.MinInt64 {
		return d.String()
	}
	var b strings.Builder
	if d < 0 {
		b.WriteByte('-')
		d = -d
	}
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if n := d / unit.size; n > 0 {
			fmt.Fprint(&b, int64(n), unit.name)
			d %= unit.size
		}
	}
	if d > 0 {
		b.WriteString(d.String())
	}
	return b.String()
}
