package schedule_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A failer is what the helpers need of a *testing.T, a *testing.F or a *rapid.T.
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
	m, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Where clocks are changed, one case of each sort; TestSpecAgainstModel walks over many more. Times are in
// UTC; the comment has the clocks of the zone.
var changes = []struct {
	name, text, zone, after string
	want                    []string
}{
	{"fixed, spring: at the end of the gap", "30 2 * * *", "America/New_York", "2026-03-07T00:00:00Z", []string{
		"2026-03-07T07:30:00Z", // 02:30 EST
		"2026-03-08T07:00:00Z", // 02:30 there is none: 03:00 EDT
		"2026-03-09T06:30:00Z", // 02:30 EDT
	}},
	{"fixed, autumn: the first time only", "30 1 * * *", "America/New_York", "2026-10-31T00:00:00Z", []string{
		"2026-10-31T05:30:00Z", // 01:30 EDT
		"2026-11-01T05:30:00Z", // 01:30 EDT, and not 01:30 EST at 06:30
		"2026-11-02T06:30:00Z", // 01:30 EST
	}},
	{"fixed, several in the gap are due together", "0,20,40 2,3 * * *", "America/New_York", "2026-03-07T12:00:00Z", []string{
		"2026-03-08T07:00:00Z", // 02:00, 02:20, 02:40 and 03:00 EDT
		"2026-03-08T07:20:00Z",
		"2026-03-08T07:40:00Z",
		"2026-03-09T06:00:00Z",
	}},
	{"every hour, spring", "@hourly", "America/New_York", "2026-03-08T05:30:00Z", []string{
		"2026-03-08T06:00:00Z", // 01:00 EST
		"2026-03-08T07:00:00Z", // 03:00 EDT
		"2026-03-08T08:00:00Z",
	}},
	{"every hour, autumn", "30 * * * *", "America/New_York", "2026-11-01T04:45:00Z", []string{
		"2026-11-01T05:30:00Z", // 01:30 EDT
		"2026-11-01T06:30:00Z", // 01:30 EST
		"2026-11-01T07:30:00Z",
	}},
	{"every hour of one day, which has 25", "0 */1 25 10 *", "Europe/Berlin", "2026-10-25T00:30:00Z", []string{
		"2026-10-25T01:00:00Z", // 02:00 CET, after 02:00 CEST
		"2026-10-25T02:00:00Z",
	}},
	{"half an hour, spring, fixed", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{
		"2026-10-03T15:30:00Z", // 02:15 there is none: 02:30 +11
		"2026-10-04T15:15:00Z",
	}},
	{"a day that there is not, fixed", "0 9 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", []string{
		"2011-12-29T19:00:00Z", // the 29th, 09:00 -10
		"2011-12-30T10:00:00Z", // the 30th there is none: the 31st, 00:00 +14
		"2011-12-30T19:00:00Z", // the 31st, 09:00 +14
	}},
	{"a day but an hour that comes twice, fixed", "0 9,21 * * *", "Pacific/Kwajalein", "1969-09-29T12:00:00Z", []string{
		"1969-09-29T22:00:00Z", // the 30th, 09:00 +11
		"1969-09-30T10:00:00Z", // the 30th, 21:00 +11; at 13:00 clocks go back to the 30th, 01:00 -12
		"1969-10-01T21:00:00Z", // the 1st, 09:00 -12
	}},
	{"a midnight that there is not", "@daily", "America/Sao_Paulo", "2018-11-03T00:00:00Z", []string{
		"2018-11-03T03:00:00Z", // the 3rd, 00:00 -03
		"2018-11-04T03:00:00Z", // the 4th, 01:00 -02
		"2018-11-05T02:00:00Z", // the 5th, 00:00 -02
	}},
	{"the last days of a leap year, by a zone's last rule", "0 12 * * *", "America/New_York", "2044-12-29T18:00:00Z", []string{
		"2044-12-30T17:00:00Z", "2044-12-31T17:00:00Z", "2045-01-01T17:00:00Z",
	}},
}

