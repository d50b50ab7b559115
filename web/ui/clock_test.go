package ui

import (
	"strings"
	"testing"
	"time"
)

// TestTimes checks the texts of times: relative in lists, with the absolute one in an attribute, and absolute
// in details. The day is left out if it is the viewer's today, and the year if it is this year.
func TestTimes(t *testing.T) {
	t.Parallel()
	zone, _ := zoneOf("Asia/Shanghai")
	b := base{zone: zone, lang: &language{texts: map[string]string{"time.ago": "{d} ago"}},
		now: time.Date(2026, 11, 23, 16, 30, 0, 0, time.UTC).UnixMilli()} // 00:30 in Shanghai
	for _, c := range []struct {
		at                    time.Time
		relative, data, exact string
	}{
		{time.Date(2026, 11, 23, 16, 1, 1, 913e6, time.UTC), "28m58s ago", "00:01:01", "00:01:01.913"},
		{time.Date(2026, 11, 23, 14, 1, 1, 913e6, time.UTC), "2h29m ago", "11-23 22:01:01", "11-23 22:01:01"},
		{time.Date(2025, 12, 31, 15, 59, 59, 0, time.UTC), "327d ago", "2025-12-31 23:59:59",
			"2025-12-31 23:59:59"},
	} {
		ms := c.at.UnixMilli()
		list, detail := string(b.Time(ms)), string(b.Exact(ms))
		if !strings.Contains(list, `data-at="`+c.data+`"`) || !strings.Contains(list, ">"+c.relative+"<") {
			t.Errorf("%s in a list: %s", c.at, list)
		}
		if !strings.Contains(detail, ">"+c.exact+"<") || !strings.Contains(detail, " +08:00\"") {
			t.Errorf("%s in details: %s", c.at, detail)
		}
	}
	if b.Time(0) != noTime || b.Exact(0) != noTime {
		t.Errorf("no time: %s, %s", b.Time(0), b.Exact(0))
	}
	if b.Offset() != "+08:00" {
		t.Errorf("offset %s", b.Offset())
	}
}
