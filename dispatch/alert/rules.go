package alert

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Unit is what the threshold of a kind is measured in.
type Unit int

// The units.
const (
	NoUnit Unit = iota
	Duration
	Count
	Percent // a lower bound, Below
)

// A Rule describes a kind of alert: the fields of its condition, with their bounds and defaults.
type Rule struct {
	Kind store.AlertKind
	Unit Unit
	// Least, Most and Default are those of the threshold: milliseconds, a number or a percentage.
	Least, Most, Default float64
	// For is the default of For. Window is that of Window, zero if the kind has none.
	For, Window time.Duration
	// MinAttempts is the default of MinAttempts, zero if the kind has none.
	MinAttempts int64
	// Scope is the field that restricts the alert to one: "endpoint", "lane", "schedule" or "".
	Scope string
}

const (
	maxFor      = time.Hour
	minWindow   = time.Minute
	maxWindow   = 2 * time.Hour
	maxAttempts = 1_000_000
	second      = float64(time.Second / time.Millisecond)
	week        = 7 * 24 * 3600 * second
)

// Rules returns the rules of all kinds.
func Rules() []Rule {
	return []Rule{
		{Kind: store.AlertOldestDue, Unit: Duration, Least: 10 * second, Most: week, Default: 300 * second,
			Scope: "lane"},
		{Kind: store.AlertDeadRate, Unit: Count, Least: 1, Most: 1e6, Default: 10},
		{Kind: store.AlertEndpointSuccess, Unit: Percent, Least: 1, Most: 100, Default: 90,
			For: 30 * time.Second, Window: 5 * time.Minute, MinAttempts: 20, Scope: "endpoint"},
		{Kind: store.AlertBreakerOpen, Unit: Duration, Least: 10 * second, Most: week, Default: 60 * second,
			Scope: "lane"},
		{Kind: store.AlertPollUnresolved, Unit: Count, Least: 0, Most: 1e6, Default: 0, Window: time.Hour},
		{Kind: store.AlertScheduleLate, Unit: Duration, Least: 10 * second, Most: week, Default: 60 * second,
			Scope: "schedule"},
		{Kind: store.AlertReconcile},
		{Kind: store.AlertRelayLag, Unit: Duration, Least: 10 * second, Most: week, Default: 60 * second},
		{Kind: store.AlertRelayRefused, Unit: Count, Least: 0, Most: store.RelayCountLimit - 1, Default: 0},
	}
}

// RuleOf returns the rule of a kind.
func RuleOf(kind store.AlertKind) (Rule, bool) {
	for _, r := range Rules() {
		if r.Kind == kind {
			return r, true
		}
	}
	return Rule{}, false
}

// A When is the condition of an alert as a caller gives it. Nil and empty fields get the defaults of the
// kind.
type When struct {
	Kind string
	// Above is the threshold of most kinds: AboveTime if it was given as a duration, AboveCount as a number.
	AboveTime  *time.Duration
	AboveCount *int64
	Below      *float64
	For        *time.Duration
	Window     *time.Duration
	// MinAttempts is the fewest attempts for a verdict.
	MinAttempts *int64
	// Endpoint is an id or an external id, Lane a key, Schedule an id.
	Endpoint, Lane, Schedule string
}

// condition validates the numbers of a condition, and returns it with the defaults of its kind.
func (w *When) condition(f *accept.Findings) store.AlertWhen {
	r, known := RuleOf(store.AlertKind(w.Kind))
	c := store.AlertWhen{Kind: r.Kind, For: r.For, Window: r.Window, MinAttempts: r.MinAttempts}
	if !known {
		var kinds []string
		for _, kind := range store.AlertKinds() {
			kinds = append(kinds, string(kind))
		}
		f.Add("when.kind", "must be one of %s", strings.Join(kinds, ", "))
		return c
	}
	w.threshold(&r, &c, f)
	duration := func(field string, given *time.Duration, has bool, least, most time.Duration,
		to *time.Duration) {
		switch {
		case given == nil:
		case !has:
			f.Add(field, "is not a field of %s", r.Kind)
		case *given < least || *given > most:
			f.Add(field, "must be %s to %s", schedule.FormatDuration(least), schedule.FormatDuration(most))
		default:
			*to = *given
		}
	}
	duration("when.for", w.For, true, 0, maxFor, &c.For)
	duration("when.window", w.Window, r.Window != 0, minWindow, maxWindow, &c.Window)
	switch n := w.MinAttempts; {
	case n == nil:
	case r.MinAttempts == 0:
		f.Add("when.min_attempts", "is not a field of %s", r.Kind)
	case *n < 1 || *n > maxAttempts:
		f.Add("when.min_attempts", "must be 1 to %d", maxAttempts)
	default:
		c.MinAttempts = *n
	}
	for field, given := range map[string]string{
		"endpoint": w.Endpoint, "lane": w.Lane, "schedule": w.Schedule,
	} {
		if given != "" && r.Scope != field {
			f.Add("when."+field, "is not a field of %s", r.Kind)
		}
	}
	return c
}

// threshold validates and sets Above or Below.
func (w *When) threshold(r *Rule, c *store.AlertWhen, f *accept.Findings) {
	field, value := "when.above", r.Default
	given := w.AboveTime != nil || w.AboveCount != nil
	switch {
	case r.Unit != Percent && w.Below != nil:
		f.Add("when.below", "is not a field of %s", r.Kind)
	case (r.Unit == Percent || r.Unit == NoUnit) && given:
		f.Add("when.above", "is not a field of %s", r.Kind)
	case r.Unit == Duration && w.AboveCount != nil:
		f.Add("when.above", `must be a duration such as "5m"`)
	case r.Unit == Count && w.AboveTime != nil:
		f.Add("when.above", "must be a number")
	case r.Unit == Percent && w.Below != nil:
		field, value = "when.below", *w.Below
	case w.AboveTime != nil:
		value = float64(w.AboveTime.Milliseconds())
	case w.AboveCount != nil:
		value = float64(*w.AboveCount)
	}
	if math.IsNaN(value) || value < r.Least || value > r.Most {
		f.Add(field, "must be %s to %s", r.format(r.Least), r.format(r.Most))
	}
	if r.Unit == Percent {
		c.Below = value
	} else {
		c.Above = int64(value)
	}
}

// format returns a threshold as text.
func (r *Rule) format(value float64) string {
	if r.Unit == Duration {
		return schedule.FormatDuration(time.Duration(value) * time.Millisecond)
	}
	text := fmt.Sprintf("%g", value)
	if value >= 1e6 {
		text = fmt.Sprintf("%.0f", value)
	}
	if r.Unit == Percent {
		text += " percent"
	}
	return text
}
