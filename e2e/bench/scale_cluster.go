package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

const (
	// clusterLanes are enough that each of the 16 shards has some.
	clusterLanes = 256
	// clusterWorkers is how many attempts each dispatcher may have in flight.
	clusterWorkers = 256
)

// dispatcherCounts are how many dispatchers share the stores.
var dispatcherCounts = []int{1, 2, 4}

// cluster lets several dispatchers drain backlogs on one Redis Cluster of three masters and one PostgreSQL. Beside
// them as many floors send the same callbacks: they share nothing, so what several of them cost more than one is the
// machine's part.
func (s *scale) cluster() error {
	began := loadNow(s.tb)
	measured := book{}
	at := func(count int) cell { return cell{"cluster", strconv.Itoa(count)} }
	floors := func(count int) cell { return cell{"floors", strconv.Itoa(count)} }
	var roles []string
	err := s.onServers(func(r *run) {
		roles = r.system.counted
		postgres, cluster := testserver.NewPostgres(r), testserver.NewCluster(r, testserver.ClusterOptions{})
		for round := range s.rounds {
			for _, count := range dispatcherCounts {
				r.figures = figures{}
				drainTogether(r, cluster, count, []string{
					"--database-url", postgres.Database(r), "--redis-url", cluster.URL(),
					"--redis-prefix", fmt.Sprintf("bench-%d-%d", round, count),
				})
				logf("round %d of %d: %d dispatchers: %s", round+1, s.rounds, count, r.figures.summary())
				measured[at(count)] = append(measured[at(count)], r.figures)
				f, err := s.within(build{}, systems[0], func(r *run) { loopTogether(r, count) })
				r.check("floors", err)
				logf("round %d of %d: %d floors: %s", round+1, s.rounds, count, f.summary())
				measured[floors(count)] = append(measured[floors(count)], f)
			}
		}
	})
	if err != nil {
		return err
	}
	t := &table{title: "Several dispatchers", header: []string{
		"dispatchers", "delivered/s", "÷ the fewest", "CPU s per 1,000", "÷ the fewest", "of it",
		"scripts for 1,000", "as many floors: CPU ÷ one",
	}}
	for _, count := range dispatcherCounts {
		growth := measured.ratios(at(count), at(dispatcherCounts[0]), cpuTime)
		t.add(strconv.Itoa(count), show(measured.of(at(count), rate), "%.0f"),
			show(measured.ratios(at(count), at(dispatcherCounts[0]), rate), "%.2f"),
			show(measured.of(at(count), cpuTime), "%.3f"), show(growth, "%.2f"),
			measured.split(at(count), roles, cpuTime), show(measured.of(at(count), "scripts"), "%.0f"),
			show(measured.ratios(floors(count), floors(dispatcherCounts[0]), cpuTime), "%.2f"))
	}
	most := dispatcherCounts[len(dispatcherCounts)-1]
	part := func(name, role string) float64 { return spreadOf(measured.of(at(most), name+":"+role)).median }
	in := numbers{
		"dispatcher_batch": part("batch", roleDispatcher), "sql_batch": part("batch", rolePostgres),
		"redis_accept":       part("batch", roleRedis),
		"dispatcher_attempt": part(cpuTime, roleDispatcher), "sql_attempt": part(cpuTime, rolePostgres),
		"redis_attempt": part(cpuTime, roleRedis),
	}
	intro := fmt.Sprintf("A Redis Cluster of three masters, 16 shards, and one PostgreSQL; a backlog of %d "+
		"in %d lanes; %d rounds: medians with the middle half. Each dispatcher has %d workers.",
		s.n, clusterLanes, s.rounds, clusterWorkers)
	return s.publish("scale-cluster", intro, began, in, fmt.Sprintf("%d dispatchers", most), t)
}

// drainTogether lets so many dispatchers on the same stores drain one backlog. They end with it.
func drainTogether(r *run, cluster *testserver.Cluster, count int, args []string) {
	args = append(args, "--workers", strconv.Itoa(clusterWorkers))
	s := &session{run: r, url: r.receiver.url, members: func(b []byte, n int) []byte {
		return fmt.Appendf(b, `,"lane":%q`, laneKey(n%clusterLanes))
	}}
	for range count {
		d := r.launch(append(slices.Clone(args), "--data-dir", r.TempDir()))
		defer d.kill()
		r.awaitReady(d, startTime)
		s.dispatcher = d
	}
	s.warmUp()
	before := r.cpu()
	b := s.prepare(r.n, dueAll)
	r.putCPU("batch", before, r.cpu(), r.n)
	start := b.due(0)
	time.Sleep(time.Until(start)) // of the plan; a poll would cost CPU time meanwhile
	before = r.cpu()
	scripts := clusterScripts(r, cluster)
	at := s.arrived(b.arriving)
	r.figures["scripts"] = (clusterScripts(r, cluster) - scripts) * 1000 / float64(r.n)
	r.putCPU(cpuTime, before, r.cpu(), r.n)
	r.figures[rate] = perSecond(at, start)
}

// loopTogether lets so many floors send the callbacks of a backlog, each a part of them.
func loopTogether(r *run, count int) {
	each := r.n / count
	loops := make([]worker, count)
	for i := range loops {
		loops[i] = worker{r.start(roleFloor, processConfig{
			Receiver: r.receiver.url, Concurrency: clusterWorkers, First: i * each, Count: each,
		})}
	}
	arriving := r.receiver.expect(each * count)
	before, start := r.cpu(), time.Now()
	for _, w := range loops {
		r.check("go", w.say(wordGo))
	}
	at := arriving.await(r, arrivalLimit)
	for _, w := range loops {
		w.stop(r)
	}
	arriving.checkOnce(r)
	r.putCPU(cpuTime, before, r.cpu(), each*count)
	r.figures[rate] = perSecond(at, start)
}

// clusterScripts is how many scripts the nodes have run.
func clusterScripts(r *run, cluster *testserver.Cluster) (sum float64) {
	for _, node := range cluster.Nodes {
		sum += r.redisNumber(node, "commandstats", "cmdstat_evalsha")
	}
	return sum
}
