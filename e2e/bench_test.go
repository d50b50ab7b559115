package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// receiverEnv makes the test binary a receiver on the address that it names.
	receiverEnv = "DISPATCHER_E2E_RECEIVER"

	benchCallbacks   = 20_000
	benchConcurrency = 64
	benchRounds      = 3
)

// receiverMain is the receiver of the benchmark, in a process of its own so that its CPU time is its own: it answers
// 200 to everything and tells on /count how much that was.
func receiverMain(addr string) int {
	var count atomic.Int64
	server := &http.Server{Addr: addr, ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/count" {
			fmt.Fprint(w, count.Load())
			return
		}
		count.Add(1) // net/http reads the rest of a small body by itself
	})}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	return 1
}

// A figure is one round's result for one combination.
type figure struct {
	accepted, delivered     float64 // per second
	acceptCPU, deliverCPU   float64 // seconds per 1,000, dispatcher and stores
	acceptParts, sendsParts map[string]float64
}

// BenchmarkPerformance measures how fast callbacks are accepted and delivered and what CPU time that takes, for the
// embedded default and for PostgreSQL with Redis, in turns. With -report it writes the table.
func BenchmarkPerformance(b *testing.B) {
	blackBox(b)
	figures := map[combination][]figure{}
	for round := range benchRounds {
		for _, c := range bothEnds {
			b.Run(fmt.Sprintf("%s/%d", c, round+1), func(b *testing.B) {
				f := measure(b, c)
				figures[c] = append(figures[c], f)
				b.Logf("%s round %d: accepted %.0f/s, %.3f CPU s per 1,000 %v; delivered %.0f/s, %.3f CPU s per 1,000 %v",
					c, round+1, f.accepted, f.acceptCPU, f.acceptParts, f.delivered, f.deliverCPU, f.sendsParts)
			})
		}
	}
	text := performanceReport(figures)
	b.Log("\n" + text)
	if *report != "" && !b.Failed() {
		if err := os.WriteFile(*report, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

// measure runs one round: accept everything one by one, due at one time that lies after it, then let it be delivered.
func measure(b *testing.B, c combination) figure {
	p := serve(b, launch{on: startServers(b, c).backend(b, c), args: []string{"--lane-concurrency", fmt.Sprint(benchConcurrency)}})
	url, count := startReceiver(b)
	body := json.RawMessage(fmt.Sprintf(`{"order":"20261121-0001","paid":10000,"filler":"%s"}`, strings.Repeat("x", 512-52)))

	// Warm: connections, lanes, prepared statements; it also tells how far ahead the due time must lie.
	const warm = 1000
	start := time.Now()
	acceptMany(b, p.client, warm, submission{"url": url, "payload": body})
	each := time.Since(start) / warm
	waitIdle(b, p, count, warm)

	due := time.Now().Add(each*benchCallbacks*3/2 + 5*time.Second).Truncate(time.Millisecond)
	before := cpu(b)
	start = time.Now()
	acceptMany(b, p.client, benchCallbacks, submission{"url": url, "payload": body, "due_at": due.UTC().Format(time.RFC3339Nano)})
	acceptTook := time.Since(start)
	if time.Until(due) < 2*time.Second {
		b.Fatalf("accepting took %s, longer than foreseen", acceptTook)
	}
	sleepUntil(due.Add(-time.Second)) // the index has them by now
	accepted := cpu(b)
	sleepUntil(due)
	arrived := waitIdle(b, p, count, warm+benchCallbacks)
	done := cpu(b)
	f := figure{accepted: benchCallbacks / acceptTook.Seconds(), delivered: benchCallbacks / arrived.Sub(due).Seconds()}
	f.acceptCPU, f.acceptParts = perThousand(before, accepted)
	f.deliverCPU, f.sendsParts = perThousand(accepted, done)
	return f
}

// sleepUntil waits for a time of the plan; nothing is polled meanwhile, which would cost CPU time.
func sleepUntil(at time.Time) { time.Sleep(time.Until(at)) }

// counted are the programs whose CPU time counts.
var counted = []string{"dispatcher", "redis-server", "postgres"}

func cpu(b *testing.B) map[string]float64 {
	b.Helper()
	sums, err := cpuByName()
	if err != nil {
		b.Fatal(err)
	}
	return sums
}

func perThousand(from, to map[string]float64) (sum float64, parts map[string]float64) {
	parts = map[string]float64{}
	for _, name := range counted {
		if used := (to[name] - from[name]) * 1000 / benchCallbacks; used > 0 {
			parts[name] = used
			sum += used
		}
	}
	return sum, parts
}

// acceptMany posts n callbacks, one a request, over a fixed number of connections.
func acceptMany(b *testing.B, c *client, n int, s submission) {
	b.Helper()
	body, err := json.Marshal(s)
	if err != nil {
		b.Fatal(err)
	}
	var next, failed atomic.Int64
	var group sync.WaitGroup
	var first atomic.Pointer[error]
	for range benchConcurrency {
		group.Go(func() {
			for next.Add(1) <= int64(n) {
				got, err := c.raw(context.Background(), http.MethodPost, "/v1/callbacks", body, nil)
				if err == nil && got.status != http.StatusAccepted {
					err = fmt.Errorf("answered %d: %.200s", got.status, got.body)
				}
				if err != nil {
					failed.Add(1)
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	group.Wait()
	if e := first.Load(); e != nil {
		b.Fatalf("%d of %d accepts failed, the first: %v", failed.Load(), n, *e)
	}
}

// startReceiver starts the receiver's process, and returns its address and a function that asks for its count.
func startReceiver(b *testing.B) (string, func() (int, error)) {
	b.Helper()
	addr := "127.0.0.1:" + freePorts(b, 1)[0]
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr, cmd.SysProcAttr = environment(receiverEnv+"="+addr), os.Stderr, childAttr()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	count := func() (int, error) {
		status, text, err := fetch(context.Background(), "http://"+addr+"/count")
		if err != nil || status != http.StatusOK {
			return 0, errors.Join(err, fmt.Errorf("status %d", status))
		}
		var n int
		_, err = fmt.Sscan(text, &n)
		return n, err
	}
	eventually(b, 20*time.Second, "the receiver listens", func() error {
		_, err := count()
		return err
	})
	return "http://" + addr + "/", count
}

// waitIdle waits until n have arrived, and then until all results are in SQL. It returns when the last one arrived.
func waitIdle(b *testing.B, p *process, count func() (int, error), n int) (arrived time.Time) {
	b.Helper()
	eventually(b, 3*time.Minute, "everything has arrived", func() error {
		got, err := count()
		if err == nil && got < n {
			err = fmt.Errorf("%d of %d", got, n)
		}
		return err
	})
	arrived = time.Now()
	await(b, p.client, time.Minute)
	if got, err := count(); err != nil || got != n {
		b.Fatalf("%d arrived, want %d: %v", got, n, err)
	}
	return arrived
}

// middle returns the median of one number over the rounds.
func middle(figures []figure, of func(figure) float64) float64 {
	var all []float64
	for _, f := range figures {
		all = append(all, of(f))
	}
	slices.Sort(all)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)/2]
}

// performanceReport is docs/performance.md.
func performanceReport(figures map[combination][]figure) string {
	var sb strings.Builder
	fmt.Fprintf(&sb, `# Performance

Written by `+"`make bench`"+` on %s, %s/%s, %d cores, %s.

| | accepted/s | CPU s per 1,000 accepted | delivered/s | CPU s per 1,000 delivered |
|---|---:|---:|---:|---:|
`, time.Now().UTC().Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	for _, c := range bothEnds {
		label := "SQLite, embedded index"
		if c == full {
			label = "PostgreSQL, Redis"
		}
		f := figures[c]
		fmt.Fprintf(&sb, "| %s | %.0f | %.3f | %.0f | %.3f |\n", label,
			middle(f, func(f figure) float64 { return f.accepted }), middle(f, func(f figure) float64 { return f.acceptCPU }),
			middle(f, func(f figure) float64 { return f.delivered }), middle(f, func(f figure) float64 { return f.deliverCPU }))
	}
	sb.WriteString("\nBy process, CPU seconds per 1,000:\n\n| | " + strings.Join(counted, " | ") + " |\n|---|---:|---:|---:|\n")
	for _, c := range bothEnds {
		for _, phase := range []struct {
			name  string
			parts func(figure) map[string]float64
		}{{"accept", func(f figure) map[string]float64 { return f.acceptParts }}, {"deliver", func(f figure) map[string]float64 { return f.sendsParts }}} {
			fmt.Fprintf(&sb, "| %s, %s |", c, phase.name)
			for _, name := range counted {
				fmt.Fprintf(&sb, " %.3f |", middle(figures[c], func(f figure) float64 { return phase.parts(f)[name] }))
			}
			sb.WriteString("\n")
		}
	}
	fmt.Fprintf(&sb, `
## How it was measured

- Each row is the median of %d rounds; the two combinations took turns. Every round has a new process, a new database and a new, empty Redis.
- Everything runs on one machine: the dispatcher, its stores, the receiver and the client that accepts. The rates are therefore those of
  the whole system; CPU seconds are what to compare.
- Accepting: %d callbacks, one a request, over %d connections, each with a body of 512 bytes, all due at one time that lies after the last
  accept. A request counts when it was answered 202, that is, when its callback is committed with fsync.
- Delivering: from that due time to the last arrival at one receiver on the loopback (a process of its own that answers 200), with
  `+"`--lane-concurrency %d`"+`, signatures and the record of every attempt. CPU time is counted until every result is committed.
- CPU seconds are user and system time of the dispatcher, redis-server and all PostgreSQL processes, from /proc, which counts in
  hundredths. The client's and the receiver's own are not counted.
- PostgreSQL and Redis run as the tests start them: see `+"`store/storetest` and `schedule/queuetest`"+` for their settings.
`, benchRounds, benchCallbacks, benchConcurrency, benchConcurrency)
	return sb.String()
}
