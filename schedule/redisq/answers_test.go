package redisq_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// A mouth stands before a server and answers some commands in its stead.
type mouth struct {
	// says is the error that scripts and INFO are answered with; nil: the server answers itself.
	says atomic.Pointer[string]
}

// say sets the answer; empty: the server answers again.
func (m *mouth) say(answer string) {
	m.says.Store(nil)
	if answer != "" {
		m.says.Store(&answer)
	}
}

// startMouth returns the URL of a mouth before the server of that URL.
func startMouth(t *testing.T, url string) (*mouth, string) {
	t.Helper()
	m := new(mouth)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(url, "redis://"))
			if err != nil {
				t.Errorf("mouth: %v", err)
				client.Close()
				return
			}
			group.Go(func() { _, _ = io.Copy(client, server); client.Close() })
			group.Go(func() { m.pass(client, server); server.Close() })
		}
	})
	t.Cleanup(func() {
		l.Close()
		group.Wait() // the index, opened later, is closed already, and its connections with it
	})
	return m, "redis://" + l.Addr().String()
}

// pass hands commands on until the client has gone.
func (m *mouth) pass(client, server net.Conn) {
	r := bufio.NewReader(client)
	for {
		words, raw, err := readCommand(r)
		if err != nil {
			return
		}
		answer := m.says.Load()
		if name := strings.ToLower(words[0]); answer != nil && (name == "evalsha" || name == "eval" || name == "info") {
			_, err = client.Write([]byte("-" + *answer + "\r\n"))
		} else {
			_, err = server.Write(raw)
		}
		if err != nil {
			return
		}
	}
}

