package alerts

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

var reportFile = flag.String("alerts-report", "", "write what the labs measured to this page")

// A measured is what a lab measured of an alert. Zero: not measured.
type measured struct {
	fault          string
	fired, cleared time.Duration
}

// report collects what all labs measured.
var report = measurements{all: map[string]measured{}}

type measurements struct {
	mu  sync.Mutex
	all map[string]measured // by alert
}

// add sets what was measured of an alert. It keeps what x does not have.
func (m *measurements) add(alert string, x measured) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.all[alert]
	m.all[alert] = measured{cmp.Or(x.fault, old.fault), cmp.Or(x.fired, old.fired),
		cmp.Or(x.cleared, old.cleared)}
}

// introduction needs the date, healthyTime and interval.
const introduction = `# How fast does an alert fire?

make test-full measured this on %s, and wrote this page. It breaks the built program, with real
servers, and a real Prometheus with the rules of deploy/prometheus watches. Each alert must fire within a
minute of its fault, and no other critical alert may fire. At the same time another installation runs under
load for %s, on which no alert may fire.

Prometheus scrapes and evaluates every %s here. With the 15 s of the example configuration an alert fires up
to 20 seconds later. The time until an alert clears is that without its keep_firing_for. Where none is given,
the alert counts events of the last 15 minutes (rebuilds: of an hour), and clears that long after the last.

Alerts that are not listed have a time threshold or a longer "for". The tests in deploy/prometheus/tests show
when each alert fires and when it does not.

| alert | fault | fired after | cleared after |
|---|---|---|---|
`

// write writes the page if the flag names one and alerts were measured.
func (m *measurements) write() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if *reportFile == "" || len(m.all) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, introduction, time.Now().UTC().Format(time.DateOnly), spoken(healthyTime),
		spoken(interval))
	for _, name := range slices.Sorted(maps.Keys(m.all)) {
		x := m.all[name]
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, x.fault, spoken(x.fired), spoken(x.cleared))
	}
	return os.WriteFile(*reportFile, []byte(b.String()), 0o644)
}

// spoken formats a duration in seconds; zero is empty.
func spoken(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}
