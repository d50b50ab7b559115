package process

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TaskTimes exports when each maintenance function last succeeded. Only the process with the lease of a
// function exports it.
type TaskTimes struct {
	success *prometheus.GaugeVec

	mu sync.Mutex
	// ran are the functions that this process runs.
	ran map[string]bool
}

// TaskTimes returns TaskTimes without a function.
func (m Metrics) TaskTimes() *TaskTimes {
	return &TaskTimes{
		success: m.GaugeVec("task_last_success_timestamp_seconds",
			"When a maintenance function of the installation last succeeded, in seconds since 1970. Before "+
				"its first success in a process: when that process took it over.", "task"),
		ran: make(map[string]bool),
	}
}

// Ended notes the end of a run, or that another process runs the function. See schedule.CronOptions.
func (t *TaskTimes) Ended(task string, held bool, err error) {
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
