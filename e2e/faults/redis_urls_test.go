package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// redisPassword guards the servers of this test, sentinelPassword their Sentinels; wrongPassword opens none.
const (
	redisPassword    = "redis-password-7"
	sentinelPassword = "sentinel-password-7"
	wrongPassword    = "another-password"
)

// A redisForm is one form of redis_url, with real servers behind it.
type redisForm struct {
	name, url string
	// env is what the process needs beside the setting.
	env string
	// servers are clients of all servers that may hold a part of the index, in the right database.
	servers []*redis.Client
}

// Every form of redis_url that the documentation names serves: a callback is scheduled in the servers that it
// leads to, fails once, and is sent again. A password that is wrong is said so, and not repeated.
func TestEveryRedisURLFormServes(t *testing.T) {
	harness.BlackBox(t)
	files := makeCertificate(t)
	for _, form := range []struct {
		name  string
		start func(*testing.T, certificate) redisForm
	}{
		{"redis", userForm}, {"rediss", tlsForm}, {"redis+sentinel", sentinelForm}, {"redis+cluster", clusterForm},
		{"rediss+cluster", tlsClusterForm},
	} {
		t.Run(form.name, func(t *testing.T) {
			f := form.start(t, files)
			f.name = form.name
			t.Run("serves", func(t *testing.T) { servesBy(t, f) })
			t.Run("wrong_password", func(t *testing.T) { saysWrongPassword(t, f) })
		})
	}
}

func userForm(t *testing.T, _ certificate) redisForm {
	server := testserver.NewRedis(t, "--requirepass", "password-of-the-default-user")
	c := direct(t, server.Address(), "password-of-the-default-user", 3)
	if err := c.Do(t.Context(), "acl", "setuser", "payments", "on", ">"+redisPassword, "~*", "&*",
		"+@all").Err(); err != nil {
		t.Fatal(err)
	}
	return redisForm{url: "redis://payments:" + redisPassword + "@" + server.Address() + "/3",
		servers: []*redis.Client{c}}
}

func tlsForm(t *testing.T, files certificate) redisForm {
	port := testserver.FreePort(t)
	server := testserver.NewRedis(t, append(files.serverArgs(), "--tls-port", port, "--requirepass",
		redisPassword)...)
	return redisForm{
		url: "rediss://:" + redisPassword + "@127.0.0.1:" + port + "/0", env: files.env(),
		servers: []*redis.Client{direct(t, server.Address(), redisPassword, 0)},
	}
}

func sentinelForm(t *testing.T, _ certificate) redisForm {
	w := testserver.NewSentinel(t, testserver.SentinelOptions{Password: redisPassword,
		SentinelPassword: sentinelPassword})
	return redisForm{url: w.URL(2), servers: []*redis.Client{direct(t, w.Servers[0].Address(), redisPassword,
		2)}}
}

func clusterForm(t *testing.T, _ certificate) redisForm {
	c := testserver.NewCluster(t, testserver.ClusterOptions{Password: redisPassword})
	return redisForm{url: c.URL(), servers: nodesOf(t, c)}
}

func tlsClusterForm(t *testing.T, files certificate) redisForm {
	c := testserver.NewCluster(t, testserver.ClusterOptions{Password: redisPassword, TLS: files.serverArgs()})
	return redisForm{url: c.TLSURL(), env: files.env(), servers: nodesOf(t, c)}
}

func nodesOf(t *testing.T, c *testserver.Cluster) []*redis.Client {
	var all []*redis.Client
	for _, node := range c.Nodes {
		all = append(all, direct(t, node.Address(), redisPassword, 0))
	}
	return all
}

// direct is a client of one server's plain port.
func direct(t *testing.T, addr, password string, db int) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, Password: password, DB: db, DisableIdentity: true})
	t.Cleanup(func() { c.Close() })
	return c
}

// launchOn starts a process on a backend with this URL.
func (f *redisForm) launchOn(t *testing.T, url string) harness.Launch {
	b := harness.NewBackend(t, harness.SQLiteEmbedded)
	b.Name, b.Redis = f.name, url
	l := harness.Launch{On: b}
	if f.env != "" {
		l.Under = []string{"env", f.env}
	}
	return l
}

// servesBy sends one callback at its second attempt, and finds one that is due in an hour in a delay set.
func servesBy(t *testing.T, f redisForm) {
	r := harness.NewReceiver(t, func(a *harness.Arrival) harness.Reply {
		if a.Nth == 1 {
			return harness.Reply{Status: 503}
		}
		return harness.Reply{Status: 200}
	})
	p := harness.Serve(t, f.launchOn(t, f.url))
	now, err := p.Accept(t.Context(), harness.Submission{"url": r.URL, "payload": harness.Payload("now"),
		"policy": harness.Submission{"tiers": []string{"500ms", "5s", "5s"}}})
	if err != nil {
		t.Fatal(err)
	}
	later, err := p.Accept(t.Context(), harness.Submission{"url": r.URL, "payload": harness.Payload("later"),
		"delay": "1h"})
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 30*time.Second, "the callback is sent at its second attempt", func() error {
		cb, err := p.Callback(t.Context(), now.ID)
		if err == nil && (cb.State != "succeeded" || cb.AttemptCount != 2) {
			err = fmt.Errorf("it is %s after %d attempts", cb.State, cb.AttemptCount)
		}
		return err
	})
	harness.Eventually(t, 10*time.Second, "a delay set holds the other callback", func() error {
		return delayedIn(t.Context(), f.servers, strings.TrimPrefix(later.ID, "cb_"))
	})
	if _, body, err := p.Readyz(); err != nil || strings.Contains(body, "redis") {
		t.Errorf("/readyz says %s, %v", body, err)
	}
	if log := p.LogTail(1 << 20); strings.Contains(log, redisPassword) ||
		strings.Contains(log, sentinelPassword) {
		t.Errorf("the log has a password:\n%s", log)
	}
}

// delayedIn looks for an id in the delay sets of the servers.
func delayedIn(ctx context.Context, all []*redis.Client, id string) error {
	for _, c := range all {
		keys, err := c.Keys(ctx, "*:delay").Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			if _, err := c.ZScore(ctx, key, id).Result(); err == nil {
				return nil
			} else if !errors.Is(err, redis.Nil) {
				return err
			}
		}
	}
	return fmt.Errorf("%s is in no delay set of %d servers", id, len(all))
}

// saysWrongPassword wants one line at the start that says what is wrong, without the password, and no process
// that serves.
func saysWrongPassword(t *testing.T, f redisForm) {
	for _, right := range []string{redisPassword, sentinelPassword} {
		url := strings.Replace(f.url, right, wrongPassword, 1)
		if url == f.url {
			continue
		}
		l := f.launchOn(t, url)
		p := harness.Spawn(t, l)
		code := p.ExitCode(30 * time.Second)
		log := p.LogTail(1 << 20)
		// What the database told on the way is no complaint.
		complaints := slices.DeleteFunc(strings.Split(strings.TrimSpace(log), "\n"),
			func(line string) bool { return strings.Contains(line, `"level":"INFO"`) })
		if code == 0 || len(complaints) != 1 || !strings.Contains(complaints[0], "redis_url") ||
			strings.Contains(log, wrongPassword) {
			t.Errorf("a wrong password ended with code %d and %d lines, want one that says what to do without the "+
				"password:\n%s", code, len(complaints), log)
			continue
		}
		t.Logf("%s with a wrong password: %s", f.name, complaints[0])
	}
}
