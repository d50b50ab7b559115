package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/procfs"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A load is how much CPU time the machine and we have used, at some time, and how long the disk then took to sync.
type load struct {
	at        time.Time
	all, ours float64 // seconds
	sync      time.Duration
}

// syncs are how many of them a load measures.
const syncs = 25

// syncTime is the median of writes of a page to a new file, each with fsync.
func syncTime(dir string) (time.Duration, error) {
	file, err := os.CreateTemp(dir, "sync-*")
	if err != nil {
		return 0, err
	}
	page, took := make([]byte, 4096), make([]time.Duration, 0, syncs)
	for range syncs {
		begin := time.Now()
		if _, err = file.Write(page); err == nil {
			err = file.Sync()
		}
		if err != nil {
			break
		}
		took = append(took, time.Since(begin))
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return 0, err
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

func (m meter) load(dir string) (load, error) {
	took, err := syncTime(dir)
	if err != nil {
		return load{}, err
	}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return load{}, err
	}
	all, err := busySeconds(string(text))
	if err != nil {
		return load{}, err
	}
	byRole, err := m.cpu()
	if err != nil {
		return load{}, err
	}
	l := load{at: time.Now(), all: all, sync: took}
	for _, seconds := range byRole {
		l.ours += seconds
	}
	return l, nil
}

// othersSince is the share of the machine's CPU time that others have used since then, in percent.
func (l load) othersSince(begin load) float64 {
	elapsed := l.at.Sub(begin.at).Seconds() * float64(runtime.NumCPU())
	return max(0, (l.all-begin.all)-(l.ours-begin.ours)) / elapsed * 100
}

// busySeconds reads the first line of /proc/stat: "cpu user nice system idle iowait irq softirq steal ...". What a
// hypervisor took counts as busy.
func busySeconds(text string) (float64, error) {
	first, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(first)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", first)
	}
	sum := 0.0
	for i, field := range fields[1:9] {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i != 3 && i != 4 { // idle, waiting for disks
			sum += ticks / procfs.TicksPerSecond
		}
	}
	return sum, nil
}

// versionWord finds the version in what a server says of itself.
var versionWord = regexp.MustCompile(`\b\d+\.\d+(\.\d+)?\b`)

// serverVersions names the servers of the comparison.
func serverVersions(t *testing.T) string {
	t.Helper()
	redis, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		t.Fatalf("version of redis-server: %v", err)
	}
	pool, err := riverPool(t.Context(), testserver.NewPostgres(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var postgres string
	if err := pool.QueryRow(t.Context(), "SHOW server_version").Scan(&postgres); err != nil {
		t.Fatalf("version of PostgreSQL: %v", err)
	}
	return fmt.Sprintf("PostgreSQL %s, Redis %s", versionWord.FindString(postgres), versionWord.FindString(string(redis)))
}

// moduleVersions names the modules that are compared, as go.mod has them.
func moduleVersions() (string, error) {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		return "", err
	}
	var all []string
	for _, module := range []struct{ name, path string }{
		{"go-retryablehttp", "github.com/hashicorp/go-retryablehttp"}, {"asynq", "github.com/hibiken/asynq"}, {"River", "github.com/riverqueue/river"},
	} {
		m := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module.path) + ` v(\S+)`).FindSubmatch(text)
		if m == nil {
			return "", errors.New("go.mod does not name " + module.path)
		}
		all = append(all, module.name+" "+string(m[1]))
	}
	return strings.Join(all, ", "), nil
}
