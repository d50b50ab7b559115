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

// workDir holds the binary for as long as the tests run.
var workDir string

func TestMain(m *testing.M) {
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

// build makes the binary once, with failpoints.
var build = sync.OnceValues(func() (string, error) {
	name := filepath.Join(workDir, "dispatcher")
	cmd := exec.Command("go", "build", "-tags", buildTags+" failpoints", "-o", name, "../cmd/dispatcher")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return name, nil
})

// binary returns the path of the built binary.
func binary(tb testing.TB) string {
	tb.Helper()
	name, err := build()
	if err != nil {
		tb.Fatal(err)
	}
	return name
}
