package index

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
)

// Each jump is counted, and one a minute is logged, with its size, which is negative for a jump back.
func TestClockJumpsAreLogged(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{time.Hour, -90 * time.Second} {
		var log bytes.Buffer
		e := &Index{log: slog.New(slog.NewTextHandler(&log, nil)), metrics: newMetrics(process.Metrics{})}
		for range 3 {
			e.clockJumped(by)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "clock jumped") ||
			!strings.Contains(text, "by="+by.String()) {
			t.Errorf("a jump by %s is logged as %q", by, text)
		}
		if n := testutil.ToFloat64(e.metrics.clockJumps); n != 3 {
			t.Errorf("dispatcher_clock_jumps_total is %v, want 3", n)
		}
	}
}
