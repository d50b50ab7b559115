package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// retentionFaults let retention, as short as it can be set, run beside the load. It runs once a minute.
func retentionFaults() []fault {
	return []fault{
		{id: "F50", title: "payloads purged under load", full: bothEnds, run: func(l *lab) { purged(l, false) }},
		{id: "F50", title: "callbacks purged under load", full: bothEnds, run: func(l *lab) { purged(l, true) }},
	}
}

// purged accepts for a minute and a half callbacks of which every tenth stays open across a purge and needs its payload
// afterwards: its first attempt fails, and its tier is longer than the minute between two purges. If whole callbacks are
// purged, a row that is gone must have been seen terminal before, and what remains is judged as ever.
func purged(l *lab, whole bool) {
	args := []string{"--retention-payload", "1s"}
	if whole {
		args = append(args, "--retention-metadata", "20s")
		l.on.keepApart("retention removes callbacks")
	}
	l.w.behave(func(h *hit) reply {
		if h.kind() == "later" && h.nth == 1 {
			return reply{status: 500}
		}
		return usual(h)
	})
	l.serve(args...)
	if l.on.redis != "" {
		l.serve(args...)
	}
	ld := l.load(100, func(i int) submission {
		if i%10 != 0 {
			return l.mixed(i)
		}
		s := l.callback("later", fmt.Sprint("later-", i))
		s["policy"] = submission{"tiers": []string{"65s", "1s"}, "timeout": "2s"}
		return s
	})
	span := time.NewTimer(100 * time.Second) // at least one purge with all that was accepted before, and one after
	defer span.Stop()
	seen := map[string]string{}
	look := time.NewTicker(2 * time.Second)
	defer look.Stop()
	for waiting := true; waiting; {
		select {
		case <-look.C:
			l.noteEnds(seen)
		case <-span.C:
			waiting = false
		}
	}
	ld.finish()
	deadline := time.Now().Add(3 * time.Minute)
	for open := 1; open > 0; {
		var err error
		if open, _, err = countOpen(l.Context(), l.database()); err != nil || time.Now().After(deadline) {
			l.Fatalf("%d callbacks are open: %v", open, err)
		}
		l.noteEnds(seen)
		<-look.C
	}
	payloads, callbacks := l.purgedBy("payload"), l.purgedBy("callback")
	for _, p := range l.alive() {
		p.terminate() // nothing is purged any more while it is judged
		if code := p.exitCode(time.Minute); code != 0 {
			l.Errorf("exit code %d", code)
		}
	}
	gone := l.goneOf(seen)
	v := l.verdict(judge.Bounds{Unknown: gone, IndexUnread: l.on.redis == ""})
	if payloads == 0 || whole != (callbacks > 0) || whole != (len(gone) > 0) {
		l.Errorf("%v payloads and %v callbacks were purged, %d are gone", payloads, callbacks, len(gone))
	}
	l.remark("%d accepted, %v payloads and %v callbacks purged meanwhile: each that is gone (%d) had succeeded before, each that is there arrived as it was accepted; lateness p99 %s",
		v.Accepted, payloads, callbacks, len(gone), v.Lateness.P99)
}

// purgedBy sums what all processes purged; one of them does it at a time, and one that never had its turn has no such metric.
func (l *lab) purgedBy(what string) float64 {
	sum := 0.0
	for _, p := range l.alive() {
		if n, err := p.metric("dispatcher_purged_total", `what="`+what+`"`); err == nil {
			sum += n
		}
	}
	return sum
}

// noteEnds writes down the terminal callbacks that SQL has. It looks more often than retention lets one go.
func (l *lab) noteEnds(seen map[string]string) {
	l.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	rows, err := l.database().QueryContext(ctx, `SELECT id, state FROM callbacks WHERE finished_at > 0`)
	if err != nil {
		l.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, state string
		if err := rows.Scan(&id, &state); err != nil {
			l.Fatal(err)
		}
		seen["cb_"+id] = state
	}
	if err := rows.Err(); err != nil {
		l.Fatal(err)
	}
}

// goneOf are the accepted callbacks that SQL has no more although they were seen to have succeeded. One that was never seen
// so is not among them, and the judge finds it lost.
func (l *lab) goneOf(seen map[string]string) map[string]bool {
	l.Helper()
	rows, err := readRows(l.Context(), l.database())
	if err != nil {
		l.Fatal(err)
	}
	there := map[string]bool{}
	for i := range rows {
		there[rows[i].ID] = true
	}
	gone := map[string]bool{}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.accepted {
		if !there[a.ID] && seen[a.ID] == "succeeded" {
			gone[a.ID] = true
		}
	}
	return gone
}
