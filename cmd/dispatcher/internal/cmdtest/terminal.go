// Package cmdtest has what the tests of commands share: a terminal of buffers, a server with canned answers,
// golden files. Only tests import it.
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

// AsProgram makes the test binary the program: bench starts its server from the program that it is itself.
const AsProgram = "BENCH_TEST_IS_THE_PROGRAM"

// RunTests runs the tests of a package. With the variable AsProgram the test binary is the program.
func (p Program) RunTests(m *testing.M) {
	if os.Getenv(AsProgram) != "" {
		os.Exit(console.Execute(console.System("dev"), p(), os.Args[1:]))
	}
	time.Local = time.UTC // so that times are shown alike everywhere
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

// A Program makes the commands that a test may run: a pointer to a struct for kong.
type Program func() any

// A Terminal is a console of buffers: what a command wrote can be read back.
type Terminal struct {
	console.Console
	program        Program
	Stdout, Stderr bytes.Buffer
}

// Terminal returns one with nothing on the standard input.
func (p Program) Terminal(env ...string) *Terminal {
	t := &Terminal{program: p}
	t.Console = console.Console{In: strings.NewReader(""), Out: &t.Stdout, Err: &t.Stderr, Env: env,
		Version: "dev"}
	return t
}

// Invoke runs the program and returns its exit code.
func (t *Terminal) Invoke(args ...string) int { return console.Execute(&t.Console, t.program(), args) }

// InvokeUntil is Invoke with an end that Ctrl-C would bring.
func (t *Terminal) InvokeUntil(ctx context.Context, args ...string) int {
	return console.ExecuteUntil(ctx, &t.Console, t.program(), args)
}

// Ends runs the program, which must end with the code.
func (t *Terminal) Ends(tb testing.TB, code int, args ...string) {
	tb.Helper()
	if got := t.Invoke(args...); got != code {
		tb.Fatalf("%q: exit code %d, want %d: %s", args, got, code, t.Stderr.String())
	}
}

// Lines returns what was written to the error output.
func (t *Terminal) Lines() []string {
	text := strings.TrimRight(t.Stderr.String(), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// Says checks that a text has all the parts.
func Says(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("does not say %q:\n%s", part, text)
		}
	}
}

func WriteFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// IsEmpty checks that nothing was left in a directory.
func IsEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%v was left in %s (%v)", left, dir, err)
	}
}

// SomeKey is a master key.
func SomeKey(fill byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(fill), 32)))
}

// BothKeys are what a server on PostgreSQL must be given.
func BothKeys() []string {
	return []string{"--admin-key=0123456789abcdef01234567", "--master-key=" + SomeKey('m')}
}

// Handling is the address of a server that ends with the test.
func Handling(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return srv.URL
}

func Respond(t *testing.T, w io.Writer, answer string) {
	t.Helper()
	if _, err := io.WriteString(w, answer); err != nil {
		t.Error(err)
	}
}

// Answering is the address of a server that gives everything the same answer.
func Answering(t *testing.T, status int, answer string) string {
	t.Helper()
	return Handling(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		Respond(t, w, answer)
	})
}

// InProcess answers a client without a wire, so that a test may run in virtual time. A handler that panics
// with http.ErrAbortHandler breaks the connection.
type InProcess struct{ http.Handler }

func (h InProcess) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	defer func() {
		if recover() == http.ErrAbortHandler {
			err = io.ErrUnexpectedEOF
		}
	}()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Result(), nil
}

// At is a terminal whose commands talk to a server, with the key k.
func (p Program) At(address string, env ...string) *Terminal {
	return p.Terminal(append(env, "DISPATCHER_SERVER="+address, "DISPATCHER_KEY=k")...)
}

// OneID is that of a callback.
const OneID = "cb_01JD7Q2Z3K4M5N6P7R8S9TABCD"

// ReceiversForm is how a receiver is given a key: the public one of a pair, else the secret.
func ReceiversForm(t *testing.T, use string, key []byte) string {
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
