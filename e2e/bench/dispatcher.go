package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/pprof/profile"
	"github.com/valyala/fasthttp"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// Keys of every measured dispatcher. They protect nothing else.
const (
	adminKey  = "bench-admin-key-0123456789abcdefghijklmno"
	masterKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
)

// maxConnections is the highest number of connections of a client.
const maxConnections = 512

// A dispatcher is one process of the product.
type dispatcher struct {
	pid     int
	base    string // URL of the API
	ops     string // URL of the operations listener
	client  *fasthttp.HostClient
	logFile string
	started time.Time
	kill    func() // returns when the process has ended
}

// launch starts a dispatcher and does not wait until it is ready. The process ends with the measurement. A
// failed measurement prints its log.
func (r *run) launch(args []string) *dispatcher {
	listen, ops := "127.0.0.1:"+testserver.FreePort(r), "127.0.0.1:"+testserver.FreePort(r)
	log, err := os.Create(filepath.Join(r.TempDir(), "dispatcher.log"))
	r.check("log", err)
	cmd := exec.Command(r.program, "serve", "--listen", listen, "--ops-listen", ops, "--log-format", "json",
		"--egress-allow", "127.0.0.0/8", "--lane-concurrency", strconv.Itoa(r.concurrency))
	cmd.Args = append(append(cmd.Args, args...), r.args...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, endWithParent
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "DISPATCHER_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "DISPATCHER_ADMIN_KEY="+adminKey, "DISPATCHER_MASTER_KEY="+masterKey)
	d := &dispatcher{
		base: "http://" + listen, ops: "http://" + ops, logFile: log.Name(), started: time.Now(),
		client: &fasthttp.HostClient{
			Addr: listen, MaxConns: maxConnections, NoDefaultUserAgentHeader: true,
			MaxIdleConnDuration: time.Minute, MaxIdemponentCallAttempts: 1,
			ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		},
	}
	r.check("start the dispatcher", cmd.Start())
	d.pid = cmd.Process.Pid
	r.roles[d.pid] = roleDispatcher
	d.kill = sync.OnceFunc(func() {
		cmd.Process.Kill() // an error does not matter: the process may have ended
		cmd.Wait()
		d.client.CloseIdleConnections()
		log.Close()
	})
	r.Cleanup(func() {
		d.kill()
		if r.Failed() {
			text, err := os.ReadFile(log.Name())
			lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
				return strings.Contains(line, `"level":"INFO","msg":"request"`)
			})
			logf("end of the dispatcher's log (%v):\n%s", err,
				strings.Join(lines[max(0, len(lines)-20):], "\n"))
		}
	})
	return d
}

// awaitReady waits until the dispatcher is ready.
func (r *run) awaitReady(d *dispatcher, limit time.Duration) {
	r.poll("the dispatcher is ready", limit, func() error {
		_, err := d.fetch(r.Context(), d.ops+"/readyz")
		return err
	})
}

// fetch sends a GET, whose response must be 200.
func (d *dispatcher) fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s returned %d: %.200s", url, resp.StatusCode, body)
	}
	return body, err
}

// stats are the fields of /v1/stats that the benchmark reads.
type stats struct {
	States struct{ Scheduled, Succeeded, Dead int }
	Index  *struct{ Delayed int }
}

// awaitStats waits until the counters are as wanted. A counter changes in the transaction of what it counts,
// so a callback counts as succeeded only when its result is committed.
func (r *run) awaitStats(d *dispatcher, what string, limit time.Duration, wanted func(stats) bool) {
	r.poll(what, limit, func() error {
		text, err := d.fetch(r.Context(), d.base+"/v1/stats")
		if err != nil {
			return err
		}
		var s stats
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		if !wanted(s) {
			return fmt.Errorf("%+v, index %+v", s.States, s.Index)
		}
		return nil
	})
}

// poll calls check until it returns nil, and fails with the last error after limit. The pause grows with the
// wait, because responses cost CPU time.
func (r *run) poll(what string, limit time.Duration, check func() error) {
	began := time.Now()
	for err := check(); err != nil; err = check() {
		waited := time.Since(began)
		if waited > limit {
			r.Fatalf("%s: not after %s: %v", what, limit, err)
		}
		time.Sleep(10*time.Millisecond + min(waited/20, time.Second))
	}
}

// profile starts profiles of the dispatcher's CPU time and allocations if they are wanted, and returns a
// function that waits for their end. They may last longer than the phase, because an idle process adds
// nothing to them. The profiles of the last round remain.
func (s *session) profile(phase string) (wait func()) {
	if s.profiles == "" {
		return func() {}
	}
	path := filepath.Join(s.profiles, s.system.name+"-"+phase)
	done := make(chan error, 2)
	for file, of := range map[string]string{".cpu.pprof": "profile", ".allocs.pprof": "allocs"} {
		go func() { done <- s.fetchTo(path+file, fmt.Sprintf("%s?seconds=%d", of, max(1, s.n/5000))) }()
	}
	return func() {
		for range cap(done) {
			s.check("profile", <-done)
		}
	}
}

func (d *dispatcher) fetchTo(file, of string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	data, err := d.fetch(ctx, d.ops+"/debug/pprof/"+of)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// joinProfiles merges the CPU profiles of a directory into one, for profile-guided builds. It removes the
// paths of the machine and the build ids, which a build does not need.
func joinProfiles(dir, file string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.cpu.pprof"))
	if err != nil {
		return err
	}
	all := make([]*profile.Profile, len(names))
	for i, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		all[i], err = profile.ParseData(data)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	joined, err := profile.Merge(all)
	if err != nil {
		return fmt.Errorf("join %d profiles: %w", len(all), err)
	}
	joined.Comments, joined.DocURL, joined.TimeNanos = nil, "", 0
	for _, f := range joined.Function {
		f.Filename = ""
	}
	for _, m := range joined.Mapping {
		m.File, m.BuildID = "", ""
	}
	var out bytes.Buffer
	if err := joined.Compact().Write(&out); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}
