package schedule_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A failer is the common part of *testing.T, *testing.F and *rapid.T that the helpers need.
type failer interface {
	Helper()
	Fatal(args ...any)
}

func spec(t failer, text, zone string) schedule.Spec {
	t.Helper()
	s, err := schedule.ParseSpec(text, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func moment(t failer, s string) time.Time {
	t.Helper()
	if s == "unset" {
		return time.Time{}
	}
	m, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const times = "testdata/times.txt"

// words splits an operation of the transcript.
func words(t testing.TB, line string) []string {
	words := strings.Split(transcript.Expand(t, line), "|")
	for i, word := range words {
		words[i] = strings.TrimSpace(word)
		if text, err := strconv.Unquote(words[i]); err == nil {
			words[i] = text
		}
	}
	return words
}

func TestTranscript(t *testing.T) {
	t.Parallel()
	transcript.File(t, times, func(t *testing.T, text string) string {
		return transcript.Lines(text, func(line string) string {
			return strings.Join(answers(t, words(t, line)), "\n")
		})
	})
}

// answers executes an operation and returns its result.
func answers(t *testing.T, words []string) (all []string) {
	t.Helper()
	show := func(at time.Time, zone string) string {
		if at.IsZero() {
			return "never"
		}
		return at.UTC().Format(time.RFC3339Nano) +
			at.In(spec(t, "@daily", zone).Zone()).Format("  Mon 15:04:05 MST")
	}
	refused := func(err error) []string {
		for what, kind := range map[string]error{"ErrSpec: ": schedule.ErrSpec,
			"ErrZone: ": schedule.ErrZone} {
			if errors.Is(err, kind) {
				return []string{what + err.Error()}
			}
		}
		return []string{"error: " + err.Error()}
	}
	number := func(word string) int {
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	switch words[0] {
	case "next":
		at := moment(t, words[3])
		for range number(words[4]) {
			at = spec(t, words[1], words[2]).Next(at)
			all = append(all, show(at, words[2]))
		}
	case "resume":
		all = append(all, show(spec(t, words[1], words[2]).Resume(moment(t, words[3]), moment(t, words[4])),
			words[2]))
	case "spec":
		_, err := schedule.ParseSpec(words[1], "Nowhere")
		all = refused(err)
	case "zone":
		zone, err := schedule.ParseZone(words[1])
		if err != nil {
			_, again := schedule.ParseSpec("@daily", words[1])
			if again == nil || again.Error() != err.Error() {
				t.Errorf("ParseSpec returns %v, ParseZone %v", again, err)
			}
			return refused(err)
		}
		all = append(all, zone.String())
	case "duration":
		d, err := schedule.ParseDuration(words[1])
		if err != nil {
			return refused(err)
		}
		all = append(all, fmt.Sprintf("%s, %d ns", schedule.FormatDuration(d), d))
	case "tiers":
		tiers, err := schedule.ParseTiers(words[1])
		if err != nil {
			return refused(err)
		}
		all = append(all, fmt.Sprintf("%s; payment: %t; %s", tiers, slices.Equal(tiers, schedule.Payment()),
			tiers.Sum()))
		for made := range number(words[2]) + 1 {
			once, more := tiers.Wait(made, false)
			repeated, ever := tiers.Wait(made, true)
			all = append(all, fmt.Sprintf("after %d: %s %t, repeated %s %t", made, once, more, repeated,
				ever))
		}
	case "wait":
		wait, ok := schedule.Tiers{time.Second}.Wait(number(words[1]), true)
		all = append(all, fmt.Sprint(wait, " ", ok))
	case "due":
		d, err := time.ParseDuration(words[1])
		all = append(all, fmt.Sprint(schedule.DueAfter(time.UnixMilli(1000), d), " ms ", err))
	default:
		t.Fatalf("there is no operation %s", words[0])
	}
	return all
}

// unprintable reports runes that must not appear in a message for users, invalid UTF-8 included.
func unprintable(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }

// TestSpecNextEndsEverywhere checks that Next returns for every t: before the year 1, after 9999, and for
// specs that are rarely or never due.
func TestSpecNextEndsEverywhere(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0 0 29 2 *", "0 * 29 2 *", "59 23 31 12 *", "@every 400d"} {
		for _, zone := range []string{"", "America/New_York", "Africa/Casablanca", "Europe/Dublin"} {
			s := spec(t, text, zone)
			for _, at := range []time.Time{{}, time.Unix(-1<<62, 0), time.Unix(1<<62, 0),
				moment(t, "9999-12-31T23:59:59Z")} {
				next := s.Next(at)
				if at.Year() < 9999 && at.Unix() < 1<<40 && !next.After(at) || next.Year() > 9999 {
					t.Errorf("%q in %q after %v: %v", text, zone, at, next)
				}
			}
		}
	}
	var none schedule.Spec
	if next, resumed := none.Next(time.Now()),
		none.Resume(time.Now(), time.Now()); !next.IsZero() || !resumed.IsZero() {
		t.Errorf("the zero spec is due at %v and %v", next, resumed)
	}
	if zone := none.Zone(); zone != time.UTC {
		t.Errorf("the zero spec is in %v", zone)
	}
	if zone := spec(t, "@daily", "Asia/Shanghai").Zone().String(); zone != "Asia/Shanghai" {
		t.Errorf("Zone: %s", zone)
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, line := range transcript.Inputs(f, times) {
		switch words := words(f, line); words[0] {
		case "next", "resume":
			f.Add(words[1], words[2], moment(f, words[3]).Unix())
		case "spec":
			f.Add(words[1], "UTC", int64(0))
		case "zone":
			f.Add("@daily", words[1], int64(0))
		}
	}
	for _, text := range []string{"TZ=UTC", "TZ=0", "@every 1ms", "0 0 31 2 *",
		"*/9223372036854775807 * * * *", ",", "? ? ? ? ?", "@", "* * * * *,", strings.Repeat(" ", 300),
		"0" + strings.Repeat(",0", 200) + " * * * *"} {
		f.Add(text, "Local", int64(0))
	}
	f.Fuzz(func(t *testing.T, text, zone string, unix int64) {
		s, err := schedule.ParseSpec(text, zone)
		if err != nil {
			readable := err.Error() != "" && !strings.ContainsFunc(err.Error(), unprintable)
			if errors.Is(err, schedule.ErrSpec) == errors.Is(err, schedule.ErrZone) || !readable {
				t.Fatalf("%q in %q: %v", text, zone, err)
			}
			return
		}
		// From 1900 to 2300 every spec has a next time.
		at := time.Unix(-2208988800+(unix%12622780800+12622780800)%12622780800, 0)
		for range 3 {
			next := s.Next(at)
			if !next.After(at) || next.Nanosecond() != 0 {
				t.Fatalf("%q in %q: %v after %v", text, zone, next, at)
			}
			before := s.Next(next.Add(-time.Nanosecond))
			if !before.Equal(next) && !strings.Contains(text, "@every") {
				t.Fatalf("%q in %q: just before %v it is %v", text, zone, next, before)
			}
			at = next
		}
	})
}

// firstWords returns the first arguments of an operation in the transcript.
func firstWords(f *testing.F, operation string) (all []string) {
	for _, line := range transcript.Inputs(f, times) {
		if words := words(f, line); words[0] == operation {
			all = append(all, words[1])
		}
	}
	return all
}

// fuzzPrinted checks that a parsed value, printed and parsed again, is the same value.
func fuzzPrinted[V any](f *testing.F, parse func(string) (V, error), print func(V) string) {
	f.Fuzz(func(t *testing.T, s string) {
		v, err := parse(s)
		if err != nil {
			return
		}
		if back, err := parse(print(v)); err != nil || !reflect.DeepEqual(back, v) {
			t.Errorf("%q is %v, printed %q, read back %v, %v", s, v, print(v), back, err)
		}
	})
}

func FuzzTiers(f *testing.F) {
	for _, s := range firstWords(f, "tiers") {
		f.Add(s)
	}
	fuzzPrinted(f, schedule.ParseTiers, schedule.Tiers.String)
}

func FuzzDuration(f *testing.F) {
	for _, s := range firstWords(f, "duration") {
		f.Add(s)
	}
	fuzzPrinted(f, schedule.ParseDuration, schedule.FormatDuration)
}

// FuzzZone checks that a zone keeps the name by which it was found, and that no path of this machine is one.
func FuzzZone(f *testing.F) {
	for _, s := range firstWords(f, "zone") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		zone, err := schedule.ParseZone(name)
		if err != nil {
			if !errors.Is(err, schedule.ErrZone) || strings.ContainsFunc(err.Error(), unprintable) {
				t.Errorf("%q: %v", name, err)
			}
			return
		}
		if zone == time.Local || zone.String() != name && name != "" {
			t.Errorf("%q is the zone %s", name, zone)
		}
	})
}

func ExampleSpec_Next() {
	s, err := schedule.ParseSpec("30 2 * * *", "Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, time.March, 28, 0, 0, 0, 0, time.UTC)
	for range 3 {
		at = s.Next(at)
		fmt.Println(at.In(s.Zone()))
	}
	// Output:
	// 2026-03-28 02:30:00 +0100 CET
	// 2026-03-29 03:00:00 +0200 CEST
	// 2026-03-30 02:30:00 +0200 CEST
}
