package image

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/seed-ff5a32d8/dispatcher/deploy/check/program"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A container is the unpacked image with what an engine adds: a read-only root, a volume for /data, /proc,
// and the environment of the image.
type container struct {
	config     v1.Config
	root, data string
	extra      []string // variables of `docker run --env`
}

// enter mounts the root read-only with the volume in it, in a new mount namespace. Then it runs a program in
// it, as a user without groups and capabilities. The process that unshare starts becomes the program.
const enter = `set -e
root=$1 data=$2 user=$3; shift 3
mount --bind "$root" "$root"
mount --bind "$data" "$root/data"
mount --bind "$root/certificates" "$root/certificates"
mount -t proc proc "$root/proc"
mount -o remount,bind,ro "$root"
exec chroot --userspec="$user" --groups= "$root" "$@"`

// command runs the program with arguments, as the image's user. It needs root.
func (c *container) command(t *testing.T, words ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-c", enter, "sh", c.root, c.data,
		c.config.User}, words...)...)
	cmd.Env = slices.Concat(c.config.Env, c.extra, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"})
	return cmd
}

// TestImageRuns builds the image without an engine, unpacks it, and runs it with a read-only root: the health
// check, a server that sends to https receivers and knows time zones, and the drain.
func TestImageRuns(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("this test changes the root directory and the user, so run it as root")
	}
	bundled, mounted, unknown := newAuthority(t), newAuthority(t), newAuthority(t)
	config := configuration(t, map[string]string{"VERSION": "test"})
	all := entries(t, bundled.certificate)
	c := &container{config: config, root: t.TempDir(), data: t.TempDir()}
	unpack(t, write(t, config, all), c.root, all)
	c.prepare(t, mounted.certificate)
	api, ops := c.listen(t)

	check := config.Healthcheck.Test[1:]
	if out, err := c.command(t, check...).CombinedOutput(); err == nil {
		t.Errorf("the health check finds a server that does not run: %s", out)
	}
	server := program.Start(t, c.command(t, append(config.Entrypoint, config.Cmd...)...))
	testserver.Until(t, "the health check succeeds", func() bool {
		return c.command(t, check...).Run() == nil
	})

	c.checkProcess(t, ops)
	caller := &caller{t: t, api: api, key: strings.TrimSpace(read(t, filepath.Join(c.data, "admin.key")))}
	for name, a := range map[string]*authority{"the image": bundled, "the mounted directory": mounted} {
		id := caller.send(a.receiver(t))
		testserver.Until(t, "a callback reaches a receiver whose authority is in "+name, func() bool {
			return caller.state(id) == "succeeded"
		})
	}
	id := caller.send(unknown.receiver(t))
	testserver.Until(t, "an attempt fails with class tls_cert", func() bool {
		return strings.Contains(caller.get("/v1/callbacks/"+id+"/attempts"), `"class":"tls_cert"`)
	})
	caller.checkZones()

	if err := server.Stop(time.Minute); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if log := server.Output(); strings.Contains(log, `"level":"ERROR"`) ||
		strings.Contains(log, "read-only file system") {
		t.Errorf("the server has logged an error:\n%s", log)
	}
	if _, err := os.Stat(filepath.Join(c.data, "dispatcher.db")); err != nil {
		t.Errorf("the data is not on the volume: %v", err)
	}
}

// prepare adds what an engine and Kubernetes mount: /proc, the owner of the volume, and a directory of
// certificates as a ConfigMap has it, with links to a hidden directory.
func (c *container) prepare(t *testing.T, certificate []byte) {
	t.Helper()
	dir := filepath.Join(c.root, "certificates")
	steps := []error{
		os.Mkdir(filepath.Join(c.root, "proc"), 0o755),
		os.Chown(c.data, user, user),
		os.MkdirAll(filepath.Join(dir, "..1"), 0o755),
		os.WriteFile(filepath.Join(dir, "..1", "ca.crt"), certificate, 0o644),
		os.Symlink("..1", filepath.Join(dir, "..data")),
		os.Symlink("..data/ca.crt", filepath.Join(dir, "ca.crt")),
		// The user must reach the directory. The test's own is not open to others.
		os.Chmod(c.root, 0o755), os.Chmod(c.data, 0o700),
	}
	for _, err := range steps {
		if err != nil {
			t.Fatal(err)
		}
	}
	c.extra = append(c.extra, "SSL_CERT_DIR=/certificates", "DISPATCHER_EGRESS_ALLOW=127.0.0.1/32",
		"DISPATCHER_LOG_LEVEL=warn")
}

