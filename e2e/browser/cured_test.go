package browser

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A merchant says that it was never notified of an order. The operator, signed in and on the overview, cures
// that within a few clicks: in Chinese, on a phone, and with the keyboard alone.
func TestBrowserOrderIsCured(t *testing.T) {
	cases := []struct {
		story           string
		clicks, presses int // at most, with a finger and with keys alone; typing is not counted
	}{
		{"dead", 3, 20},
		{"waiting", 2, 15},
		{"held", 3, 15},
		{"proof", 2, 10},
	}
	for _, c := range []struct {
		name  string
		width int64
		keys  bool
	}{{"phone", 400, false}, {"keys", 1280, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var open atomic.Bool
			s := newScene(t, harness.SQLiteEmbedded, func(a *harness.Arrival) harness.Reply {
				if strings.HasPrefix(a.Path, "/shop") && !open.Load() {
					return harness.Reply{Status: 503, Body: "closed"}
				}
				return harness.Reply{Body: "success"}
			})
			s.play("complaints.txt")
			open.Store(true)
			b := s.window("", s.Base)
			b.size(c.width)
			b.prefer("language", "zh-CN")
			s.windows[""] = user{tab: b, keys: c.keys}
			for _, o := range cases {
				b.open("/ui/")
				b.clicks, b.presses = 0, 0
				began := time.Now()
				s.play("cured_" + o.story + ".txt")
				t.Logf("%s: %d clicks, %d keys, %.1f s", o.story, b.clicks, b.presses,
					time.Since(began).Seconds())
				if b.clicks > o.clicks || b.presses > o.presses {
					t.Errorf("%s: %d clicks and %d keys, want at most %d and %d",
						o.story, b.clicks, b.presses, o.clicks, o.presses)
				}
				b.picture(fmt.Sprintf("cured-%s-%s", o.story, c.name))
			}
		})
	}
}
