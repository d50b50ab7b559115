package query

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// FuzzTime checks that a parsed time is written as a text that parses to the same time, and that package time
// parses it to the same time.
func FuzzTime(f *testing.F) {
	for _, s := range []string{
		"2026-11-21T08:00:00Z", "2026-11-21t08:00:00.0001z", "2026-11-21 08:00:00+08:00",
		"0000-01-01T00:00:00Z", "9999-12-31T23:59:59.9999Z", "0000-01-01T00:00:00+23:59",
		"2026-02-29T00:00:00Z", "2026-11-21T24:00:00Z", "2026-11-21T08:00:60Z", "2026-11-21T08:00:00,5Z",
		"2026-11-21 08:00:00 08:00", "2026-11-21T8:00:00.00Z",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ms, ok := timeInQuery(s)
		if !ok {
			return
		}
		written := FormatTime(ms)
		if back, ok := ParseTime(written); !ok || back != ms {
			t.Errorf("%q is %d, written as %s, which parses as %d, %t", s, ms, written, back, ok)
		}
		exact := strings.Replace(strings.ToUpper(s), " ", "T", 1)
		exact = strings.Replace(exact, " ", "+", 1)
		if want, err := time.Parse(time.RFC3339Nano, exact); err != nil || schedule.CeilMillis(want) != ms {
			t.Errorf("%q is %d, package time parses %v, %v", s, ms, want, err)
		}
	})
}

// FuzzCursor checks that an accepted cursor is written as the same text.
func FuzzCursor(f *testing.F) {
	f.Add("bg")
	ours := signed(1, "shop")
	f.Add(ours.Encode(ListNewest, cursorAt(5)))
	f.Fuzz(func(t *testing.T, s string) {
		for _, list := range []byte{ListNewest, ListByDue, ListAudit} {
			c, err := ours.Decode(list, s)
			if err == nil && ours.Encode(list, c) != s {
				t.Errorf("cursor %q is accepted, but written as another text", s)
			}
		}
	})
}

// FuzzOutcomeCursor checks that a cursor decodes to the position that was signed, and that no other text is
// accepted.
func FuzzOutcomeCursor(f *testing.F) {
	ours := signed(1, "shop")
	for _, c := range []store.OutcomeCursor{
		{}, {Tx: 1, Group: 2, Item: 3}, {Tx: -1, Group: 1 << 62, Item: -3},
	} {
		f.Add(ours.EncodeOutcome(c), c.Tx, c.Group, c.Item)
	}
	f.Add(signed(2, "shop").EncodeOutcome(store.OutcomeCursor{Tx: 1}), int64(1), int64(0), 0)
	f.Add("", int64(0), int64(0), 0)
	f.Fuzz(func(t *testing.T, text string, tx, group int64, item int) {
		want := store.OutcomeCursor{Tx: tx, Group: group, Item: item}
		if got, err := ours.DecodeOutcome(ours.EncodeOutcome(want)); err != nil || got != want {
			t.Errorf("%+v decodes as %+v, %v", want, got, err)
		}
		if got, err := ours.DecodeOutcome(text); err == nil && ours.EncodeOutcome(got) != text {
			t.Errorf("cursor %q is accepted, but written as another text", text)
		}
		if _, err := signed(2, "shop").DecodeOutcome(ours.EncodeOutcome(want)); err == nil {
			t.Errorf("the cursor of %+v is valid with another key", want)
		}
	})
}

// placeID is a valid id.
const placeID = "01JD6QZ0000000000000000001"

// FuzzPlace checks that a place has a valid id, so that no other text reaches an SQL statement. It also
// checks that a place is written as it was read.
func FuzzPlace(f *testing.F) {
	for _, s := range []string{
		"0." + placeID, "-zz." + placeID, "", ".", "1y2p0ij32e8e8." + placeID, "0." + placeID + "'",
		"+1." + placeID, "A." + placeID, "0.x",
		"0." + strings.ToLower(placeID), "0." + placeID[1:], "0.8" + placeID[1:],
		"0.' OR 1=1 -- aaaaaaaaaaaaaaaa", Place(store.Cursor{DueAt: 1_795_248_000_000, ID: placeID}),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := ReadPlace(s)
		if c == nil {
			return
		}
		if _, ok := store.BareID("", c.ID); !ok {
			t.Errorf("%q is a place with the id %q", s, c.ID)
		}
		if back := ReadPlace(Place(*c)); back == nil || *back != *c {
			t.Errorf("%q is %+v, written %q, which parses as %+v", s, c, Place(*c), back)
		}
	})
}
