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

// The server that bench measures by default is a process of its own, started from the same program: only so
// can its CPU time and its memory be told from those of the generator and the receiver, and the garbage of
// those does not slow it down. It is what serve runs, wired by the same code; what differs is how it is led.
// The settings come on its standard input, where no list of processes shows their secrets; it answers on its
// standard output where it listens and, whenever it is asked, what it has used; and it ends with its standard
// input, so that it never outlives bench, however bench ends.

// BenchServerCommand is that process. It is not for people.
type BenchServerCommand struct{}

// maxServerLine is the most bytes of one line between bench and its server.
const maxServerLine = 1 << 20

// A serverUsage is what the server answers when it is asked: its CPU time so far, and its most memory; Known
// is false where the system does not tell.
type serverUsage struct {
	Known     bool          `json:"known"`
	CPU       time.Duration `json:"cpu"`
	PeakBytes uint64        `json:"peak_bytes"`
}

// Run serves until the standard input ends.
func (*BenchServerCommand) Run(ctx context.Context, c *console.Console) error {
	// Ctrl-C goes to every process of a terminal; bench decides when its server ends.
	signal.Ignore(os.Interrupt)
	lines := bufio.NewScanner(c.In)
	lines.Buffer(nil, maxServerLine)
	var s config.Settings
	if !lines.Scan() {
		return errors.Join(errors.New("no settings came"), lines.Err())
	}
	if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	log := app.NewLogger(c, &s)
	app.AdoptLibraries(log)
	srv, err := app.New(ctx, c, &s, log)
	if err != nil {
		return s.Clean(err)
	}
	answers := json.NewEncoder(c.Out)
	if err := answers.Encode("http://" + srv.Web.Addr().String()); err != nil {
		return errors.Join(fmt.Errorf("tell the address: %w", err), srv.Close())
	}
	life, end := context.WithCancel(ctx)
	defer end()
	// It ends with the process at the latest: nothing else can end a read of the standard input.
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

// usageNow is what this process has used.
func usageNow() serverUsage {
	cpu, peak, err := machine.ProcessUsage()
	return serverUsage{Known: err == nil, CPU: cpu, PeakBytes: peak}
}

// An ownServer is the server's process, as bench sees it.
type ownServer struct {
	url   string
	cmd   *exec.Cmd
	in    io.WriteCloser
	said  lastLines
	lines chan []byte
	ended chan struct{} // closed when the process has ended
	exit  error         // why; read after that
	// asking keeps two questions apart.
	asking sync.Mutex
}

const (
	// serverStart is how long a server may take until it listens: migrations on a slow disk are in it.
	serverStart = time.Minute
	// serverAnswer is how long it may take to tell what it has used.
	serverAnswer = 10 * time.Second
	// serverEnd is how long it may take to end before it is killed.
	serverEnd = 15 * time.Second
)

// startOwnServer starts a server with the settings, and returns when it listens.
func startOwnServer(ctx context.Context, c *console.Console, s *config.Settings) (*ownServer, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	settings, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the settings: %w", err)
	}
	o := &ownServer{cmd: exec.Command(program, "bench-server"), lines: make(chan []byte, 1),
		ended: make(chan struct{})}
	o.cmd.Env, o.cmd.Stderr = withoutSettings(c), &o.said
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
		return nil, fmt.Errorf("the server did not start: %w", o.said.explain(err))
	}
	return o, nil
}

// follow reads what the server answers until it ends.
func (o *ownServer) follow(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxServerLine)
	for lines.Scan() {
		select {
		case o.lines <- slices.Clone(lines.Bytes()):
		default: // nobody asked
		}
	}
	o.exit = o.cmd.Wait()
	close(o.ended)
}

// answer waits for one answer.
func (o *ownServer) answer(ctx context.Context, limit time.Duration, to any) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case line := <-o.lines:
		return json.Unmarshal(line, to)
	case <-o.ended:
		return o.failure()
	case <-timer.C:
		return fmt.Errorf("it did not answer within %s", limit)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// failure says how the process ended.
func (o *ownServer) failure() error {
	if o.exit != nil {
		return o.exit
	}
	return errors.New("it ended")
}

// usage asks what the server has used.
func (o *ownServer) usage(ctx context.Context) (u serverUsage, err error) {
	o.asking.Lock()
	defer o.asking.Unlock()
	_, err = io.WriteString(o.in, "usage\n")
	if err == nil {
		err = o.answer(ctx, serverAnswer, &u)
	}
	if err != nil {
		return u, fmt.Errorf("ask the server what it has used: %w", err)
	}
	return u, nil
}

// stop ends the server, and returns when it has ended.
func (o *ownServer) stop() {
	o.in.Close()
	timer := time.AfterFunc(serverEnd, func() { o.cmd.Process.Kill() })
	defer timer.Stop()
	<-o.ended
}

// withoutSettings returns the environment without what it says about settings: they are another server's.
func withoutSettings(c *console.Console) []string {
	env := []string{} // not nil, which would mean all of it
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
	// part is a line that has not ended.
	part string
	// crash is the line that begins a crash; its stack follows.
	crash string
}

// keptLines is how many lines of a server's log are kept, maxKept how long each may be.
const (
	keptLines = 20
	maxKept   = 2000
)

// Write takes a piece of the log. It never fails.
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

// all returns the lines, the oldest first.
func (l *lastLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// explain adds to an error what the log says of it: the beginning of a crash, else its last line.
func (l *lastLines) explain(err error) error {
	lines := l.all()
	if len(lines) == 0 {
		return err
	}
	l.mu.Lock()
	said := cmp.Or(l.crash, lines[len(lines)-1])
	l.mu.Unlock()
	return fmt.Errorf("%w: %s", err, console.Printable(strings.TrimPrefix(said, "dispatcher: ")))
}
