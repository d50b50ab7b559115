package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// sentinelCount is the number of Sentinels. Two of them must agree that the master is dead.
const sentinelCount = 3

// sentinelName is the name of the master in the Sentinels.
const sentinelName = "payments"

// SentinelOptions are the options of a master and its Sentinels.
type SentinelOptions struct {
	// Replicas is the number of replicas. Zero: one.
	Replicas int
	// Password is that of the servers, SentinelPassword that of the Sentinels. Empty: none.
	Password, SentinelPassword string
}

// A Sentinel is a Redis with replicas and three Sentinels. The Sentinels make a replica the master if the
// master is silent for two seconds.
type Sentinel struct {
	// Servers are the first master and its replicas. Each can be killed, paused and started again.
	Servers []*Redis
	// Sentinels are the addresses of the Sentinels.
	Sentinels []string

	group
	sentinelPassword string
}

// NewSentinel starts the servers and the Sentinels. It returns when each Sentinel knows the other Sentinels
// and all replicas. They end with the test.
func NewSentinel(tb testing.TB, o SentinelOptions) *Sentinel {
	tb.Helper()
	w := &Sentinel{group: group{tb, o.Password}, sentinelPassword: o.SentinelPassword}
	args := append([]string{"--repl-diskless-sync-delay", "0"}, w.authArgs()...)
	master := NewRedis(tb, args...)
	w.Servers = []*Redis{master}
	for range max(o.Replicas, 1) {
		replica := NewRedis(tb, args...)
		w.Do(replica, "replicaof", "127.0.0.1", master.port)
		w.AwaitReplica(replica)
		w.Servers = append(w.Servers, replica)
	}
	for range sentinelCount {
		w.Sentinels = append(w.Sentinels, w.startSentinel(master.port))
	}
	for _, addr := range w.Sentinels {
		await(tb, startTimeout, "the Sentinel at "+addr+" to know all others",
			func(ctx context.Context) error {
				return w.knowsAll(ctx, addr)
			})
	}
	return w
}

// startSentinel starts a Sentinel and returns its address. The configuration file must be writable, because a
// Sentinel rewrites it.
func (w *Sentinel) startSentinel(port string) string {
	w.tb.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "sentinel monitor %s 127.0.0.1 %s 2\n", sentinelName, port)
	fmt.Fprintf(&text, "sentinel down-after-milliseconds %s 2000\n", sentinelName)
	fmt.Fprintf(&text, "sentinel failover-timeout %s 10000\n", sentinelName)
	if w.password != "" {
		fmt.Fprintf(&text, "sentinel auth-pass %s %s\n", sentinelName, w.password)
	}
	if w.sentinelPassword != "" {
		fmt.Fprintf(&text, "requirepass %s\nsentinel sentinel-pass %s\n", w.sentinelPassword,
			w.sentinelPassword)
	}
	dir := w.tb.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		w.tb.Fatalf("write configuration of a Sentinel: %v", err)
	}
	own := FreePort(w.tb)
	c := begin(w.tb, redisProgram, nil, own, dir, file, "--sentinel", "--bind", "127.0.0.1", "--port", own)
	c.awaitAnswer(w.tb)
	return c.addr
}

// knowsAll returns an error while a Sentinel does not know all replicas and Sentinels.
func (w *Sentinel) knowsAll(ctx context.Context, addr string) error {
	c := Client(addr, w.sentinelPassword)
	defer c.Close()
	info, err := c.Info(ctx, "sentinel").Result()
	if err != nil {
		return err
	}
	want := fmt.Sprintf("status=ok,address=%s,slaves=%d,sentinels=%d", w.Servers[0].Address(),
		len(w.Servers)-1, sentinelCount)
	if !strings.Contains(info, want) {
		return fmt.Errorf("info is %q, want %q", strings.TrimSpace(info), want)
	}
	return nil
}

// URL returns "redis+sentinel://" with the addresses of the Sentinels, the passwords, the name of the master
// and the number of a database.
func (w *Sentinel) URL(db int) string {
	query := ""
	if w.sentinelPassword != "" {
		query = "?sentinel_password=" + w.sentinelPassword
	}
	return fmt.Sprintf("redis+sentinel://%s%s/%s/%d%s", w.user(), strings.Join(w.Sentinels, ","),
		sentinelName, db, query)
}

// Master returns the server that all Sentinels name as the master, or nil if they do not agree.
func (w *Sentinel) Master() *Redis {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	agreed := ""
	for i, addr := range w.Sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: addr, Password: w.sentinelPassword, MaxRetries: -1})
		got, err := c.GetMasterAddrByName(ctx, sentinelName).Result()
		_ = c.Close() // an error would not change the answer
		if err != nil || len(got) != 2 {
			return nil
		}
		named := net.JoinHostPort(got[0], got[1])
		if i > 0 && named != agreed {
			return nil
		}
		agreed = named
	}
	for _, server := range w.Servers {
		if server.Address() == agreed {
			return server
		}
	}
	return nil
}

// AwaitMaster waits until the Sentinels agree on a master other than not, and this server also reports that
// it is the master. It returns the server.
func (w *Sentinel) AwaitMaster(not *Redis) *Redis {
	w.tb.Helper()
	var master *Redis
	await(w.tb, failoverTimeout, "the Sentinels to name another master", func(context.Context) error {
		master = w.Master()
		if master == nil || master == not {
			return errors.New("no new master yet")
		}
		return w.infoHas(master, "replication", "role:master")
	})
	return master
}

// Cut stops the replication from the master. It refuses its replicas, which keep their data. The master still
// acknowledges writes, which no replica gets.
func (w *Sentinel) Cut(master *Redis) {
	w.tb.Helper()
	w.Do(master, "acl", "setuser", "default", "-psync", "-sync")
	w.Do(master, "client", "kill", "type", "replica")
}

// Rejoin undoes Cut.
func (w *Sentinel) Rejoin(master *Redis) {
	w.tb.Helper()
	w.Do(master, "acl", "setuser", "default", "+psync", "+sync")
}
