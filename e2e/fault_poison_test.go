package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// poisonFaults are callbacks whose attempt takes the process down with it, and receivers that try to.
func poisonFaults() []fault {
	return []fault{
		// On Redis each crash costs a lease: minutes.
		{id: "F16", title: "attempt that kills its process", short: []combination{embedded}, full: []combination{embedded, full}, run: poisoned},
		{id: "F17", title: "answers without an end", short: []combination{embedded}, full: bothEnds, run: flooded},
	}
}

// poisonCrashes is how many claims in a row may end without a result, by the documentation.
const poisonCrashes = 5

// poisoned has one callback whose attempts kill the process each time, among others that are due at the same moment.
func poisoned(l *lab) {
	const failpoint = "before_send@/poison/"
	shape := func(i int) submission {
		kind := "plain"
		switch {
		case i == 0:
			kind = "poison"
		case i%3 == 0:
			kind = "retry"
		}
		s := l.callback(kind, fmt.Sprintf("%s-%d", kind, i))
		s["delay"] = "3s" // so that all are claimed together
		s["lane"] = fmt.Sprint("lane-", i%10)
		return s
	}
	dispatchers := 1
	if l.on.redis != "" {
		dispatchers = 2
	}
	for range dispatchers {
		l.serveUntil(failpoint)
	}
	left := l.acceptAll(numbers(100), shape)
	t := l.toll()
	crashes := 0
	deadline := time.Now().Add(6 * time.Minute)
	for {
		if missing := dispatchers - len(l.alive()); missing > 0 {
			at := time.Now()
			crashes += missing
			l.struck()
			span := time.Duration(0)
			if dispatchers > 1 {
				span = 3 * time.Second
			}
			t.take(at, span)
			for range missing {
				l.serveUntil(failpoint)
			}
			left = l.acceptAll(left, shape)
		}
		open, _, err := countOpen(l.Context(), l.database())
		if err == nil && open == 0 && len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			l.Errorf("after %d crashes %d callbacks are open, %d not accepted: %v", crashes, open, len(left), err)
			break
		}
		pause()
	}
	t.account()
	bounds := t.bounds(90 * time.Second)
	bounds.Expect = func(ref string) string {
		if strings.HasPrefix(ref, "poison") {
			return "dead"
		}
		return "succeeded"
	}
	v := l.verdict(bounds)
	var reason string
	if err := l.database().QueryRowContext(l.Context(), `SELECT reason FROM callbacks WHERE ref = 'poison-0'`).Scan(&reason); err != nil {
		l.Fatal(err)
	}
	if reason != "poison" || crashes != poisonCrashes {
		l.Errorf("it is dead: %s after %d crashes, want poison after %d", reason, crashes, poisonCrashes)
	}
	l.remark("dead: %s after %d crashes; the %d others succeeded with %d duplicates", reason, crashes, v.Accepted-1, v.Duplicates)
}

// memoryOfFloods is by how much answers without an end may grow a process: 64 in flight, each of which may have 64 KiB of head and
// of body, and what a collector leaves.
const memoryOfFloods = 96 << 20

// flooded has receivers that answer with hundreds of megabytes, with a head that never ends, and with a body that never ends.
func flooded(l *lab) {
	body := strings.Repeat("SUCCESS ", 1<<17) // a megabyte
	l.w.behave(func(h *hit) reply {
		switch h.kind() {
		case "huge":
			return reply{stream: func(w http.ResponseWriter) { endlessly(w, body, 400) }}
		case "endless":
			return reply{stream: func(w http.ResponseWriter) { endlessly(w, body, 1<<30) }}
		case "head":
			return reply{stream: endlessHead}
		}
		return usual(h)
	})
	p := l.serve()
	pid := p.cmd.Process.Pid
	if err := forgetPeak(pid); err != nil {
		l.Fatal(err)
	}
	before, err := residentMemory(pid)
	if err != nil {
		l.Fatal(err)
	}
	kinds := []string{"huge", "endless", "head", "plain"}
	n := long(l, 2000, 160)
	left := l.acceptAll(numbers(n), func(i int) submission {
		s := l.callback(kinds[i%4], fmt.Sprintf("%s-%d", kinds[i%4], i))
		s["policy"] = submission{"tiers": []string{"500ms"}, "timeout": "5s"}
		s["lane"] = fmt.Sprint("lane-", i%64)
		return s
	})
	if len(left) > 0 {
		l.Errorf("%d callbacks were not accepted", len(left))
	}
	l.settle(2 * time.Minute)
	peak, err := peakMemory(pid)
	if err != nil {
		l.Fatal(err)
	}
	if peak-before > memoryOfFloods {
		l.Errorf("the process grew from %s to %s", megabytes(before), megabytes(peak))
	}
	l.verdict(judge.Bounds{Expect: func(ref string) string {
		if strings.HasPrefix(ref, "head") {
			return "dead" // no answer at all, every time
		}
		return "succeeded" // the status is an answer, whatever follows it
	}})
	l.remark("%d answers of 400 MB, endless bodies and endless heads: resident memory %s before, %s at most", n*3/4, megabytes(before), megabytes(peak))
}

// endlessly writes the text so many times, or until the sender hangs up.
func endlessly(w http.ResponseWriter, text string, times int) {
	w.WriteHeader(http.StatusOK)
	for range times {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// endlessHead writes header fields until the sender hangs up.
func endlessHead(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // the judge then sees an answer that nobody expects
	}
	defer conn.Close()
	text := "HTTP/1.1 200 OK\r\n"
	for i := 0; ; i++ {
		if _, err := io.WriteString(conn, text); err != nil {
			return
		}
		text = fmt.Sprintf("X-Filler-%d: %s\r\n", i, strings.Repeat("x", 1000))
	}
}
