// Package harness is the base of the black-box tests. It builds the binary, starts dispatcher processes,
// kills them and calls their API. Its receivers record what arrives, and its ledger records what was
// accepted.
//
// A [Trial] ends with the verdict of package judge, which compares the ledger, SQL, the index and the
// arrivals. So a loss, an early send, a duplicate or an overlap is one that the receiver saw. Of the
// program's packages it imports package client alone.
package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// Keys of every process in these tests. They are test values and protect nothing else.
const (
	AdminKey  = "e2e-admin-key-0123456789abcdefghijklmnop"
	MasterKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
)

// Keys are the settings with these keys.
var Keys = []string{"DISPATCHER_ADMIN_KEY=" + AdminKey, "DISPATCHER_MASTER_KEY=" + MasterKey}

// StartTime is the timeout for a process to become ready. It is long because many processes start at once on
// few cores.
const StartTime = 90 * time.Second

// Process is one running dispatcher.
type Process struct {
	*Client
	tb      testing.TB
	Cmd     *exec.Cmd
	ops     string // base URL of the operations listener
	LogFile string
	Done    chan struct{} // closed when the process has ended
	// failpoint is Launch.Failpoint.
	failpoint   string
	endExpected atomic.Bool // true: the test ends the process, or allows its end
	accounts    *accounts   // nil: the process has no API
}

// Launch describes how to start a process.
type Launch struct {
	On Backend
	// Args follow the backend's settings.
	Args []string
	// Listen is the address of the API; empty: a free port.
	Listen string
	// Failpoint is NAME or NAME:n. The process kills itself there. With NAME:n:stop it stops itself.
	Failpoint string
	// Times replaces the usual times after which other processes take over the work of a dead one; empty: the
	// usual times. CONTRIBUTING.md describes the variable DISPATCHER_FAILPOINT_TIMES.
	Times string
	// MayDie: the failpoint may end the process before it is ready.
	MayDie bool
	// Env are further variables, such as the settings of outbox sources.
	Env []string
	// Under is a program and its first arguments. It must exec the binary, so that the process id stays the
	// same.
	Under []string
	// Program is another binary; empty: the one built from this checkout.
	Program string
}

// Serve starts a dispatcher and waits until it is ready. At the test's end its counts are reconciled and the
// process is killed. A failed test prints its log.
func Serve(tb testing.TB, l Launch) *Process {
	tb.Helper()
	p := Spawn(tb, l)
	if err := p.AwaitReady(StartTime); err != nil && !(l.MayDie && p.Ended()) {
		tb.Fatalf("start %s: %v\n%s", l.On.Name, err, p.LogTail(4000))
	}
	return p
}

// Spawn starts a dispatcher and does not wait until it is ready.
func Spawn(tb testing.TB, l Launch) *Process {
	tb.Helper()
	listen := l.Listen
	if listen == "" {
		listen = "127.0.0.1:" + testserver.FreePort(tb)
	}
	args := append([]string{"serve", "--listen", listen}, l.On.Args()...)
	p := l.start(tb, append(args, l.Args...))
	p.accounts = l.On.accounts
	p.Client = newClient("http://"+listen, p.accounts)
	p.accounts.processes++
	return p
}

