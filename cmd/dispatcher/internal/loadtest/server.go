package loadtest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/machine"
)

// By default bench measures a server in a separate process, started from the same program. So its CPU time
// and memory are measured without those of the generator and the receiver, and their garbage does not slow it
// down. It runs the same code as serve, with another control:
//
//   - Bench writes the settings to its standard input, because a list of processes must not contain their
//     secrets.
//   - The server writes its URL to the standard output, and for each line of input its resource usage.
//   - It ends when its standard input ends, so that it never outlives bench.

// BenchServerCommand is that process. Users do not run it.
type BenchServerCommand struct{}

// maxServerLine limits a line between bench and its server in bytes.
const maxServerLine = 1 << 20

// serverUsage is the server's CPU time and peak memory. Known is false if the system does not report them.
type serverUsage struct {
	Known     bool          `json:"known"`
	CPU       time.Duration `json:"cpu"`
	PeakBytes uint64        `json:"peak_bytes"`
}

// Run serves until the standard input ends.
func (*BenchServerCommand) Run(ctx context.Context, c *console.Console) error {
	// Ctrl-C reaches all processes of a terminal. But bench decides when its server ends.
	signal.Ignore(os.Interrupt)
	lines := bufio.NewScanner(c.In)
	lines.Buffer(nil, maxServerLine)
	var s config.Settings
	if !lines.Scan() {
		return errors.Join(errors.New("no settings on the standard input"), lines.Err())
	}
	if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
		return fmt.Errorf("parse the settings: %w", err)
	}
	log := app.NewLogger(c, &s)
	app.AdoptLibraries(log)
	srv, err := app.New(ctx, c, &s, log)
	if err != nil {
		return s.Clean(err)
	}
	answers := json.NewEncoder(c.Out)
	if err := answers.Encode("http://" + srv.Web.Addr().String()); err != nil {
		return errors.Join(fmt.Errorf("write the address: %w", err), srv.Close())
	}
	life, end := context.WithCancel(ctx)
	defer end()
	// This goroutine can outlive Run: only the end of the process stops a read of the standard input.
	go func() {
		defer end()
		for lines.Scan() {
			if answers.Encode(usageNow()) != nil {
				return
			}
		}
	}()
	return s.Clean(errors.Join(srv.Run(life), srv.Close()))
}

// usageNow returns the usage of this process.
func usageNow() serverUsage {
	cpu, peak, err := machine.ProcessUsage()
	return serverUsage{Known: err == nil, CPU: cpu, PeakBytes: peak}
}

// serverProcess is the server's process in bench.
type serverProcess struct {
	url   string
	cmd   *exec.Cmd
	in    io.WriteCloser
	log   lastLines
	lines chan []byte
	ended chan struct{} // closed when the process has ended
	exit  error         // why; read it after ended
	// usageMu keeps a question and its answer together.
	usageMu sync.Mutex
}

const (
	// serverStart is the time limit of the start, including migrations on a slow disk.
	serverStart = time.Minute
	// serverAnswer is the time limit of a response.
	serverAnswer = 10 * time.Second
	// serverEnd is the time limit of the end; after it the server is killed.
	serverEnd = 15 * time.Second
)

// startServer starts a server with the settings and returns when it listens.
func startServer(ctx context.Context, c *console.Console, s *config.Settings) (*serverProcess, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	settings, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the settings: %w", err)
	}
	o := &serverProcess{cmd: exec.Command(program, "bench-server"), lines: make(chan []byte, 1),
		ended: make(chan struct{})}
	o.cmd.Env, o.cmd.Stderr = withoutSettings(c), &o.log
	out, err := o.cmd.StdoutPipe()
	if err == nil {
		o.in, err = o.cmd.StdinPipe()
	}
	if err == nil {
		err = o.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	go o.follow(out)
	_, err = o.in.Write(append(settings, '\n'))
	if err == nil {
		err = o.answer(ctx, serverStart, &o.url)
	}
	if err != nil {
		o.stop()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("the server did not start: %w", o.log.explain(err))
	}
	return o, nil
}

// follow reads the server's responses until it ends.
func (o *serverProcess) follow(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxServerLine)
	for lines.Scan() {
		select {
		case o.lines <- slices.Clone(lines.Bytes()):
		default: // unexpected line
		}
	}
	o.exit = o.cmd.Wait()
	close(o.ended)
}

// answer waits for one response.
func (o *serverProcess) answer(ctx context.Context, limit time.Duration, to any) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case line := <-o.lines:
		return json.Unmarshal(line, to)
	case <-o.ended:
		return o.failure()
	case <-timer.C:
		return fmt.Errorf("no response within %s", limit)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// failure returns how the process ended.
func (o *serverProcess) failure() error {
	if o.exit != nil {
		return o.exit
	}
	return errors.New("the process ended")
}

// usage returns what the server has used.
func (o *serverProcess) usage(ctx context.Context) (u serverUsage, err error) {
	o.usageMu.Lock()
	defer o.usageMu.Unlock()
	_, err = io.WriteString(o.in, "usage\n")
	if err == nil {
		err = o.answer(ctx, serverAnswer, &u)
	}
	if err != nil {
		return u, fmt.Errorf("get the server's resource usage: %w", err)
	}
	return u, nil
}

// stop ends the server and waits for that.
func (o *serverProcess) stop() {
	o.in.Close()
	timer := time.AfterFunc(serverEnd, func() { o.cmd.Process.Kill() })
	defer timer.Stop()
	<-o.ended
}

// withoutSettings returns the environment without variables of settings, because these belong to another
// server.
func withoutSettings(c *console.Console) []string {
	env := []string{} // exec.Cmd would replace nil by the whole environment
	for _, pair := range c.Env {
		if !strings.HasPrefix(pair, config.EnvPrefix) {
			env = append(env, pair)
		}
	}
	return env
}

// lastLines is a writer that keeps the last lines of a log.
type lastLines struct {
	mu    sync.Mutex
	lines []string
	// part is the last line, which has no newline yet.
	part string
	// crash is the first line of a crash; its stack follows.
	crash string
}

// keptLines is how many lines of a server's log are kept, maxKept their maximum length in bytes.
const (
	keptLines = 20
	maxKept   = 2000
)

// Write appends to the log. It never fails.
func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part += string(p)
	for {
		line, rest, found := strings.Cut(l.part, "\n")
		if !found {
			break
		}
		line = line[:min(len(line), maxKept)]
		if l.crash == "" && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")) {
			l.crash = line
		}
		l.lines = append(l.lines, line)
		l.lines = l.lines[max(0, len(l.lines)-keptLines):]
		l.part = rest
	}
	l.part = l.part[:min(len(l.part), maxKept)]
	return len(p), nil
}

// all returns the lines, oldest first.
func (l *lastLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// explain adds the log's first line of a crash, or its last line, to an error.
func (l *lastLines) explain(err error) error {
	lines := l.all()
	if len(lines) == 0 {
		return err
	}
	l.mu.Lock()
	line := cmp.Or(l.crash, lines[len(lines)-1])
	l.mu.Unlock()
	return fmt.Errorf("%w: %s", err, console.Printable(strings.TrimPrefix(line, "dispatcher: ")))
}
