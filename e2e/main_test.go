package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// buildTags are those of every build.
const buildTags = "nomsgpack"

var (
	// workDir holds the binary for as long as the tests run.
	workDir string
	// report is where the benchmark writes its table; empty: nowhere.
	report = flag.String("report", "", "file that the benchmark writes its table to")
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(receiverEnv); addr != "" {
		os.Exit(receiverMain(addr))
	}
	flag.Parse()
	parallelSet := false
	flag.Visit(func(f *flag.Flag) { parallelSet = parallelSet || f.Name == "test.parallel" })
	if !parallelSet {
		// The parallel tests here wait for leases to run out, most of the time: more of them than cores is right.
		if err := flag.Set("test.parallel", "16"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "dispatcher-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	workDir = dir
	code := m.Run()
	if err := faultTable.print(*faultForm); err != nil {
		fmt.Fprintln(os.Stderr, "the table of the faults:", err)
		return 1
	}
	return code
}

// blackBox is the first line of every test here.
func blackBox(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("the black box needs the binary, servers and minutes")
	}
}

// build makes the binary once: the one with failpoints for the tests, the one without for the benchmark.
var (
	build        = sync.OnceValues(func() (string, error) { return compile("failpoints", buildTags+" failpoints") })
	buildRelease = sync.OnceValues(func() (string, error) { return compile("release", buildTags) })
)

func compile(dir, tags string) (string, error) {
	name := filepath.Join(workDir, dir, "dispatcher")
	cmd := exec.Command("go", "build", "-tags", tags, "-o", name, "../cmd/dispatcher")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return name, nil
}

// binary returns the path of the built binary.
func binary(tb testing.TB) string {
	tb.Helper()
	choice := build
	if _, isBenchmark := tb.(*testing.B); isBenchmark {
		choice = buildRelease
	}
	name, err := choice()
	if err != nil {
		tb.Fatal(err)
	}
	return name
}
