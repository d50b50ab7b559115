package bench

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

// ticksPerSecond is the unit of times in /proc, which Linux fixes at 100 for every architecture that it runs on.
const ticksPerSecond = 100

// A procStat is what /proc/<pid>/stat says of a process.
type procStat struct {
	pid, parent int
	name        string
	// seconds of user and system time, of itself and of the children that it has waited for.
	seconds float64
}

// A meter reads CPU time and memory of this process and its descendants, added up by what they are for.
type meter struct {
	// roles names processes by their id; the others go by the name of their program.
	roles map[int]string
}

// cpu returns seconds by role.
func (m meter) cpu() (map[string]float64, error) {
	procs, err := family()
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	for _, p := range procs {
		sums[m.role(p)] += p.seconds
	}
	return sums, nil
}

// memory returns bytes by role: the peak of a role that is one process, and of one that is several the sum of their shares
// now (PSS), since what they share would be counted once for each.
func (m meter) memory() (map[string]float64, error) {
	procs, err := family()
	if err != nil {
		return nil, err
	}
	byRole := map[string][]int{}
	for _, p := range procs {
		byRole[m.role(p)] = append(byRole[m.role(p)], p.pid)
	}
	sums := map[string]float64{}
	for role, pids := range byRole {
		file, line := "status", "VmHWM"
		if len(pids) > 1 {
			file, line = "smaps_rollup", "Pss"
		}
		for _, pid := range pids {
			n, err := kilobytes(pid, file, line)
			if hasEnded(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			sums[role] += float64(n << 10)
		}
	}
	return sums, nil
}

func (m meter) role(p procStat) string {
	if role, known := m.roles[p.pid]; known {
		return role
	}
	return p.name
}

// family lists this process and its descendants.
func family() ([]procStat, error) {
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	procs := map[int]procStat{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if hasEnded(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		p, err := parseStat(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		procs[p.pid] = p
	}
	if len(procs) == 0 {
		return nil, errors.New("no /proc here: CPU time can be measured on Linux only")
	}
	var ours []procStat
	self := os.Getpid()
	for _, p := range procs {
		for up := p; up.pid != 0; up = procs[up.parent] {
			if up.pid == self {
				ours = append(ours, p)
				break
			}
		}
	}
	return ours, nil
}

// hasEnded says whether a file of /proc could not be read because its process is gone.
func hasEnded(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

// parseStat reads the fields that matter. The name stands in parentheses and may itself contain some.
func parseStat(text string) (procStat, error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return procStat{}, fmt.Errorf("no name in %.60q", text)
	}
	fields := strings.Fields(text[end+1:]) // from field 3, the state
	if len(fields) < 15 {
		return procStat{}, fmt.Errorf("%d fields in %.60q", len(fields), text)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(text[:open]))
	if err != nil {
		return procStat{}, err
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return procStat{}, err
	}
	ticks := 0
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.Atoi(field)
		if err != nil {
			return procStat{}, err
		}
		ticks += n
	}
	return procStat{pid: pid, parent: parent, name: text[open+1 : end], seconds: float64(ticks) / ticksPerSecond}, nil
}

// kilobytes reads a line such as "VmHWM:  1234 kB" of a file of a process.
func kilobytes(pid int, file, line string) (int64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
	if err != nil {
		return 0, err
	}
	return kilobytesIn(string(text), line)
}

func kilobytesIn(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		}
	}
	return 0, fmt.Errorf("no line %s", name)
}
