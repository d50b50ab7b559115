// Package cmdtest has helpers for tests of commands: a terminal of buffers, servers with fixed responses, and
// transcripts. Only tests import it.
package cmdtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// AsProgram is a variable that makes the test binary run as the program. bench needs this, because it starts
// its own executable as the server.
const AsProgram = "BENCH_TEST_IS_THE_PROGRAM"

// RunTests runs the tests of a package, or the program if the variable AsProgram is set.
func (p Program) RunTests(m *testing.M) {
	if os.Getenv(AsProgram) != "" {
		os.Exit(console.Execute(console.System("dev"), p(), os.Args[1:]))
	}
	time.Local = time.UTC // makes printed times equal on all machines
	flag.Parse()
	parallel := "8" // The tests mostly wait, so run more than there are CPUs.
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

// Program returns the commands that a test can run: a pointer to a struct for kong.
type Program func() any

// Terminal is a console of buffers.
type Terminal struct {
	console.Console
	program        Program
	Stdout, Stderr bytes.Buffer
}

// Terminal returns a terminal with an empty standard input.
func (p Program) Terminal(env ...string) *Terminal {
	t := &Terminal{program: p}
	t.Console = console.Console{In: strings.NewReader(""), Out: &t.Stdout, Err: &t.Stderr, Env: env,
		Version: "dev"}
	return t
}

// Invoke runs the program and returns its exit code.
func (t *Terminal) Invoke(args ...string) int { return console.Execute(&t.Console, t.program(), args) }

// InvokeUntil is Invoke with a context, whose end acts like Ctrl-C.
func (t *Terminal) InvokeUntil(ctx context.Context, args ...string) int {
	return console.ExecuteUntil(ctx, &t.Console, t.program(), args)
}

// Ends runs the program, which must end with the exit code.
func (t *Terminal) Ends(tb testing.TB, code int, args ...string) {
	tb.Helper()
	if got := t.Invoke(args...); got != code {
		tb.Fatalf("%q: exit code %d, want %d: %s", args, got, code, t.Stderr.String())
	}
}

// Lines returns the lines of the error output.
func (t *Terminal) Lines() []string {
	text := strings.TrimRight(t.Stderr.String(), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// Contains checks that a text contains all parts.
func Contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

// WriteFile writes a file to a new temporary directory and returns its path.
func WriteFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// IsEmpty checks that a directory is empty.
func IsEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%s contains %v (%v)", dir, left, err)
	}
}

// SomeKey returns a master key.
func SomeKey(fill byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(fill), 32)))
}

// BothKeys returns the flags of the keys that PostgreSQL requires.
func BothKeys() []string {
	return []string{"--admin-key=0123456789abcdef01234567", "--master-key=" + SomeKey('m')}
}

// ServeHandler starts a server and returns its URL. The server ends with the test.
func ServeHandler(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return srv.URL
}

// Respond writes a response.
func Respond(t *testing.T, w io.Writer, answer string) {
	t.Helper()
	if _, err := io.WriteString(w, answer); err != nil {
		t.Error(err)
	}
}

// ServeResponse starts a server that gives every request the same response, and returns its URL.
func ServeResponse(t *testing.T, status int, answer string) string {
	t.Helper()
	return ServeHandler(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		Respond(t, w, answer)
	})
}

// At returns a terminal whose commands talk to a server, with the key k.
func (p Program) At(address string, env ...string) *Terminal {
	return p.Terminal(append(env, "DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")...)
}

// SomeID is the id of a callback.
const SomeID = "cb_01JD7Q2Z3K4M5N6P7R8S9TABCD"

// ReceiverKey returns what a receiver verifies with: the public key of a pair, else the secret.
func ReceiverKey(t *testing.T, use string, key []byte) string {
	t.Helper()
	public, err := sign.PublicOf(use, key)
	if err != nil {
		t.Fatal(err)
	}
	if public != "" {
		return public
	}
	return sign.FormatSecretFor(use, key)
}