// start starts a process of the program. args begin with its command.
func (l Launch) start(tb testing.TB, args []string) *Process {
	tb.Helper()
	ops := "127.0.0.1:" + testserver.FreePort(tb)
	args = slices.Insert(args, 1, "--ops-listen", ops)
	logFile, err := os.CreateTemp(tb.TempDir(), "dispatcher-*.log")
	Check(tb, err)
	program := l.Program
	if program == "" {
		program = Binary(tb)
	}
	whole := slices.Concat(l.Under, []string{program}, args)
	env := append([]string{"DISPATCHER_FAILPOINT=" + l.Failpoint,
		"DISPATCHER_FAILPOINT_TIMES=" + l.Times}, Keys...)
	cmd := Prepared(tb, exec.Command(whole[0], whole[1:]...), append(env, l.Env...)...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := cmd.Start(); err != nil {
		tb.Fatalf("start dispatcher: %v", err)
	}
	p := &Process{tb: tb, Cmd: cmd, ops: "http://" + ops, LogFile: logFile.Name(), Done: make(chan struct{}),
		failpoint: l.Failpoint}
	p.endExpected.Store(l.MayDie)
	go func() {
		cmd.Wait() // the exit state is read from cmd.ProcessState
		logFile.Close()
		close(p.Done)
	}()
	tb.Cleanup(func() {
		if p.accounts != nil {
			p.reconcileAtEnd(l)
		}
		p.Kill()
		if tb.Failed() {
			tb.Logf("log of %s %s (pid %d, %s):\n%s", args[0], l.On.Name, cmd.Process.Pid, cmd.ProcessState,
				p.logEnd(6000))
		}
	})
	return p
}

// OpsAddress is the host and port of the operations listener.
func (p *Process) OpsAddress() string { return strings.TrimPrefix(p.ops, "http://") }

// Readyz returns the status and body of /readyz. It fails while nothing listens.
func (p *Process) Readyz() (int, string, error) {
	return fetch(5*time.Second, p.ops+"/readyz")
}

// AwaitUnready waits until /readyz returns 503.
func (p *Process) AwaitUnready(limit time.Duration) {
	p.tb.Helper()
	Eventually(p.tb, limit, "/readyz turns 503", func() error {
		if status, body, err := p.Readyz(); err != nil || status != http.StatusServiceUnavailable {
			return fmt.Errorf("/readyz returned %d %s %w", status, body, err)
		}
		return nil
	})
}

// AwaitReady waits until the process is ready. It fails at once if the process ends.
func (p *Process) AwaitReady(limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		status, body, err := p.Readyz()
		switch {
		case err == nil && status == http.StatusOK:
			return nil
		case p.Ended():
			return fmt.Errorf("the process ended: %s", p.Cmd.ProcessState)
		case time.Now().After(deadline):
			return fmt.Errorf("not ready after %s: status %d %s %w", limit, status, body, err)
		}
		Pause()
	}
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// Kill sends SIGKILL. It returns when the process has ended.
func (p *Process) Kill() {
	p.endExpected.Store(true)
	if !p.Ended() {
		p.Cmd.Process.Kill() // the process may have ended meanwhile
	}
	<-p.Done
	p.HTTP.CloseIdleConnections()
}

// Terminate sends SIGTERM.
func (p *Process) Terminate() {
	p.tb.Helper()
	p.endExpected.Store(true)
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.tb.Fatalf("SIGTERM: %v", err)
	}
}

// ExitCode waits for the end of the process. A signal is -1.
func (p *Process) ExitCode(limit time.Duration) int {
	p.tb.Helper()
	select {
	case <-p.Done:
		return p.Cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		p.tb.Fatalf("the process has not ended after %s", limit)
		return 0
	}
}

// LogTail returns the last n bytes of the log.
func (p *Process) LogTail(n int) string {
	b, err := os.ReadFile(p.LogFile)
	if err != nil {
		return err.Error()
	}
	if len(b) > n {
		b = b[len(b)-n:]
	}
	return string(b)
}

// logEnd returns the end of the log without successful requests.
func (p *Process) logEnd(n int) string {
	var b strings.Builder
	for line := range strings.Lines(p.LogTail(1 << 20)) {
		if !strings.Contains(line, `"level":"INFO","msg":"request"`) {
			b.WriteString(line)
		}
	}
	text := b.String()
	return text[max(0, len(text)-n):]
}

// errNoMetric is returned for a metric without a series.
var errNoMetric = errors.New("no metric")

// Metric sums a metric over all series that contain every part.
func (p *Process) Metric(name string, parts ...string) (float64, error) {
	status, body, err := fetch(10*time.Second, p.ops+"/metrics")
	if err != nil || status != http.StatusOK {
		return 0, errors.Join(err, fmt.Errorf("/metrics answered %d", status))
	}
	sum, found := 0.0, false
	for line := range strings.Lines(body) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		bare, _, _ := strings.Cut(series, "{")
		other := func(part string) bool { return !strings.Contains(series, part) }
		if !ok || bare != name || slices.ContainsFunc(parts, other) {
			continue
		}
		f, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", series, err)
		}
		sum, found = sum+f, true
	}
	if !found {
		return 0, fmt.Errorf("%w %s", errNoMetric, name)
	}
	return sum, nil
}

// Counter is Metric for a counter that some installations do not export: then it is zero.
func (p *Process) Counter(name string, parts ...string) (float64, error) {
	n, err := p.Metric(name, parts...)
	if errors.Is(err, errNoMetric) {
		return 0, nil
	}
	return n, err
}

// Count is Counter for a process that must respond.
func (p *Process) Count(name string, parts ...string) int {
	p.tb.Helper()
	n, err := p.Counter(name, parts...)
	Check(p.tb, err)
	return int(n)
}