// What needs no clocks to change. Times are in UTC.
var plain = []struct {
	name, text, zone, after string
	want                    []string
}{
	{"minutes", "*/15 * * * *", "", "2026-03-08T07:00:00Z", []string{"2026-03-08T07:15:00Z", "2026-03-08T07:30:00Z"}},
	{"strictly after", "0 3 * * *", "UTC", "2026-03-08T03:00:00Z", []string{"2026-03-09T03:00:00Z"}},
	{"after a part of a second", "0 3 * * *", "UTC", "2026-03-08T02:59:59.999Z", []string{"2026-03-08T03:00:00Z"}},
	{"weekly", "@weekly", "", "2026-03-02T00:00:00Z", []string{"2026-03-08T00:00:00Z", "2026-03-15T00:00:00Z"}},
	{"monthly", "@monthly", "Asia/Shanghai", "2026-03-02T00:00:00Z", []string{"2026-03-31T16:00:00Z"}},
	{"yearly", "@yearly", "", "2026-03-02T00:00:00Z", []string{"2027-01-01T00:00:00Z"}},
	{"annually", "@annually", "", "2026-03-02T00:00:00Z", []string{"2027-01-01T00:00:00Z"}},
	{"midnight", "@midnight", "Europe/Berlin", "2026-03-02T00:00:00Z", []string{"2026-03-02T23:00:00Z"}},
	{"either day", "0 0 13 * 5", "", "2026-03-08T00:00:00Z", []string{"2026-03-13T00:00:00Z", "2026-03-20T00:00:00Z"}},
	{"spaces around", "  0 0  13 mar Fri ", "", "2026-03-08T00:00:00Z", []string{"2026-03-13T00:00:00Z"}},
	{"leap days", "0 0 29 2 *", "", "2026-03-08T00:00:00Z", []string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
	{"leap days around 2100", "0 0 29 2 *", "Asia/Shanghai", "2096-03-08T00:00:00Z", []string{"2104-02-28T16:00:00Z"}},
	{"hours of leap days around 2100", "0 * 29 2 *", "Europe/Berlin", "2096-02-29T22:30:00Z", []string{"2104-02-28T23:00:00Z"}},
	{"the end of time", "0 0 1 1 *", "", "9998-06-01T00:00:00Z", []string{"9999-01-01T00:00:00Z", ""}},
	{"@every has whole seconds", "@every 1m30s", "America/New_York", "2026-03-08T06:59:30.9Z", []string{
		"2026-03-08T07:01:00Z", "2026-03-08T07:02:30Z",
	}},
	{"@every in days", "@every 400d", "", "2026-01-01T00:00:00Z", []string{"2027-02-05T00:00:00Z"}},
}

func TestSpecNext(t *testing.T) {
	t.Parallel()
	for _, c := range append(plain, changes...) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, at := spec(t, c.text, c.zone), moment(t, c.after)
			var got []string
			for range c.want {
				at = s.Next(at)
				if at.IsZero() {
					got = append(got, "")
					break
				}
				got = append(got, at.Format(time.RFC3339Nano))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%q in %q after %s (-want +got):\n%s", c.text, c.zone, c.after, diff)
			}
		})
	}
}

// Wherever it is asked, it answers at once: before all years, after them, and where nothing is due.
func TestSpecNextEndsEverywhere(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0 0 29 2 *", "0 * 29 2 *", "59 23 31 12 *", "@every 400d"} {
		for _, zone := range []string{"", "America/New_York", "Africa/Casablanca", "Europe/Dublin"} {
			s := spec(t, text, zone)
			for _, at := range []time.Time{{}, time.Unix(-1<<62, 0), time.Unix(1<<62, 0), moment(t, "9999-12-31T23:59:59Z")} {
				next := s.Next(at)
				if at.Year() < 9999 && at.Unix() < 1<<40 && !next.After(at) || next.Year() > 9999 {
					t.Errorf("%q in %q after %v: %v", text, zone, at, next)
				}
			}
		}
	}
	var none schedule.Spec
	if next, resumed := none.Next(time.Now()), none.Resume(time.Now(), time.Now()); !next.IsZero() || !resumed.IsZero() {
		t.Errorf("the zero spec is due at %v and %v", next, resumed)
	}
	if zone := none.Zone(); zone != time.UTC {
		t.Errorf("the zero spec is in %v", zone)
	}
	if zone := spec(t, "@daily", "Asia/Shanghai").Zone().String(); zone != "Asia/Shanghai" {
		t.Errorf("Zone: %s", zone)
	}
}

