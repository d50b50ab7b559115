package packages

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// systemctl is the program of that name on a machine. It passes its words to the supervisor, and exits with
// the code that it answers.
const systemctl = `#!/bin/sh
exec 9>/run/supervisor/lock
flock 9
echo "$*" >/run/supervisor/call
read -r code </run/supervisor/answer
exit "$code"
`

// A supervisor starts and stops the services of a machine.
type supervisor struct {
	*machine
	notices *net.UnixConn // NOTIFY_SOCKET
	answer  *os.File
	// trace is the file that gets the system calls of the next service; empty: none is traced. A test sets it
	// only while no call runs.
	trace string

	mu      sync.Mutex
	calls   []string
	enabled map[string]bool
	running *service
	failed  error // of the last service or command that did not do what its unit says
}

// A service is a running dispatcher.service.
type service struct {
	cmd   *exec.Cmd
	log   bytes.Buffer
	ended chan struct{}
	err   error // of Wait, after ended
}

// startTime limits the time until READY=1, and until a service has ended.
const startTime = time.Minute

// startSupervisor gives a machine a systemctl.
func startSupervisor(m *machine) *supervisor {
	m.Helper()
	m.do("mkdir -p /run/systemd/system /run/supervisor && mkfifo /run/supervisor/call /run/supervisor/answer")
	m.write("/usr/bin/systemctl", systemctl, 0o755)
	socket := filepath.Join(m.root, "run/supervisor/notify")
	notices, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	harness.Check(m, err)
	// Not read-only: the end of one writer must not end the file.
	call, err := os.OpenFile(filepath.Join(m.root, "run/supervisor/call"), os.O_RDWR, 0)
	harness.Check(m, err)
	answer, err := os.OpenFile(filepath.Join(m.root, "run/supervisor/answer"), os.O_RDWR, 0)
	harness.Check(m, err)
	harness.Check(m, os.Chmod(socket, 0o666))
	s := &supervisor{machine: m, notices: notices, answer: answer, enabled: map[string]bool{}}
	ended := make(chan struct{})
	go s.serve(call, ended)
	m.Cleanup(func() {
		harness.Check(m, call.Close())
		<-ended
		if r := s.service(); r != nil {
			r.cmd.Process.Kill()
			<-r.ended
		}
		harness.Check(m, errors.Join(answer.Close(), notices.Close()))
	})
	return s
}

// serve answers the calls of systemctl until the file is closed.
func (s *supervisor) serve(call *os.File, ended chan<- struct{}) {
	defer close(ended)
	for calls := bufio.NewScanner(call); calls.Scan(); {
		code := 0
		if err := s.call(calls.Text()); err != nil {
			code = 1
			s.mu.Lock()
			s.failed = fmt.Errorf("systemctl %s: %w", calls.Text(), err)
			s.mu.Unlock()
		}
		fmt.Fprintln(s.answer, code)
	}
}

// call runs one call of systemctl.
func (s *supervisor) call(line string) error {
	s.mu.Lock()
	s.calls = append(s.calls, line)
	s.mu.Unlock()
	var verb string
	var units []string
	now := false
	for word := range strings.FieldsSeq(line) {
		switch {
		case word == "--now":
			now = true
		case strings.HasPrefix(word, "-"):
		case verb == "":
			verb = word
		default:
			if !strings.Contains(word, ".") {
				word += ".service"
			}
			units = append(units, word)
		}
	}
	var err error
	for _, name := range units {
		err = errors.Join(err, s.act(verb, name))
		if verb == "enable" && now {
			err = errors.Join(err, s.act("start", name))
		}
	}
	return err
}

// act does what a verb says to a unit.
func (s *supervisor) act(verb, name string) error {
	running := s.service() != nil
	switch {
	case verb == "enable" || verb == "disable":
		s.mu.Lock()
		defer s.mu.Unlock()
		s.enabled[name] = verb == "enable"
		return nil
	case name == "dispatcher-backup.timer":
		return nil
	case name == "dispatcher-backup.service" && verb == "start":
		return s.once(name)
	case name != "dispatcher.service":
		return fmt.Errorf("no unit %s", name)
	case verb == "start" && !running:
		return s.start(name)
	case verb == "stop" && running:
		return s.stop()
	case verb == "restart" && !running:
		return s.start(name)
	case (verb == "restart" || verb == "try-restart") && running:
		return errors.Join(s.stop(), s.start(name))
	case verb == "start" || verb == "stop" || verb == "try-restart":
		return nil
	}
	return fmt.Errorf("the verb %q is not known", verb)
}

// failure returns the last error of a call.
func (s *supervisor) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *supervisor) service() *service {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// start starts a service of Type=notify and waits for READY=1.
func (s *supervisor) start(name string) error {
	u, err := s.unit(name)
	if err != nil {
		return err
	}
	if kind := u.one("Type"); kind != "notify" {
		return fmt.Errorf("%s has Type=%s", name, kind)
	}
	cmd, err := s.prepared(u, s.trace, "NOTIFY_SOCKET=/run/supervisor/notify")
	if err != nil {
		return err
	}
	r := &service{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &r.log, &r.log
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		r.err = cmd.Wait()
		close(r.ended)
	}()
	s.mu.Lock()
	s.running = r
	s.mu.Unlock()
	if err := s.await(r, "READY=1"); err != nil {
		cmd.Process.Kill() // it may have ended
		<-r.ended
		s.mu.Lock()
		s.running = nil
		s.mu.Unlock()
		return err
	}
	return nil
}

// await waits for a line of a notice.
func (s *supervisor) await(r *service, want string) error {
	late := time.Now().Add(startTime)
	b := make([]byte, 4096)
	for time.Now().Before(late) {
		if err := s.notices.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			return err
		}
		n, err := s.notices.Read(b)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if slices.Contains(strings.Split(string(b[:n]), "\n"), want) {
			return nil
		}
		select {
		case <-r.ended:
			return fmt.Errorf("the service ended before the notice %s: %w; its log:\n%s", want, r.err, &r.log)
		default:
		}
	}
	return fmt.Errorf("no notice %s", want)
}

// stop stops the service as systemd does. It must drain and exit with 0.
func (s *supervisor) stop() error {
	r := s.service()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := s.await(r, "STOPPING=1"); err != nil {
		return err
	}
	select {
	case <-r.ended:
	case <-time.After(startTime):
		return errors.New("the service does not end")
	}
	s.mu.Lock()
	s.running = nil
	s.mu.Unlock()
	if r.err != nil {
		return fmt.Errorf("the service: %w; its log:\n%s", r.err, r.log.String())
	}
	return nil
}

// once runs a service of Type=oneshot to its end.
func (s *supervisor) once(name string) error {
	u, err := s.unit(name)
	if err != nil {
		return err
	}
	if kind := u.one("Type"); kind != "oneshot" {
		return fmt.Errorf("%s has Type=%s", name, kind)
	}
	cmd, err := s.prepared(u, s.trace)
	if err != nil {
		return err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// took returns the calls of systemctl since the last time, and fails the test if one of them failed.
func (s *supervisor) took() []string {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		s.Fatal(s.failed)
	}
	calls := s.calls
	s.calls = nil
	return calls
}
