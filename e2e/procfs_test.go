package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/procfs"
)

// peakMemory is the most memory that a process has had resident since it began or since forgetPeak, in bytes.
func peakMemory(pid int) (int64, error) { return procfs.Bytes(pid, "status", "VmHWM") }

// residentMemory is what it has now.
func residentMemory(pid int) (int64, error) { return procfs.Bytes(pid, "status", "VmRSS") }

// forgetPeak makes what a process has now its peak.
func forgetPeak(pid int) error {
	return os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "clear_refs"), []byte("5"), 0)
}

// redisPeak is the most memory that the lab's Redis has allocated, in bytes; zero without one.
func (l *Trial) redisPeak() int64 {
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
