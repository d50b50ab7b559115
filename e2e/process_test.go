package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// Keys that every process here is given. They are test values and open nothing else.
const (
	adminKey  = "e2e-admin-key-0123456789abcdefghijklmnop"
	masterKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
)

// keys are the settings with them.
var keys = []string{"DISPATCHER_ADMIN_KEY=" + adminKey, "DISPATCHER_MASTER_KEY=" + masterKey}

// startTime is how long a process may take to become ready. It is long because many start at once on few cores.
const startTime = 90 * time.Second

// A process is one running dispatcher.
type process struct {
	*client
	tb      testing.TB
	cmd     *exec.Cmd
	ops     string // base URL of the operations listener
	logFile string
	done    chan struct{} // closed when the process has ended
	meant   atomic.Bool   // the test ends it
}

// A launch says how to start one.
type launch struct {
	on backend
	// args follow the common ones.
	args []string
	// failpoint is NAME or NAME:n; the process kills itself there.
	failpoint string
	// mayDie: the process may end before it is ready, because of its failpoint.
	mayDie bool
	// keyless: no admin or master key is given.
	keyless bool
	// under is a program with its first arguments that runs the binary in its own place: the process id stays the same.
	under []string
	// program is another binary than the one that is built from this checkout as it is.
	program string
}

// serve starts a dispatcher and waits until it is ready. At the test's end its books must balance; it is killed, and its log shown if
// the test failed.
func serve(tb testing.TB, l launch) *process {
	tb.Helper()
	p := spawn(tb, l)
	if err := p.awaitReady(startTime); err != nil && !(l.mayDie && p.ended()) {
		tb.Fatalf("start %s: %v\n%s", l.on.name, err, p.logTail(4000))
	}
	return p
}

// spawn starts a dispatcher and waits for nothing.
func spawn(tb testing.TB, l launch) *process {
	tb.Helper()
	ports := freePorts(tb, 2)
	listen, ops := "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1]
	args := append([]string{"serve", "--listen", listen, "--ops-listen", ops}, l.on.args()...)
	args = append(args, l.args...)
	logFile, err := os.CreateTemp(tb.TempDir(), "dispatcher-*.log")
	if err != nil {
		tb.Fatal(err)
	}
	program := l.program
	if program == "" {
		program = binary(tb)
	}
	whole := slices.Concat(l.under, []string{program}, args)
	cmd := exec.Command(whole[0], whole[1:]...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Dir = tb.TempDir()
	cmd.Env = environment("DISPATCHER_FAILPOINT=" + l.failpoint)
	if !l.keyless {
		cmd.Env = append(cmd.Env, keys...)
	}
	cmd.SysProcAttr = childAttr()
	if err := cmd.Start(); err != nil {
		tb.Fatalf("start dispatcher: %v", err)
	}
	p := &process{
		client: newClient("http://" + listen), tb: tb, cmd: cmd, ops: "http://" + ops, logFile: logFile.Name(), done: make(chan struct{}),
	}
	p.meant.Store(l.mayDie)
	p.keepBooks(l.on.accounts())
	go func() {
		cmd.Wait() // the exit state is read from cmd.ProcessState
		logFile.Close()
		close(p.done)
	}()
	tb.Cleanup(func() {
		p.closeBooks(l)
		p.kill()
		if tb.Failed() {
			tb.Logf("log of %s (pid %d, %s):\n%s", l.on.name, cmd.Process.Pid, cmd.ProcessState, p.story(6000))
		}
	})
	return p
}

// environment is ours without any setting of a dispatcher, with these beside it.
func environment(more ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "DISPATCHER_") {
			env = append(env, kv)
		}
	}
	return append(env, more...)
}

// freePorts finds ports of the loopback that nobody listens on, nor is given by the system meanwhile.
func freePorts(tb testing.TB, n int) []string {
	tb.Helper()
	var ports []string
	for _, port := range testserver.FreePorts(tb, n) {
		ports = append(ports, strconv.Itoa(port))
	}
	return ports
}

