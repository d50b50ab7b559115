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

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// receiverOf is the receiver of the alerts of each severity.
var receiverOf = map[string]string{"critical": "on-call", "warning": "team", "info": "record"}

// TestAlertmanager gives alerts of two installations to an Alertmanager with the example configuration. It
// checks where each goes, and which are suppressed while SQL is down.
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
	for _, job := range []string{"dispatcher-down", "dispatcher-well"} {
		for _, a := range alerts(t) {
			if job == "dispatcher-well" && (a.Alert == "DispatcherSQLDown" || a.Alert == "DispatcherNoData") {
				continue
			}
			posted = append(posted, map[string]any{"labels": map[string]string{
				"alertname": a.Alert, "severity": a.Labels["severity"], "job": job}})
		}
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

	suppressed, receivers := map[string]bool{}, map[string]string{}
	testserver.Until(t, "the inhibition of alerts", func() bool {
		suppressed, receivers = listed(t, url)
		return len(suppressed) >= 5 // a sixth would show in the comparison below, or later as no page
	})
	want := map[string]bool{}
	for _, name := range []string{"NothingMeasured", "SweepStale", "Overdue", "AcceptErrors", "ProcessDown"} {
		want["dispatcher-down Dispatcher"+name] = true
	}
	if diff := cmp.Diff(want, suppressed); diff != "" {
		t.Errorf("suppressed alerts (-want +got):\n%s", diff)
	}
	for _, a := range alerts(t) {
		want := receiverOf[a.Labels["severity"]]
		if a.Alert == "DispatcherWatchdog" {
			want = "heartbeat"
		}
		if got := receivers["dispatcher-down "+a.Alert]; got != want {
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

// listed returns the alerts that an inhibition suppresses, and the receiver of each alert. Keys are the job
// and the name.
func listed(t *testing.T, url string) (suppressed map[string]bool, receivers map[string]string) {
	t.Helper()
	resp, err := http.Get(url + "/api/v2/alerts")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all []struct {
		Labels    map[string]string
		Receivers []struct{ Name string }
		Status    struct{ InhibitedBy []string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	suppressed, receivers = map[string]bool{}, map[string]string{}
	for _, a := range all {
		key := a.Labels["job"] + " " + a.Labels["alertname"]
		if len(a.Status.InhibitedBy) > 0 {
			suppressed[key] = true
		}
		var names []string
		for _, r := range a.Receivers {
			names = append(names, r.Name)
		}
		receivers[key] = strings.Join(names, ", ")
	}
	return suppressed, receivers
}
