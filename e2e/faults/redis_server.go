package faults

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// What trials ask of their own Redis and do to it.

// do sends Redis a command that must succeed.
func do(tr *trial, c *redis.Client, args ...any) {
	tr.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.Do(ctx, args...).Err(); err != nil {
		tr.Fatalf("%v: %v", args, err)
	}
}

// info reads one number of INFO.
func info(tr *trial, c *redis.Client, section, name string) int {
	tr.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	values, err := c.InfoMap(ctx, section).Result()
	tr.Check(err)
	for _, found := range values {
		if value, ok := found[name]; ok {
			n, err := strconv.Atoi(value)
			tr.Check(err)
			return n
		}
	}
	tr.Fatalf("INFO %s has no %s: %v", section, name, values)
	return 0
}

// rebuilds is how often the process has rebuilt its index.
func (tr *trial) rebuilds(p *harness.Process) int {
	tr.Helper()
	n, err := p.Metric("dispatcher_rebuilds_total")
	tr.Check(err)
	return int(n)
}

// awaitRebuild waits until the process has rebuilt its index once more than so often.
func (tr *trial) awaitRebuild(p *harness.Process, before int) {
	tr.Helper()
	tr.AtLeast(time.Minute, "the index is rebuilt", before+1, func() int { return tr.rebuilds(p) })
}

// behindProxy puts a proxy between the processes that are started from now on and Redis.
func (tr *trial) behindProxy() *harness.Proxy {
	tr.Helper()
	p, through := harness.InFrontOf(tr, tr.Backend.Redis)
	tr.Backend.RedisBehind, tr.Backend.Redis = tr.Backend.Redis, through
	return p
}

// restartedWith restarts the trial's Redis with arguments, before anything is in it.
func (tr *trial) restartedWith(args ...string) {
	tr.Helper()
	tr.Backend.Server.Kill()
	tr.Backend.Server.Start(args...)
}

// appended are the settings of a Redis that people keep an index in.
var appended = []string{"--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage",
	"0"}

// appendLog is the file that the server appends to, and its size.
func (tr *trial) appendLog() (string, int64) {
	tr.Helper()
	files, err := filepath.Glob(filepath.Join(tr.Backend.Server.Dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) == 0 {
		tr.Fatalf("no append-only file in %s: %v", tr.Backend.Server.Dir, err)
	}
	file := slices.Max(files)
	info, err := os.Stat(file)
	tr.Check(err)
	return file, info.Size()
}
