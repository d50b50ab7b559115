package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/procfs"
)

// Time limits hold on a machine that does nothing else. If other processes use the CPU too, Stretch measures
// their share, and the test extends its limit by that factor. A test never sets a limit from a measured
// result.

// Stretch returns a function that measures by how much other processes slowed the test since the call of
// Stretch: the whole CPU time over that of this process and its descendants, at least 1.
func Stretch(tb testing.TB) func() float64 {
	tb.Helper()
	read := func() (all, ours float64) {
		all, ours, err := procfs.CPUUse()
		Check(tb, err)
		return all, ours
	}
	allBefore, oursBefore := read()
	return func() float64 {
		all, ours := read()
		return max(1, (all-allBefore)/max(ours-oursBefore, 0.01))
	}
}

// stallEvery is the pause between two writes of Stalls.
const stallEvery = 20 * time.Millisecond

// Stalls measures stalls of the machine: a goroutine writes and syncs a small file again and again. The
// returned function ends it and returns the longest duration of a write, including its late start. A stall of
// a few tenths of a second hits a hundredth of a steady load, so the slowest commits then belong to the
// machine, not to the product.
func Stalls(tb testing.TB) func() time.Duration {
	tb.Helper()
	file, err := os.Create(filepath.Join(tb.TempDir(), "stalls"))
	Check(tb, err)
	var longest time.Duration
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		block := make([]byte, 4096)
		for {
			began := time.Now()
			select {
			case <-end:
				ended <- file.Close()
				return
			case <-time.After(stallEvery):
			}
			if _, err := file.WriteAt(block, 0); err != nil {
				ended <- err
				return
			}
			if err := file.Sync(); err != nil {
				ended <- err
				return
			}
			longest = max(longest, time.Since(began)-stallEvery)
		}
	}()
	stop := sync.OnceValue(func() error {
		close(end)
		return <-ended
	})
	tb.Cleanup(func() { _ = stop() }) // for a test that ends before it reads the result
	return func() time.Duration {
		if err := stop(); err != nil {
			tb.Errorf("look for stalls: %v", err)
		}
		return longest
	}
}

// PeakMemory is the highest resident memory of the process in bytes, since its start or the last ForgetPeak.
func (p *Process) PeakMemory() (int64, error) {
	return procfs.Bytes(p.Cmd.Process.Pid, "status", "VmHWM")
}

// ResidentMemory is the resident memory now, in bytes.
func (p *Process) ResidentMemory() (int64, error) {
	return procfs.Bytes(p.Cmd.Process.Pid, "status", "VmRSS")
}

// ForgetPeak resets the peak to the resident memory of now.
func (p *Process) ForgetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Cmd.Process.Pid), []byte("5"), 0)
}

// Megabytes formats bytes.
func Megabytes(n int64) string { return fmt.Sprintf("%.0f MB", float64(n)/1e6) }
