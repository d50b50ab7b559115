package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// peakMemory is the most memory that a process has had resident since it began or since forgetPeak, in bytes.
func peakMemory(pid int) (int64, error) { return statusBytes(pid, "VmHWM") }

// residentMemory is what it has now.
func residentMemory(pid int) (int64, error) { return statusBytes(pid, "VmRSS") }

// statusBytes reads a line such as "VmHWM:  1234 kB" of /proc/<pid>/status.
func statusBytes(pid int, name string) (int64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		value, found := strings.CutPrefix(line, name+":")
		if !found {
			continue
		}
		kilobytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("line %q of /proc/%d/status: %w", line, pid, err)
		}
		return kilobytes << 10, nil
	}
	return 0, fmt.Errorf("/proc/%d/status has no %s: memory can be measured on Linux only", pid, name)
}

// forgetPeak makes what a process has now its peak.
func forgetPeak(pid int) error {
	return os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "clear_refs"), []byte("5"), 0)
}

// redisPeak is the most memory that the lab's Redis has allocated, in bytes; zero without one.
func (l *lab) redisPeak() int64 {
	l.Helper()
	if l.on.redis == "" {
		return 0
	}
	var peak int64
	err := l.on.eachRedis(l.Context(), func(ctx context.Context, c *redis.Client) error {
		text, err := c.Info(ctx, "memory").Result()
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			if value, found := strings.CutPrefix(line, "used_memory_peak:"); found {
				n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
				peak += n
				return err
			}
		}
		return fmt.Errorf("INFO memory has no peak")
	})
	if err != nil {
		l.Fatal(err)
	}
	return peak
}

// megabytes prints bytes for people.
func megabytes(n int64) string { return fmt.Sprintf("%.0f MB", float64(n)/1e6) }
