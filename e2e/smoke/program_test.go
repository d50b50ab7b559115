package smoke

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

func TestMain(m *testing.M) { harness.Main(m) }

// The demo runs all it shows to the end and says by its exit code that it went as foreseen.
func TestDemoEndsWithZero(t *testing.T) {
	harness.BlackBox(t)
	got := harness.Command(t, 4*time.Minute, nil, "demo", "--exit")
	if got.Code != 0 || got.Stderr != "" {
		t.Fatalf("exit code %d\n%s\n%s", got.Code, got.Stdout, got.Stderr)
	}
	for _, want := range []string{
		`attempt 3  200 {"status": "SUCCESS"}`, "(result)  attempt 1  200 success",
		"32 accepted, the poll and its result among them = 31 succeeded + 1 dead + 0 canceled + 0 open;\n",
		"44 requests at the shop and 3 at the bank", "verified 44 of 44 signatures",
	} {
		if !strings.Contains(got.Stdout, want) {
			t.Errorf("does not say %q:\n%s", want, got.Stdout)
		}
	}
}

// The times of a test build are known ones, and no longer than the usual.
func TestTimesOfATestBuildAreChecked(t *testing.T) {
	harness.BlackBox(t)
	for times, want := range map[string]string{
		"lease=5s,lese=3s": `"lese=3s" names none of lease, margin, sweep, slack, leader`,
		"lease=31s":        `"lease=31s" is not from 1s to 30s in whole seconds`,
	} {
		env := append([]string{"DISPATCHER_FAILPOINT_TIMES=" + times}, harness.Keys...)
		got := harness.Command(t, time.Minute, env,
			"serve", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--data-dir", t.TempDir())
		if got.Code != 1 || !strings.Contains(got.Stderr, "DISPATCHER_FAILPOINT_TIMES: "+want) {
			t.Errorf("%s: exit code %d, want 1 and %s:\n%s", times, got.Code, want, got.Stderr)
		}
	}
}

// testdata/first-hour.txt is run from its first line to its last.
func TestKeysAndEndpointsFromTheShell(t *testing.T) {
	harness.BlackBox(t)
	text, err := os.ReadFile("testdata/first-hour.txt")
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{T: t, p: harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)}),
		names: map[string]string{"admin": harness.AdminKey}}
	for _, name := range []string{"one", "two"} {
		s.names[name] = "127.0.0.1:" + testserver.FreePort(t)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			s.do(line)
		}
	}
}

// A shell does what the lines of a script say.
type shell struct {
	*testing.T
	p       *harness.Process
	names   map[string]string
	printed string // the file that the receiver writes
}

func (s *shell) do(line string) {
	command, name, _ := strings.Cut(os.Expand(line, func(name string) string { return s.names[name] }), " > ")
	head, args, _ := strings.Cut(command, "| ")
	verb, rest, _ := strings.Cut(head, " ")
	switch verb {
	case "listen":
		s.listen(strings.TrimSpace(rest), strings.Fields(args))
	case "sent":
		harness.Await(s, s.p.Client, 30*time.Second)
	case "printed":
		number, want, _ := strings.Cut(rest, " ")
		text, err := os.ReadFile(s.printed)
		if n := strings.Count(string(text), want); fmt.Sprint(n) != number {
			s.Errorf("%s: listen printed it %d times, %v:\n%s", line, n, err, text)
		}
	case "until":
		harness.Eventually(s, 30*time.Second, line, func() error { return s.run(rest, args, name) })
	default:
		if err := s.run(head, args, name); err != nil {
			s.Fatalf("%s: %v", line, err)
		}
	}
}

// run runs one command, of which head says who, the code and the text.
func (s *shell) run(head, args, name string) error {
	who, rest, _ := strings.Cut(head, " ")
	code, says, _ := strings.Cut(strings.TrimSuffix(rest, " "), " ")
	got := harness.Command(s, 2*time.Minute,
		[]string{"DISPATCHER_SERVER=" + s.p.Base, "DISPATCHER_KEY=" + s.names[who]}, strings.Fields(args)...)
	if fmt.Sprint(got.Code) != code || !strings.Contains(got.Stdout+got.Stderr, says) {
		return fmt.Errorf("exit code %d\n%s%s", got.Code, got.Stdout, got.Stderr)
	}
	lines := strings.Split(strings.TrimSpace(got.Stdout), "\n")
	s.names[name], _, _ = strings.Cut(strings.TrimSpace(lines[len(lines)-1]), " ")
	return nil
}

// listen starts the receiver.
func (s *shell) listen(address string, args []string) {
	s.printed = filepath.Join(s.TempDir(), "listen.out")
	out, err := os.Create(s.printed)
	if err != nil {
		s.Fatal(err)
	}
	cmd := exec.Command(harness.Binary(s), append([]string{"listen", "--addr", address}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.SysProcAttr = out, out, harness.Environment(), harness.ChildAttr()
	if err := errors.Join(cmd.Start(), out.Close()); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	harness.Eventually(s, 10*time.Second, "listen listens", func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	})
}
