package smoke

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// Settings that cannot be meant, or that contradict each other, stop the start: exit code 2, one line for each.
func TestWrongSettingsStopTheStartWithOneLineEach(t *testing.T) {
	harness.BlackBox(t)
	file := filepath.Join(t.TempDir(), "dispatcher.yaml")
	if err := os.WriteFile(file, []byte("workers: 10\nworkerz: 10\nlog_level: loud\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		env  []string
		args []string
		// lines has, for each line that is expected, in any order, a word that it must contain.
		lines []string
	}{
		{"unknown flag", nil, []string{"--redis-ulr", "redis://127.0.0.1:1"}, []string{"redis-ulr"}},
		{"three at once", nil, []string{"--workers", "0", "--log-level", "loud", "--lane-concurrency=-1"}, []string{"workers", "log_level", "lane_concurrency"}},
		{"file with an unknown key and a bad value", nil, []string{"--config", file}, []string{"workerz", "log_level"}},
		{"admin key that can be guessed", nil, []string{"--admin-key", "x"}, []string{"admin_key"}},
		{"PostgreSQL without keys", nil, []string{"--database-url", "postgres://127.0.0.1:1/x"}, []string{"admin_key", "master_key"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"serve", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--data-dir", t.TempDir()}, c.args...)
			got := harness.Command(t, 20*time.Second, c.env, args...)
			lines := strings.Split(strings.TrimSpace(got.Stderr), "\n")
			if got.Code != 2 || len(lines) != len(c.lines) {
				t.Fatalf("exit code %d and %d lines, want 2 and %d:\n%s", got.Code, len(lines), len(c.lines), got.Stderr)
			}
			for _, word := range c.lines {
				if !strings.Contains(got.Stderr, word) {
					t.Errorf("no line says %q:\n%s", word, got.Stderr)
				}
			}
		})
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
