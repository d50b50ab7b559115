//go:build linux || darwin

package machine

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// ProcessUsage returns the CPU time of this process, user and system, and its peak memory in bytes.
func ProcessUsage() (cpu time.Duration, peak uint64, err error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0, fmt.Errorf("read the usage of this process: %w", err)
	}
	peak = uint64(u.Maxrss)
	if runtime.GOOS == "linux" {
		// Linux counts in KiB, and a child inherits the peak of its parent. /proc has the process's own peak.
		peak *= 1 << 10
		if own, ok := highWater(); ok {
			peak = own
		}
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), peak, nil
}

// highWater reads the peak memory of this process from /proc; false if there is none.
func highWater() (uint64, bool) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false
	}
	_, rest, found := bytes.Cut(status, []byte("VmHWM:"))
	fields := bytes.Fields(rest)
	if !found || len(fields) == 0 {
		return 0, false
	}
	kib, err := strconv.ParseUint(string(fields[0]), 10, 64)
	return kib << 10, err == nil
}

// MachineTicks returns the idle and the total CPU time of all CPUs of the machine, in the same unit. ok is
// false if the system does not report them.
func MachineTicks() (idle, all uint64, ok bool) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, false
	}
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line)
	// The columns are: name, user, nice, system, idle, iowait, irq, softirq, steal. user includes guests.
	const columns = 9
	if len(fields) < columns || string(fields[0]) != "cpu" {
		return 0, 0, false
	}
	for i, field := range fields[1:columns] {
		n, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil {
			return 0, 0, false
		}
		all += n
		if i == 3 || i == 4 { // iowait is idle time too
			idle += n
		}
	}
	return idle, all, true
}

// InMemory reports whether a directory is in memory, where writes cost no disk time. It is false if unknown.
func InMemory(dir string) bool {
	const tmpfs, ramfs = 0x01021994, 0x858458f6 // Linux's numbers; those of other systems are lower
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return false
	}
	kind := uint32(st.Type)
	return kind == tmpfs || kind == ramfs
}

// DiskSpace returns the bytes that this user can still write to the disk of a directory, and the size of the
// disk.
func DiskSpace(dir string) (free, total uint64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), nil
}

// OpenFiles returns how many files this process can open.
func OpenFiles() (uint64, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	return limit.Cur, nil
}