func TestSpecResume(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, zone, due, now, want string }{
		{"on time", "@every 15m", "", "2026-01-01T00:07:00Z", "2026-01-01T00:07:00Z", "2026-01-01T00:22:00Z"},
		{"a little late", "@every 15m", "", "2026-01-01T00:07:00Z", "2026-01-01T00:07:04.5Z", "2026-01-01T00:22:00Z"},
		{"many missed", "@every 15m", "", "2026-01-01T00:07:00Z", "2026-03-01T11:30:00Z", "2026-03-01T11:37:00Z"},
		{"at a phase", "@every 15m", "", "2026-01-01T00:07:00Z", "2026-03-01T11:37:00Z", "2026-03-01T11:52:00Z"},
		{"just before a phase", "@every 15m", "", "2026-01-01T00:07:00Z", "2026-03-01T11:36:59.999Z", "2026-03-01T11:37:00Z"},
		{"a second missed for a thousand years", "@every 1s", "", "1026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"},
		{"seven hours missed for years", "@every 7h", "", "2019-12-31T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"},
		{"the due time has parts of a second", "@every 1m", "", "2026-01-01T00:00:00.7Z", "2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z"},
		{"the clock went back", "@every 1h", "", "2026-01-01T05:00:00Z", "2026-01-01T03:10:00Z", "2026-01-01T06:00:00Z"},
		{"beyond the last year", "@every 400d", "", "9999-01-01T00:00:00Z", "9999-01-02T00:00:00Z", ""},
		{"fields", "0 3 * * *", "Asia/Shanghai", "2026-01-01T19:00:00Z", "2031-06-01T00:00:00Z", "2031-06-01T19:00:00Z"},
		{"fields, the clock went back", "0 3 * * *", "", "2026-01-03T03:00:00Z", "2026-01-01T00:00:00Z", "2026-01-04T03:00:00Z"},
	} {
		got := ""
		if next := spec(t, c.text, c.zone).Resume(moment(t, c.due), moment(t, c.now)); !next.IsZero() {
			got = next.Format(time.RFC3339Nano)
		}
		if got != c.want {
			t.Errorf("%s: %q for %s at %s: got %q, want %q", c.name, c.text, c.due, c.now, got, c.want)
		}
	}
	now := moment(t, "2026-01-01T00:00:00Z")
	if got, want := spec(t, "@every 1h", "").Resume(time.Time{}, now), now.Add(time.Hour); !got.Equal(want) {
		t.Errorf("without a due time: got %v, want %v", got, want)
	}
}

// unprintable runes have no place in a sentence; what is no rune at all is among them.
func unprintable(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }

func TestParseSpecRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "is empty", "   ": "is empty",
		"* * * *": "has 4 of 5 fields", "* * * * * *": "none for seconds", "* * * * * * *": "has 7 of 5", "every minute": "has 2 of 5",
		"TZ=UTC": "beside it", "TZ=0": "beside it", "TZ=UTC * * * * *": "beside it", "CRON_TZ=Europe/Berlin 0 3 * * *": "beside it",
		"* * * * TZ=UTC": "beside it",
		"@reboot":        "@hourly, @daily", "@never": "@hourly, @daily", "@": "@hourly, @daily", "@Daily": "@hourly, @daily",
		"@daily 3": "@hourly, @daily", "@every15m": "@hourly, @daily",
		"@every": "whole seconds", "@every 1ms": "whole seconds", "@every 1500ms": "whole seconds", "@every 0s": "whole seconds",
		"@every 0": "whole seconds", "@every -5s": "whole seconds", "@every 1.5s": "whole seconds", "@every soon": "whole seconds",
		"@every 400d1s": "to 400d", "@every 9601h": "to 400d", "@every 15": "whole seconds", "@every 2562047h": "whole seconds",
		"61 * * * *": "cannot be the minute: write 0 to 59", "* 24 * * *": "cannot be the hour", "* * 0 * *": "cannot be the day of month",
		"* * * 13 *": "cannot be the month", "* * * * 7": "(Sunday is 0)", "* * * * fri-sun": "a rising range",
		"-1 * * * *": "cannot be the minute", "5-1 * * * *": "cannot be the minute", "*/0 * * * *": "cannot be the minute",
		", * * * *": "cannot be the minute", "1,,2 * * * *": "cannot be the minute", "0 0 , * 1": "cannot be the day of month",
		"*-5 * * * *": "cannot be the minute", "?-5 * * * *": "cannot be the minute", "+5 * * * *": "cannot be the minute",
		"1-2-3 * * * *": "cannot be the minute", "*/2/2 * * * *": "cannot be the minute", "jan * * * *": "cannot be the minute",
		"0 0 31 2 *": "is never due", "0 0 30 2 *": "is never due", "0 0 31 4,6,9,11 *": "is never due", "0 * 31 2 *": "is never due",
		"0 3\t* * *": "ASCII", "0 3 * * *\n": "ASCII", "0 3 * * *\x00": "ASCII", "0 3 * * \u00a01": "ASCII", "\xff": "ASCII",
		strings.Repeat(" ", 300):                     "longer than 256",
		"0" + strings.Repeat(",0", 200) + " * * * *": "longer than 256",
	} {
		_, err := schedule.ParseSpec(text, "Nowhere")
		if !errors.Is(err, schedule.ErrSpec) || errors.Is(err, schedule.ErrZone) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want ErrSpec with %q", text, err, want)
			continue
		}
		if strings.ContainsFunc(err.Error(), unprintable) || len(err.Error()) > 600 {
			t.Errorf("%.40q: the error is not one short sentence: %q", text, err)
		}
	}
}

