package alerts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// interval is how often the Prometheus of the tests scrapes and evaluates. The example configuration has
// 15 s.
const interval = 5 * time.Second

// A prometheus is a running server. Its targets are files, so labs add and replace them.
type prometheus struct {
	url, targets string
	exprs        map[string]string // of the alerts, by name
}

// startPrometheus starts Prometheus with the rules that ship. It ends with the test.
func startPrometheus(tb testing.TB) *prometheus {
	tb.Helper()
	rules, err := filepath.Abs("../../deploy/prometheus")
	harness.Check(tb, err)
	dir := tb.TempDir()
	m := &prometheus{targets: filepath.Join(dir, "targets"), exprs: map[string]string{}}
	harness.Check(tb, os.Mkdir(m.targets, 0o700))
	config := filepath.Join(dir, "prometheus.yml")
	harness.Check(tb, os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: %[1]s, evaluation_interval: %[1]s}
rule_files: [%[2]q, %[3]q]
scrape_configs:
  - job_name: labs
    file_sd_configs: [{files: [%[4]q], refresh_interval: 1s}]
`, interval, filepath.Join(rules, "recording.yaml"), filepath.Join(rules, "alerts.yaml"),
		filepath.Join(m.targets, "*.json")), 0o600))
	address := "127.0.0.1:" + testserver.FreePort(tb)
	m.url = "http://" + address
	var output bytes.Buffer
	cmd := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+dir,
		"--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("this test needs Debian's package prometheus: %v", err)
	}
	tb.Cleanup(func() {
		cmd.Process.Kill() // the process may have ended
		cmd.Wait()         // its exit state does not matter
		if tb.Failed() {
			tb.Logf("Prometheus:\n%s", output.String()[max(0, output.Len()-4000):])
		}
	})
	harness.Eventually(tb, time.Minute, "Prometheus is ready", func() error {
		return m.get("/-/ready", nil, nil)
	})
	m.readRules(tb)
	return m
}

// readRules reads the expressions of the alerts as Prometheus has them.
func (m *prometheus) readRules(tb testing.TB) {
	tb.Helper()
	var loaded struct {
		Groups []struct {
			Rules []struct{ Name, Query, Type string }
		}
	}
	harness.Check(tb, m.get("/api/v1/rules", nil, &loaded))
	for _, g := range loaded.Groups {
		for _, r := range g.Rules {
			if r.Type == "alerting" {
				m.exprs[r.Name] = r.Query
			}
		}
	}
	if len(m.exprs) < 30 {
		tb.Fatalf("Prometheus has %d alerts", len(m.exprs))
	}
}

// get asks the API. It decodes the data of the response into out unless that is nil.
func (m *prometheus) get(path string, query url.Values, out any) error {
	c := http.Client{Timeout: 10 * time.Second}
	resp, err := c.Get(m.url + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil && resp.StatusCode == http.StatusOK {
		return nil
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Status != "success" {
		return fmt.Errorf("GET %s?%s returned %d: %s %w", path, query.Encode(), resp.StatusCode,
			answer.Error, err)
	}
	return json.Unmarshal(answer.Data, out)
}

// An alert is active: pending or firing.
type alert struct {
	Labels, Annotations map[string]string
	State               string
}

// active returns the active alerts of a job by name, without the watchdog.
func (m *prometheus) active(job string) (map[string]alert, error) {
	var all struct{ Alerts []alert }
	if err := m.get("/api/v1/alerts", nil, &all); err != nil {
		return nil, err
	}
	found := map[string]alert{}
	for _, a := range all.Alerts {
		if a.Labels["job"] == job {
			found[a.Labels["alertname"]] = a
		}
	}
	return found, nil
}

// series returns the labels of the series that the expression has now.
func (m *prometheus) series(expr string) ([]map[string]string, error) {
	var vector struct {
		Result []struct{ Metric map[string]string }
	}
	err := m.get("/api/v1/query", url.Values{"query": {expr}}, &vector)
	var all []map[string]string
	for _, r := range vector.Result {
		all = append(all, r.Metric)
	}
	return all, err
}

// target makes Prometheus scrape an address as an instance of the job. It replaces an earlier address of the
// instance.
func (m *prometheus) target(tb testing.TB, job, instance, address string) {
	tb.Helper()
	text, err := json.Marshal([]any{map[string]any{"targets": []string{address},
		"labels": map[string]string{"job": job, "instance": instance}}})
	harness.Check(tb, err)
	name := filepath.Join(m.targets, job+"-"+instance)
	harness.Check(tb, os.WriteFile(name, text, 0o600))
	harness.Check(tb, os.Rename(name, name+".json")) // Prometheus must not read half a file
}

// short removes the prefix of an alert's name.
func short(name string) string { return strings.TrimPrefix(name, "Dispatcher") }
