package queuetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// startTimeout bounds the wait for a child process to answer; a loaded machine needs far less.
const startTimeout = 30 * time.Second

// StartRedis starts a redis-server from PATH on a free port of 127.0.0.1, without persistence, in a directory of its
// own, and returns its URL ("redis://127.0.0.1:PORT"). Further arguments are given to the server as they are and come
// last, so they override. The server ends with the test, and with the test's process however that ends. A missing
// binary fails the test and says what to install.
func StartRedis(tb testing.TB, args ...string) string {
	tb.Helper()
	return "redis://" + startServer(tb, FreePorts(tb, 1)[0], args...)
}

// StartCluster starts three masters that share all slots, without replicas, and returns their addresses once each of
// them says that the cluster is ok. They end as StartRedis says.
func StartCluster(tb testing.TB) []string {
	tb.Helper()
	const masters, slots = 3, 16384
	// A node listens for its peers on its port plus 10000 unless told otherwise; naming that port too keeps both free.
	ports := FreePorts(tb, 2*masters)
	addrs := make([]string, masters)
	for i := range addrs {
		addrs[i] = startServer(tb, ports[2*i],
			"--cluster-enabled", "yes",
			"--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", "5000",
			"--cluster-port", strconv.Itoa(ports[2*i+1]))
	}
	for i, addr := range addrs {
		ask(tb, addr, "cluster", "addslotsrange", i*slots/masters, (i+1)*slots/masters-1)
		ask(tb, addr, "cluster", "set-config-epoch", i+1)
	}
	host, port, err := net.SplitHostPort(addrs[0])
	if err != nil {
		tb.Fatalf("address of a redis-server: %v", err)
	}
	for _, addr := range addrs[1:] {
		ask(tb, addr, "cluster", "meet", host, port, ports[1])
	}
	for _, addr := range addrs {
		await(tb, "the cluster to be ok at "+addr, func(ctx context.Context, c *redis.Client) error {
			info, err := c.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:3") {
				return fmt.Errorf("not ready: %s", info)
			}
			return nil
		}, addr)
	}
	return addrs
}

// StartSentinel starts one Sentinel, alone its own quorum, that watches the server of that URL under the name, and
// returns its address once it knows the server. It ends as StartRedis says.
func StartSentinel(tb testing.TB, url, name string) string {
	tb.Helper()
	host, port, err := net.SplitHostPort(strings.TrimPrefix(url, "redis://"))
	if err != nil {
		tb.Fatalf("address of a redis-server: %v", err)
	}
	file := filepath.Join(tb.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %s %s %s 1\nsentinel down-after-milliseconds %s 1000\n", name, host, port, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatalf("configuration of a Sentinel: %v", err)
	}
	own := FreePorts(tb, 1)[0]
	return start(tb, own, tb.TempDir(), file, "--sentinel", "--bind", "127.0.0.1", "--port", strconv.Itoa(own))
}

// startServer starts one redis-server on the port and waits until it answers.
func startServer(tb testing.TB, port int, args ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	return start(tb, port, dir, append([]string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "notice",
	}, args...)...)
}

// start runs the binary with the arguments in the directory, and waits until it answers on the port.
func start(tb testing.TB, port int, dir string, args ...string) string {
	tb.Helper()
	c := begin(tb, redisProgram, nil, port, dir, args...)
	c.awaitAnswer(tb)
	return c.addr
}

// A child is one redis-server that runs, or has ended.
type child struct {
	addr   string
	cmd    *exec.Cmd
	output bytes.Buffer  // its log; to be read when it has ended
	ended  chan struct{} // closed when it has
	ending error
}

// begin runs the program with the arguments in the directory, by way of the command in wrap if there is one, and waits for
// nothing.
func begin(tb testing.TB, program string, wrap []string, port int, dir string, args ...string) *child {
	tb.Helper()
	binary, err := exec.LookPath(program)
	if err != nil {
		tb.Fatalf("this test needs %[1]s in PATH (Debian and Ubuntu: apt-get install %[1]s); -short leaves it out: %[2]v", program, err)
	}
	words := slices.Concat(wrap, []string{binary}, args)
	c := &child{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), cmd: exec.Command(words[0], words[1:]...), ended: make(chan struct{})}
	c.cmd.Dir = dir
	c.cmd.Stdout, c.cmd.Stderr = &c.output, &c.output
	endWithParent(c.cmd)
	if err := c.cmd.Start(); err != nil {
		tb.Fatalf("start %s: %v", program, err)
	}
	go func() {
		defer close(c.ended)
		c.ending = c.cmd.Wait()
	}()
	tb.Cleanup(c.kill)
	return c
}

// kill is kill -9. It returns when the server has ended.
func (c *child) kill() {
	// The error says only that it has ended already, which is what is wanted.
	_ = c.cmd.Process.Kill()
	<-c.ended
}

// awaitAnswer waits until the server answers.
func (c *child) awaitAnswer(tb testing.TB) {
	tb.Helper()
	await(tb, "redis-server at "+c.addr, func(ctx context.Context, client *redis.Client) error {
		select {
		case <-c.ended:
			tb.Fatalf("redis-server ended: %v\n%s", c.ending, c.output.String())
		default:
		}
		// The client would log each refused connection.
		conn, err := net.DialTimeout("tcp", c.addr, time.Second)
		if err != nil {
			return err
		}
		err = client.Ping(ctx).Err()
		if redis.HasErrorPrefix(err, "NOAUTH") {
			err = nil // it answers; the password is the test's
		}
		return errors.Join(conn.Close(), err)
	}, c.addr)
}

// The ports that servers of tests listen on lie below those that the system gives to whoever asks for any: between choosing
// one and listening on it nobody else, neither a listener nor a connection, is given it. The bus of a Cluster's nodes is
// 10,000 above, still below them.
const (
	firstPort = 10_240
	portCount = 10_000
)

// lastPort counts the ports that this process has chosen, from a random start, so that test binaries that run side by side
// do not try the same ones.
var lastPort atomic.Int64

// FreePorts returns n ports of the loopback that nobody listens on, and that this process never chooses again.
func FreePorts(tb testing.TB, n int) []int {
	tb.Helper()
	lastPort.CompareAndSwap(0, 1+rand.Int64N(portCount))
	ports := make([]int, 0, n)
	for range portCount {
		if len(ports) == n {
			return ports
		}
		port := firstPort + int(lastPort.Add(1)%portCount)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			tb.Fatalf("close a port: %v", err)
		}
		ports = append(ports, port)
	}
	tb.Fatalf("no %d free ports of the loopback from %d on", n, firstPort)
	return nil
}

// plain returns a client of exactly one server, as a test needs it: nothing is hidden by retries.
func plain(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// ask sends one command that must succeed.
func ask(tb testing.TB, addr string, args ...any) {
	tb.Helper()
	c := plain(addr)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := c.Do(ctx, args...).Err(); err != nil {
		tb.Fatalf("%v at %s: %v", args, addr, err)
	}
}

// await repeats the question until it has no error.
func await(tb testing.TB, what string, question func(context.Context, *redis.Client) error, addr string) {
	tb.Helper()
	c := plain(addr)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for {
		err := question(ctx, c)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("waited %v for %s: %v", startTimeout, what, err)
		case <-pause.C:
		}
	}
}
