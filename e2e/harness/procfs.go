package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/procfs"
)

// PeakMemory is the most memory that a process has had resident since it began or since forgetPeak, in bytes.
func PeakMemory(pid int) (int64, error) { return procfs.Bytes(pid, "status", "VmHWM") }

// ResidentMemory is what it has now.
func ResidentMemory(pid int) (int64, error) { return procfs.Bytes(pid, "status", "VmRSS") }

// ForgetPeak makes what a process has now its peak.
func ForgetPeak(pid int) error {
	return os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "clear_refs"), []byte("5"), 0)
}

// RedisPeak is the most memory that the trial's Redis has allocated, in bytes; zero without one.
func (tr *Trial) RedisPeak() int64 {
	tr.Helper()
	if tr.Backend.Redis == "" {
		return 0
	}
	var peak int64
	err := tr.Backend.EachRedis(tr.Context(), func(ctx context.Context, c *redis.Client) error {
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
		tr.Fatal(err)
	}
	return peak
}

// Megabytes prints bytes for people.
func Megabytes(n int64) string { return fmt.Sprintf("%.0f MB", float64(n)/1e6) }
