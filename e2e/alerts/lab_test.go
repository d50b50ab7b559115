package alerts

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// fireTime is the promise: an alert fires within a minute of its fault. It clears as fast, apart from its
// keep_firing_for.
const fireTime = time.Minute

// A lab is an installation that breaks.
type lab struct {
	*harness.Trial
	prometheus *prometheus
	job        string

	mu sync.Mutex
	// fired has the time at which each alert was seen to fire first, and its summary.
	fired    map[string]time.Time
	summary  map[string]string
	expected []string // the alerts of fires
}

// labs are the faults.
var labs = []struct {
	name string
	run  func(*lab)
}{
	{"process-gone", processGone},
	{"sql-down", sqlDown},
	{"redis-down", redisDown},
	{"redis-evicts", redisEvicts},
	{"redis-loses", redisLoses},
	{"clock-jumps", clockJumps},
	{"crashes", crashes},
	{"events", events},
	{"key-missing", keyMissing},
	{"healthy", healthy},
}

func TestAlerts(t *testing.T) {
	harness.Binary(t) // the build takes longer than NoData waits for a first process
	m := startPrometheus(t)
	t.Run("labs", func(t *testing.T) { // its end waits for all of them
		for _, x := range labs {
			t.Run(x.name, func(t *testing.T) {
				t.Parallel()
				l := &lab{Trial: harness.NewTrial(t, x.name), prometheus: m, job: "dispatcher-" + x.name,
					fired: map[string]time.Time{}, summary: map[string]string{}}
				l.Repeat(500*time.Millisecond, func(int) { l.look() })
				x.run(l)
				l.onlyExpected()
			})
		}
	})
}

func TestMain(m *testing.M) { harness.Main(m, report.write) }

// look notes the alerts that fire now.
func (l *lab) look() {
	active, err := l.prometheus.active(l.job)
	if err != nil {
		return // the next look finds them
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, a := range active {
		if _, seen := l.fired[name]; !seen && a.State == "firing" {
			l.fired[name], l.summary[name] = time.Now(), a.Annotations["summary"]
		}
	}
}

// serve starts a process, and makes it a target.
func (l *lab) serve(instance string, args ...string) *harness.Process {
	l.Helper()
	return l.scraped(instance, l.Serve(args...))
}

func (l *lab) scraped(instance string, p *harness.Process) *harness.Process {
	l.Helper()
	l.prometheus.target(l, l.job, instance, p.OpsAddress())
	return p
}

// settled waits until Prometheus has scraped each process twice, so that counters have a beginning, and no
// alert is active.
func (l *lab) settled(processes int) {
	l.Helper()
	expr := fmt.Sprintf(`count_over_time(dispatcher_build_info{job=%q}[1m]) > 1`, l.job)
	l.Eventually(time.Minute, "Prometheus scrapes the processes", func() error {
		found, err := l.prometheus.series(expr)
		if err == nil && len(found) < processes {
			err = fmt.Errorf("%d of %d processes", len(found), processes)
		}
		return err
	})
	l.Eventually(time.Minute, "no alert is active", func() error {
		active, err := l.prometheus.active(l.job)
		for name := range active {
			err = fmt.Errorf("%s is active", name)
		}
		return err
	})
}

// fires waits until the alerts fire, each within a minute of the fault, and reports the time.
func (l *lab) fires(what string, fault time.Time, names ...string) {
	l.Helper()
	for _, name := range names {
		name = "Dispatcher" + name
		l.expected = append(l.expected, name)
		var took time.Duration
		var summary string
		l.Eventually(time.Until(fault.Add(fireTime)), name+" fires", func() error {
			l.mu.Lock()
			defer l.mu.Unlock()
			at, seen := l.fired[name]
			if !seen {
				now, err := l.prometheus.active(l.job)
				return fmt.Errorf("active are %v, %w", now, err)
			}
			took, summary = at.Sub(fault), l.summary[name]
			return nil
		})
		if summary == "" || strings.ContainsAny(summary, "<>{}") {
			l.Errorf("%s has the summary %q", name, summary)
		}
		if took > fireTime {
			l.Errorf("%s fired %s after the fault", name, took)
		}
		l.Remark("%s fired %s after the fault: %s", short(name), took.Round(100*time.Millisecond), summary)
		report.add(name, measured{fault: what, fired: took})
	}
}

// clears waits until the conditions of the alerts have ended, within a minute of the repair. A critical alert
// goes on for its keep_firing_for.
func (l *lab) clears(healed time.Time, names ...string) {
	l.Helper()
	for _, name := range names {
		expr := l.prometheus.exprs["Dispatcher"+name]
		l.Eventually(time.Until(healed.Add(fireTime)), name+" clears", func() error {
			found, err := l.prometheus.series(expr)
			for _, series := range found {
				if series["job"] == l.job {
					err = fmt.Errorf("the condition still holds: %v", series)
				}
			}
			return err
		})
		took := time.Since(healed)
		l.Remark("the condition of %s ended %s after the repair", name, took)
		report.add("Dispatcher"+name, measured{cleared: took})
	}
}

// onlyExpected fails the test if a critical alert fired that the fault does not imply.
func (l *lab) onlyExpected() {
	l.Helper()
	found, err := l.prometheus.series(fmt.Sprintf(
		`max_over_time(ALERTS{job=%q,alertstate="firing"}[30m])`, l.job))
	l.Check(err)
	for _, series := range found {
		name := series["alertname"]
		switch {
		case slices.Contains(l.expected, name):
		case series["severity"] == "critical":
			l.Errorf("%s fired, and the fault does not imply it", name)
		default:
			l.Remark("%s (%s) fired too", short(name), series["severity"])
		}
	}
}