func TestParseZone(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Local", "local", "localtime", "Nowhere", "Mars/Olympus", "../Europe/Berlin", "Europe/../Europe/Berlin", "..", ".", "/",
		"/etc/localtime", "\\Europe", "Europe/Berlin\n", "Europe/Berlin\x00", " ", " UTC", "UTC ", "Europe", "Europe/", "Europe//Berlin",
		"Europe/./Berlin", "right/Europe/Berlin", "posix/Europe/Berlin", "posixrules", "Factory", "+08:00", "UTC+8", "zone.tab",
		"tzdata.zi", strings.Repeat("a", 65), strings.Repeat("a/", 5000), "上海",
	} {
		_, err := schedule.ParseZone(name)
		if !errors.Is(err, schedule.ErrZone) || !strings.Contains(err.Error(), "Asia/Shanghai") || strings.ContainsFunc(err.Error(), unprintable) {
			t.Errorf("%.40q: got %v, want ErrZone with an example", name, err)
		}
		if _, again := schedule.ParseSpec("@daily", name); !errors.Is(again, schedule.ErrZone) || errors.Is(again, schedule.ErrSpec) {
			t.Errorf("%.40q: ParseSpec says %v", name, again)
		}
	}
	for _, name := range []string{"", "UTC", "Etc/UTC", "Asia/Shanghai", "America/Argentina/Buenos_Aires", "America/Port-au-Prince", "Etc/GMT+8", "PST8PDT"} {
		zone, err := schedule.ParseZone(name)
		if err != nil || zone.String() != name && name != "" {
			t.Errorf("%q: %v, %v", name, zone, err)
		}
	}
	if zone, _ := schedule.ParseZone(""); zone != time.UTC {
		t.Errorf("no name: %v", zone)
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, c := range append(plain, changes...) {
		f.Add(c.text, c.zone, moment(f, c.after).Unix())
	}
	for _, text := range []string{"TZ=UTC", "TZ=0", "@every 1ms", "0 0 31 2 *", "*/9223372036854775807 * * * *", ",", "? ? ? ? ?", "@", "* * * * *,"} {
		f.Add(text, "Local", int64(0))
	}
	f.Fuzz(func(t *testing.T, text, zone string, unix int64) {
		s, err := schedule.ParseSpec(text, zone)
		if err != nil {
			if errors.Is(err, schedule.ErrSpec) == errors.Is(err, schedule.ErrZone) || err.Error() == "" {
				t.Fatalf("%q in %q: %v", text, zone, err)
			}
			return
		}
		// From 1900 to 2300, where every spec has a next time.
		at := time.Unix(-2208988800+(unix%12622780800+12622780800)%12622780800, 0)
		for range 3 {
			next := s.Next(at)
			if !next.After(at) || next.Nanosecond() != 0 {
				t.Fatalf("%q in %q: %v after %v", text, zone, next, at)
			}
			if before := s.Next(next.Add(-time.Nanosecond)); !before.Equal(next) && !strings.Contains(text, "@every") {
				t.Fatalf("%q in %q: just before %v it is %v", text, zone, next, before)
			}
			at = next
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
