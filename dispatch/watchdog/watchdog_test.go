package watchdog

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sink"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A fakeSender records requests and answers as answer says; nil: accepted.
type fakeSender struct {
	mu     sync.Mutex
	sent   []outbound.Request
	at     []time.Time
	answer func(n int) outbound.Response
}

func (f *fakeSender) Send(_ context.Context, r outbound.Request) outbound.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent, f.at = append(f.sent, r), append(f.at, time.Now())
	if f.answer == nil {
		return outbound.Response{Class: store.ClassOK, Outcome: store.AttemptSucceeded}
	}
	return f.answer(len(f.sent))
}

func (f *fakeSender) bodies() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, r := range f.sent {
		all = append(all, string(r.Body))
	}
	return strings.Join(all, "\n")
}

func (f *fakeSender) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sent)
}

// run runs a watchdog in a bubble of fake time. step gets the switch of the subject SQL.
func run(
	t *testing.T, f *fakeSender, sinks int, step func(fails *atomic.Bool, registry *prometheus.Registry),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Bool
		registry := prometheus.NewRegistry()
		o := Options{
			Sender: f, Process: "host-1, pid 7", Metrics: process.Metrics{Registerer: registry},
			Checks: []Check{
				{SQL, func(context.Context) (fail, known bool) { return fails.Load(), true }},
				{Keys, func(context.Context) (fail, known bool) { return false, true }},
			},
		}
		for i := range sinks {
			o.Sinks = append(o.Sinks, sink.Config{
				Type: sink.WeCom, URL: fmt.Sprintf("https://robot.example/send?key=secret-%d", i),
				Language: sink.Chinese,
			})
		}
		w, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		step(&fails, registry)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestOneMessagePerState checks that a state that lasts makes one message, and its end another one, while a
// short failure makes none.
func TestOneMessagePerState(t *testing.T) {
	t.Parallel()
	f := &fakeSender{}
	run(t, f, 1, func(fails *atomic.Bool, _ *prometheus.Registry) {
		for range 5 { // a failure that is shorter than After
			fails.Store(true)
			time.Sleep(After / 2)
			fails.Store(false)
			time.Sleep(10 * time.Second)
		}
		if n := f.count(); n != 0 {
			t.Errorf("%d messages about short failures", n)
		}
		fails.Store(true)
		time.Sleep(After + 5*time.Second)
		if n := f.count(); n != 1 {
			t.Errorf("%d messages about the failure", n)
		}
		time.Sleep(time.Hour)
		fails.Store(false)
		time.Sleep(After + 10*time.Second)
		if n := f.count(); n != 2 {
			t.Errorf("%d messages with the end of the failure: %s", n, f.bodies())
		}
	})
	bodies := f.bodies()
	for _, want := range []string{"【告警】数据库无法提交", "【已恢复】数据库无法提交", "host-1, pid 7"} {
		if !strings.Contains(bodies, want) {
			t.Errorf("no %q in %s", want, bodies)
		}
	}
	if strings.Contains(bodies+f.sent[0].URL, "secret") {
		t.Error("the credential is outside of the secret")
	}
}

// TestUnknownIsNoEnd checks that a subject that cannot be checked for a time, such as the queue without SQL,
// neither fires nor resolves, and that its end is reported when it is known again.
func TestUnknownIsNoEnd(t *testing.T) {
	t.Parallel()
	f := &fakeSender{}
	synctest.Test(t, func(t *testing.T) {
		var fails, known atomic.Bool
		w, err := New(Options{
			Sender: f, Metrics: process.Metrics{Registerer: prometheus.NewRegistry()},
			Sinks: []sink.Config{{Type: sink.WeCom, URL: "https://robot.example/send?key=x"}},
			Checks: []Check{{Index, func(context.Context) (fail, is bool) {
				return fails.Load(), known.Load()
			}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		for _, c := range []struct {
			fails, known bool
			sent         int
		}{
			{true, false, 0}, {true, true, 1}, {true, false, 1}, {false, false, 1}, {true, true, 1},
			{false, true, 2},
		} {
			fails.Store(c.fails)
			known.Store(c.known)
			time.Sleep(2 * After)
			if n := f.count(); n != c.sent {
				t.Errorf("fails %t, known %t: %d messages, want %d", c.fails, c.known, n, c.sent)
			}
		}
		cancel()
		running.Wait()
	})
}

// TestRetries checks the waits between attempts, that a deferral is obeyed, and that the platform's rate is
// kept.
func TestRetries(t *testing.T) {
	t.Parallel()
	f := &fakeSender{answer: func(n int) outbound.Response {
		switch n {
		case 1:
			return outbound.Response{Class: store.ClassHTTP5xx, Outcome: store.AttemptFailed}
		case 2:
			return outbound.Response{Class: store.ClassReceiverBusy, Outcome: store.AttemptFailed,
				DeferAfter: 65 * time.Second}
		}
		return outbound.Response{Class: store.ClassOK, Outcome: store.AttemptSucceeded}
	}}
	run(t, f, 1, func(fails *atomic.Bool, registry *prometheus.Registry) {
		fails.Store(true)
		time.Sleep(5 * time.Minute)
		checkCounters(t, registry, 1, 0)
	})
	if len(f.at) != 3 || f.at[1].Sub(f.at[0]) != firstWait || f.at[2].Sub(f.at[1]) != 65*time.Second {
		t.Errorf("attempts at %v", f.at)
	}
}

// TestMessagesAreGivenUp checks that a refusal for good and the expiry end a message, and that the others
// follow. The queue stays bounded.
func TestMessagesAreGivenUp(t *testing.T) {
	t.Parallel()
	f := &fakeSender{answer: func(n int) outbound.Response {
		if n == 1 {
			return outbound.Response{Class: store.ClassRejected, Permanent: true}
		}
		return outbound.Response{Class: store.ClassConnectRefused, Outcome: store.AttemptFailed}
	}}
	run(t, f, 2, func(fails *atomic.Bool, registry *prometheus.Registry) {
		for range 200 { // each message expires after 2 hours; each half of a turn makes one
			fails.Store(true)
			time.Sleep(time.Minute)
			fails.Store(false)
			time.Sleep(time.Minute)
		}
		time.Sleep(24 * time.Hour * 4)
		checkCounters(t, registry, 0, 800)
	})
}

func checkCounters(t *testing.T, registry *prometheus.Registry, sent, failed int) {
	t.Helper()
	want := fmt.Sprintf("# HELP dispatcher_own_alerts_total Messages to the sinks of alert_sink, by result: "+
		"sent, or failed after all attempts.\n# TYPE dispatcher_own_alerts_total counter\n"+
		"dispatcher_own_alerts_total{result=\"failed\"} %d\n"+
		"dispatcher_own_alerts_total{result=\"sent\"} %d\n", failed, sent)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// TestAFiringMessageIsRepeated checks that a state whose message was given up is reported again while it
// lasts, and only then.
func TestAFiringMessageIsRepeated(t *testing.T) {
	t.Parallel()
	f := &fakeSender{answer: func(n int) outbound.Response {
		if n <= 2 {
			return outbound.Response{Class: store.ClassRejected, Permanent: true}
		}
		return outbound.Response{Class: store.ClassOK, Outcome: store.AttemptSucceeded}
	}}
	run(t, f, 1, func(fails *atomic.Bool, registry *prometheus.Registry) {
		fails.Store(true)
		time.Sleep(repeatAfter)
		if n := f.count(); n != 1 {
			t.Errorf("%d messages before the repeat", n)
		}
		time.Sleep(24 * time.Hour) // the third one arrives
		checkCounters(t, registry, 1, 2)
		fails.Store(false)
		time.Sleep(time.Minute)
		checkCounters(t, registry, 2, 2)
	})
	for i := 1; i < 3; i++ {
		if gap := f.at[i].Sub(f.at[i-1]); gap < repeatAfter || gap > repeatAfter+time.Minute {
			t.Errorf("message %d comes %s after the one before", i+1, gap)
		}
	}
}

// TestNothingIsRepeatedAfterTheEnd checks that a message that was given up after the end of its state stays
// given up.
func TestNothingIsRepeatedAfterTheEnd(t *testing.T) {
	t.Parallel()
	f := &fakeSender{answer: func(int) outbound.Response {
		return outbound.Response{Class: store.ClassRejected, Permanent: true}
	}}
	run(t, f, 1, func(fails *atomic.Bool, registry *prometheus.Registry) {
		fails.Store(true)
		time.Sleep(time.Minute)
		fails.Store(false)
		time.Sleep(24 * time.Hour)
		checkCounters(t, registry, 0, 2)
	})
}

// TestProcessesShareTheRate checks that the processes of an installation together keep the rate of a robot
// in a common outage, and that its first message is not delayed.
func TestProcessesShareTheRate(t *testing.T) {
	t.Parallel()
	const processes, limit = 25, 20 // a minute, of DingTalk and WeCom
	f := &fakeSender{}
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Bool
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range processes {
			w, err := New(Options{
				Sender: f, Metrics: process.Metrics{Registerer: prometheus.NewRegistry()},
				Sinks: []sink.Config{{Type: sink.WeCom, URL: "https://robot.example/send?key=x"}},
				Checks: []Check{{SQL, func(context.Context) (fail, known bool) {
					return fails.Load(), true
				}}},
				Share: func(context.Context) (Share, error) {
					if fails.Load() {
						return Share{}, store.ErrUnavailable
					}
					return Share{Place: i, Of: processes}, nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
			all.Go(func() {
				if err := w.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(5 * time.Minute)
		cause := time.Now()
		fails.Store(true)
		time.Sleep(5 * time.Minute)
		fails.Store(false)
		time.Sleep(5 * time.Minute)
		cancel()
		all.Wait()
		if len(f.at) != 2*processes || f.at[0].Sub(cause) > After+2*every {
			t.Fatalf("%d messages, the first after %s", len(f.at), f.at[0].Sub(cause))
		}
		for i := limit; i < len(f.at); i++ {
			if f.at[i].Sub(f.at[i-limit]) < time.Minute {
				t.Errorf("%d messages within %s", limit+1, f.at[i].Sub(f.at[i-limit]))
			}
		}
	})
}
