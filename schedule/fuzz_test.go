package schedule_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// FuzzTiers: what a ladder is printed as reads as the same ladder.
func FuzzTiers(f *testing.F) {
	for _, s := range []string{
		"15s 3m 10m 30m 30m 1h 2h 6h 15h", "1s,2s", "", " ,\t", "400d", "400d1ms", "1.5d12h 0",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tiers, err := schedule.ParseTiers(s)
		if err != nil {
			return
		}
		if back, err := schedule.ParseTiers(tiers.String()); err != nil || !slices.Equal(back, tiers) {
			t.Errorf("%q is %v, printed %q, read back %v, %v", s, []time.Duration(tiers), tiers,
				[]time.Duration(back), err)
		}
	})
}

// FuzzZone: a zone is known by the name that it was given by, and by no path of this machine.
func FuzzZone(f *testing.F) {
	for _, s := range []string{
		"", "UTC", "Asia/Shanghai", "Local", "../../etc/localtime", "right/UTC", "America/Argentina/Ushuaia",
		"posixrules", "Etc/GMT+8", "EST5EDT", strings.Repeat("a", 65), strings.Repeat("a/", 5000),
	} {
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
