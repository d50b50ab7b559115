package faults

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// redisWires are faults of the way between the program and a Redis that is well.
func redisWires() []fault {
	return []fault{
		{id: "F24", title: "partition from redis, hanging", on: onlyPostgresRedis, run: func(tr *trial) {
			redisParted(tr, (*harness.Proxy).Hang)
		}},
		{id: "F24", title: "partition from redis, refusing", on: onlySQLiteRedis, run: func(tr *trial) {
			redisParted(tr, (*harness.Proxy).Refuse)
		}},
		{id: "F25", title: "replies of redis dropped", on: onlySQLiteRedis,
			run: func(tr *trial) { repliesDropped(tr, 0) }},
		{id: "F25", title: "replies of redis torn", on: onlyPostgresRedis,
			run: func(tr *trial) { repliesDropped(tr, 5) }},
		{id: "F25", title: "connections to redis cut", on: onlyPostgresRedis, run: connectionsCut},
	}
}

// redisParted cuts the program off from Redis, with attempts in flight.
func redisParted(tr *trial, part func(*harness.Proxy)) {
	way := tr.behindProxy()
	tr.Serve()
	const lasts = 8 * time.Second
	var noticed, until time.Time
	var committed time.Duration
	a := tr.suffer(outage{strike: func(p *harness.Process) {
		part(way)
		cut := time.Now()
		// What was in flight is recorded although the index cannot be told of it.
		harness.Eventually(tr, lasts, "all that arrived is committed to SQL during the partition",
			func() error { return tr.allRecorded() })
		committed = time.Since(cut)
		noticed = tr.awaitDegraded(p)
		<-time.After(time.Until(cut.Add(lasts)))
		until = time.Now()
		way.Pass()
	}})
	tr.degradedThroughout(&a, noticed, until)
	opened, _ := way.Figures()
	tr.Remark("results of what was in flight committed after %s, degraded after %s; %s; %d connections in all",
		committed.Round(10*time.Millisecond), noticed.Sub(a.began).Round(10*time.Millisecond), tr.cameBack(&a),
		opened)
	tr.Verdict(exact())
}

// allRecorded says whether SQL has an attempt for each request that came to the receiver.
func (tr *trial) allRecorded() error {
	ctx, cancel := context.WithTimeout(tr.Context(), 10*time.Second)
	defer cancel()
	attempts, arrived := 0, tr.Recorder.Count()
	if err := tr.Database().QueryRowContext(ctx, `SELECT count(*) FROM attempts`).Scan(&attempts); err != nil {
		return fmt.Errorf("count attempts: %w", err)
	}
	if attempts < arrived || tr.Recorder.InFlight() > 0 {
		return fmt.Errorf("%d requests arrived, %d attempts are in SQL, %d are being answered", arrived, attempts,
			tr.Recorder.InFlight())
	}
	return nil
}

// redisWords splits a request in Redis's protocol; what does not fit into the bytes is left out.
func redisWords(request []byte) (words []string) {
	lines := strings.Split(string(request), "\r\n")
	for i := 1; i+1 < len(lines); i += 2 {
		words = append(words, lines[i+1])
	}
	return words
}

// operation tells the scripts apart by the keys and arguments that they name; "" is none of those that matter
// here.
func operation(request []byte) string {
	if !bytes.HasPrefix(request, []byte("*")) {
		return ""
	}
	words := redisWords(request)
	if len(words) < 4 || words[0] != "evalsha" {
		return ""
	}
	n, err := strconv.Atoi(words[2])
	if err != nil || n < 3 || len(words) < 3+n {
		return ""
	}
	var keys []string
	for _, key := range words[3 : 3+n] {
		keys = append(keys, key[strings.LastIndexByte(key, ':')+1:])
	}
	arguments := words[3+n:]
	has := func(name string) bool { return slices.Contains(keys, name) }
	says := func(some ...string) bool {
		return slices.ContainsFunc(arguments, func(a string) bool { return slices.Contains(some, a) })
	}
	switch {
	case has("owners") && !has("locks"):
		return "claim"
	case has("locks") && says("take"):
		return "acquire"
	case has("locks") && has("waiting") && n < 6:
		return "release"
	case has("ready") && says("acked", "rescheduled", "diverted", "buried"):
		return "settle"
	case has("leases") && has("claims") && has("records") && !has("lanes"):
		if slices.Index(keys, "records") < slices.Index(keys, "leases") {
			return "ensure"
		}
		return "extend"
	}
	return ""
}

// dropped are the operations whose replies are.
var dropped = []string{"claim", "settle", "ensure", "acquire", "release", "extend"}

// repliesDropped has every n-th reply to each operation swallowed, after a few bytes of it, and the
// connection cut: it was executed, and the program cannot know. Time-outs of 20 s make every lease one that
// is extended.
func repliesDropped(tr *trial, after int) {
	way := tr.behindProxy()
	tr.Serve()
	const every = 7
	seen, hidden := map[string]int{}, map[string]int{}
	shape := func(i int) harness.Submission {
		s := tr.Mixed(i)
		s["policy"].(harness.Submission)["timeout"] = "20s"
		if i%3 == 0 {
			s["lock_key"] = fmt.Sprint("lock-", i%50)
		}
		return s
	}
	a := tr.suffer(outage{rate: 40, shape: shape, before: 60, after: 60, strike: func(*harness.Process) {
		way.Swallow(func(request []byte) bool {
			op := operation(request)
			if !slices.Contains(dropped, op) {
				return false
			}
			seen[op]++
			if seen[op]%every != 0 {
				return false
			}
			hidden[op]++
			return true
		}, after)
		tr.awaitMore(500)
		way.Swallow(nil, 0)
	}})
	for _, op := range dropped {
		if hidden[op] < 3 {
			tr.Errorf("only %d replies to %s were dropped, of %d", hidden[op], op, seen[op])
		}
	}
	// A batch whose reply was lost is asked for again with the same token. Without that it would wait for its
	// leases to run out, and they would be reaped.
	reaped, err := a.p.Metric("dispatcher_leases_reaped_total")
	if err != nil || reaped > 0 {
		tr.Errorf("%.0f leases ran out: %v", reaped, err)
	}
	tr.Remark("every %d. reply dropped after %d bytes: %s", every, after, inWords(hidden))
	tr.Verdict(exact())
}

// inWords lists figures by name.
func inWords(figures map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, figures[name]))
	}
	return strings.Join(parts, ", ")
}

// connectionsCut ends all connections again and again, whatever is on them.
func connectionsCut(tr *trial) {
	way := tr.behindProxy()
	tr.Serve()
	cuts := 0
	tr.suffer(outage{strike: func(*harness.Process) {
		ticker := time.NewTicker(300 * time.Millisecond)
		defer ticker.Stop()
		for end := tr.Count() + 10*outageRate; tr.Count() < end; <-ticker.C {
			cuts += way.Cut()
		}
	}})
	tr.Remark("%d connections cut", cuts)
	tr.Verdict(judge.Bounds{Heal: restHealing})
}
