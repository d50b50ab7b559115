package faults

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// redisPassword is the password of this test's servers, sentinelPassword that of their Sentinels.
// wrongPassword is valid nowhere.
const (
	redisPassword    = "redis-password-7"
	sentinelPassword = "sentinel-password-7"
	wrongPassword    = "another-password"
)

// A redisForm is one form of redis_url, with real servers.
type redisForm struct {
	url string
	// database is the number of the database with the index, in each server. password is that of the default
	// user.
	database int
	password string
	servers  []*testserver.Redis
}

// redisForms start the servers of each form. Those of names with "rediss" use the certificate.
var redisForms = map[string]func(*testing.T, certificate) redisForm{
	"redis": func(t *testing.T, _ certificate) redisForm {
		const password = "password-of-the-default-user"
		server := testserver.NewRedis(t, "--requirepass", password)
		f := redisForm{"redis://payments:" + redisPassword + "@" + server.Address() + "/3", 3, password,
			[]*testserver.Redis{server}}
		harness.Check(t, f.client(t, server).Do(t.Context(), "acl", "setuser", "payments", "on",
			">"+redisPassword, "~*", "&*", "+@all").Err())
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
		c := testserver.NewCluster(t, testserver.ClusterOptions{Password: redisPassword,
			TLS: files.serverArgs()})
		return redisForm{c.TLSURL(), 0, redisPassword, c.Nodes}
	},
}

// Every documented form of redis_url works: a callback is scheduled in its servers, fails once, and is sent
// again. A wrong password is reported, and the log does not contain it.
func TestEveryRedisURLFormServes(t *testing.T) {
	files := makeCertificate(t)
	for name, start := range redisForms {
		t.Run(name, func(t *testing.T) {
			f := start(t, files)
			// launch describes a process on a backend with this URL.
			launch := func(t *testing.T, url string) harness.Launch {
				b := harness.NewBackend(t, harness.SQLiteEmbedded)
				b.Name, b.Redis = name, url
				return harness.Launch{On: b, Under: files.under()}
			}
			t.Run("serves", func(t *testing.T) { f.serves(t, launch(t, f.url)) })
			t.Run("wrong_password", func(t *testing.T) {
				for _, right := range []string{redisPassword, sentinelPassword} {
					if url := strings.Replace(f.url, right, wrongPassword, 1); url != f.url {
						reportsWrongPassword(t, launch(t, url))
					}
				}
			})
		})
	}
}

// client connects to a server's plain port.
func (f redisForm) client(t *testing.T, server *testserver.Redis) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: server.Address(), Password: f.password, DB: f.database,
		DisableIdentity: true})
	t.Cleanup(func() { c.Close() })
	return c
}

// serves checks that one callback is sent at its second attempt, and that another one, due in an hour, is in
// a delay set.
func (f redisForm) serves(t *testing.T, l harness.Launch) {
	r := harness.NewReceiver(t, harness.Usual)
	p := harness.Serve(t, l)
	now := p.Create("/v1/callbacks", harness.Submission{"url": r.URL + "/retry",
		"payload": harness.Payload("now"),
		"policy":  harness.Submission{"tiers": []string{"500ms", "5s", "5s"}}})
	later := p.Create("/v1/callbacks", harness.Submission{"url": r.URL, "payload": harness.Payload("later"),
		"delay": "1h"})
	harness.Eventually(t, 30*time.Second, "the callback is sent at its second attempt", func() error {
		cb, err := p.Callback(t.Context(), now)
		if err == nil && (cb.State != "succeeded" || cb.AttemptCount != 2) {
			err = fmt.Errorf("it is %s after %d attempts", cb.State, cb.AttemptCount)
		}
		return err
	})
	harness.Eventually(t, 10*time.Second, "a delay set has the other callback", func() error {
		return f.delayed(t, strings.TrimPrefix(later, "cb_"))
	})
	if _, body, err := p.Readyz(); err != nil || strings.Contains(body, "redis") {
		t.Errorf("/readyz returned %s, %v", body, err)
	}
	if log := p.LogTail(1 << 20); strings.Contains(log, redisPassword) ||
		strings.Contains(log, sentinelPassword) {
		t.Errorf("the log has a password:\n%s", log)
	}
}

// delayed searches an id in the delay sets of the servers.
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

