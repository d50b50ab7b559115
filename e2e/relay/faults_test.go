package relay

import (
	"flag"
	"os"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

func TestMain(m *testing.M) {
	if settings := os.Getenv(applicationVariable); settings != "" {
		os.Exit(application(settings))
	}
	// The limit is higher than the number of places.
	if err := flag.Set("test.parallel", "64"); err != nil {
		panic(err)
	}
	harness.Main(m, results.print)
}

// Each fault runs on its databases and in its modes. make test has the quick ones, over HTTP.
func TestFaults(t *testing.T) {
	t.Parallel() // with the storm
	runFaults(t, func(f *fault, m mode) bool {
		if testserver.Full() {
			return !f.is(long)
		}
		return f.is(quick) && m == overHTTP
	})
}

// Some faults have their real length in make test-long, and some run many times.
func TestLongFaults(t *testing.T) {
	runFaults(t, func(f *fault, _ mode) bool { return testserver.Long() && f.is(long|real|repeated) })
}

func runFaults(t *testing.T, chosen func(*fault, mode) bool) {
	for _, f := range matrix() {
		for _, on := range f.on {
			for _, m := range f.modes {
				if !chosen(&f, m) {
					continue
				}
				for nth := range f.runs() {
					runFault(t, &f, on, m, nth+1)
				}
			}
		}
	}
}