// readyz returns the status and body of /readyz, or an error while nothing listens.
func (p *process) readyz() (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return fetch(ctx, p.ops+"/readyz")
}

func (p *process) awaitReady(limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		status, body, err := p.readyz()
		switch {
		case err == nil && status == http.StatusOK:
			return nil
		case p.ended():
			return fmt.Errorf("it ended: %s", p.cmd.ProcessState)
		case time.Now().After(deadline):
			return fmt.Errorf("not ready after %s: status %d %s %w", limit, status, body, err)
		}
		pause()
	}
}

// ended says whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill is kill -9. It returns when the process has ended.
func (p *process) kill() {
	p.meant.Store(true)
	if !p.ended() {
		p.cmd.Process.Kill() // it may have ended meanwhile
	}
	<-p.done
	p.http.CloseIdleConnections()
}

// terminate sends SIGTERM.
func (p *process) terminate() {
	p.tb.Helper()
	p.meant.Store(true)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.tb.Fatalf("SIGTERM: %v", err)
	}
}

// exitCode waits for the end of the process; -1 is a signal.
func (p *process) exitCode(limit time.Duration) int {
	p.tb.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		p.tb.Fatalf("the process has not ended after %s", limit)
		return 0
	}
}

// logTail returns the end of the log.
func (p *process) logTail(n int) string {
	b, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	if len(b) > n {
		b = b[len(b)-n:]
	}
	return string(b)
}

// story is the end of the log without the requests that went well.
func (p *process) story(n int) string {
	var b strings.Builder
	for line := range strings.Lines(p.logTail(1 << 20)) {
		if !strings.Contains(line, `"level":"INFO","msg":"request"`) {
			b.WriteString(line)
		}
	}
	text := b.String()
	return text[max(0, len(text)-n):]
}

// metric sums a metric over all its label sets whose text contains every one of the given parts.
func (p *process) metric(name string, parts ...string) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	status, body, err := fetch(ctx, p.ops+"/metrics")
	if err != nil || status != http.StatusOK {
		return 0, errors.Join(err, fmt.Errorf("/metrics answered %d", status))
	}
	sum, found := 0.0, false
lines:
	for line := range strings.Lines(body) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		bare, _, _ := strings.Cut(series, "{")
		if !ok || bare != name {
			continue
		}
		for _, part := range parts {
			if !strings.Contains(series, part) {
				continue lines
			}
		}
		f, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", series, err)
		}
		sum, found = sum+f, true
	}
	if !found {
		return 0, fmt.Errorf("no metric %s", name)
	}
	return sum, nil
}

// fetch is a plain GET.
func fetch(ctx context.Context, url string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// pause is the step of every polling loop: they all have a deadline.
func pause() { time.Sleep(20 * time.Millisecond) }

// eventually polls a condition until it holds, and fails the test with what it last said.
func eventually(tb testing.TB, limit time.Duration, what string, cond func() error) {
	tb.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s: not after %s: %v", what, limit, err)
		}
		pause()
	}
}

// A finished command is one that ran to its end.
type finished struct {
	code           int
	stdout, stderr string
}

// command runs the binary with arguments to its end, in an empty directory, without our keys.
func command(tb testing.TB, limit time.Duration, env []string, args ...string) finished {
	tb.Helper()
	return runProgram(tb, binary(tb), limit, env, args...)
}

// runProgram is command with a binary of the caller's choice.
func runProgram(tb testing.TB, program string, limit time.Duration, env []string, args ...string) finished {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Dir = tb.TempDir()
	cmd.Env = environment(env...)
	cmd.SysProcAttr = childAttr()
	err := cmd.Run()
	if ctx.Err() != nil {
		tb.Fatalf("%s %s: still running after %s\n%s%s", filepath.Base(cmd.Path), strings.Join(args, " "), limit, stdout.String(), stderr.String())
	}
	if err != nil && cmd.ProcessState == nil {
		tb.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	return finished{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}
