package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// Goals of time hold on a machine that does nothing else. Where others use it too, what they take is measured, and the goal is
// stretched by it: it is never lowered to what was seen.

// A yardstick measures, beside a lab, how long the machine makes a trivial thing wait: to be woken, and to be answered by the
// lab's own servers to a question that costs them nothing.
type yardstick struct {
	stop context.CancelFunc
	done sync.WaitGroup
	took []time.Duration
	err  error
}

// yardstickPause is between two of its questions.
const yardstickPause = 10 * time.Millisecond

func (l *lab) yardstick() *yardstick {
	l.Helper()
	ctx, cancel := context.WithCancel(l.Context())
	y := &yardstick{stop: cancel}
	db := l.database()
	var index *redis.Client
	if l.on.redis != "" {
		index = l.on.redisClient(l)
	}
	y.done.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			time.Sleep(yardstickPause) // what is measured
			var one int
			err := db.QueryRowContext(ctx, `SELECT 1`).Scan(&one)
			if err == nil && index != nil {
				err = index.Ping(ctx).Err()
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				y.err = err
				return
			}
			y.took = append(y.took, time.Since(began)-yardstickPause)
		}
	})
	l.Cleanup(func() { y.end() })
	return y
}

func (y *yardstick) end() (judge.Quantiles, error) {
	y.stop()
	y.done.Wait()
	return judge.QuantilesOf(y.took), y.err
}

// cpuUse is how many seconds of CPU the whole machine has used, and how many of them this process and its descendants have.
func cpuUse() (all, ours float64, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("CPU time can be measured on Linux only: %w", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(first)
	// cpu user nice system idle iowait irq softirq steal
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, 0, fmt.Errorf("/proc/stat begins with %q", first)
	}
	for i, field := range fields[1:9] {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i != 3 && i != 4 { // idle, waiting for disks
			all += ticks / ticksPerSecond
		}
	}
	byName, err := cpuByName()
	if err != nil {
		return 0, 0, err
	}
	for _, seconds := range byName {
		ours += seconds
	}
	self, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, 0, err
	}
	p, err := parseStat(string(self))
	return all, ours + p.seconds, err
}

// stretched lengthens a goal by what others took of the machine's CPU since those figures were read; 1 is a machine of our own.
func stretched(allBefore, oursBefore float64) (float64, error) {
	all, ours, err := cpuUse()
	if err != nil {
		return 0, err
	}
	return max(1, (all-allBefore)/max(ours-oursBefore, 0.01)), nil
}
