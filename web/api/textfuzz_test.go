package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// FuzzTime: a time that is taken is shown as one that reads the same, and is the one that package time reads.
func FuzzTime(f *testing.F) {
	for _, s := range []string{
		"2026-11-21T08:00:00Z", "2026-11-21t08:00:00.0001z", "2026-11-21 08:00:00+08:00",
		"0000-01-01T00:00:00Z", "9999-12-31T23:59:59.9999Z",
		"0000-01-01T00:00:00+23:59", "2026-02-29T00:00:00Z", "2026-11-21T24:00:00Z", "2026-11-21T08:00:60Z",
		"2026-11-21T08:00:00,5Z",
		"2026-11-21 08:00:00 08:00", "2026-11-21T8:00:00.00Z",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ms, ok := parseQueryTime(s)
		if !ok {
			return
		}
		shown := strings.Trim(string(appendTime(nil, ms)), `"`)
		if back, ok := parseTime(shown); !ok || back != ms {
			t.Errorf("%q is %d, shown as %s, which reads as %d, %t", s, ms, shown, back, ok)
		}
		exact := strings.Replace(strings.ToUpper(s), " ", "T", 1)
		exact = strings.Replace(exact, " ", "+", 1)
		if want, err := time.Parse(time.RFC3339Nano, exact); err != nil || schedule.CeilMillis(want) != ms {
			t.Errorf("%q is %d, package time reads %v, %v", s, ms, want, err)
		}
	})
}

// FuzzJSONDuration: a duration in JSON is what package schedule reads, and is written as one that reads the
// same.
func FuzzJSONDuration(f *testing.F) {
	for _, s := range []string{`"15s"`, `"2d"`, `"1\u0064"`, `"-1s"`, `5`, `null`, `""`, `"1d1h"`, `"0.5d"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) || len(strings.TrimSpace(string(raw))) != len(raw) {
			return
		}
		d, wrong := decodeDuration(raw)
		if wrong != "" {
			return
		}
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			t.Fatalf("%s is taken, and is no text: %v", raw, err)
		}
		if want, err := schedule.ParseDuration(text); err != nil || want != d || d < 0 {
			t.Errorf("%s is %v, package schedule reads %v, %v", raw, d, want, err)
		}
		if back, wrong := decodeDuration(appendDuration(nil, d)); wrong != "" || back != d {
			t.Errorf("%s is %v, written %s, which reads as %v, %s", raw, d, appendDuration(nil, d), back,
				wrong)
		}
	})
}

// FuzzOutcomeCursor: the place in the feed that is read is the one that was signed, and nothing else is
// taken.
func FuzzOutcomeCursor(f *testing.F) {
	ours := signed(1, "shop")
	for _, c := range []store.OutcomeCursor{{}, {Tx: 1, Group: 2, Item: 3}, {Tx: -1, Group: 1 << 62,
		Item: -3}} {
		f.Add(ours.encodeOutcome(c), c.Tx, c.Group, c.Item)
	}
	f.Add(signed(2, "shop").encodeOutcome(store.OutcomeCursor{Tx: 1}), int64(1), int64(0), 0)
	f.Add("", int64(0), int64(0), 0)
	f.Fuzz(func(t *testing.T, text string, tx, group int64, item int) {
		want := store.OutcomeCursor{Tx: tx, Group: group, Item: item}
		if got, err := ours.decodeOutcome(ours.encodeOutcome(want)); err != nil || got != want {
			t.Errorf("%+v comes back as %+v, %v", want, got, err)
		}
		if got, err := ours.decodeOutcome(text); err == nil && ours.encodeOutcome(got) != text {
			t.Errorf("cursor %q is read and written as another", text)
		}
		if _, err := signed(2, "shop").decodeOutcome(ours.encodeOutcome(want)); err == nil {
			t.Errorf("the cursor of %+v is taken with another key", want)
		}
	})
}
