package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// cpuByName adds up the CPU seconds of every descendant of this process, by the program's name.
func cpuByName() (map[string]float64, error) {
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	procs := map[int]procStat{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended meanwhile
		}
		p, err := parseStat(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		procs[p.pid] = p
	}
	if len(procs) == 0 {
		return nil, fmt.Errorf("no /proc here: CPU time can be measured on Linux only")
	}
	self, sums := os.Getpid(), map[string]float64{}
	for _, p := range procs {
		for up := p.parent; up != 0; up = procs[up].parent {
			if up == self {
				sums[p.name] += p.seconds
				break
			}
		}
	}
	return sums, nil
}

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
