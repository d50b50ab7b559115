package bench

import (
	"flag"
	"os"
	"strings"
	"testing"
)

// buildTags are those of every build.
const buildTags = "nomsgpack"

// options say what is measured and where the figures go.
type options struct {
	systems, concurrencies, phases string
	rounds, n                      int
	program, report, profiles, pgo string
	check                          bool
	scaleOptions
}

// chosen are the options of this run; TestMain fills them from the flags.
var chosen options

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role))
	}
	o := &chosen
	flag.StringVar(&o.systems, "systems", "a,b,c,d,e", "which `systems` are measured")
	flag.StringVar(&o.concurrencies, "concurrency", "64,256", "how many requests each system may have in flight, a `list`")
	flag.StringVar(&o.phases, "phases", strings.Join(allPhases, ","), "what is measured, a `list`; the last three of the dispatcher, latency of the queues too")
	flag.IntVar(&o.rounds, "rounds", 5, "how often everything is measured, in turns")
	flag.IntVar(&o.n, "n", 50_000, "callbacks in a backlog; half as many are accepted one by one")
	flag.StringVar(&o.program, "program", "", "a built dispatcher to measure instead of this checkout's")
	flag.StringVar(&o.report, "report", "", "`file` whose generated block is replaced; the chart is written beside it")
	flag.StringVar(&o.profiles, "keep-profile", "", "`directory` for CPU profiles of the dispatcher in its first round; the figures are then not for comparing")
	flag.StringVar(&o.pgo, "pgo", "", "`file` for the kept profiles as one, which builds are optimized by")
	flag.BoolVar(&o.check, "check", false, "fail when a goal is missed")
	o.scaleOptions.flags()
	flag.Parse()
	os.Exit(m.Run())
}
