// Package procfs reads the CPU time and memory of this process and its descendants from Linux. Tests and
// benchmarks of whole processes use it.
//
// It reads the files of /proc at each call, and fails where they do not exist.
package procfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// TicksPerSecond is the unit of times in /proc. Linux fixes it at 100 on all its architectures.
const TicksPerSecond = 100

// A Stat has the fields of /proc/<pid>/stat.
type Stat struct {
	PID, Parent int
	Name        string
	// Seconds of user and system time, of the process and of the children that it has waited for.
	Seconds float64
}

// Family lists this process and its descendants.
func Family() ([]Stat, error) {
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	procs := map[int]Stat{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if Ended(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		p, err := ParseStat(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		procs[p.PID] = p
	}
	if len(procs) == 0 {
		return nil, errors.New("no /proc here: CPU time can be measured on Linux only")
	}
	var ours []Stat
	self := os.Getpid()
	for _, p := range procs {
		for up := p; up.PID != 0; up = procs[up.Parent] {
			if up.PID == self {
				ours = append(ours, p)
				break
			}
		}
	}
	return ours, nil
}

// CPUUse returns the CPU seconds of the whole machine, and those of this process and its descendants.
func CPUUse() (all, ours float64, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("CPU time can be measured on Linux only: %w", err)
	}
	all, err = BusySeconds(string(text))
	if err != nil {
		return 0, 0, err
	}
	procs, err := Family()
	for _, p := range procs {
		ours += p.Seconds
	}
	return all, ours, err
}

// BusySeconds parses the first line of /proc/stat: "cpu user nice system idle iowait irq softirq steal ...".
// Steal, the time that a hypervisor took, counts as busy.
func BusySeconds(text string) (float64, error) {
	first, _, _ := strings.Cut(text, "\n")
	var user, nice, system, idle, iowait, irq, softirq, steal float64
	if _, err := fmt.Sscanf(first, "cpu %g %g %g %g %g %g %g %g", &user, &nice, &system, &idle, &iowait, &irq,
		&softirq, &steal); err != nil {
		return 0, fmt.Errorf("/proc/stat begins with %q: %w", first, err)
	}
	return (user + nice + system + irq + softirq + steal) / TicksPerSecond, nil
}

// Ended reports whether a file of /proc could not be read because its process has ended.
func Ended(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

// ParseStat parses the text of /proc/<pid>/stat. The name is in parentheses and may contain parentheses.
func ParseStat(text string) (Stat, error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return Stat{}, fmt.Errorf("no name in %.60q", text)
	}
	p, ticks := Stat{Name: text[open+1 : end]}, [4]float64{}
	skip := new(string)
	_, err := fmt.Sscan(text[:open], &p.PID)
	// From field 3, the state, to utime, stime, cutime, cstime.
	_, err2 := fmt.Sscan(text[end+1:], skip, &p.Parent, skip, skip, skip, skip, skip, skip, skip, skip, skip,
		&ticks[0], &ticks[1], &ticks[2], &ticks[3])
	if err := errors.Join(err, err2); err != nil {
		return Stat{}, fmt.Errorf("%.60q: %w", text, err)
	}
	p.Seconds = (ticks[0] + ticks[1] + ticks[2] + ticks[3]) / TicksPerSecond
	return p, nil
}

// Bytes reads a value such as "VmHWM:  1234 kB" from /proc/<pid>/<file>, in bytes.
func Bytes(pid int, file, line string) (int64, error) {
	path := filepath.Join("/proc", strconv.Itoa(pid), file)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := bytesIn(string(text), line)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}

func bytesIn(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")),
				10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("no line %s", name)
}
