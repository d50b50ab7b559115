package schedule_test

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// The off-by-one that every ladder gets wrong once: nine tiers are ten attempts, and the first wait is the
// first tier.
func TestPaymentLadder(t *testing.T) {
	t.Parallel()
	tiers := schedule.Payment()
	if got, want := tiers.String(), "15s 3m 10m 30m 30m 1h 2h 6h 15h"; got != want {
		t.Errorf("payment tiers: got %q, want %q", got, want)
	}
	if got, want := tiers.Sum(), 25*time.Hour+13*time.Minute+15*time.Second; got != want {
		t.Errorf("sum: got %v, want %v", got, want)
	}
	attempts, elapsed := 1, time.Duration(0)
	for {
		wait, ok := tiers.Wait(attempts, false)
		if !ok {
			break
		}
		if attempts == 1 && wait != 15*time.Second {
			t.Errorf("the first wait: got %v, want 15s", wait)
		}
		elapsed += wait
		attempts++
	}
	if attempts != 10 || elapsed != tiers.Sum() {
		t.Errorf("got %d attempts in %v, want 10 in %v", attempts, elapsed, tiers.Sum())
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	two := schedule.Tiers{time.Second, 2 * time.Second}
	for _, c := range []struct {
		tiers  schedule.Tiers
		made   int
		repeat bool
		want   time.Duration
		ok     bool
	}{
		{nil, 1, false, 0, false},
		{nil, 1, true, 0, false},
		{two, 0, false, time.Second, true},
		{two, 1, false, time.Second, true},
		{two, 2, false, 2 * time.Second, true},
		{two, 3, false, 0, false},
		{two, 3, true, 2 * time.Second, true},
		{two, 1 << 40, true, 2 * time.Second, true},
	} {
		got, ok := c.tiers.Wait(c.made, c.repeat)
		if got != c.want || ok != c.ok {
			t.Errorf("%v.Wait(%d, %v): got %v, %v; want %v, %v", c.tiers, c.made, c.repeat, got, ok, c.want, c.ok)
		}
	}
}

func TestDueIsRoundedUp(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1000)
	for _, c := range []struct {
		wait time.Duration
		want int64
	}{{0, 1000}, {1, 1001}, {time.Millisecond, 1001}, {time.Millisecond + 1, 1002}} {
		if got := schedule.DueAfter(at, c.wait); got != c.want {
			t.Errorf("DueAfter(1000 ms, %v): got %d, want %d", c.wait, got, c.want)
		}
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in, out string
		want    time.Duration
	}{
		{"15s", "15s", 15 * time.Second},
		{"90s", "1m30s", 90 * time.Second},
		{"2d", "2d", 48 * time.Hour},
		{"1.5d", "1d12h", 36 * time.Hour},
		{"1d12h", "1d12h", 36 * time.Hour},
		{"24h", "1d", 24 * time.Hour},
		{"0", "0s", 0},
		{"0s", "0s", 0},
		{"100ms", "100ms", 100 * time.Millisecond},
		{"1h0m1.5s", "1h1.5s", time.Hour + 1500*time.Millisecond},
		{"-3m", "-3m", -3 * time.Minute},
		{"400d", "400d", 400 * 24 * time.Hour},
	} {
		got, err := schedule.ParseDuration(c.in)
		if err != nil || got != c.want {
			t.Errorf("ParseDuration(%q): got %v, %v; want %v", c.in, got, err, c.want)
		}
		if out := schedule.FormatDuration(got); out != c.out {
			t.Errorf("FormatDuration(%v): got %q, want %q", got, out, c.out)
		}
	}
	for _, bad := range []string{"", "15", "d", "-", "--1s", "-+1s", "1d-1h", "1x", "1d1d", "1h1d", "NaNd", "Infd", "1e9d", "999999999d", " 1s", "106751d24h999999h"} {
		if d, err := schedule.ParseDuration(bad); err == nil {
			t.Errorf("ParseDuration(%q): got %v, want an error", bad, d)
		}
	}
}

func TestTiersBounds(t *testing.T) {
	t.Parallel()
	if _, err := schedule.ParseTiers(strings.Repeat("1s ", schedule.MaxTiers)); err != nil {
		t.Errorf("%d tiers: %v", schedule.MaxTiers, err)
	}
	for _, bad := range []string{strings.Repeat("1s ", schedule.MaxTiers+1), "400d1ms", "-1s", "soon"} {
		if got, err := schedule.ParseTiers(bad); err == nil {
			t.Errorf("ParseTiers(%.20q): got %v, want an error", bad, got)
		}
	}
}

func FuzzDuration(f *testing.F) {
	for _, s := range []string{"15s", "2d", "1.5d3h", "-1ms", "0", "1d", "9e9h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := schedule.ParseDuration(s)
		if err != nil {
			return
		}
		back, err := schedule.ParseDuration(schedule.FormatDuration(d))
		if err != nil || back != d {
			t.Errorf("%q is %v, printed %q, read back %v, %v", s, d, schedule.FormatDuration(d), back, err)
		}
	})
}
