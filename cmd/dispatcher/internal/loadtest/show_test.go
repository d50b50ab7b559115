package loadtest

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// What bounded a phase is said only as far as it can be told.
func TestBenchSaysWhatBoundAPhase(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/lines/bounds.txt", func(line string) string {
		given := map[string]*float64{}
		for word := range strings.FieldsSeq(line) {
			name, text, _ := strings.Cut(word, "=")
			value, _ := strconv.ParseFloat(text, 64) // a word without a value is 0
			given[name] = &value
		}
		value := func(name string) float64 { return *cmp.Or(given[name], new(float64)) }
		p := &benchPlan{BenchCommand: &BenchCommand{}, delay: time.Duration(value("delay") * float64(time.Second))}
		if given["database"] != nil {
			p.DatabaseURL = "postgres://h/d"
		}
		b := newBench(&program.Terminal().Console, p)
		if b.report.Machine.CPUs = 2; given["running"] == nil {
			b.own = &ownPlace{}
		}
		b.report.Phases.Drain = &drainFigures{
			workFigures:        workFigures{ServerCPUsBusy: given["server"], OwnCPUsBusy: given["mine"], MachineIdleShare: given["idle"]},
			DeliveredPerSecond: value("rate"), MostAtOnce: int(value("at_once")),
		}
		b.bounds()
		return strings.Join(b.report.Notes, "\n")
	})
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
