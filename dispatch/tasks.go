package dispatch

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
)

// taskTimes exports when each maintenance function last succeeded. Only the process with the lease of a
// function exports it.
type taskTimes struct {
	success *prometheus.GaugeVec

	mu sync.Mutex
	// ran are the functions that this process runs.
	ran map[string]bool
}

func newTaskTimes(m process.Metrics) *taskTimes {
	return &taskTimes{
		success: m.GaugeVec("task_last_success_timestamp_seconds",
			"When a maintenance function of the installation last succeeded, in seconds since 1970. Before "+
				"its first success in a process: when that process took it over.", "task"),
		ran: make(map[string]bool),
	}
}

// ended notes the end of a run, or that another process runs the function. See schedule.CronOptions.
func (t *taskTimes) ended(task string, held bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !held {
		delete(t.ran, task)
		t.success.DeleteLabelValues(task)
		return
	}
	if err == nil || !t.ran[task] {
		t.success.WithLabelValues(task).Set(float64(time.Now().Unix()))
	}
	t.ran[task] = true
}
