package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// Keys that every dispatcher here is given. They are test values and open nothing else.
const (
	adminKey  = "bench-admin-key-0123456789abcdefghijklmno"
	masterKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
)

// buildDispatcher compiles this checkout as it is released.
func buildDispatcher(dir string) (string, error) {
	name := filepath.Join(dir, "dispatcher")
	cmd := exec.Command("go", "build", "-tags", buildTags, "-o", name, "./cmd/dispatcher")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return name, nil
}

// A dispatcher is one process of the product.
type dispatcher struct {
	pid      int
	ops      string // base URL of the operations listener
	base     string // base URL of the API
	client   *fasthttp.HostClient
	receiver *receiver
	logFile  string
	lanes    int // of the callbacks that are posted; zero: one, that of the receiver
	// started is when the process was started; end kills it and returns when it has ended.
	started time.Time
	end     func()
}

// embeddedArgs are the settings of system b, fullArgs those of system c, each with new and empty stores.
func embeddedArgs(t *testing.T) []string { return []string{"--data-dir", t.TempDir()} }

func fullArgs(t *testing.T) []string {
	return []string{
		"--data-dir", t.TempDir(),
		"--database-url", testserver.NewPostgres(t).Database(t),
		"--redis-url", testserver.NewRedis(t).URL,
	}
}

// startDispatcher starts one and returns when it is ready. It is ended with the test, and its log shown if that failed.
func startDispatcher(t *testing.T, program string, concurrency int, r *receiver, args []string) *dispatcher {
	t.Helper()
	d := launchDispatcher(t, program, concurrency, r, args)
	d.awaitReady(t, startTime)
	return d
}

// awaitReady returns when the process says that it is ready.
func (d *dispatcher) awaitReady(t *testing.T, limit time.Duration) {
	t.Helper()
	if err := poll(t.Context(), "the dispatcher is ready", limit, 20*time.Millisecond, func() (bool, error) {
		_, err := fetch(t.Context(), d.ops+"/readyz")
		return err == nil, err
	}); err != nil {
		t.Fatal(err)
	}
}

// launchDispatcher starts one and waits for nothing.
func launchDispatcher(t *testing.T, program string, concurrency int, r *receiver, args []string) *dispatcher {
	t.Helper()
	ports := testserver.FreePorts(t, 2)
	listen, ops := "127.0.0.1:"+strconv.Itoa(ports[0]), "127.0.0.1:"+strconv.Itoa(ports[1])
	logFile, err := os.Create(filepath.Join(t.TempDir(), "dispatcher.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append([]string{
		"serve", "--listen", listen, "--ops-listen", ops, "--egress-allow", "127.0.0.0/8", "--log-format", "json",
		"--lane-concurrency", strconv.Itoa(concurrency),
	}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = logFile, logFile, childAttr()
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "DISPATCHER_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "DISPATCHER_ADMIN_KEY="+adminKey, "DISPATCHER_MASTER_KEY="+masterKey)
	started := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatalf("start the dispatcher: %v", err)
	}
	var ended sync.WaitGroup
	ended.Go(func() { cmd.Wait() }) // nothing is asked of its end: it is killed
	d := &dispatcher{
		pid: cmd.Process.Pid, ops: "http://" + ops, base: "http://" + listen, receiver: r, logFile: logFile.Name(), started: started,
		client: &fasthttp.HostClient{
			Addr: listen, MaxConns: maxConnections, NoDefaultUserAgentHeader: true,
			MaxIdleConnDuration: time.Minute, MaxIdemponentCallAttempts: 1,
			ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		},
	}
	d.end = func() {
		cmd.Process.Kill() // it may have ended meanwhile
		ended.Wait()
		d.client.CloseIdleConnections()
	}
	t.Cleanup(func() {
		d.end()
		logFile.Close()
		if t.Failed() {
			t.Logf("log of the dispatcher:\n%s", story(logFile.Name()))
		}
	})
	return d
}

// call makes one request to the API, which must be answered with the status, and decodes the answer if it is wanted.
func (d *dispatcher) call(ctx context.Context, method, path, body string, status int, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, d.base+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode != status {
		return fmt.Errorf("%s %s answered %d, want %d: %.300s", method, path, resp.StatusCode, status, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// story is the end of a log without the requests that went well.
func story(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, `"level":"INFO","msg":"request"`) {
			b.WriteString(line)
		}
	}
	return b.String()[max(0, b.Len()-4000):]
}

// stats is what /v1/stats says that is read here.
type stats struct {
	States struct{ Scheduled, Succeeded, Dead, Canceled int }
	Index  *struct{ Delayed, Ready, Leased int }
}

func (d *dispatcher) stats(ctx context.Context) (s stats, err error) {
	err = d.call(ctx, http.MethodGet, "/v1/stats", "", http.StatusOK, &s)
	return s, err
}

// awaitStats waits until the counters are as wanted. They change in the transactions of what they count, so that
// a callback counts as succeeded when its result is committed, and not before.
func (d *dispatcher) awaitStats(ctx context.Context, what string, limit time.Duration, wanted func(stats) bool) error {
	return poll(ctx, what, limit, 10*time.Millisecond, func() (bool, error) {
		s, err := d.stats(ctx)
		if err == nil && !wanted(s) {
			err = fmt.Errorf("%+v, index %+v", s.States, s.Index)
		}
		return err == nil, err
	})
}
