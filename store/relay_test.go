package store

import "testing"

func TestRelaySourceLagGrowsWithoutRelay(t *testing.T) {
	const now = 1_000_000
	for _, c := range []struct {
		name string
		of   RelaySource
		held bool
		lag  int64
	}{
		{"held", RelaySource{Holder: "a", HeldUntil: now + 1, ReportedAt: now - 900,
			Report: RelayReport{LagMs: 50}}, true, 50},
		{"lapsed", RelaySource{Holder: "a", HeldUntil: now, ReportedAt: now - 900,
			Report: RelayReport{LagMs: 50}}, false, 950},
		{"released", RelaySource{HeldUntil: now - 700, ReportedAt: now - 900}, false, 900},
		{"never reported", RelaySource{Holder: "a", HeldUntil: now - 700}, false, 700},
		{"reported by a clock ahead", RelaySource{ReportedAt: now + 5, Report: RelayReport{LagMs: 3}}, false, 3},
	} {
		if held, lag := c.of.Held(now), c.of.Lag(now); held != c.held || lag != c.lag {
			t.Errorf("%s: held %t, lag %d, want %t, %d", c.name, held, lag, c.held, c.lag)
		}
	}
}
