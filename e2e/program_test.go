package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// spawnKeyless serves without a given admin or master key, as a newcomer does.
func spawnKeyless(t *testing.T, b backend) *process {
	t.Helper()
	return serve(t, launch{on: b, keyless: true})
}

// The demo runs all it shows to the end and says by its exit code that it went as foreseen.
func TestDemoEndsWithZero(t *testing.T) {
	blackBox(t)
	start := time.Now()
	got := command(t, 4*time.Minute, nil, "demo", "--exit")
	if got.code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
	}
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	t.Logf("demo --exit: 0 after %s; its last lines:\n%s", time.Since(start).Round(100*time.Millisecond), strings.Join(lines[max(0, len(lines)-12):], "\n"))
}

// Commands that talk to a server say what they found by their exit code.
func TestVerifyAndRebuildThroughTheServer(t *testing.T) {
	blackBox(t)
	on(t, bothEnds, func(t *testing.T, b backend) {
		r := listen(t, always(200, ""))
		p := serve(t, launch{on: b})
		for range 20 {
			if _, err := p.accept(t.Context(), good()); err != nil {
				t.Fatal(err)
			}
		}
		client := []string{"--server", p.base, "--key", adminKey}
		run := func(want int, args ...string) {
			t.Helper()
			if got := command(t, time.Minute, nil, append(args, client...)...); got.code != want {
				t.Errorf("%s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got.code, want, got.stdout, got.stderr)
			}
		}
		run(0, "verify")
		run(0, "rebuild", "--dry-run")
		run(0, "rebuild")
		run(0, "verify")

		cb, err := p.accept(t.Context(), submission{"url": r.url, "ref": "after-rebuild", "payload": payload("after-rebuild")})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, 30*time.Second, "sending goes on after a rebuild", func() error {
			if len(r.of(cb.ID)) == 0 {
				return os.ErrNotExist
			}
			return nil
		})
	})
}

// The receiver that the program brings along verifies what a dispatcher sends.
func TestListenPrintsAndVerifiesWhatArrives(t *testing.T) {
	blackBox(t)
	b := servers{}.backend(t, embedded)
	p := serve(t, launch{on: b})
	lane := "merchant-7"
	var secret struct {
		Secret string `json:"secret"`
	}
	if err := p.call(t.Context(), "GET", "/v1/secret?lane="+lane, nil, 200, &secret); err != nil {
		t.Fatal(err)
	}
	addr := "127.0.0.1:" + freePorts(t, 1)[0]
	out, err := os.Create(filepath.Join(t.TempDir(), "listen.out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(binary(t), "listen", "--addr", addr, "--secret", secret.Secret, "--respond", "500,200")
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.SysProcAttr = out, out, environment(), childAttr()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	eventually(t, 10*time.Second, "listen listens", func() error {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err
	})
	cb, err := p.accept(t.Context(), submission{
		"url": "http://" + addr + "/notify", "ref": "order-1", "lane": lane, "payload": payload("order-1"), "policy": submission{"tiers": []string{"300ms", "300ms", "1s", "1s", "1s", "1s"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, p.client, 30*time.Second)
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), cb.ID) || !strings.Contains(string(text), "order-1") {
		t.Errorf("listen did not print what arrived:\n%s", text)
	}
	t.Logf("listen printed:\n%s", text)
}
