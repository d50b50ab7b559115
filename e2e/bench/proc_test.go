package bench

import (
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/procfs"
)

// A meter reads CPU time and memory of this process and its descendants, added up by what they are for.
type meter struct {
	// roles names processes by their id; the others go by the name of their program.
	roles map[int]string
}

// cpu returns seconds by role.
func (m meter) cpu() (map[string]float64, error) {
	procs, err := procfs.Family()
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	for _, p := range procs {
		sums[m.role(p)] += p.Seconds
	}
	return sums, nil
}

// memory returns bytes by role: the peak of a role that is one process, and of one that is several the sum of their shares
// now (PSS), since what they share would be counted once for each.
func (m meter) memory() (map[string]float64, error) {
	procs, err := procfs.Family()
	if err != nil {
		return nil, err
	}
	byRole := map[string][]int{}
	for _, p := range procs {
		byRole[m.role(p)] = append(byRole[m.role(p)], p.PID)
	}
	sums := map[string]float64{}
	for role, pids := range byRole {
		file, line := "status", "VmHWM"
		if len(pids) > 1 {
			file, line = "smaps_rollup", "Pss"
		}
		for _, pid := range pids {
			n, err := procfs.Bytes(pid, file, line)
			if procfs.Ended(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			sums[role] += float64(n)
		}
	}
	return sums, nil
}

func (m meter) role(p procfs.Stat) string {
	if role, known := m.roles[p.PID]; known {
		return role
	}
	return p.Name
}
