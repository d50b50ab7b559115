package schedule_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A field is one field of a spec in the model: its text and the numbers that it names.
type field struct {
	text  string
	names map[int]bool
	star  bool
}

// draw generates a field with numbers from low to high. It prefers the likely ones: hours and days at which
// clocks change.
func draw(t *rapid.T, label string, low, high int, likely ...int) field {
	f := field{names: make(map[int]bool)}
	every := func(from, to, step int) {
		for n := from; n <= to; n += step {
			f.names[n] = true
		}
	}
	number := rapid.IntRange(low, high)
	if len(likely) > 0 {
		number = rapid.OneOf(number, rapid.SampledFrom(likely))
	}
	switch rapid.IntRange(0, 3).Draw(t, label+" kind") {
	case 0:
		f.text, f.star = "*", true
		every(low, high, 1)
	case 1:
		var parts []string
		for _, n := range rapid.SliceOfN(number, 1, 4).Draw(t, label) {
			parts = append(parts, fmt.Sprint(n))
			f.names[n] = true
		}
		f.text = strings.Join(parts, ",")
	case 2:
		step := rapid.IntRange(2, 20).Draw(t, label+" step")
		f.text = fmt.Sprintf("*/%d", step)
		every(low, high, step)
	default:
		from := number.Draw(t, label+" from")
		to := rapid.IntRange(from, high).Draw(t, label+" to")
		f.text = fmt.Sprintf("%d-%d", from, to)
		every(from, to, 1)
	}
	return f
}

// A model computes due times slowly: it walks over instants, minute by minute.
type model struct{ minute, hour, dom, month, dow field }

func (m model) text() string {
	return strings.Join([]string{m.minute.text, m.hour.text, m.dom.text, m.month.text, m.dow.text}, " ")
}

// matches reports whether the fields name the wall time w. Its zone is ignored.
func (m model) matches(w time.Time) bool {
	dom, dow := m.dom.names[w.Day()], m.dow.names[int(w.Weekday())]
	day := dom || dow
	if m.dom.star || m.dow.star {
		day = dom && dow
	}
	return day && m.minute.names[w.Minute()] && m.hour.names[w.Hour()] && m.month.names[int(w.Month())]
}

// reading returns the reading of a wall clock at an instant, as a time in UTC.
func reading(at time.Time) time.Time {
	return time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), 0, 0, time.UTC)
}

// due returns the due times after begin, up to end.
func (m model) due(begin, end time.Time) []time.Time {
	var due []time.Time
	add := func(at time.Time) {
		if at.After(begin) && !slices.ContainsFunc(due[max(len(due)-1, 0):], at.Equal) {
			due = append(due, at)
		}
	}
	// The walk begins early enough to know the earlier readings of the clock.
	seen := make(map[time.Time]bool)
	var highest time.Time
	for at := begin.Add(-50 * time.Hour); !at.After(end); at = at.Add(time.Minute) {
		w := reading(at)
		if len(m.hour.names) == 24 {
			if m.matches(w) {
				add(at)
			}
			continue
		}
		// The wall times that the clock skipped since its highest reading are due now. So is a reading that
		// it shows for the first time.
		if !highest.IsZero() {
			for left := highest.Add(time.Minute); left.Before(w); left = left.Add(time.Minute) {
				seen[left] = true
				if m.matches(left) {
					add(at)
				}
			}
		}
		if !seen[w] && m.matches(w) {
			add(at)
		}
		seen[w] = true
		if w.After(highest) {
			highest = w
		}
	}
	return due
}

// TestSpecAgainstModel compares Next with the model for random specs around changes of clocks.
func TestSpecAgainstModel(t *testing.T) {
	t.Parallel()
	around := rapid.SampledFrom(transcript.Inputs(t, "testdata/clocks.txt"))
	rapid.Check(t, func(t *rapid.T) {
		zone, instant, _ := strings.Cut(around.Draw(t, "where"), " ")
		change := moment(t, instant)
		local := spec(t, "@daily", zone).Zone()
		m := model{
			minute: draw(t, "minute", 0, 59, 0, 15, 30, 45),
			hour:   draw(t, "hour", 0, 23, 0, 1, 2, 3, 23),
			dom:    field{text: "*", star: true},
			month:  field{text: "*", star: true},
			dow:    field{text: "*", star: true},
		}
		day := change.In(local)
		if rapid.IntRange(0, 2).Draw(t, "days") == 0 {
			m.dom = draw(t, "dom", 1, 31, day.Day(), day.AddDate(0, 0, -1).Day(), day.AddDate(0, 0, 1).Day())
			m.month = draw(t, "month", 1, 12, int(day.Month()))
			m.dow = draw(t, "dow", 0, 6, int(day.Weekday()))
		} else {
			m.dom.names, m.month.names, m.dow.names = whole(31), whole(12), whole(6)
		}
		s, err := schedule.ParseSpec(m.text(), zone)
		if err != nil {
			// The spec names a day that no month has. The model finds nothing either.
			return
		}
		begin := change.Add(time.Duration(rapid.IntRange(-40*60, 30*60).Draw(t, "begin")) * time.Minute)
		end := begin.Add(48 * time.Hour)
		want := m.due(begin.In(local), end.In(local))
		var got []time.Time
		for at := s.Next(begin); !at.IsZero() && !at.After(end); at = s.Next(at) {
			got = append(got, at)
		}
		if !slices.EqualFunc(want, got, time.Time.Equal) {
			t.Fatalf("%q in %s after %v:\nwant %v\n got %v", m.text(), zone, begin, show(want, local),
				show(got, local))
		}
		// Next at a random moment returns the first later due time.
		at := begin.Add(time.Duration(rapid.Int64Range(0, int64(40*time.Hour)).Draw(t, "at")))
		i := slices.IndexFunc(want, func(w time.Time) bool { return w.After(at) })
		if next := s.Next(at); i >= 0 && !next.Equal(want[i]) || i < 0 && !next.IsZero() && !next.After(end) {
			t.Fatalf("%q in %s after %v: got %v of %v", m.text(), zone, at, next, show(want, local))
		}
	})
}

// whole returns the numbers of a field that names all of them, up to high.
func whole(high int) map[int]bool {
	names := make(map[int]bool)
	for n := range high + 1 {
		names[n] = true
	}
	return names
}

// show formats the first 20 of some times in a zone.
func show(times []time.Time, zone *time.Location) []string {
	var texts []string
	for _, at := range times[:min(len(times), 20)] {
		texts = append(texts, at.In(zone).Format("02 15:04 -0700"))
	}
	return texts
}
