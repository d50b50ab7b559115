package e2e

import (
	"context"
	"errors"
	"fmt"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// With a horizon Redis holds what is due within it, and SQL the rest.

// least is the nearest horizon that a process takes.
const least = 2 * time.Minute

// horizonLab is a lab of its own, beside the matrix.
func horizonLab(t *testing.T, title string, c combination) *lab {
	t.Helper()
	blackBox(t)
	t.Parallel()
	l := newLab(t, "horizon: "+title, testserver.Full())
	l.use(startServers(t, c).backend(t, c))
	return l
}

// used is what the lab's Redis says that it uses, the least of some looks: what its connections have in their buffers comes and
// goes.
func (l *lab) used() int64 {
	l.Helper()
	var lowest int64
	for range 20 {
		var sum int64
		err := l.on.eachRedis(l.Context(), func(ctx context.Context, c *redis.Client) error {
			text, err := c.Info(ctx, "memory").Result()
			if err != nil {
				return err
			}
			for line := range strings.Lines(text) {
				if value, found := strings.CutPrefix(line, "used_memory:"); found {
					n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
					sum += n
					return err
				}
			}
			return errors.New("INFO memory does not say what is used")
		})
		if err != nil {
			l.Fatal(err)
		}
		if lowest == 0 || sum < lowest {
			lowest = sum
		}
		time.Sleep(250 * time.Millisecond) // until its next look at its clients
	}
	return lowest
}

// A compared is what a comparison of SQL with the index found.
type compared struct {
	Clean   bool `json:"clean"`
	Rows    int  `json:"rows"`
	Items   int  `json:"items"`
	Beyond  int  `json:"beyond_horizon"`
	Missing int  `json:"missing"`
}

func (l *lab) compare(p *process) (got compared, err error) {
	ctx, cancel := context.WithTimeout(l.Context(), 2*time.Minute)
	defer cancel()
	err = p.call(ctx, http.MethodPost, "/v1/index/verify", nil, http.StatusOK, &got)
	return got, err
}

// agree waits until SQL and the index agree, so many callbacks beyond the horizon apart; less than zero: any number.
func (l *lab) agree(p *process, beyond int) {
	l.Helper()
	eventually(l, time.Minute, "SQL and the index agree", func() error {
		got, err := l.compare(p)
		if err == nil && (!got.Clean || beyond >= 0 && got.Beyond != beyond) {
			err = fmt.Errorf("verify: %+v, want %d beyond the horizon", got, beyond)
		}
		return err
	})
}

// due is a callback that is due after d.
func (l *lab) due(kind, ref string, d time.Duration) submission {
	s := l.callback(kind, ref)
	s["delay"] = d.String()
	return s
}

// A great backlog beyond the horizon costs Redis nothing. What crosses the horizon is sent as punctually as what was within it from
// the beginning. And each change of the setting, up to the whole backlog, takes effect at the next start.
func TestHorizonBoundsWhatRedisHolds(t *testing.T) {
	l := horizonLab(t, "a great backlog", full)
	many := long(l, 200_000, 50_000)
	p := l.serve("--horizon", "10m")
	l.acceptMany(1000, func(i int) submission { return l.callback("plain", fmt.Sprint("first-", i)) })
	l.settle(time.Minute)
	before := l.used()
	l.acceptMany(many, func(i int) submission { return l.due("plain", fmt.Sprint("backlog-", i), 10*time.Hour) })
	eventually(l, time.Minute, "the index has been told of all", func() error {
		waiting, err := p.metric("dispatcher_enqueues_waiting")
		if err == nil && waiting > 0 {
			err = fmt.Errorf("%g are waiting", waiting)
		}
		return err
	})
	after := l.used()
	l.Logf("Redis uses %d bytes when it is empty, and %d with %d callbacks that are due in 10 h: %d more, %.2f each", before, after, many, after-before, float64(after-before)/float64(many))
	if after-before > int64(many) {
		l.Errorf("%d callbacks beyond the horizon cost %d bytes of Redis, more than one byte each", many, after-before)
	}
	if held, err := l.filled(); err != nil || held != 0 {
		l.Errorf("the index holds %d, %v", held, err)
	}
	l.agree(p, many)

	l.terminate(p)
	p = l.serve("--horizon", least.String())
	l.awaitHorizon(least)
	l.punctual()
	l.agree(p, many)

	l.terminate(p)
	p = l.serve()
	began := time.Now()
	eventually(l, 3*time.Minute, "the whole backlog is in the index", func() error {
		held, err := l.filled()
		if err == nil && held < int64(many) {
			err = fmt.Errorf("%d are", held)
		}
		return err
	})
	l.Logf("the whole backlog was in the index %s after the start without a horizon", time.Since(began).Round(100*time.Millisecond))
	whole := l.used()
	l.Logf("without a horizon they take %d bytes, %d each", whole-before, (whole-before)/int64(many))
	l.agree(p, 0)
	l.verdict(judge.Bounds{MayBeOpen: true})
}

// awaitHorizon waits until the index takes in nothing that is due later.
func (l *lab) awaitHorizon(horizon time.Duration) {
	l.Helper()
	eventually(l, time.Minute, "the watermark is at the horizon", func() error {
		return l.on.eachRedis(l.Context(), func(ctx context.Context, c *redis.Client) error {
			at, err := c.HGet(ctx, l.on.prefix+":{"+l.on.prefix+":0}:meta", "watermark").Int64()
			if ahead := time.Until(time.UnixMilli(at)); err == nil && (ahead > horizon || ahead < horizon/2) {
				err = fmt.Errorf("it is %s ahead", ahead)
			}
			return err
		})
	})
}

// terminate ends a process in order.
func (l *lab) terminate(p *process) {
	l.Helper()
	p.terminate()
	if code := p.exitCode(time.Minute); code != 0 {
		l.Fatalf("it ended with code %d", code)
	}
}

// punctual hands over callbacks on both sides of the horizon, and compares how late they are sent.
func (l *lab) punctual() {
	l.Helper()
	const each = 300
	l.acceptMany(2*each, func(i int) submission {
		if i < each {
			return l.due("plain", fmt.Sprint("near-", i), 40*time.Second+time.Duration(i)*150*time.Millisecond)
		}
		return l.due("plain", fmt.Sprint("far-", i), least+15*time.Second+time.Duration(i-each)*150*time.Millisecond)
	})
	eventually(l, time.Minute, "the near ones are in the index, the far ones are not", func() error {
		held, err := l.filled()
		if err == nil && held < each || held > each+60 {
			err = fmt.Errorf("it holds %d", held)
		}
		return err
	})
	eventually(l, 2*least, "all are sent", func() error {
		var open int
		err := l.database().QueryRowContext(l.Context(), `SELECT count(*) FROM callbacks WHERE state = 'scheduled' AND (ref LIKE 'near-%' OR ref LIKE 'far-%')`).Scan(&open)
		if err == nil && open > 0 {
			err = fmt.Errorf("%d are open", open)
		}
		return err
	})
	near, far := l.lateness("near-%"), l.lateness("far-%")
	l.Logf("late by p50 %s, p99 %s, at most %s within the horizon, and p50 %s, p99 %s, at most %s from beyond it", near.P50, near.P99, near.Most, far.P50, far.P99, far.Most)
	if far.P50 > near.P50+100*time.Millisecond || far.P99 > near.P99+time.Second {
		l.Errorf("what comes from beyond the horizon is late: %+v, what was within it %+v", far, near)
	}
}

// lateness is how late the attempts of callbacks were whose references are like that.
func (l *lab) lateness(like string) judge.Quantiles {
	l.Helper()
	rows, err := l.database().QueryContext(l.Context(), `SELECT attempts.lateness FROM attempts JOIN callbacks ON callbacks.id = attempts.callback_id WHERE callbacks.ref LIKE $1`, like)
	if err != nil {
		l.Fatal(err)
	}
	defer rows.Close()
	var all []time.Duration
	for rows.Next() {
		var ms float64
		if err := rows.Scan(&ms); err != nil {
			l.Fatal(err)
		}
		all = append(all, time.Duration(ms*float64(time.Millisecond)))
	}
	if err := rows.Err(); err != nil {
		l.Fatal(err)
	}
	return judge.QuantilesOf(all)
}

// The loader is killed after it has moved the watermark and before it has read SQL; Redis is emptied, and emptied again: what is
// due on either side of the horizon, and what a long wait takes beyond it, is all sent, none of it early, and none twice but for
// what was in flight at the kill.
func TestHorizonThroughFaults(t *testing.T) {
	const many = 600
	l := horizonLab(t, "the loader is killed and Redis emptied", sqliteRedis)
	horizon := []string{"--horizon", least.String()}
	// Of the second load: then it has the lease, and the other one has not.
	first := l.serveUntil("after_watermark:2", horizon...)
	shape := func(i int) submission {
		if i%4 > 0 {
			return l.due("plain", fmt.Sprint("plain-", i), time.Duration(i)*200*time.Second/many)
		}
		s := l.due("retry", fmt.Sprint("retry-", i), time.Duration(i)*40*time.Second/many)
		s["policy"] = submission{"tiers": []string{"130s", "1s", "1s"}, "timeout": "2s"}
		return s
	}
	l.acceptMany(many, shape)
	eventually(l, 2*time.Minute, "the first one has loaded", func() error { return atLeast(first, "dispatcher_horizon_loaded_total", 1) })
	second := l.serve(horizon...)
	awaitDeath(l.T, first, "after_watermark", time.Minute)
	died := time.Now()
	l.struck()
	toll := l.toll()
	toll.take(died, 5*time.Second)
	eventually(l, time.Minute, "the other one loads", func() error { return atLeast(second, "dispatcher_horizon_loaded_total", 1) })
	took := time.Since(died)
	for range 2 {
		before := l.rebuilds(second)
		l.flush()
		l.struck()
		eventually(l, time.Minute, "the index is rebuilt", func() error {
			if l.rebuilds(second) == before {
				return errNotYet
			}
			return l.whole()
		})
		held, err := l.filled()
		if err != nil {
			l.Fatal(err)
		}
		var within int64
		err = l.database().QueryRowContext(l.Context(), `SELECT count(*) FROM callbacks WHERE state = 'scheduled' AND due_at <= $1`,
			time.Now().Add(least+30*time.Second).UnixMilli()).Scan(&within)
		if err != nil || held > within {
			l.Errorf("a rebuilt index holds %d, and %d are due within the horizon, %v", held, within, err)
		}
		l.agree(second, -1)
	}
	l.settle(6 * time.Minute)
	toll.account()
	v := l.verdict(toll.bounds(0))
	l.Logf("%d callbacks; the next loader had loaded %s after the first one's death; late by p50 %s, p99 %s, at most %s", v.Accepted, took.Round(time.Millisecond), v.Lateness.P50, v.Lateness.P99, v.Lateness.Most)
}

// On a Cluster each shard has a watermark of its own. A master is killed and its replica takes over, without the last writes: its
// shards are loaded from where they stand by then, and the others go on meanwhile.
func TestHorizonOnACluster(t *testing.T) {
	const many = 1500
	l := horizonLab(t, "a master of a Cluster is killed", sqliteRedis)
	x := &clusterLab{lab: l, victims: map[int]bool{}}
	x.cluster = newCluster(l, "--cluster-require-full-coverage", "no")
	l.on.redis = x.cluster.URL()
	p := l.serve("--horizon", least.String())
	l.acceptMany(many, func(i int) submission {
		s := l.due("plain", fmt.Sprint("plain-", i), time.Duration(i)*200*time.Second/many)
		s["lane"] = laneName(i)
		return s
	})
	for _, shard := range []int{0, 7} {
		loaded, err := p.metric("dispatcher_horizon_loaded_total")
		if err != nil {
			l.Fatal(err)
		}
		eventually(l, time.Minute, "some are loaded", func() error { return atLeast(p, "dispatcher_horizon_loaded_total", loaded+1) })
		victim := x.master(shard)
		victim.Kill()
		x.cluster.AwaitOwner(x.slot(shard), victim)
		l.struck()
		victim.Start()
		l.agree(p, -1)
	}
	l.settle(6 * time.Minute)
	v := l.verdict(judge.Bounds{})
	l.Logf("%d callbacks in %d shards, two masters killed: late by p50 %s, p99 %s, at most %s", v.Accepted, clusterShards, v.Lateness.P50, v.Lateness.P99, v.Lateness.Most)
}