// saysWrongPassword requires that the process ends with one log line that explains the error, without the
// password.
func reportsWrongPassword(t *testing.T, l harness.Launch) {
	p := harness.Spawn(t, l)
	code := p.ExitCode(30 * time.Second)
	log := p.LogTail(1 << 20)
	// The database logs its own progress at level INFO.
	problems := slices.DeleteFunc(strings.Split(strings.TrimSpace(log), "\n"),
		func(line string) bool { return strings.Contains(line, `"level":"INFO"`) })
	if code == 0 || len(problems) != 1 || !strings.Contains(problems[0], "redis_url") ||
		strings.Contains(log, wrongPassword) {
		t.Errorf("a wrong password ended with code %d and %d lines, want one that explains it without the "+
			"password:\n%s", code, len(problems), log)
		return
	}
	t.Logf("%s with a wrong password: %s", l.On.Name, problems[0])
}

// A thousand attempts to one HTTPS host open at most twice as many connections as the concurrency of its
// lanes, whatever the receiver responds and however long a handshake takes. A new connection costs as much as
// ten attempts. Lanes with the same host, as those of a platform's merchants, share its connections.
func TestAThousandAttemptsKeepTheirConnections(t *testing.T) {
	mostlyWaits(t)
	const attempts = 1000
	body := strings.Repeat("0123456789abcdef", 512)
	for _, how := range []struct {
		lanes, concurrency, status int
		state                      client.State
	}{{1, 32, 500, "dead"}, {8, 8, 200, "succeeded"}} {
		t.Run(string(how.state), func(t *testing.T) {
			var conns, requests, foreign atomic.Int64
			server := httptest.NewUnstartedServer(
				http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					requests.Add(1)
					if req.Proto != "HTTP/1.1" {
						foreign.Add(1)
					}
					w.WriteHeader(how.status)
					io.WriteString(w, body) // chunked
				}))
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					conns.Add(1)
				}
			}
			server.EnableHTTP2 = true
			files := makeCertificate(t)
			pair, err := tls.LoadX509KeyPair(files.public, files.key)
			harness.Check(t, err)
			server.TLS = &tls.Config{
				Certificates: []tls.Certificate{pair},
				GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
					time.Sleep(50 * time.Millisecond) // simulates a distant receiver
					return nil, nil
				},
			}
			server.StartTLS()
			t.Cleanup(func() {
				server.CloseClientConnections()
				server.Close()
			})
			tr := newTrial(t, "a thousand attempts")
			tr.Backend = harness.NewBackend(t, harness.SQLiteEmbedded)
			p := tr.Launch(harness.Launch{Args: []string{"--lane-concurrency", fmt.Sprint(how.concurrency)},
				Under: files.under()})
			batch := make([]harness.Submission, attempts)
			for i := range batch {
				batch[i] = harness.Submission{"url": server.URL, "payload": i,
					"lane":   fmt.Sprint("merchant-", i%how.lanes),
					"policy": harness.Submission{"tiers": []string{}}}
			}
			accepted, err := p.AcceptBatch(t.Context(), batch)
			tr.Check(err)
			harness.Await(t, p.Client, time.Minute)
			last, err := p.Callback(t.Context(), accepted[attempts-1].ID)
			tr.Check(err)
			if n := requests.Load(); n != attempts || last.State != how.state || foreign.Load() > 0 {
				t.Errorf("%d requests for %d callbacks, %d not with HTTP/1.1; the last is %s, want %s",
					n, attempts, foreign.Load(), last.State, how.state)
			}
			if n, most := conns.Load(), int64(2*how.lanes*how.concurrency); n > most {
				t.Errorf("%d connections, at most %d for %d lanes of %d", n, most, how.lanes, how.concurrency)
			}
			t.Logf("%d requests over %d connections", requests.Load(), conns.Load())
		})
	}
}

// A certificate has the files of a self-signed certificate for 127.0.0.1.
type certificate struct{ public, key string }

// under makes a Go program trust the certificate.
func (c certificate) under() []string { return []string{"env", "SSL_CERT_FILE=" + c.public} }

// serverArgs are the arguments of a redis-server that uses the certificate and requires none from its
// clients.
func (c certificate) serverArgs() []string {
	return []string{"--tls-cert-file", c.public, "--tls-key-file", c.key, "--tls-ca-cert-file", c.public,
		"--tls-auth-clients", "no"}
}

// makeCertificate creates a certificate that is valid today.
func makeCertificate(t *testing.T) certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	harness.Check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		// The nodes of a Cluster are clients of each other.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	private, err2 := x509.MarshalECPrivateKey(key)
	harness.Check(t, errors.Join(err, err2))
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(t.TempDir(), name)
		harness.Check(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return file
	}
	return certificate{write("public.pem", "CERTIFICATE", public),
		write("key.pem", "EC PRIVATE KEY", private)}
}
