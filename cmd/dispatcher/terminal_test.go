package main

import (
	"bytes"
	"encoding/base64"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// asProgram makes the test binary the program: bench starts its server from the program that it is itself.
const asProgram = "BENCH_TEST_IS_THE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(run(systemConsole(), os.Args[1:]))
	}
	flag.Parse()
	parallel := "8" // These tests mostly wait: more of them run at once than there are CPUs.
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "test.parallel" {
			parallel = f.Value.String()
		}
	})
	if err := flag.Set("test.parallel", parallel); err != nil {
		panic(err)
	}
	testserver.Main(m)
}

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

// ends runs the program, which must end with the code.
func (t *terminal) ends(tb testing.TB, code int, args ...string) {
	tb.Helper()
	if got := t.invoke(args...); got != code {
		tb.Fatalf("%q: exit code %d, want %d: %s", args, got, code, t.stderr.String())
	}
}

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

// says checks that a text has all the parts.
func says(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("does not say %q:\n%s", part, text)
		}
	}
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// isEmpty checks that nothing was left in a directory.
func isEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%v was left in %s (%v)", left, dir, err)
	}
}

// someKey is a master key.
func someKey(fill byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(fill), masterKeyBytes)))
}
