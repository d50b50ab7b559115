package main

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A scale has the settings of scaleCommand, which measures the dispatcher with growing data and load.
type scale struct {
	*bench
	build
	seeding
	databases []system
	rounds    int    // for the part "cluster"
	reports   string // directory; empty: no report is written
	tb        testing.TB
}

type scalePart struct {
	name string
	run  func(*scale) error
}

func (p scalePart) String() string { return p.name }

var scaleParts = []scalePart{
	{"wire", (*scale).wire}, {"cluster", (*scale).cluster}, {"sql", (*scale).sql},
}

// scaleCommand measures the dispatcher alone: bytes on the network, several dispatchers on a Redis Cluster,
// and many callbacks in SQL.
func scaleCommand(args []string) error {
	flags, b := newFlags("scale")
	s := &scale{bench: b}
	partList := flags.String("parts", "", "`list` of parts: wire, cluster, sql")
	flags.IntVar(&s.rows, "rows", 100_000, "callbacks in SQL")
	flags.IntVar(&s.pending, "pending", 50_000, "how many of them are open")
	databaseList := flags.String("databases", "postgres,sqlite", "`list` of databases")
	flags.IntVar(&s.rounds, "rounds", 3, "how often each number of dispatchers is measured")
	flags.StringVar(&s.reports, "reports", "",
		"`directory` with performance.md and scaling.md, which are updated")
	if err := flags.Parse(args); err != nil {
		return err
	}
	parts, err1 := pick(*partList, scaleParts)
	var err2 error
	s.databases, err2 = pick(*databaseList, systems)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return outside(func(tb testing.TB) {
		s.tb, s.receiver, s.build = tb, startReceiver(tb), buildDispatcher(tb)
		for _, p := range parts {
			if err := p.run(s); err != nil {
				tb.Fatalf("%s: %v", p.name, err)
			}
		}
	})
}

// onServers calls f with a run on PostgreSQL and Redis. The processes and servers end with the run.
func (s *scale) onServers(f func(*run)) error {
	some, err := pick("postgres", systems)
	if err == nil {
		_, err = s.within(s.build, some[0], f)
	}
	return err
}

// publish prints a part and writes it into its block. It also writes the measured inputs of
// docs/reports/scaling.md.
func (s *scale) publish(block, intro string, began load, measured numbers, from string, t *table) error {
	ended := loadNow(s.tb)
	intro = fmt.Sprintf("%s %s It took %s; other programs used %.0f %% of the CPU time.",
		environment(s.tb), intro, ended.at.Sub(began.at).Round(time.Second), ended.othersSince(began))
	r := report{intro: intro, heading: "####", tables: []*table{t}}
	if s.reports == "" {
		return r.publish("", block)
	}
	return errors.Join(r.publish(filepath.Join(s.reports, "performance.md"), block),
		rewrite(filepath.Join(s.reports, "scaling.md"), func(text string) (string, error) {
			return setInputs(text, measured, "As it grows, "+from)
		}))
}

// A link is a wire with a name.
type link struct {
	name string
	*testserver.Wire
}

// linkTo starts a link to the server of a URL, and returns the link with its URL. The link ends with the run.
func linkTo(r *run, name, server string) (link, string) {
	u, err := url.Parse(server)
	r.check("URL", err)
	l := link{name, testserver.NewWire(r, u.Host, nil)}
	u.Host = l.Address
	return l, u.String()
}

