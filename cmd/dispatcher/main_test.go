package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A terminal is a console of buffers: what a command wrote can be read back.
type terminal struct {
	console
	stdout, stderr bytes.Buffer
}

func newTerminal(env ...string) *terminal {
	t := &terminal{}
	t.console = console{in: strings.NewReader(""), out: &t.stdout, err: &t.stderr, env: env}
	return t
}

// invoke runs the program and returns its exit code.
func (t *terminal) invoke(args ...string) int { return run(&t.console, args) }

// lines returns what was written to the error output.
func (t *terminal) lines() []string {
	text := strings.TrimRight(t.stderr.String(), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (run the test with -update if it should):\n%s", path, diff)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"help":          {"--help"},
		"help_serve":    {"serve", "--help"},
		"help_demo":     {"demo", "--help"},
		"help_bench":    {"bench", "--help"},
		"help_listen":   {"listen", "--help"},
		"help_callback": {"callback", "send", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			term := newTerminal()
			if code := term.invoke(args...); code != exitOK {
				t.Errorf("exit code %d", code)
			}
			golden(t, name, term.stdout.String())
		})
	}
}

func TestCommandLinesThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"unknown command":            {"frobnicate"},
		"unknown flag":               {"serve", "--frobnicate"},
		"flag of another command":    {"demo", "--redis-url", "redis://h"},
		"missing argument":           {"callback", "get"},
		"missing value":              {"serve", "--listen"},
		"neither id nor ref":         {"callback", "cancel"},
		"both id and ref":            {"callback", "cancel", "cb_1", "--ref", "r"},
		"topic without ref":          {"callback", "cancel", "cb_1", "--topic", "t"},
		"policy and tiers":           {"callback", "send", "--url", "http://h/", "--policy", "p", "--tiers", "1s"},
		"timeout without tiers":      {"callback", "send", "--url", "http://h/", "--timeout", "1s"},
		"header without colon":       {"callback", "send", "--url", "http://h/", "-H", "X"},
		"server that is no address":  {"verify", "--server", "localhost", "--key", "k"},
		"ladder that does not exist": {"callback", "retry", "cb_1", "--ladder", "twice"},
		"status out of range":        {"listen", "--respond", "100"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			term := newTerminal()
			if code := term.invoke(args...); code != exitUsage {
				t.Errorf("exit code %d, not %d", code, exitUsage)
			}
			if lines := term.lines(); len(lines) != 1 || !strings.HasPrefix(lines[0], "dispatcher: ") {
				t.Errorf("wants one line, got %q", lines)
			}
		})
	}
}

func TestNoCommandShowsTheHelpAndIsNoSuccess(t *testing.T) {
	t.Parallel()
	term := newTerminal()
	if code := term.invoke(); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(term.stdout.String(), "callback") {
		t.Errorf("no help: %q", term.stdout.String())
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	term := newTerminal()
	if code := term.invoke("version"); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if got := term.stdout.String(); !strings.HasPrefix(got, "dispatcher ") || strings.Count(got, "\n") != 1 {
		t.Errorf("got %q", got)
	}
}
