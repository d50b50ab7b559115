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

// Goals of time hold on a machine that does nothing else. Where others use it too, what they take is
// measured, and the goal is stretched by it: it is never lowered to what was seen.

// Stretch returns what says by how much others have lengthened a goal since it was called: by what they took
// of the machine's CPU; 1 is a machine of our own.
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

// stallEvery is how often a disk is asked while stalls are looked for.
const stallEvery = 20 * time.Millisecond

// Stalls has a small file written and synced again and again beside a test, and returns what ends that and
// says how long one such write took at most, with how late it began: for so long the machine did nothing for
// anybody. A steady load has a hundredth of itself in a stall of a few tenths of a second, so that the tail
// of what commits is the machine's and not the product's.
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
	tb.Cleanup(func() { _ = stop() }) // for a test that ends before it asked
	return func() time.Duration {
		if err := stop(); err != nil {
			tb.Errorf("look for stalls: %v", err)
		}
		return longest
	}
}

// PeakMemory is the most memory that the process has had resident since it began or since ForgetPeak, in
// bytes.
func (p *Process) PeakMemory() (int64, error) {
	return procfs.Bytes(p.Cmd.Process.Pid, "status", "VmHWM")
}

// ResidentMemory is what it has now.
func (p *Process) ResidentMemory() (int64, error) {
	return procfs.Bytes(p.Cmd.Process.Pid, "status", "VmRSS")
}

// ForgetPeak makes what the process has now its peak.
func (p *Process) ForgetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Cmd.Process.Pid), []byte("5"), 0)
}

// Megabytes prints bytes for people.
func Megabytes(n int64) string { return fmt.Sprintf("%.0f MB", float64(n)/1e6) }
