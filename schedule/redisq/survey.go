package redisq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Server is what one Redis server says of itself.
type Server struct {
	Addr string
	// Info are the lines of INFO, by name. It is nil where the user of the URL may not ask; Untold says why.
	Info   map[string]string
	Untold error
	// Save is the configuration of snapshots; SaveTold is false where CONFIG may not be asked.
	Save     string
	SaveTold bool
	// ClusterInfo are the lines of CLUSTER INFO; nil: it is no node of a Cluster.
	ClusterInfo map[string]string
	// Scripts is why a script cannot be run; nil: it can.
	Scripts error
	// Ahead is the server's clock less this process's, to within Precision.
	Ahead, Precision time.Duration
}

// A Survey is what the servers of an index say of themselves, and of the index.
type Survey struct {
	// Servers are all masters, in the order of their addresses.
	Servers []Server
	// Cluster says that the URL names a Cluster.
	Cluster bool
	// Generations are those of the shards; zero: the shard holds no index. Unread is why they could not be read although the
	// servers answer.
	Generations []int64
	Unread      error
}

// DefaultShards is into how many parts an index at the URL is split unless Options say otherwise.
func DefaultShards(rawURL string) (int, error) {
	a, err := parseURL(rawURL)
	if err != nil {
		return 0, err
	}
	if a.cluster {
		return clusterShards, nil
	}
	return 1, nil
}

// Look asks the servers at the URL about themselves, and about the index under the prefix. It changes nothing, and refuses
// nothing: what Open would refuse is in the survey. Its error is that a server did not answer.
func Look(ctx context.Context, rawURL, prefix string, shards int) (*Survey, error) {
	a, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	client := a.dial()
	s := &Survey{Cluster: a.cluster}
	var mu sync.Mutex
	err = eachMaster(ctx, client, func(ctx context.Context, c *redis.Client) error {
		server, err := lookAt(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		s.Servers = append(s.Servers, server)
		return err
	})
	slices.SortFunc(s.Servers, func(a, b Server) int { return strings.Compare(a.Addr, b.Addr) })
	for shard := 0; err == nil && s.Unread == nil && shard < shards; shard++ {
		generation, failed := readGeneration(ctx, client, keysOf(prefix, shard))
		if failed != nil {
			failed = fmt.Errorf("read the index's generation: %w", failed)
		}
		if failed != nil && unreachable(failed) {
			err = failed
		}
		s.Unread = failed
		s.Generations = append(s.Generations, generation)
	}
	return s, errors.Join(err, client.Close())
}

func lookAt(ctx context.Context, c *redis.Client) (Server, error) {
	s := Server{Addr: c.Options().Addr}
	var best time.Duration
	for try := range 3 {
		sent := time.Now()
		at, err := c.Time(ctx).Result()
		trip := time.Since(sent)
		if err != nil {
			return s, fmt.Errorf("redis at %s: %w", s.Addr, err)
		}
		if try == 0 || trip < best {
			best = trip
			s.Ahead, s.Precision = at.Sub(sent.Add(trip/2)), trip/2
		}
	}
	text := ""
	for _, section := range []string{"server", "memory", "persistence", "replication", "cluster"} {
		part, err := c.Info(ctx, section).Result()
		if forbidden(err) {
			s.Untold = err
			break
		}
		if err != nil {
			return s, fmt.Errorf("redis at %s: %w", s.Addr, err)
		}
		text += part + "\n"
	}
	if s.Untold == nil {
		s.Info = parseInfo(text)
	}
	if config, err := c.ConfigGet(ctx, "save").Result(); err == nil {
		s.Save, s.SaveTold = config["save"], true
	}
	if s.Info["cluster_enabled"] == "1" {
		if text, err := c.ClusterInfo(ctx).Result(); err == nil {
			s.ClusterInfo = parseInfo(text)
		}
	}
	s.Scripts = c.Eval(ctx, "return 1", nil).Err()
	return s, nil
}

// CheckVersion refuses versions that are older than 6.2.
func CheckVersion(version string) error { return checkVersion(version) }

// forbidden says that a server answers, but not this command, or not to this user. What a server says that is asked for a
// master as if it were a Sentinel is no such answer.
func forbidden(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown command") && !strings.Contains(err.Error(), "sentinels")
}