// wire counts the bytes on each link of a dispatcher for a callback that is accepted in its own request and
// delivered.
func (s *scale) wire() error {
	began := loadNow(s.tb)
	var links []link
	if err := s.onServers(func(r *run) { links = countTraffic(r) }); err != nil {
		return err
	}
	t := &table{title: "Bytes on the wire for one callback", texts: 1}
	t.header = []string{"link", "there", "and back"}
	var sent, received []float64
	for i, l := range links {
		sent = append(sent, float64(l.Sent.Load())/float64(s.n))
		received = append(received, float64(l.Received.Load())/float64(s.n))
		t.add(l.name, fmt.Sprintf("%.0f", sent[i]), fmt.Sprintf("%.0f", received[i]))
	}
	if min(sent[0], sent[1], sent[2]) < payloadSize {
		return fmt.Errorf("a link transferred fewer bytes than the bodies: %v", t.rows)
	}
	in := numbers{
		"api_in": sent[0], "api_out": received[0], "sent": sent[1], "answered": received[1],
		"sql_in": sent[2], "sql_out": received[2], "redis_wire": sent[3] + received[3],
	}
	intro := fmt.Sprintf("Bodies of %d bytes, accepted one a request and delivered at once; "+
		"keep-alive, no TLS; %d callbacks.", payloadSize, s.n)
	return s.publish("scale-wire", intro, began, in, fmt.Sprintf("%d callbacks", s.n), t)
}

func countTraffic(r *run) []link {
	receiving, target := linkTo(r, "dispatcher to the receiver", r.receiver.url)
	sql, database := linkTo(r, "dispatcher to PostgreSQL", testserver.NewPostgres(r).Database(r))
	index, redis := linkTo(r, "dispatcher to Redis", testserver.NewRedis(r).URL)
	d := r.launch([]string{"--data-dir", r.TempDir(), "--database-url", database, "--redis-url", redis})
	r.awaitReady(d, startTime)
	api, _ := linkTo(r, "callers to the dispatcher", d.base)
	d.client.Addr = api.Address
	s := &session{run: r, dispatcher: d, url: target}
	s.warmUp()
	links := []link{api, receiving, sql, index}
	for _, l := range links {
		l.Sent.Store(0)
		l.Received.Store(0)
	}
	mixed(s)
	return links
}

const (
	// clusterLanes is large enough that each of the 16 shards has lanes.
	clusterLanes = 256
	// clusterWorkers is how many attempts each dispatcher may have in flight.
	clusterWorkers = 256
)

// dispatcherCounts are the numbers of dispatchers that share the stores.
var dispatcherCounts = []int{1, 2, 4}

// cluster lets several dispatchers drain backlogs on one Redis Cluster of three masters and one PostgreSQL.
// In turn as many floors send the same callbacks. Floors share nothing, so the extra cost of several floors
// is caused by the machine.
func (s *scale) cluster() error {
	began := loadNow(s.tb)
	measured := results{}
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

// drainTogether lets `count` dispatchers on the same stores drain one backlog. They end afterwards.
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
	time.Sleep(time.Until(start)) // the planned start; polling would cost CPU time
	before = r.cpu()
	scripts := clusterScripts(r, cluster)
	at := s.arrived(b.arriving)
	r.figures["scripts"] = (clusterScripts(r, cluster) - scripts) * 1000 / float64(r.n)
	r.putCPU(cpuTime, before, r.cpu(), r.n)
	r.figures[rate] = perSecond(at, start)
}

// loopTogether lets `count` floors send the callbacks of a backlog, each an equal part.
func loopTogether(r *run, count int) {
	each := r.n / count
	loops := make([]conversation, count)
	for i := range loops {
		loops[i] = r.start(roleFloor, processConfig{
			Receiver: r.receiver.url, Concurrency: clusterWorkers, First: i * each, Count: each,
		})
	}
	arriving := r.receiver.expect(each * count)
	before, start := r.cpu(), time.Now()
	for _, w := range loops {
		r.check("go", w.say(wordGo))
	}
	at := r.drained(arriving, loops...)
	r.putCPU(cpuTime, before, r.cpu(), each*count)
	r.figures[rate] = perSecond(at, start)
}

// clusterScripts returns the number of scripts that the nodes have run.
func clusterScripts(r *run, cluster *testserver.Cluster) (sum float64) {
	for _, node := range cluster.Nodes {
		sum += r.redisNumber(node, "commandstats", "cmdstat_evalsha")
	}
	return sum
}
