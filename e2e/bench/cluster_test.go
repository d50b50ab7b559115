package bench

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

const (
	// clusterLanes are enough that each of the 16 shards has some.
	clusterLanes = 256
	// clusterWorkers is how many attempts one of several dispatchers may have in flight: sixteen for each shard.
	clusterWorkers = 256
	// busyShare is how much of the machine's CPU time was used while a backlog was drained, by whomever.
	busyShare = "busy"
	// scriptCalls is how many scripts the masters ran for 1,000 callbacks that were delivered.
	scriptCalls = "script calls"
	// steadyCPU is how much more CPU time a callback may cost with several dispatchers than with the fewest.
	steadyCPU = 1.15
)

// TestCluster lets several dispatchers drain backlogs on one Redis Cluster of three masters and one PostgreSQL.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the binary, servers and minutes")
	}
	counts, err := numbers(chosen.dispatchers)
	if err != nil {
		t.Fatalf("-dispatchers: %v", err)
	}
	rounds, err := numbers(chosen.clusterRounds)
	if err != nil || len(rounds) != 1 {
		t.Fatalf("-cluster-rounds: %q is not a number above 0", chosen.clusterRounds)
	}
	first := firstRound(t)
	first.system = system{"c", "dispatcher", "PostgreSQL + Redis Cluster", []string{roleDispatcher, "redis-server", "postgres"}, nil}
	postgres, cluster := testserver.NewPostgres(t), testserver.NewCluster(t, testserver.ClusterOptions{})
	began := first.loadNow(t)
	measured := book{}
	for number := range rounds[0] {
		for _, count := range counts {
			r := first
			r.roles, r.number, r.concurrency = maps.Clone(first.roles), number+1, count
			t.Run(fmt.Sprintf("%d/%d", r.number, count), func(t *testing.T) {
				args := []string{
					"--database-url", postgres.Database(t), "--redis-url", cluster.URL(), "--redis-prefix", fmt.Sprintf("bench-%d-%d", number, count),
				}
				at := row{r.key, count}
				f := drainTogether(t, &r, cluster, count, args)
				measured[at] = append(measured[at], f)
				t.Logf("%d dispatchers:%s", count, f)
			})
		}
	}
	if t.Failed() {
		return
	}
	ended := first.loadNow(t)
	w, verdicts := clusterTable(measured, counts, first.counted)
	section{
		fmt.Sprintf("%s A Redis Cluster of three masters, 16 shards, and one PostgreSQL; a backlog of %d in %d lanes; %d rounds, medians, and in brackets the least and the most. "+
			"Each dispatcher may have %d attempts in flight. It took %s; others used %.0f %% of the machine's CPU time meanwhile.",
			machine(t), chosen.n, clusterLanes, rounds[0], clusterWorkers, ended.at.Sub(began.at).Round(time.Second), ended.othersSince(began)),
		[]titled{{"Several dispatchers", w}, {"Goals of several dispatchers", verdictsTable(verdicts)}},
	}.publish(t, blockCluster)
	judge(t, verdicts)
	most := row{"c", slices.Max(counts)}
	part := func(name, role string) float64 { return measured.of(most, name+":"+role).median }
	publishInputs(t, inputs{
		"dispatcher_batch": part(batchCPU, roleDispatcher), "sql_batch": part(batchCPU, "postgres"), "redis_accept": part(batchCPU, "redis-server"),
		"dispatcher_attempt": part(deliverCPU, roleDispatcher), "sql_attempt": part(deliverCPU, "postgres"), "redis_attempt": part(deliverCPU, "redis-server"),
	}, fmt.Sprintf("As it grows, %d dispatchers", most.concurrency))
}

// drainTogether starts so many dispatchers on the same stores, and has them drain one backlog.
func drainTogether(t *testing.T, r *round, cluster *testserver.Cluster, count int, args []string) figures {
	t.Helper()
	var first *dispatcher
	for range count {
		d := startDispatcher(t, r.binary, connections, r.receiver, append([]string{"--data-dir", t.TempDir(), "--workers", strconv.Itoa(clusterWorkers)}, args...))
		d.lanes = clusterLanes
		r.roles[d.pid] = roleDispatcher
		if first == nil {
			first = d
		}
	}
	s := &session{dispatcher: first, round: r, t: t, f: figures{}}
	s.warm()
	b := s.prepare(s.n, dueAll)
	s.f.putCPU(batchCPU, b.before, b.after, s.n, s.counted)
	at := b.due(0)
	time.Sleep(time.Until(at)) // of the plan; polling meanwhile would cost CPU time
	idle, busy, began, calls := s.cpu(t), machineBusy(t), time.Now(), clusterCalls(t, cluster)
	arrived := s.arrived(s.n)
	s.f[scriptCalls] = (clusterCalls(t, cluster) - calls) * 1000 / float64(s.n)
	s.f[busyShare] = (machineBusy(t) - busy) / (time.Since(began).Seconds() * float64(runtime.NumCPU())) * 100
	s.f.putCPU(deliverCPU, idle, s.cpu(t), s.n, s.counted)
	s.f[delivered] = rate(arrived, at)
	return s.f
}

// clusterCalls is how many scripts the nodes have run.
func clusterCalls(t *testing.T, cluster *testserver.Cluster) (sum float64) {
	t.Helper()
	for _, node := range cluster.Nodes {
		n, err := scriptsRun(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// machineBusy is the CPU time that the machine has used so far, in seconds.
func machineBusy(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	seconds, err := busySeconds(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return seconds
}

func clusterTable(b book, counts []int, counted []string) (table.Writer, []verdict) {
	w := newTable(0, "dispatchers", "delivered/s", "÷ the fewest", "CPU s per 1,000", "÷ the fewest", "of it", "receiver's own", "scripts run for 1,000", "the machine was busy, %")
	r := &report{book: b}
	var verdicts []verdict
	for _, count := range counts {
		at, fewest := row{"c", count}, row{"c", counts[0]}
		growth := b.of(at, deliverCPU).median / b.of(fewest, deliverCPU).median
		w.AppendRow(table.Row{
			count, cell(b.of(at, delivered), "%.0f"), fmt.Sprintf("%.2f", b.of(at, delivered).median/b.of(fewest, delivered).median),
			cell(b.of(at, deliverCPU), "%.3f"), fmt.Sprintf("%.2f", growth),
			r.split(system{counted: counted}, at, deliverCPU, "%.3f", 1), cell(b.of(at, deliverCPU+":"+roleReceiver), "%.3f"), cell(b.of(at, scriptCalls), "%.0f"), cell(b.of(at, busyShare), "%.0f"),
		})
		if count != counts[0] {
			verdicts = append(verdicts, verdict{
				fmt.Sprintf("CPU s per 1,000 with %d dispatchers ÷ with %d", count, counts[0]), fmt.Sprintf("%.2f", growth), fmt.Sprint(steadyCPU), growth <= steadyCPU,
			})
		}
	}
	return w, verdicts
}
