package smoke

import (
	"errors"
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

// The demo runs all it shows to the end and says by its exit code that it went as foreseen.
func TestDemoEndsWithZero(t *testing.T) {
	harness.BlackBox(t)
	start := time.Now()
	got := harness.Command(t, 4*time.Minute, nil, "demo", "--exit")
	if got.Code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", got.Code, got.Stdout, got.Stderr)
	}
	if got.Stderr != "" {
		t.Errorf("logged: %s", got.Stderr)
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
	lines := strings.Split(strings.TrimSpace(got.Stdout), "\n")
	t.Logf("demo --exit: 0 after %s; its last lines:\n%s", time.Since(start).Round(100*time.Millisecond), strings.Join(lines[max(0, len(lines)-12):], "\n"))
}

// startListen starts the receiver that the program brings along, and returns what it has printed so far.
func startListen(t *testing.T, addr string, args ...string) (printed func() string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "listen.out"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(harness.Binary(t), append([]string{"listen", "--addr", addr}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.SysProcAttr = out, out, harness.Environment(), harness.ChildAttr()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		out.Close()
	})
	harness.Eventually(t, 10*time.Second, "listen listens", func() error {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err
	})
	return func() string {
		text, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// A shell runs commands against a process with a key.
type shell struct {
	t    *testing.T
	base string
	key  string
}

// run returns what a command printed, which must end with the code and say the text in one of its outputs.
func (s shell) run(code int, says string, args ...string) string {
	s.t.Helper()
	got := harness.Command(s.t, 2*time.Minute, []string{"DISPATCHER_SERVER=" + s.base, "DISPATCHER_KEY=" + s.key}, args...)
	if got.Code != code || !strings.Contains(got.Stdout+got.Stderr, says) {
		s.t.Fatalf("%s: exit code %d, want %d and %q\n%s%s", strings.Join(args, " "), got.Code, code, says, got.Stdout, got.Stderr)
	}
	return strings.TrimSpace(got.Stdout)
}

// What a payment team does in its first hour, with the program alone: a key for the service that sends, an endpoint for a merchant, a
// callback to it by the merchant's number, a test, a new secret.
func TestKeysAndEndpointsFromTheShell(t *testing.T) {
	harness.BlackBox(t)
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
	admin := shell{t, p.Base, harness.AdminKey}
	sender := shell{t, p.Base, admin.run(0, "the only time", "key", "create", "checkout", "--scope", "send", "--expires-in", "90d")}
	keyID, _, _ := strings.Cut(strings.TrimSpace(strings.Split(admin.run(0, "checkout", "key", "list"), "\n")[2]), " ")

	addr := "127.0.0.1:" + testserver.FreePort(t)
	sender.run(1, "it needs the scope operate", "endpoint", "create", "http://"+addr+"/notify")
	admin.run(0, "made", "endpoint", "create", "http://"+addr+"/notify", "--external-id", "merchant/7", "--policy", `{"tiers": ["100ms", "1s", "1s"]}`,
		"--success", "body-success", "--topic", "payment.*", "--rate", "100/s", "-H", "X-Shop: 7")
	secret := admin.run(0, "whsec_", "endpoint", "secret", "merchant/7")
	printed := startListen(t, addr, "--secret", secret, "--respond", "500,200", "--body", "success", "--headers")

	sent := sender.run(0, "accepted", "callback", "send", "--endpoint", "merchant/7", "--topic", "payment.succeeded", "--ref", "order-1", "-d", `{"paid":10000}`)
	id, _, _ := strings.Cut(sent, " ")
	harness.Await(t, p.Client, 30*time.Second)
	sender.run(1, "it needs the scope read", "callback", "get", id)
	if listed := admin.run(0, "succeeded", "callback", "list", "--endpoint", "merchant/7"); !strings.Contains(listed, id) {
		t.Errorf("it is not in the list:\n%s", listed)
	}
	admin.run(0, "It was delivered", "callback", "explain", id)
	admin.run(0, "the receiver answered with status 500", "callback", "evidence", id)
	harness.Eventually(t, 30*time.Second, "the endpoint is known to be well", func() error {
		list := admin.run(0, "merchant/7", "endpoint", "list", "--search", "merchant", "--topic", "payment.succeeded")
		if !strings.Contains(list, "ok, ") {
			return errors.New(list)
		}
		return nil
	})
	admin.run(1, "500 http_5xx", "endpoint", "test", "merchant/7", "--wait") // each id begins the receiver's sequence anew
	if text := printed(); strings.Count(text, "signature ok") != 3 || !strings.Contains(text, "X-Shop: 7") || strings.Contains(text, "wrong") {
		t.Errorf("listen printed:\n%s", text)
	}

	// While both secrets sign, the receiver may have either; once the old one has ended, it must have the new one.
	admin.run(0, "", "endpoint", "rotate-secret", "merchant/7", "--overlap", "1h", "--reason", "yearly")
	admin.run(1, "500 http_5xx", "endpoint", "test", "merchant/7", "--wait")
	fresh := admin.run(0, "no longer signs", "endpoint", "rotate-secret", "merchant/7", "--overlap", "0s", "--reason", "leaked")
	admin.run(1, "401 http_4xx", "endpoint", "test", "merchant/7", "--wait")
	if text := printed(); strings.Count(text, "signature ok") != 4 || strings.Count(text, "signature wrong") != 1 {
		t.Errorf("listen printed:\n%s", text)
	}
	second := "127.0.0.1:" + testserver.FreePort(t)
	printed = startListen(t, second, "--secret", secret, "--secret", fresh, "--body", "success")
	admin.run(0, "changed", "endpoint", "set", "merchant/7", "--url", "http://"+second+"/", "--clear", "header")
	admin.run(0, "200 ok: success", "endpoint", "test", "merchant/7", "--wait")
	if text := printed(); !strings.Contains(text, "signature ok, by secret 2 of 2") {
		t.Errorf("listen printed:\n%s", text)
	}

	admin.run(0, "is paused", "endpoint", "pause", "merchant/7", "--reason", "the merchant moves house")
	held, _, _ := strings.Cut(sender.run(0, "accepted", "callback", "send", "--endpoint", "merchant/7", "-d", "{}"), " ")
	admin.run(0, "cure: dispatcher endpoint resume", "callback", "explain", held)
	admin.run(0, "goes on", "endpoint", "resume", "merchant/7")
	harness.Await(t, p.Client, 30*time.Second)
	admin.run(0, "is removed", "endpoint", "delete", "merchant/7")
	sender.run(1, "endpoint", "callback", "send", "--endpoint", "merchant/7", "-d", "{}")
	admin.run(0, "is revoked", "key", "revoke", keyID)
	sender.run(1, "does not know this key", "callback", "send", "--endpoint", "merchant/7", "-d", "{}")
}
