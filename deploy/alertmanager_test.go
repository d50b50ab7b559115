package deploy

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// receiverOf is the receiver of the alerts of each severity.
var receiverOf = map[string]string{"critical": "on-call", "warning": "team", "info": "record"}

// TestAlertmanager gives all alerts to an Alertmanager with the example configuration, and checks where each
// goes.
func TestAlertmanager(t *testing.T) {
	if testing.Short() {
		t.Skip("Alertmanager is not needed with -short")
	}
	run(t, "amtool", "check-config", "prometheus/alertmanager.yml")
	sent := make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case sent <- r.URL.Path:
		default: // the test reads one
		}
	}))
	t.Cleanup(receiver.Close)
	url := startAlertmanager(t, receiver.URL)

	var posted []map[string]any
	for _, a := range alerts(t) {
		posted = append(posted, map[string]any{"labels": map[string]string{
			"alertname": a.Alert, "severity": a.Labels["severity"], "job": "dispatcher"}})
	}
	body, err := json.Marshal(posted)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(url+"/api/v2/alerts", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("POST /api/v2/alerts returned %s", resp.Status)
	}

	receivers := map[string]string{}
	testserver.Until(t, "all alerts", func() bool {
		receivers = listed(t, url)
		return len(receivers) == len(posted)
	})
	for _, a := range alerts(t) {
		want := receiverOf[a.Labels["severity"]]
		if a.Alert == "DispatcherWatchdog" {
			want = "heartbeat"
		}
		if got := receivers[a.Alert]; got != want {
			t.Errorf("%s goes to %q, want %q", a.Alert, got, want)
		}
	}
	select {
	case path := <-sent:
		if path != "/ping" { // it alone does not wait for a group
			t.Errorf("the first message went to %s, want the heartbeat", path)
		}
	case <-time.After(time.Minute):
		t.Error("no heartbeat within a minute")
	}
}

// startAlertmanager starts Alertmanager with the example configuration, in which all addresses are replaced
// by that of the receiver.
func startAlertmanager(t *testing.T, receiver string) (url string) {
	t.Helper()
	text, err := os.ReadFile("prometheus/alertmanager.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "alertmanager.yml")
	for _, host := range []string{"on-call", "chat", "records", "heartbeat"} {
		text = bytes.ReplaceAll(text, []byte("https://"+host+".example"), []byte(receiver))
	}
	if bytes.Contains(text, []byte(".example")) {
		t.Fatalf("an address is left in\n%s", text)
	}
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	address := "127.0.0.1:" + testserver.FreePort(t)
	var output bytes.Buffer
	cmd := exec.Command("prometheus-alertmanager", "--config.file="+config, "--storage.path="+dir,
		"--web.listen-address="+address, "--cluster.listen-address=")
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("this test needs Debian's package prometheus-alertmanager: %v", err)
	}
	t.Cleanup(func() {
		// The process may have ended; its exit state does not matter.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Alertmanager:\n%s", output.String())
		}
	})
	url = "http://" + address
	testserver.Until(t, "Alertmanager", func() bool {
		resp, err := http.Get(url + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return url
}

// listed returns the receiver of each alert.
func listed(t *testing.T, url string) map[string]string {
	t.Helper()
	resp, err := http.Get(url + "/api/v2/alerts")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all []struct {
		Labels    map[string]string
		Receivers []struct{ Name string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	receivers := map[string]string{}
	for _, a := range all {
		var names []string
		for _, r := range a.Receivers {
			names = append(names, r.Name)
		}
		receivers[a.Labels["alertname"]] = strings.Join(names, ", ")
	}
	return receivers
}