// readCommand reads one command: an array of texts with their lengths before them.
func readCommand(r *bufio.Reader) (words []string, raw []byte, err error) {
	number := func(mark byte) (int, error) {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		raw = append(raw, line...)
		if line[0] != mark {
			return 0, fmt.Errorf("%q does not begin with %c", line, mark)
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number('*')
	for range n {
		var size int
		if size, err = number('$'); err != nil {
			return nil, nil, err
		}
		word := make([]byte, size+2)
		if _, err = io.ReadFull(r, word); err != nil {
			return nil, nil, err
		}
		raw = append(raw, word...)
		words = append(words, string(word[:size]))
	}
	return words, raw, err
}

// notNow are the answers of a server that cannot at present.
var notNow = []string{
	"READONLY You can't write against a read only replica.",
	"NOREPLICAS Not enough good replicas to write.",
	"LOADING Redis is loading the dataset in memory",
	"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
	"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
	"CLUSTERDOWN Hash slot not served",
	"TRYAGAIN Multiple keys request during rehashing of slot",
	"OOM command not allowed when used memory > 'maxmemory'.",
	"UNKILLABLE Sorry the script already executed write commands against the dataset.",
	"ERR max number of clients reached",
	"ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.",
}

// failing calls what the engine calls, and expects of each error that it says that the index is down for now: none of those
// that mean that it is lost, or that the call was wrong.
func failing(t *testing.T, ix *redisq.Index, it schedule.Item, want string) {
	t.Helper()
	ctx := context.Background()
	calls := map[string]func() error{
		"ensure": func() error { _, err := ix.Ensure(ctx, []schedule.Item{it}); return err },
		"claim": func() error {
			_, err := ix.Claim(ctx, 0, schedule.ClaimRequest{Owner: "o", Token: "t", Max: 1, MaxUncertain: 1, Lease: time.Second, LaneLimit: 1})
			return err
		},
		"settle": func() error {
			_, err := ix.Settle(ctx, []schedule.Settlement{{Item: it, Token: "t", Outcome: schedule.Ack}})
			return err
		},
		"acquire": func() error {
			_, err := ix.Acquire(ctx, []schedule.LockRequest{{Lock: "k", ID: it.ID, Lane: it.Lane, Token: "t", Until: 1}})
			return err
		},
		"open":  func() error { return ix.Open(ctx, 0) },
		"reset": func() error { return ix.Reset(ctx, 0, 2) },
	}
	var group sync.WaitGroup
	for name, call := range calls {
		group.Go(func() {
			err := call()
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %s", name, err, want)
			}
			for _, other := range []error{schedule.ErrLost, schedule.ErrRebuilding, schedule.ErrInvalid, schedule.ErrTooMany} {
				if errors.Is(err, other) {
					t.Errorf("%s: %v counts as %v", name, err, other)
				}
			}
		})
	}
	group.Wait()
}

// working expects that the item, which was put in before, is there once.
func working(t *testing.T, ix *redisq.Index, it schedule.Item) {
	t.Helper()
	ctx := context.Background()
	until(t, "the index to work again", func() bool {
		_, err := ix.Stats(ctx, 0)
		return err == nil
	})
	if positions, err := ix.Ensure(ctx, []schedule.Item{it}); err != nil || positions[0].Place == schedule.Absent {
		t.Errorf("afterwards %v, %v", positions, err)
	}
	token := 0
	if leases := claim(t, ix, &token, 10).Leases; len(leases) != 1 || leases[0].ID != it.ID {
		t.Errorf("afterwards %v were claimed", leases)
	}
	audit(t, ix, 0)
}

// Whatever a server says that only means "not now" fails the calls of that time and nothing else, and does not keep a process
// from starting.
func TestAnswersThatMeanNotNow(t *testing.T) {
	needsServer(t)
	url := testserver.StartRedis(t)
	t.Run("all", func(t *testing.T) { // so that the server outlives them
		for _, answer := range notNow {
			word, _, _ := strings.Cut(strings.TrimPrefix(answer, "ERR "), " ")
			t.Run(word, func(t *testing.T) {
				t.Parallel()
				m, proxy := startMouth(t, url)
				ix := open(t, proxy, 1)
				reset(t, ix, 1)
				it := schedule.Item{ID: id(1), Lane: 1, Due: 1}
				if _, err := ix.Ensure(context.Background(), []schedule.Item{it}); err != nil {
					t.Fatal(err)
				}
				m.say(answer)
				failing(t, ix, it, word)
				opensAnyway(t, proxy, answer)
				m.say("")
				working(t, ix, it)
			})
		}
	})
}

// opensAnyway opens an index whose server has only that answer to INFO.
func opensAnyway(t *testing.T, url, answer string) {
	t.Helper()
	log := new(journal)
	second, err := redisq.Open(context.Background(), redisq.Options{URL: url, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if strings.HasPrefix(answer, "ERR Error") {
		return // what scripts answer
	}
	if err != nil {
		t.Errorf("start: %v", err)
		return
	}
	if err := second.Close(); err != nil || log.count("WARN", "cannot be reached") != 1 {
		t.Errorf("start: %v, the log says %s", err, log)
	}
}

// The same with servers that really cannot, as they say it.
func TestServersThatCannotNow(t *testing.T) {
	needsServer(t)
	for name, c := range map[string]struct {
		answer      string
		spoil, mend func(t *testing.T, ix *redisq.Index)
	}{
		"replica": {
			"READONLY",
			func(t *testing.T, ix *redisq.Index) {
				host, port, _ := net.SplitHostPort(ix.Client().(*redis.Client).Options().Addr)
				follower := testserver.StartRedis(t)
				c := redis.NewClient(&redis.Options{Addr: strings.TrimPrefix(follower, "redis://")})
				defer c.Close()
				if err := c.ReplicaOf(context.Background(), host, port).Err(); err != nil {
					t.Fatal(err)
				}
				until(t, "a replica", func() bool {
					return strings.Contains(fmt.Sprint(do(t, ix, "info", "replication")), "state=online")
				})
				fhost, fport, _ := net.SplitHostPort(strings.TrimPrefix(follower, "redis://"))
				if err := c.ReplicaOf(context.Background(), "no", "one").Err(); err != nil {
					t.Fatal(err)
				}
				do(t, ix, "replicaof", fhost, fport)
				until(t, "the server to be a replica in sync", func() bool {
					return strings.Contains(fmt.Sprint(do(t, ix, "info", "replication")), "master_link_status:up")
				})
			},
			func(t *testing.T, ix *redisq.Index) { do(t, ix, "replicaof", "no", "one") },
		},
		"no replicas": {
			"NOREPLICAS",
			func(t *testing.T, ix *redisq.Index) { do(t, ix, "config", "set", "min-replicas-to-write", "1") },
			func(t *testing.T, ix *redisq.Index) { do(t, ix, "config", "set", "min-replicas-to-write", "0") },
		},
		"snapshot fails": {
			"MISCONF",
			func(t *testing.T, ix *redisq.Index) {
				config, err := ix.Client().ConfigGet(context.Background(), "dir").Result()
				if err == nil {
					err = os.RemoveAll(config["dir"])
				}
				if err != nil {
					t.Fatal(err)
				}
				do(t, ix, "config", "set", "save", "3600 1")
				do(t, ix, "bgsave")
				until(t, "the snapshot to fail", func() bool {
					return strings.Contains(fmt.Sprint(do(t, ix, "info", "persistence")), "rdb_last_bgsave_status:err")
				})
			},
			func(t *testing.T, ix *redisq.Index) { do(t, ix, "config", "set", "stop-writes-on-bgsave-error", "no") },
		},
		"busy": {
			"BUSY",
			func(t *testing.T, ix *redisq.Index) {
				do(t, ix, "config", "set", "lua-time-limit", "20")
				addr := ix.Client().(*redis.Client).Options().Addr
				go func() {
					c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: -1})
					defer c.Close()
					_ = c.Eval(context.Background(), "while true do end", nil).Err()
				}()
				until(t, "the server to be busy", func() bool {
					return redis.HasErrorPrefix(ix.Client().Ping(context.Background()).Err(), "BUSY")
				})
			},
			func(t *testing.T, ix *redisq.Index) { do(t, ix, "script", "kill") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			ix := open(t, testserver.StartRedis(t, "--repl-diskless-sync-delay", "0"), 1)
			reset(t, ix, 1)
			it := schedule.Item{ID: id(1), Lane: 1, Due: 1}
			if _, err := ix.Ensure(context.Background(), []schedule.Item{it}); err != nil {
				t.Fatal(err)
			}
			c.spoil(t, ix)
			failing(t, ix, it, c.answer)
			c.mend(t, ix)
			working(t, ix, it)
		})
	}
}