// AwaitMetric waits until a metric is at least the value.
func (p *Process) AwaitMetric(limit time.Duration, name string, least float64) {
	p.tb.Helper()
	Eventually(p.tb, limit, name, func() error {
		got, err := p.Metric(name)
		if err == nil && got < least {
			err = fmt.Errorf("it is %v, want %v", got, least)
		}
		return err
	})
}

// Exit sends SIGTERM. The process must end with exit code 0.
func (p *Process) Exit(limit time.Duration) {
	p.tb.Helper()
	p.Terminate()
	if code := p.ExitCode(limit); code != 0 {
		p.tb.Fatalf("exit code %d, want 0\n%s", code, p.LogTail(2000))
	}
}

// Post sends a request that must succeed.
func (p *Process) Post(path string, in, out any) {
	p.tb.Helper()
	if _, err := p.Call(p.tb.Context(), http.MethodPost, path, in, out); err != nil {
		p.tb.Fatalf("POST %s: %v", path, err)
	}
}

// Create posts an object and returns its new id.
func (p *Process) Create(path string, in any) string {
	p.tb.Helper()
	var made struct{ ID string }
	p.Post(path, in, &made)
	return made.ID
}

// fetch is a plain GET.
func fetch(limit time.Duration, url string) (int, string, error) {
	resp, err := (&http.Client{Timeout: limit}).Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// Check ends the test if there is an error.
func Check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Pause is the wait of every polling loop. Each of these loops has a deadline.
func Pause() { time.Sleep(20 * time.Millisecond) }

// Eventually polls a condition until it returns nil. After limit it fails the test with the last error.
func Eventually(tb testing.TB, limit time.Duration, what string, cond func() error) {
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
		Pause()
	}
}

// AtLeast polls a number until it is at least want.
func AtLeast(tb testing.TB, limit time.Duration, what string, want int, get func() int) {
	tb.Helper()
	Eventually(tb, limit, what, func() error {
		if got := get(); got < want {
			return fmt.Errorf("%d of %d", got, want)
		}
		return nil
	})
}

// Await waits until no callback is open.
func Await(tb testing.TB, c *Client, limit time.Duration) {
	tb.Helper()
	Eventually(tb, limit, "every callback is terminal", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		page, err := c.Callbacks(client.Filter{State: []client.State{client.Scheduled, client.Attempting}}).
			Page(ctx, "", 1)
		if err == nil && len(page.Data) > 0 {
			open := page.Data[0]
			err = fmt.Errorf("%s (%s) is %s with %d attempts, due %v", open.ID, open.Ref, open.State,
				open.AttemptCount, open.DueAt)
		}
		return err
	})
}

// Violations returns a tb.Errorf that prints the first ten errors and counts the rest. A broken run has
// thousands.
func Violations(tb testing.TB) func(format string, args ...any) {
	n := 0
	tb.Cleanup(func() {
		if n > 10 {
			tb.Logf("and %d more of these", n-10)
		}
	})
	return func(format string, args ...any) {
		tb.Helper()
		n++
		if n > 10 {
			tb.Fail()
			return
		}
		tb.Errorf(format, args...)
	}
}

// Rebuilt is the log record of an index rebuild.
type Rebuilt struct {
	Message string    `json:"msg"`
	Time    time.Time // of the end
	Open    int
	TookAs  string `json:"took"`

	Took time.Duration
}

// Rebuilds reads the finished rebuilds from the log.
func (p *Process) Rebuilds() ([]Rebuilt, error) {
	f, err := os.Open(p.LogFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []Rebuilt
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r Rebuilt
		// A line may be no JSON, such as the last one while the process writes it.
		if json.Unmarshal(lines.Bytes(), &r) != nil || r.Message != "index rebuilt" {
			continue
		}
		r.Took, err = time.ParseDuration(r.TookAs)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// HeapInUse runs the garbage collector of the process, and returns the bytes of its heap that are in use.
func (p *Process) HeapInUse() (int, error) {
	return p.profiled("heap?gc=1&debug=1", `(?m)^# HeapAlloc = (\d+)`)
}

// Goroutines returns the number of goroutines of the process.
func (p *Process) Goroutines() (int, error) {
	return p.profiled("goroutine?debug=1", `^goroutine profile: total (\d+)`)
}

// profiled returns the number that the regular expression finds in a profile.
func (p *Process) profiled(which, number string) (int, error) {
	status, body, err := fetch(20*time.Second, p.ops+"/debug/pprof/"+which)
	if err != nil {
		return 0, err
	}
	found := regexp.MustCompile(number).FindStringSubmatch(body)
	if found == nil {
		return 0, fmt.Errorf("GET profile %s returned %d: %.100s", which, status, body)
	}
	return strconv.Atoi(found[1])
}
