package faults

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// poisonFaults are callbacks whose attempt takes the process down with it, and receivers that try to.
func poisonFaults() []fault {
	return []fault{
		{id: "F16", title: "attempt that kills its process", quick: true, on: harness.BothEnds, run: poisoned},
		{id: "F17", title: "answers without an end", on: onlySQLite, run: flooded},
	}
}

// poisonCrashes is how many claims in a row may end without a result, by the documentation.
const poisonCrashes = 5

// poisoned has one callback whose attempts kill the process each time, among others that are due at the same
// moment.
func poisoned(tr *trial) {
	const failpoint = "before_send@/poison/"
	shape := func(i int) harness.Submission {
		kind := "plain"
		switch {
		case i == 0:
			kind = "poison"
		case i%3 == 0:
			kind = "retry"
		}
		s := tr.Callback(kind, fmt.Sprintf("%s-%d", kind, i))
		s["delay"] = "3s" // so that all are claimed together
		s["lane"] = fmt.Sprint("lane-", i%10)
		return s
	}
	dispatchers := 1
	if tr.Backend.Redis != "" {
		dispatchers = 2
	}
	for range dispatchers {
		tr.ServeUntil(failpoint)
	}
	left := tr.AcceptAll(harness.Numbers(100), shape)
	t := tr.UncommittedClaims()
	crashes := 0
	deadline := time.Now().Add(6 * time.Minute)
	for {
		if missing := dispatchers - len(tr.Alive()); missing > 0 {
			at := time.Now()
			crashes += missing
			tr.MarkFault()
			span := time.Duration(0)
			if dispatchers > 1 {
				span = 3 * time.Second
			}
			t.Take(at, span)
			for range missing {
				tr.ServeUntil(failpoint)
			}
			left = tr.AcceptAll(left, shape)
		}
		open, _, err := harness.CountOpen(tr.Context(), tr.Database())
		if err == nil && open == 0 && len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			tr.Errorf("after %d crashes %d callbacks are open, %d not accepted: %v", crashes, open, len(left), err)
			break
		}
		harness.Pause()
	}
	t.Account()
	bounds := t.Bounds(90 * time.Second)
	bounds.Expect = func(ref string) string {
		if strings.HasPrefix(ref, "poison") {
			return "dead"
		}
		return "succeeded"
	}
	v := tr.Verdict(bounds)
	if tr.sqlCount(`SELECT count(*) FROM callbacks JOIN requests USING (project, id)
		WHERE ref = 'poison-0' AND reason = 'poison'`) != 1 ||
		crashes != poisonCrashes {
		tr.Errorf("it is not dead of poison, or not after %d crashes but after %d", poisonCrashes, crashes)
	}
	tr.Remark("dead after %d crashes; the %d others succeeded with %d duplicates", crashes, v.Accepted-1, v.Duplicates)
}

// memoryOfFloods is by how much answers without an end may grow a process. Each of 512 in flight may have 64
// KiB of head and of body, and a starved collector leaves as much again. A process that kept what is sent
// would take more than one answer, 400 MB.
const memoryOfFloods = 256 << 20

// flooded has receivers that answer with hundreds of megabytes, with a head that never ends, and with a body
// that never ends.
func flooded(tr *trial) {
	body := strings.Repeat("SUCCESS ", 1<<17) // a megabyte
	tr.Recorder.SetScript(func(h *harness.Request) harness.Reply {
		switch h.Kind() {
		case "huge":
			return harness.Reply{Stream: func(w http.ResponseWriter) { endlessly(w, body, 400) }}
		case "endless":
			return harness.Reply{Stream: func(w http.ResponseWriter) { endlessly(w, body, 1<<30) }}
		case "head":
			return harness.Reply{Stream: endlessHead}
		}
		return harness.Usual(h)
	})
	p := tr.Serve()
	pid := p.Cmd.Process.Pid
	if err := harness.ForgetPeak(pid); err != nil {
		tr.Fatal(err)
	}
	before, err := harness.ResidentMemory(pid)
	if err != nil {
		tr.Fatal(err)
	}
	kinds := []string{"huge", "endless", "head", "plain"}
	n := sized(160, 2000, 2000)
	left := tr.AcceptAll(harness.Numbers(n), func(i int) harness.Submission {
		s := tr.Callback(kinds[i%4], fmt.Sprintf("%s-%d", kinds[i%4], i))
		s["policy"] = harness.Submission{"tiers": []string{"500ms"}, "timeout": "5s"}
		// 63 is odd, so that each lane has all kinds. A lane of endless heads alone gets no answer: on a busy
		// machine, where 20 attempts take over 10 s, its breaker opens and lets one attempt pass in 15 s.
		s["lane"] = fmt.Sprint("lane-", i%63)
		return s
	})
	if len(left) > 0 {
		tr.Errorf("%d callbacks were not accepted", len(left))
	}
	tr.Settle(2 * time.Minute)
	peak, err := harness.PeakMemory(pid)
	if err != nil {
		tr.Fatal(err)
	}
	if peak-before > memoryOfFloods {
		tr.Errorf("the process grew from %s to %s", harness.Megabytes(before), harness.Megabytes(peak))
	}
	tr.Verdict(judge.Bounds{Expect: func(ref string) string {
		if strings.HasPrefix(ref, "head") {
			return "dead" // no answer at all, every time
		}
		return "succeeded" // the status is an answer, whatever follows it
	}})
	tr.Remark("%d answers of 400 MB, endless bodies and endless heads: resident memory %s before, %s at most",
		n*3/4, harness.Megabytes(before), harness.Megabytes(peak))
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
		return // the judge then sees an unexpected answer
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
