// Package program builds the program for tests of files in deploy, and starts it. Every process that it
// starts ends with its test. It does not judge what the program does.
package program

import (
	"errors"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// Root is the root of the repository, from the directory of a package of this module.
const Root = "../../../"

// Build builds the program from this checkout, and returns its path. It shares the build cache with the
// other tests, so it has neither -trimpath nor the profile.
func Build(tb testing.TB) string {
	tb.Helper()
	path, err := filepath.Abs(filepath.Join(tb.TempDir(), "dispatcher"))
	if err != nil {
		tb.Fatal(err)
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-pgo=off", "-tags", "nomsgpack",
		"-ldflags", "-s -w -X main.version=test", "-o", path, "./cmd/dispatcher")
	build.Dir = Root
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("build the program: %v\n%s", err, out)
	}
	return path
}

// A Process is a command that runs until its test ends or Stop.
type Process struct {
	cmd    *exec.Cmd
	output testserver.Log
	ended  chan struct{}
	err    error // of the end, after ended
}

// Start starts a command. A test that fails prints its output.
func Start(tb testing.TB, cmd *exec.Cmd) *Process {
	tb.Helper()
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	tb.Cleanup(func() {
		if err := p.end(syscall.SIGKILL, time.Minute); errors.Is(err, errLate) {
			tb.Errorf("%s: %v", cmd, err)
		}
		if tb.Failed() {
			out := p.Output()
			tb.Logf("%s printed last:\n%s", cmd.Path, out[max(0, len(out)-8<<10):])
		}
	})
	return p
}

// Output returns what the command has printed so far.
func (p *Process) Output() string { return p.output.String() }

var errLate = errors.New("the process did not end in time")

// Stop sends SIGTERM and returns how the process ended: nil is exit code 0.
func (p *Process) Stop(limit time.Duration) error { return p.end(syscall.SIGTERM, limit) }

func (p *Process) end(signal syscall.Signal, limit time.Duration) error {
	select {
	case <-p.ended:
	default:
		if err := p.cmd.Process.Signal(signal); err != nil {
			return err
		}
	}
	select {
	case <-p.ended:
		return p.err
	case <-time.After(limit):
		return errLate
	}
}

// Get returns the body of a response with status 200, or an empty string.
func Get(url string) string {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4<<20))
	if err != nil || response.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}
