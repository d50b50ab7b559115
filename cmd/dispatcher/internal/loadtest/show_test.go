package loadtest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
)

// What bounded a phase is said only as far as it can be told.
func TestBenchSaysWhatBoundAPhase(t *testing.T) {
	t.Parallel()
	number := func(x float64) *float64 { return &x }
	embedded := &ownPlace{}
	for name, tc := range map[string]struct {
		own               *ownPlace
		server, mine      *float64
		idle              *float64
		delay             time.Duration
		rate              float64
		atOnce            int
		want, database    string
		wantNothingAtSuch bool
	}{
		"all CPUs":               {own: embedded, server: number(1.2), mine: number(0.7), idle: number(0.05), want: "bound by this machine's 2 CPUs: the server used 1.2 of them, bench (which generates and receives) 0.7."},
		"others' load":           {own: embedded, server: number(0.5), mine: number(0.2), idle: number(0.02), want: "of which this run had 0.7: the rest was used by others. Idle,"},
		"others, databases too":  {own: embedded, server: number(0.5), mine: number(0.2), idle: number(0.02), database: "postgres://h/d", want: "used by others, PostgreSQL and Redis among them"},
		"waiting":                {own: embedded, server: number(0.3), mine: number(0.2), idle: number(0.7), want: "CPUs were 70 % idle: it waited, most likely for the database's commits"},
		"in between":             {own: embedded, server: number(0.8), mine: number(0.4), idle: number(0.3), wantNothingAtSuch: true},
		"nothing is known":       {own: embedded, wantNothingAtSuch: true},
		"the rest is not known":  {own: embedded, server: number(0.3), mine: number(0.2), wantNothingAtSuch: true},
		"bench itself":           {mine: number(1.5), want: "bench itself used 1.5 of this machine's 2 CPUs"},
		"another machine's CPUs": {mine: number(0.2), idle: number(0.9), wantNothingAtSuch: true},
		"a slow receiver":        {own: embedded, server: number(0.3), mine: number(0.2), idle: number(0.7), delay: 50 * time.Millisecond, rate: 1200, atOnce: 64, want: "at most 64 requests were at the receiver at once, each for 50ms: that alone allows 1280 each second"},
		"a slow dispatcher":      {own: embedded, server: number(0.3), mine: number(0.2), idle: number(0.7), delay: 50 * time.Millisecond, rate: 100, atOnce: 64, want: "CPUs were 70 % idle"},
	} {
		term := program.Terminal()
		b := newBench(&term.Console, &benchPlan{BenchCommand: &BenchCommand{DatabaseURL: tc.database}, delay: tc.delay})
		b.own, b.report.Machine.CPUs = tc.own, 2
		b.report.Phases.Drain = &drainFigures{
			workFigures:        workFigures{ServerCPUsBusy: tc.server, OwnCPUsBusy: tc.mine, MachineIdleShare: tc.idle},
			DeliveredPerSecond: tc.rate, MostAtOnce: tc.atOnce,
		}
		b.bounds()
		notes := strings.Join(b.report.Notes, "\n")
		if tc.wantNothingAtSuch != (notes == "") || !strings.Contains(notes, tc.want) {
			t.Errorf("%s: noted %q, not %q", name, notes, tc.want)
		}
	}
}

func TestAStretchOfWork(t *testing.T) {
	t.Parallel()
	used := func(ms int) serverUsage {
		return serverUsage{Known: true, CPU: time.Duration(ms) * time.Millisecond}
	}
	s := stretch{
		began: sample{server: used(100), own: used(10), idle: 50, all: 1000},
		ended: sample{server: used(1100), own: used(510), idle: 150, all: 1400},
		done:  sample{server: used(1300), own: used(610)},
		took:  2 * time.Second,
	}
	w := s.work(400)
	if w.Callbacks != 400 || w.TookSeconds != 2 || *w.ServerCPUSecondsPer1000 != 3 || *w.OwnCPUSecondsPer1000 != 1.5 ||
		*w.ServerCPUsBusy != 0.5 || *w.OwnCPUsBusy != 0.25 || *w.MachineIdleShare != 0.25 {
		t.Errorf("took %v %v, busy %v %v, idle %v", *w.ServerCPUSecondsPer1000, *w.OwnCPUSecondsPer1000, *w.ServerCPUsBusy, *w.OwnCPUsBusy, *w.MachineIdleShare)
	}
	// What the system does not tell is left out, and nothing is divided by nothing.
	s.ended.own.Known, s.done.own.Known, s.began.server.Known = false, false, false
	if w := s.work(400); w.OwnCPUSecondsPer1000 != nil || w.ServerCPUSecondsPer1000 != nil || w.ServerCPUsBusy != nil || w.OwnCPUsBusy != nil {
		t.Errorf("what is not known is %+v", w)
	}
	if w := s.work(0); w.MachineIdleShare != nil || w.Callbacks != 0 {
		t.Errorf("nothing took %+v", w)
	}
}

// Everything may have arrived and still be wrong.
func TestBenchJudges(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		list           string
		early, changed int
		want           string
	}{
		"as it must be": {list: `{"data":[]}`},
		"early":         {list: `{"data":[]}`, early: 2, want: "2 callbacks arrived before they were due"},
		"changed":       {list: `{"data":[]}`, changed: 3, want: "3 arrivals had other bytes than were handed over"},
		"dead":          {list: `{"data":[{"id":"cb_7","state":"dead","reason":"exhausted"}]}`, want: "cb_7 arrived and ended dead exhausted"},
	} {
		address := cmdtest.Handling(t, func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.URL.RequestURI(), "ref=bench-1") {
				t.Errorf("asked for %s", r.URL)
			}
			cmdtest.Respond(t, w, tc.list)
		})
		cl, err := remote.New(&program.Terminal().Console, remote.Flags{Server: address, Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		b := newBench(&program.Terminal().Console, &benchPlan{BenchCommand: &BenchCommand{}, run: "bench-1"})
		b.cl, b.receiver, b.report.Books.Early = cl, &benchReceiver{}, tc.early
		b.receiver.changed.Store(int64(tc.changed))
		got := ""
		if err := b.judge(t.Context()); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: judged %q, not %q", name, got, tc.want)
		}
	}
}
