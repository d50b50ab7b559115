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

// A measured is what a lab measured of an alert. Zero: not measured. sinks is where messages went.
type measured struct {
	fault, sinks   string
	fired, cleared time.Duration
}

// report collects what all labs measured.
var report = measurements{alerts: map[string]measured{}, messages: map[string]measured{}}

type measurements struct {
	mu sync.Mutex
	// alerts are those of Prometheus by name, messages those of alerts of projects and of alert_sink.
	alerts, messages map[string]measured
}

// add sets what was measured of an alert of Prometheus. It keeps what x does not have.
func (m *measurements) add(alert string, x measured) { m.merge(m.alerts, alert, x) }

// addMessage is add for the messages of an alert.
func (m *measurements) addMessage(alert string, x measured) { m.merge(m.messages, alert, x) }

func (m *measurements) merge(all map[string]measured, alert string, x measured) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := all[alert]
	all[alert] = measured{cmp.Or(x.fault, old.fault), cmp.Or(x.sinks, old.sinks),
		cmp.Or(x.fired, old.fired), cmp.Or(x.cleared, old.cleared)}
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

// messagesIntroduction begins the second table.
const messagesIntroduction = `
## How fast does a message arrive?

The alerts of a project and the setting alert_sink send messages themselves (see [the
guide](../guide/alerts.md)). The built program sends to stand-ins that check the format, the signature and
the limits of the platform. The message must arrive within a minute of its cause. A project's alert resolves
when its condition was met for a minute, and sends at most one message a minute.

| alert | fault | sink | message after | message about the end after the repair |
|---|---|---|---|---|
`

// write writes the page if the flag names one and alerts were measured.
func (m *measurements) write() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if *reportFile == "" || len(m.alerts)+len(m.messages) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, introduction, time.Now().UTC().Format(time.DateOnly), spoken(healthyTime),
		spoken(interval))
	for _, name := range slices.Sorted(maps.Keys(m.alerts)) {
		x := m.alerts[name]
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, x.fault, spoken(x.fired), spoken(x.cleared))
	}
	b.WriteString(messagesIntroduction)
	for _, name := range slices.Sorted(maps.Keys(m.messages)) {
		x := m.messages[name]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, x.fault, x.sinks, spoken(x.fired),
			spoken(x.cleared))
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
