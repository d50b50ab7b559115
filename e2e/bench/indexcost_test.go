package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/table"
)

// An indexCost is what one index costs beside so many pending items in so many lanes: medians of whole calls in µs.
type indexCost struct {
	pending, lanes        int
	claim, settle, ensure float64
	perPending            float64 // bytes
}

// TestIndexCost runs the benchmarks that stand beside the two indexes, with as many pending items as wanted, and reports
// them in one table.
func TestIndexCost(t *testing.T) {
	if testing.Short() {
		t.Skip("the benchmarks need redis-server and minutes")
	}
	for _, list := range []string{chosen.indexPending, chosen.indexLanes} {
		if _, err := numbers(list); err != nil {
			t.Fatal(err)
		}
	}
	first := round{meter: meter{roles: map[int]string{os.Getpid(): roleClient}}}
	began := first.loadNow(t)
	w := newTable(2, "index", "pending", "lanes", "claim of 64, µs", "÷ at the fewest pending", "settle of 64, µs", "÷ at the fewest pending", "bytes for one that is pending")
	var verdicts []verdict
	for _, ix := range []struct{ name, path string }{{"in the process", "./schedule/memq"}, {"Redis", "./schedule/redisq"}} {
		costs, err := benchIndex(t, ix.path)
		if err != nil {
			t.Fatalf("benchmark of %s: %v", ix.path, err)
		}
		for _, c := range costs {
			least := costs.fewest(c.lanes)
			w.AppendRow(table.Row{
				ix.name, c.pending, c.lanes, fmt.Sprintf("%.0f", c.claim), fmt.Sprintf("%.2f", c.claim/least.claim),
				fmt.Sprintf("%.0f", c.settle), fmt.Sprintf("%.2f", c.settle/least.settle), fmt.Sprintf("%.0f", c.perPending),
			})
		}
		verdicts = append(verdicts, costs.verdicts(ix.name)...)
	}
	ended := first.loadNow(t)
	section{
		fmt.Sprintf("%s One caller, %d rounds of 960 items, and their medians. Others used %.0f %% of the machine's CPU time meanwhile.",
			machine(t), chosen.indexRounds, ended.othersSince(began)),
		[]titled{{"What the index costs beside a backlog", w}, {"Goals of the index", verdictsTable(verdicts)}},
	}.publish(t, blockIndex)
	judge(t, verdicts)
}

// benchIndex runs one package's benchmark as the product's module has it.
func benchIndex(t *testing.T, path string) (indexCosts, error) {
	t.Helper()
	cmd := exec.Command("go", "test", "-tags", buildTags, "-count=1", "-timeout", "12h", "-run", "^$", "-bench", "^BenchmarkIndex$",
		"-benchtime", strconv.Itoa(chosen.indexRounds)+"x", path)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "DISPATCHER_BENCH_PENDING="+chosen.indexPending, "DISPATCHER_BENCH_LANES="+chosen.indexLanes)
	cmd.SysProcAttr = childAttr()
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, out.String(), complaints.String())
	}
	t.Logf("%s\n%s", path, out.String())
	return parseIndexCosts(out.String())
}

type indexCosts []indexCost

var indexBenchName = regexp.MustCompile(`^BenchmarkIndex/pending=(\d+)/lanes=(\d+)(?:-\d+)?\s`)

// parseIndexCosts reads what go test prints of benchmarks: a name, a count, and pairs of a value and its unit.
func parseIndexCosts(text string) (indexCosts, error) {
	var all indexCosts
	for line := range strings.Lines(text) {
		name := indexBenchName.FindStringSubmatch(line)
		if name == nil {
			continue
		}
		var c indexCost
		var errs [2]error
		c.pending, errs[0] = strconv.Atoi(name[1])
		c.lanes, errs[1] = strconv.Atoi(name[2])
		if err := errors.Join(errs[:]...); err != nil {
			return nil, err
		}
		values := map[string]float64{}
		fields := strings.Fields(line)
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			values[fields[i+1]] = v
		}
		for unit, into := range map[string]*float64{
			"claim-64-p50-us": &c.claim, "settle-64-p50-us": &c.settle, "ensure-960-p50-us": &c.ensure, "B/pending": &c.perPending,
		} {
			v, measured := values[unit]
			if !measured || v <= 0 {
				return nil, fmt.Errorf("no %s in %q", unit, line)
			}
			*into = v
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no figures in %q", text)
	}
	return all, nil
}

// fewest is the one with that many lanes and the fewest pending.
func (all indexCosts) fewest(lanes int) indexCost {
	var least indexCost
	for _, c := range all {
		if c.lanes == lanes && (least.pending == 0 || c.pending < least.pending) {
			least = c
		}
	}
	return least
}

// verdicts are of the most pending, for each number of lanes.
func (all indexCosts) verdicts(index string) []verdict {
	most := 0
	for _, c := range all {
		most = max(most, c.pending)
	}
	var found []verdict
	for _, c := range all {
		if c.pending != most {
			continue
		}
		growth, at := c.claim/all.fewest(c.lanes).claim, fmt.Sprintf("%s, %d pending, %d lanes: ", index, c.pending, c.lanes)
		found = append(found,
			verdict{at + "claim of 64, µs", fmt.Sprintf("%.0f", c.claim), fmt.Sprint(claimGoal), c.claim <= claimGoal},
			verdict{at + "÷ at the fewest pending", fmt.Sprintf("%.2f", growth), fmt.Sprint(claimGrowthGoal), growth <= claimGrowthGoal})
		if index == "Redis" {
			found = append(found, verdict{at + "bytes for one", fmt.Sprintf("%.0f", c.perPending), fmt.Sprint(perPendingGoal), c.perPending <= perPendingGoal})
		}
	}
	return found
}
