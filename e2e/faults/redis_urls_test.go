package faults

import (
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
	url string
	// database is that which holds the index in each of the servers; password is that of their default user.
	database int
	password string
	servers  []*testserver.Redis
}

// redisForms start the servers of each form; those of the names that begin with "rediss" present the certificate.
var redisForms = map[string]func(*testing.T, certificate) redisForm{
	"redis": func(t *testing.T, _ certificate) redisForm {
		const password = "password-of-the-default-user"
		server := testserver.NewRedis(t, "--requirepass", password)
		f := redisForm{"redis://payments:" + redisPassword + "@" + server.Address() + "/3", 3, password,
			[]*testserver.Redis{server}}
		if err := f.client(t, server).Do(t.Context(), "acl", "setuser", "payments", "on", ">"+redisPassword, "~*",
			"&*", "+@all").Err(); err != nil {
			t.Fatal(err)
		}
		return f
	},
	"rediss": func(t *testing.T, files certificate) redisForm {
		port := testserver.FreePort(t)
		server := testserver.NewRedis(t, append(files.serverArgs(), "--tls-port", port, "--requirepass",
			redisPassword)...)
		return redisForm{"rediss://:" + redisPassword + "@127.0.0.1:" + port + "/0", 0, redisPassword,
			[]*testserver.Redis{server}}
	},
	"redis+sentinel": func(t *testing.T, _ certificate) redisForm {
		w := testserver.NewSentinel(t, testserver.SentinelOptions{Password: redisPassword,
			SentinelPassword: sentinelPassword})
		return redisForm{w.URL(2), 2, redisPassword, w.Servers[:1]}
	},
	"redis+cluster": func(t *testing.T, _ certificate) redisForm {
		c := testserver.NewCluster(t, testserver.ClusterOptions{Password: redisPassword})
		return redisForm{c.URL(), 0, redisPassword, c.Nodes}
	},
	"rediss+cluster": func(t *testing.T, files certificate) redisForm {
		c := testserver.NewCluster(t, testserver.ClusterOptions{Password: redisPassword, TLS: files.serverArgs()})
		return redisForm{c.TLSURL(), 0, redisPassword, c.Nodes}
	},
}

// Every form of redis_url that the documentation names serves: a callback is scheduled in the servers that it
// leads to, fails once, and is sent again. A password that is wrong is said so, and not repeated.
func TestEveryRedisURLFormServes(t *testing.T) {
	harness.BlackBox(t)
	files := makeCertificate(t)
	for name, start := range redisForms {
		t.Run(name, func(t *testing.T) {
			f := start(t, files)
			// launch starts a process on a backend with this URL.
			launch := func(t *testing.T, url string) harness.Launch {
				b := harness.NewBackend(t, harness.SQLiteEmbedded)
				b.Name, b.Redis = name, url
				return harness.Launch{On: b, Under: []string{"env", files.env()}}
			}
			t.Run("serves", func(t *testing.T) { f.serves(t, launch(t, f.url)) })
			t.Run("wrong_password", func(t *testing.T) {
				for _, right := range []string{redisPassword, sentinelPassword} {
					if url := strings.Replace(f.url, right, wrongPassword, 1); url != f.url {
						saysWrongPassword(t, launch(t, url))
					}
				}
			})
		})
	}
}

// client is one of a server's plain port.
func (f redisForm) client(t *testing.T, server *testserver.Redis) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: server.Address(), Password: f.password, DB: f.database,
		DisableIdentity: true})
	t.Cleanup(func() { c.Close() })
	return c
}

// serves sends one callback at its second attempt, and finds one that is due in an hour in a delay set.
func (f redisForm) serves(t *testing.T, l harness.Launch) {
	r := harness.NewReceiver(t, harness.Usual)
	p := harness.Serve(t, l)
	now := p.Make("/v1/callbacks", harness.Submission{"url": r.URL + "/retry", "payload": harness.Payload("now"),
		"policy": harness.Submission{"tiers": []string{"500ms", "5s", "5s"}}})
	later := p.Make("/v1/callbacks", harness.Submission{"url": r.URL, "payload": harness.Payload("later"),
		"delay": "1h"})
	harness.Eventually(t, 30*time.Second, "the callback is sent at its second attempt", func() error {
		cb, err := p.Callback(t.Context(), now)
		if err == nil && (cb.State != "succeeded" || cb.AttemptCount != 2) {
			err = fmt.Errorf("it is %s after %d attempts", cb.State, cb.AttemptCount)
		}
		return err
	})
	harness.Eventually(t, 10*time.Second, "a delay set holds the other callback", func() error {
		return f.delayed(t, strings.TrimPrefix(later, "cb_"))
	})
	if _, body, err := p.Readyz(); err != nil || strings.Contains(body, "redis") {
		t.Errorf("/readyz says %s, %v", body, err)
	}
	if log := p.LogTail(1 << 20); strings.Contains(log, redisPassword) ||
		strings.Contains(log, sentinelPassword) {
		t.Errorf("the log has a password:\n%s", log)
	}
}

// delayed looks for an id in the delay sets of the servers.
func (f redisForm) delayed(t *testing.T, id string) error {
	for _, server := range f.servers {
		c := f.client(t, server)
		keys, err := c.Keys(t.Context(), "*:delay").Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			if _, err := c.ZScore(t.Context(), key, id).Result(); err == nil {
				return nil
			} else if !errors.Is(err, redis.Nil) {
				return err
			}
		}
	}
	return fmt.Errorf("%s is in no delay set of %d servers", id, len(f.servers))
}

// saysWrongPassword wants one line at the start that says what is wrong, without the password, and no process
// that serves.
func saysWrongPassword(t *testing.T, l harness.Launch) {
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
		return
	}
	t.Logf("%s with a wrong password: %s", l.On.Name, complaints[0])
}
