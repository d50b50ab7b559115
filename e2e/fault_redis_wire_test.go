package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// redisWires are faults of the way between the program and a Redis that is well.
func redisWires() []fault {
	return []fault{
		{id: "F24", title: "partition from redis, hanging", short: oneOfRedis, full: withRedis, run: func(l *lab) { redisParted(l, (*proxy).hang) }},
		{id: "F24", title: "partition from redis, refusing", short: otherRedis, full: withRedis, run: func(l *lab) { redisParted(l, (*proxy).refuse) }},
		{id: "F25", title: "replies of redis dropped", short: otherRedis, full: withRedis, run: func(l *lab) { repliesDropped(l, 0) }},
		{id: "F25", title: "replies of redis torn", full: withRedis, run: func(l *lab) { repliesDropped(l, 5) }},
		{id: "F25", title: "connections to redis cut", full: withRedis, run: connectionsCut},
	}
}

// redisParted cuts the program off from Redis, with attempts in flight.
func redisParted(l *lab, part func(*proxy)) {
	way := l.behindProxy()
	l.serve()
	lasts := long(l, 30*time.Second, 8*time.Second)
	rate := long(l, 100, 50)
	var noticed, until time.Time
	var committed time.Duration
	a := l.suffer(outage{rate: rate, before: rate * 3, after: rate * 3, strike: func(p *process) {
		part(way)
		cut := time.Now()
		// What was in flight is recorded although the index cannot be told of it.
		eventually(l, lasts, "all that arrived is committed to SQL during the partition", func() error { return l.allRecorded() })
		committed = time.Since(cut)
		eventually(l, 20*time.Second, "the process says that it is degraded", func() error {
			if now := look(p); !now.degraded {
				return errNotYet
			}
			return nil
		})
		noticed = time.Now()
		<-time.After(time.Until(cut.Add(lasts)))
		until = time.Now()
		way.pass()
	}})
	l.degradedThroughout(&a, noticed, until)
	arrived := l.firstArrivals(until)
	opened, _ := way.figures()
	l.remark("results of what was in flight committed after %s, degraded after %s; passed again to the first send %s, to the end of the backlog of %d %s; %d connections in all",
		committed.Round(10*time.Millisecond), noticed.Sub(a.began).Round(10*time.Millisecond), arrived.first.Round(time.Millisecond),
		arrived.backlog, arrived.drained.Round(time.Millisecond), opened)
	l.verdict(exact())
}

// allRecorded says whether SQL has an attempt for each request that came to the receiver.
func (l *lab) allRecorded() error {
	ctx, cancel := context.WithTimeout(l.Context(), 10*time.Second)
	defer cancel()
	attempts, arrived := 0, l.w.count()
	if err := l.database().QueryRowContext(ctx, `SELECT count(*) FROM attempts`).Scan(&attempts); err != nil {
		return fmt.Errorf("count attempts: %w", err)
	}
	if attempts < arrived || l.w.now() > 0 {
		return fmt.Errorf("%d requests arrived, %d attempts are in SQL, %d are being answered", arrived, attempts, l.w.now())
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

// operation tells the scripts apart by the keys and arguments that they name; "" is none of those that matter here.
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

// repliesDropped has every n-th reply to each operation swallowed, after a few bytes of it, and the connection cut: it was
// executed, and the program cannot know. Time-outs of 20 s make every lease one that is extended.
func repliesDropped(l *lab, after int) {
	way := l.behindProxy()
	l.serve()
	every := long(l, 5, 7)
	seen, hidden := map[string]int{}, map[string]int{}
	shape := func(i int) submission {
		s := l.mixed(i)
		s["policy"].(submission)["timeout"] = "20s"
		if i%3 == 0 {
			s["lock_key"] = fmt.Sprint("lock-", i%50)
		}
		return s
	}
	a := l.suffer(outage{rate: long(l, 60, 40), shape: shape, before: 60, after: 60, strike: func(*process) {
		way.swallow(func(request []byte) bool {
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
		l.awaitAccepted(l.count() + long(l, 2500, 500))
		way.swallow(nil, 0)
	}})
	for _, op := range dropped {
		if hidden[op] < 3 {
			l.Errorf("only %d replies to %s were dropped, of %d", hidden[op], op, seen[op])
		}
	}
	// A batch whose reply was lost is asked for again with the same token. Without that it would wait for its leases to run
	// out, and they would be reaped.
	reaped, err := a.p.metric("dispatcher_leases_reaped_total")
	if err != nil || reaped > 0 {
		l.Errorf("%.0f leases ran out: %v", reaped, err)
	}
	l.remark("every %d. reply dropped after %d bytes: %s", every, after, inWords(hidden))
	l.verdict(exact())
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
func connectionsCut(l *lab) {
	way := l.behindProxy()
	l.serve()
	cuts := 0
	l.suffer(outage{rate: 100, before: 200, after: 200, strike: func(*process) {
		ticker := time.NewTicker(300 * time.Millisecond)
		defer ticker.Stop()
		for end := l.count() + 2000; l.count() < end; <-ticker.C {
			cuts += way.cut()
		}
	}})
	l.remark("%d connections cut", cuts)
	l.verdict(judge.Bounds{Heal: restHealing})
}