// listen chooses free ports, because those of the image may be in use on this machine.
func (c *container) listen(t *testing.T) (api, ops string) {
	t.Helper()
	api = net.JoinHostPort("127.0.0.1", testserver.FreePort(t))
	ops = net.JoinHostPort("127.0.0.1", testserver.FreePort(t))
	c.extra = append(c.extra, "DISPATCHER_LISTEN="+api, "DISPATCHER_OPS_LISTEN="+ops)
	return "http://" + api, "http://" + ops
}

// checkProcess checks that the server runs as the user, without capabilities, in a read-only root. Its
// metrics name the process's start, which the alert of a crash loop needs.
func (c *container) checkProcess(t *testing.T, ops string) {
	t.Helper()
	pids, err := filepath.Glob("/proc/[0-9]*/root")
	if err != nil {
		t.Fatal(err)
	}
	var status, mounts string
	for _, link := range pids {
		if to, err := os.Readlink(link); err == nil && to == c.root {
			status = read(t, filepath.Join(filepath.Dir(link), "status"))
			mounts = read(t, filepath.Join(filepath.Dir(link), "mountinfo"))
		}
	}
	for _, line := range []string{"Uid:\t65532\t65532\t65532\t65532\n", "Gid:\t65532\t65532\t65532\t65532\n",
		"Groups:\t \n", "CapEff:\t0000000000000000\n"} {
		if !strings.Contains(status, line) {
			t.Errorf("the process has not %q:\n%s", line, status)
		}
	}
	writable := map[string]bool{}
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); len(f) > 5 && (f[4] == "/" || strings.HasPrefix(f[4], "/data")) {
			writable[f[4]] = strings.HasPrefix(f[5], "rw")
		}
	}
	if len(writable) != 2 || writable["/"] || !writable["/data"] {
		t.Errorf("writable mounts: %v:\n%s", writable, mounts)
	}
	if !strings.Contains(program.Get(ops+"/metrics"), "\nprocess_start_time_seconds ") {
		t.Error("no metric process_start_time_seconds")
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A caller calls the API of the server.
type caller struct {
	t        *testing.T
	api, key string
}

// call returns the body of a response with a status below 300.
func (c *caller) call(method, path, body string) string {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), method, c.api+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		c.t.Fatalf("%s %s: status %d, %v\n%s", method, path, response.StatusCode, err, text)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		c.t.Fatal(err)
	}
	return compact.String()
}

func (c *caller) get(path string) string { return c.call(http.MethodGet, path, "") }

// send submits a callback with one retry in an hour, and returns its id.
func (c *caller) send(url string) string {
	c.t.Helper()
	var made struct{ ID string }
	text := c.call(http.MethodPost, "/v1/callbacks",
		fmt.Sprintf(`{"url": %q, "payload": {}, "policy": {"tiers": ["1h"]}}`, url))
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.ID == "" {
		c.t.Fatalf("the response is %s, %v", text, err)
	}
	return made.ID
}

func (c *caller) state(id string) string {
	c.t.Helper()
	var found struct{ State string }
	if err := json.Unmarshal([]byte(c.get("/v1/callbacks/"+id)), &found); err != nil {
		c.t.Fatal(err)
	}
	return found.State
}

// checkZones creates a schedule in a time zone. The root has no files of zones.
func (c *caller) checkZones() {
	c.t.Helper()
	text := c.call(http.MethodPost, "/v1/schedules", `{"name": "zone", "cron": "30 9 * * *",
		"timezone": "Asia/Shanghai", "callback": {"url": "https://example.com/", "payload": {}}}`)
	if !strings.Contains(text, `T01:30:00`) {
		c.t.Errorf("09:30 in Shanghai is not 01:30 in UTC: %s", text)
	}
}
