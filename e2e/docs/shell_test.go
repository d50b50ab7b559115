package docs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// Time limits until something is printed, and until a program ends after Ctrl-C.
const (
	printTime = 30 * time.Second
	endTime   = 40 * time.Second
)

// blockLimit returns the time limit of a block, and until a program listens. Both may build the program,
// and a build takes as long as other work on the machine lets it. So the limit is the deadline of the test
// binary, less the time to report the output.
func blockLimit(tb testing.TB) time.Duration {
	const reporting, most = time.Minute, 30 * time.Minute
	if t, ok := tb.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, ok := t.Deadline(); ok {
			return min(most, max(reporting, time.Until(end)-reporting))
		}
	}
	return most
}

// A shell runs blocks of commands, one after the other.
type shell struct {
	testing.TB

	cmd   *exec.Cmd
	stdin io.Writer
	out   *bufio.Scanner
}

// newShell starts a shell in dir.
func newShell(tb testing.TB, dir string, env ...string) *shell {
	cmd := harness.Prepared(tb, exec.Command("bash", "-eo", "pipefail"), env...)
	cmd.Dir = dir
	in, err := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = cmd.Stdout
	harness.Check(tb, errors.Join(err, err2, cmd.Start()))
	tb.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil && !tb.Failed() {
			tb.Errorf("the shell: %v", err)
		}
	})
	return &shell{TB: tb, cmd: cmd, stdin: in, out: bufio.NewScanner(out)}
}

// run runs a block and returns its output. A block that fails ends the test.
func (s *shell) run(text string) string {
	s.Helper()
	const mark = "-- done"
	// From a file, so that a command cannot read the commands after it from the standard input.
	name := filepath.Join(s.TempDir(), "block.sh")
	harness.Check(s, os.WriteFile(name, []byte(text+"\n"), 0o600))
	limit := blockLimit(s.TB)
	late := time.AfterFunc(limit, func() { s.cmd.Process.Kill() })
	defer late.Stop()
	_, err := fmt.Fprintf(s.stdin, "source %s </dev/null\necho '%s'\n", name, mark)
	harness.Check(s, err)
	var printed strings.Builder
	for s.out.Scan() {
		if s.out.Text() == mark {
			return printed.String()
		}
		printed.WriteString(s.out.Text() + "\n")
	}
	s.Fatalf("this block failed, or took longer than %s:\n%s\nit printed:\n%s", limit, text,
		printed.String())
	return ""
}

// A window is a terminal with one running block.
type window struct {
	testing.TB
	cmd     *exec.Cmd
	ended   chan struct{}
	mu      sync.Mutex
	printed bytes.Buffer
}

func (w *window) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.printed.Write(b)
}

// text returns what the block has printed.
func (w *window) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.printed.String()
}

// end returns the last lines of text, without the log of requests.
func (w *window) end() string {
	lines := slices.DeleteFunc(strings.Split(w.text(), "\n"), func(line string) bool {
		return strings.Contains(line, `"level":"INFO","msg":"request"`)
	})
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// ready matches what programs print when they listen.
var ready = regexp.MustCompile(`(?i)listening|is serving|relay is running|Development Server .* started`)

// openWindow runs a block until the test ends, and waits until its program listens.
func openWindow(tb testing.TB, dir, text string, env ...string) *window {
	tb.Helper()
	w := &window{TB: tb, ended: make(chan struct{})}
	w.cmd = harness.Prepared(tb, exec.Command("bash", "-eo", "pipefail", "-c", text), env...)
	w.cmd.Dir, w.cmd.Stdout, w.cmd.Stderr = dir, w, w
	w.cmd.SysProcAttr.Setpgid = true
	harness.Check(tb, w.cmd.Start())
	go func() {
		w.cmd.Wait() // programs that are interrupted end with different codes
		close(w.ended)
	}()
	tb.Cleanup(func() {
		w.interrupt()
		if tb.Failed() {
			tb.Logf("the terminal of\n%s\nprinted\n%s", text, w.end())
		}
	})
	harness.Eventually(tb, blockLimit(tb), "the program listens", func() error {
		select {
		case <-w.ended:
			tb.Fatalf("this block ended: %s\n%s", w.cmd.ProcessState, text)
		default:
		}
		if !ready.MatchString(w.text()) {
			return fmt.Errorf("it printed %q", w.text())
		}
		return nil
	})
	return w
}

// interrupt sends what Ctrl-C sends to all processes of the terminal.
func (w *window) interrupt() {
	select {
	case <-w.ended:
		return
	default:
	}
	err := syscall.Kill(-w.cmd.Process.Pid, syscall.SIGINT)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		w.Errorf("interrupt: %v", err)
	}
	select {
	case <-w.ended:
	case <-time.After(endTime):
		w.Errorf("%s does not end after Ctrl-C", w.cmd)
		syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL) // it may have ended meanwhile
		<-w.ended
	}
}

// fits reports whether a text is what a page shows. "…" stands for any text, and on a line alone for any
// lines. Spaces at the ends of lines do not count. part: the text may have other lines before and after.
func fits(got, want string, part bool) bool {
	var pattern strings.Builder
	for line := range strings.Lines(strings.TrimSpace(want)) {
		line = strings.TrimRight(line, " \n")
		if line == "…" {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*?") + ` *\n`)
	}
	if part {
		return regexp.MustCompile(`(?m)^` + pattern.String()).MatchString(got)
	}
	return regexp.MustCompile(`\A` + pattern.String() + `\z`).MatchString(strings.TrimSpace(got) + "\n")
}

func TestFits(t *testing.T) {
	for _, c := range []struct {
		got, want   string
		whole, part bool
	}{
		{"a\nb\n", "a\nb", true, true},
		{"a\nb \n", "a\nb", true, true},
		{"a\nb\nc\n", "b", false, true},
		{"ab\n", "b", false, false},
		{"id cb_17 succeeded\n", "id cb_… succeeded", true, true},
		{"a\nb\nc\nd\n", "a\n…\nd", true, true},
		{"a\nd\n", "a\n…\nd", true, true},
		{"a\nb\n", "a\n…\nd", false, false},
	} {
		whole, part := fits(c.got, c.want, false), fits(c.got, c.want, true)
		if whole != c.whole || part != c.part {
			t.Errorf("%q and %q: %t and %t, want %t and %t", c.got, c.want, whole, part, c.whole, c.part)
		}
	}
}
