package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const (
	// roleEnv makes the test binary one of the processes of the comparison; configEnv holds its settings.
	roleEnv   = "DISPATCHER_BENCH_ROLE"
	configEnv = "DISPATCHER_BENCH_CONFIG"

	roleReceiver    = "receiver"
	roleFloor       = "floor"
	roleAsynqWorker = "asynq worker"
	roleRiverWorker = "river worker"

	// These are no roles of this binary: the product, and the test itself.
	roleDispatcher = "dispatcher"
	roleClient     = "client"

	// startTime is how long a process may take until it is ready.
	startTime = time.Minute
)

// childConfig is what a process of the comparison needs to know.
type childConfig struct {
	Receiver    string `json:"receiver"`    // URL to send to
	Concurrency int    `json:"concurrency"` // most requests in flight
	Count       int    `json:"count"`       // callbacks to send, of the floor
	Store       string `json:"store"`       // URL of Redis or PostgreSQL, of a queue's worker
}

// play is the main function of a process of the comparison. It says that it is ready in one line, acts when it is told
// so in one, and ends when its standard input does: with the process that started it, at the latest.
func play(role string) int {
	var cfg childConfig
	if err := json.Unmarshal([]byte(os.Getenv(configEnv)), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, role, "settings:", err)
		return 1
	}
	s := stage{in: bufio.NewReader(os.Stdin), out: os.Stdout}
	var err error
	switch role {
	case roleReceiver:
		err = receive(s)
	case roleFloor:
		err = sendInLoop(s, cfg)
	case roleAsynqWorker:
		err = workAsynq(s, cfg)
	case roleRiverWorker:
		err = workRiver(s, cfg)
	default:
		err = errors.New("no such role")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		return 1
	}
	return 0
}

// The lines that the two sides exchange.
const (
	sayReady   = "ready"   // the child, followed by what the other side must know
	sayGo      = "go"      // begin
	sayStop    = "stop"    // a worker: take no more, and bring to its end what was begun
	sayStopped = "stopped" // the worker has
)

// A stage is how a process of the comparison speaks with the one that started it.
type stage struct {
	in  *bufio.Reader
	out io.Writer
}

func (s stage) say(words ...any) error {
	_, err := fmt.Fprintln(s.out, words...)
	return err
}

// await returns when the other side has said that word.
func (s stage) await(word string) error {
	line, err := s.in.ReadString('\n')
	if err == nil && strings.TrimSpace(line) != word {
		err = fmt.Errorf("told %q, want %q", line, word)
	}
	return err
}

// awaitEnd returns when the other side wants no more.
func (s stage) awaitEnd() error {
	_, err := io.Copy(io.Discard, s.in)
	return err
}

// A child is a process of the comparison, as the one that started it sees it.
type child struct {
	role   string
	pid    int
	detail string // what it said when it was ready
	stdin  io.WriteCloser
	said   chan string // its lines; closed with its standard output
	ended  chan error  // gets the end of the process
}

// startChild starts one and returns when it is ready. It ends with the test.
func startChild(t *testing.T, role string, cfg childConfig) *child {
	t.Helper()
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleEnv+"="+role, configEnv+"="+string(text))
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, childAttr()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start the %s: %v", role, err)
	}
	c := &child{role: role, pid: cmd.Process.Pid, stdin: stdin, said: make(chan string, 2), ended: make(chan error, 1)}
	go func() { // it ends with the process, which end waits for
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			c.said <- lines.Text()
		}
		close(c.said)
		c.ended <- errors.Join(lines.Err(), cmd.Wait())
	}()
	t.Cleanup(func() { c.end(t, cmd) })
	c.detail = c.hear(t, sayReady)
	return c
}

// tell says a word to the process.
func (c *child) tell(t *testing.T, word string) {
	t.Helper()
	if _, err := io.WriteString(c.stdin, word+"\n"); err != nil {
		t.Fatalf("tell the %s to %s: %v", c.role, word, err)
	}
}

// hear waits until the process says that word, and returns what follows it in the line.
func (c *child) hear(t *testing.T, word string) string {
	t.Helper()
	select {
	case line, alive := <-c.said:
		rest, ok := strings.CutPrefix(line, word)
		if !alive || !ok {
			t.Fatalf("the %s says %q instead of %q; it runs: %t", c.role, line, word, alive)
		}
		return strings.TrimSpace(rest)
	case <-time.After(startTime):
		t.Fatalf("the %s has not said %q after %s", c.role, word, startTime)
	}
	return ""
}

// end lets the process end, and kills one that does not.
func (c *child) end(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	err := c.stdin.Close()
	go func() { // a process that failed may still say something
		for range c.said {
		}
	}()
	select {
	case ended := <-c.ended:
		err = errors.Join(err, ended)
	case <-time.After(startTime):
		err = errors.Join(err, errors.New("it does not end"), cmd.Process.Kill(), <-c.ended)
	}
	if err != nil {
		t.Errorf("end of the %s: %v", c.role, err)
	}
}

// poll asks until the answer is yes, and fails with what was last said.
func poll(ctx context.Context, what string, limit, every time.Duration, ask func() (bool, error)) error {
	deadline := time.Now().Add(limit)
	for {
		ok, err := ask()
		if ok && err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not after %s: %w", what, limit, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		case <-time.After(every):
		}
	}
}
