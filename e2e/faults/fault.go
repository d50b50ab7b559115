package faults

import (
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A fault is one row of the matrix: what is broken, and how a trial shows that nothing is lost by it.
type fault struct {
	id    string // F1 … as docs/guarantees.md lists them
	title string
	// short and full are the combinations that it runs on in each form; none: it is not part of the form.
	short, full []harness.Combination
	// heavy faults load the machine: nothing runs beside them. Light ones hardly do: they wait for leases, most of the time.
	heavy, light bool
	// apart faults break PostgreSQL, or bring their own servers: they get no backend, and call use themselves.
	apart bool
	run   func(*trial)
}

// matrix is every fault. Each file of faults lists its own.
func matrix() []fault {
	return slices.Concat(killFaults(), pauseFaults(), redisFaults(), sqlFaults(), localFaults(), upgradeFaults(),
		topologyFaults(), scaleFaults(), restoreFaults())
}

// trialsAtOnce bounds the trials that run at the same time; two light ones count as one.
const trialsAtOnce = 6

// share is the fault's part of the places: of 2 * trialsAtOnce.
func (f *fault) share() int64 {
	if f.light {
		return 1
	}
	return 2
}
