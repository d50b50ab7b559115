package harness

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// WorkDir holds the binary for as long as the tests run.
var WorkDir string

// Main runs the tests of a package and then, in the order given, what follows them:
//
//	func TestMain(m *testing.M) { harness.Main(m) }
func Main(m *testing.M, after ...func() error) {
	flag.Parse()
	parallelSet := false
	flag.Visit(func(f *flag.Flag) { parallelSet = parallelSet || f.Name == "test.parallel" })
	if !parallelSet {
		// Tests wait for timers and leases most of the time: more of them than cores is right.
		if err := flag.Set("test.parallel", "16"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(run(m, after))
}

func run(m *testing.M, after []func() error) int {
	dir, err := os.MkdirTemp("", "dispatcher-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	WorkDir = dir
	code := testserver.Run(m)
	for _, f := range after {
		if err := f(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

// BlackBox is the first line of every test here.
func BlackBox(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("the black box needs the binary, servers and minutes")
	}
}

// build makes the binary once.
var build = sync.OnceValues(func() (string, error) { return Build(filepath.Join(WorkDir, "dispatcher")) })

// Build makes a binary of this checkout of that name, with failpoints and further flags of go build.
func Build(name string, flags ...string) (string, error) {
	cmd := exec.Command("go", slices.Concat([]string{"build", "-pgo=off", "-tags", "nomsgpack failpoints", "-o", name},
		flags, []string{"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher"})...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return name, nil
}

// Binary returns the path of the built binary.
func Binary(tb testing.TB) string {
	tb.Helper()
	name, err := build()
	if err != nil {
		tb.Fatal(err)
	}
	return name
}

// A Finished command is one that ran to its end.
type Finished struct {
	Code           int
	Stdout, Stderr string
}

// Command runs the binary with arguments to its end, in an empty directory, without our keys.
func Command(tb testing.TB, limit time.Duration, env []string, args ...string) Finished {
	tb.Helper()
	return RunProgram(tb, Binary(tb), limit, env, args...)
}

// RunProgram is Command with a binary of the caller's choice.
func RunProgram(tb testing.TB, program string, limit time.Duration, env []string, args ...string) Finished {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Dir = tb.TempDir()
	cmd.Env = Environment(env...)
	cmd.SysProcAttr = ChildAttr()
	err := cmd.Run()
	if ctx.Err() != nil {
		tb.Fatalf("%s %s: still running after %s\n%s%s", filepath.Base(cmd.Path), strings.Join(args, " "), limit,
			stdout.String(), stderr.String())
	}
	if err != nil && cmd.ProcessState == nil {
		tb.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	return Finished{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}

// ChildAttr makes a child die with the test process, even where that is killed before it can clean up.
func ChildAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// Environment is ours without any setting of a dispatcher, with these beside it.
func Environment(more ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "DISPATCHER_") {
			env = append(env, kv)
		}
	}
	return append(env, more...)
}
