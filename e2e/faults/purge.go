package faults

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// retentionFaults let retention, as short as it can be set, run beside the load. It runs each five seconds.
func retentionFaults() []fault {
	return []fault{{id: "F50", title: "payloads and callbacks purged under load", on: harness.BothEnds,
		run: purged}}
}

// purged accepts callbacks of which every tenth stays open across a purge and needs its payload afterwards:
// its first attempt fails, and its tier is longer than the minute until the purge. A row that is gone must
// have been seen terminal before. What remains is judged as ever.
func purged(tr *trial) {
	args := []string{"--retention-payload", "1s", "--retention-metadata", "20s"}
	tr.Backend.KeepApart("retention removes callbacks")
	tr.Recorder.SetScript(func(h *harness.Request) harness.Reply {
		if h.Kind() == "later" && h.Nth == 1 {
			return harness.Reply{Status: 500}
		}
		return harness.Usual(h)
	})
	tr.Serve(args...)
	if tr.Backend.Redis != "" {
		tr.Serve(args...)
	}
	ld := tr.Load(100, func(i int) harness.Submission {
		if i%10 != 0 {
			return tr.Mixed(i)
		}
		s := tr.Callback("later", fmt.Sprint("later-", i))
		s["policy"] = harness.Submission{"tiers": []string{"65s", "1s"}, "timeout": "2s"}
		return s
	})
	// the tier of every tenth ends after many purges
	span := time.NewTimer(25 * time.Second)
	defer span.Stop()
	seen := map[string]string{}
	look := time.NewTicker(2 * time.Second)
	defer look.Stop()
	for waiting := true; waiting; {
		select {
		case <-look.C:
			tr.noteEnds(seen)
		case <-span.C:
			waiting = false
		}
	}
	ld.Finish()
	deadline := time.Now().Add(3 * time.Minute)
	for open := 1; open > 0; {
		var err error
		if open, _, err = harness.CountOpen(tr.Context(), tr.Database()); err != nil || time.Now().After(deadline) {
			tr.Fatalf("%d callbacks are open: %v", open, err)
		}
		tr.noteEnds(seen)
		<-look.C
	}
	payloads, callbacks := tr.purgedBy("payload"), tr.purgedBy("callback")
	for _, p := range tr.Alive() {
		p.Terminate() // nothing is purged any more while it is judged
		if code := p.ExitCode(time.Minute); code != 0 {
			tr.Errorf("exit code %d", code)
		}
	}
	gone := tr.goneOf(seen)
	v := tr.Verdict(judge.Bounds{Unknown: gone, IndexUnread: tr.Backend.Redis == ""})
	if payloads == 0 || callbacks == 0 || len(gone) == 0 {
		tr.Errorf("%v payloads and %v callbacks were purged, %d are gone", payloads, callbacks, len(gone))
	}
	tr.Remark("%d accepted, %v payloads and %v callbacks purged meanwhile: each that is gone (%d) had "+
		"succeeded before, each that is there arrived as it was accepted; lateness p99 %s",
		v.Accepted, payloads, callbacks, len(gone), v.Lateness.P99)
}

// purgedBy sums what all processes purged; one of them does it at a time, and one that never had its turn has
// no such metric.
func (tr *trial) purgedBy(what string) float64 {
	sum := 0.0
	for _, p := range tr.Alive() {
		if n, err := p.Metric("dispatcher_purged_total", `what="`+what+`"`); err == nil {
			sum += n
		}
	}
	return sum
}

// noteEnds writes down the terminal callbacks that SQL has. It looks more often than retention lets one go.
func (tr *trial) noteEnds(seen map[string]string) {
	tr.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	rows, err := tr.Database().QueryContext(ctx, `SELECT id, state FROM callbacks WHERE finished_at > 0`)
	if err != nil {
		tr.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, state string
		if err := rows.Scan(&id, &state); err != nil {
			tr.Fatal(err)
		}
		seen["cb_"+id] = state
	}
	if err := rows.Err(); err != nil {
		tr.Fatal(err)
	}
}

// goneOf are the accepted callbacks that SQL has no more although they were seen to have succeeded. One that
// was never seen so is not among them, and the judge finds it lost.
func (tr *trial) goneOf(seen map[string]string) map[string]bool {
	tr.Helper()
	rows, err := judge.ReadRows(tr.Context(), tr.Database())
	if err != nil {
		tr.Fatal(err)
	}
	there := map[string]bool{}
	for i := range rows {
		there[rows[i].ID] = true
	}
	gone := map[string]bool{}
	tr.Mu.Lock()
	defer tr.Mu.Unlock()
	for _, a := range tr.Accepted {
		if !there[a.ID] && seen[a.ID] == "succeeded" {
			gone[a.ID] = true
		}
	}
	return gone
}
