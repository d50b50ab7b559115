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
		{"no number", nil, []string{"--workers", "many"}, []string{"workers"}},
		{"zero workers", nil, []string{"--workers", "0"}, []string{"workers"}},
		{"negative duration", nil, []string{"--drain-timeout=-1s"}, []string{"drain_timeout"}},
		{"no address", nil, []string{"--listen", "here"}, []string{"listen"}},
		{"same address twice", nil, []string{"--listen", "127.0.0.1:9090", "--ops-listen", "127.0.0.1:9090"}, []string{"listen"}},
		{"log format", nil, []string{"--log-format", "xml"}, []string{"log_format"}},
		{"three at once", nil, []string{"--workers", "0", "--log-level", "loud", "--lane-concurrency=-1"}, []string{"workers", "log_level", "lane_concurrency"}},
		{"unknown variable", []string{"DISPATCHER_WORKERZ=1"}, nil, []string{"DISPATCHER_WORKERZ"}},
		{"file with an unknown key and a bad value", nil, []string{"--config", file}, []string{"workerz", "log_level"}},
		{"file that is not there", nil, []string{"--config", file + ".missing"}, []string{"missing"}},
		{"PostgreSQL without keys", nil, []string{"--database-url", "postgres://127.0.0.1:1/x"}, []string{"admin_key", "master_key"}},
		{"another database", nil, []string{"--database-url", "mysql://127.0.0.1/x"}, []string{"database_url"}},
		{"another index", nil, []string{"--redis-url", "http://127.0.0.1/"}, []string{"redis_url"}},
		{"master key of the wrong size", nil, []string{"--master-key", "c2hvcnQ="}, []string{"master_key"}},
		{"egress that is neither network nor name", nil, []string{"--egress-allow", "10.0.0.0/99"}, []string{"egress_allow"}},
		{"unknown role", nil, []string{"--roles", "worker,cook"}, []string{"roles"}},
		{"no worker on the embedded index", nil, []string{"--roles", "api"}, []string{"roles"}},
		{"horizon on the embedded index", nil, []string{"--horizon", "1h"}, []string{"horizon"}},
		{"secret both given and in a file", []string{"DISPATCHER_ADMIN_KEY=x", "DISPATCHER_ADMIN_KEY_FILE=" + file}, nil, []string{"DISPATCHER_ADMIN_KEY"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ports := harness.FreePorts(t, 2)
			args := append([]string{"serve", "--listen", "127.0.0.1:" + ports[0], "--ops-listen", "127.0.0.1:" + ports[1], "--data-dir", t.TempDir()}, c.args...)
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

// The first start on SQLite makes an admin key, shows it to nobody but the data directory, and it opens the API.
func TestFirstStartMakesAnAdminKey(t *testing.T) {
	harness.BlackBox(t)
	b := harness.NewBackend(t, harness.SQLiteEmbedded)
	p := spawnKeyless(t, b)
	name := filepath.Join(b.DataDir, "admin.key")
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("admin.key has mode %o, want 600", mode)
	}
	key, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	p.Key = strings.TrimSpace(string(key))
	if _, err := p.List(t.Context(), nil); err != nil {
		t.Errorf("the key does not open the API: %v", err)
	}
	if strings.Contains(p.LogTail(1<<20), p.Key) {
		t.Error("the key is in the log of a process without a terminal")
	}
}
