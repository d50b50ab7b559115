package harness

import (
	"os"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/procfs"
)

// CPUByName adds up the CPU seconds of every descendant of this process, by the program's name.
func CPUByName() (map[string]float64, error) {
	procs, err := procfs.Family()
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	for _, p := range procs {
		if p.PID != os.Getpid() {
			sums[p.Name] += p.Seconds
		}
	}
	return sums, nil
}
