package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/procfs"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// cpu returns the CPU seconds so far of this process and its descendants, by role.
func (r *run) cpu() map[string]float64 {
	procs, err := procfs.Family()
	r.check("CPU time", err)
	sums := map[string]float64{}
	for _, p := range procs {
		sums[r.role(p)] += p.Seconds
	}
	return sums
}

func (r *run) role(p procfs.Stat) string {
	if role, known := r.roles[p.PID]; known {
		return role
	}
	return p.Name
}

// putMemory adds the memory of the counted roles: the peak of a single process (VmHWM), or the sum of the
// current shares (PSS) of several processes, because these share pages.
func (r *run) putMemory() {
	procs, err := procfs.Family()
	r.check("memory", err)
	for _, role := range r.system.counted {
		of := slices.DeleteFunc(slices.Clone(procs), func(p procfs.Stat) bool { return r.role(p) != role })
		file, line := "status", "VmHWM"
		if len(of) > 1 {
			file, line = "smaps_rollup", "Pss"
		}
		for _, p := range of {
			n, err := procfs.Bytes(p.PID, file, line)
			if procfs.Ended(err) {
				continue
			}
			r.check("memory", err)
			r.figures[memory] += float64(n)
			r.figures[memory+":"+role] += float64(n)
		}
	}
}

// A load is the CPU time that the machine, and this program with its descendants, have used so far.
type load struct {
	at        time.Time
	all, ours float64 // seconds
}

func loadNow(tb testing.TB) load {
	all, ours, err := procfs.CPUUse()
	must(tb, err)
	return load{time.Now(), all, ours}
}

// othersSince returns the share of the machine's CPU time that other programs have used since begin, in
// percent.
func (l load) othersSince(begin load) float64 {
	elapsed := l.at.Sub(begin.at).Seconds() * float64(runtime.NumCPU())
	return max(0, (l.all-begin.all)-(l.ours-begin.ours)) / elapsed * 100
}

// syncTime returns the median time to write a page to a new file with fsync.
func syncTime(tb testing.TB) time.Duration {
	file, err := os.CreateTemp(tb.TempDir(), "sync-*")
	must(tb, err)
	defer file.Close()
	page, took := make([]byte, 4096), make([]time.Duration, 25)
	for i := range took {
		begin := time.Now()
		_, err := file.Write(page)
		must(tb, err)
		must(tb, file.Sync())
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// environment describes the time, the machine and the versions of a measurement.
func environment(tb testing.TB) string {
	conn, err := pgx.Connect(tb.Context(), testserver.NewPostgres(tb).URL())
	must(tb, err)
	defer conn.Close(tb.Context())
	var postgres string
	must(tb, conn.QueryRow(tb.Context(), "SELECT split_part(version(), ' ', 2)").Scan(&postgres))
	return fmt.Sprintf(
		"%s, commit %s, %s/%s, %d cores, %s, PostgreSQL %s, Redis %s; a page with fsync takes %s.",
		time.Now().UTC().Format(time.DateOnly),
		firstMatch(tb, `^\S+`, "git", "describe", "--always", "--dirty"),
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), postgres,
		firstMatch(tb, `\d+\.\d+\.\d+`, "redis-server", "--version"), syncTime(tb).Round(time.Microsecond))
}

// firstMatch returns the first match in the output of a command.
func firstMatch(tb testing.TB, pattern, command string, args ...string) string {
	text, err := exec.Command(command, args...).Output()
	if err != nil {
		tb.Fatalf("%s: %v", command, err)
	}
	return regexp.MustCompile(pattern).FindString(string(text))
}
