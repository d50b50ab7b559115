package faults

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// purged accepts callbacks. Every tenth stays open across a purge and needs its payload afterwards: its first
// attempt fails, and its tier is longer than the minute until the purge. Each row that is gone must have been
// terminal before. The judge checks the rows that remain.
func purged(tr *trial) {
	tr.Backend.SkipReconciliation("retention removes callbacks")
	tr.Receiver.AnswerFirst("later", harness.Reply{Status: 500})
	tr.ServeAll("--retention-payload", "1s", "--retention-metadata", "20s")
	ld := tr.Load(100, func(i int) harness.Submission {
		if i%10 != 0 {
			return tr.Mixed(i)
		}
		s := tr.Numbered("later")(i)
		s["policy"] = harness.Tiers("2s", "65s", "1s")
		return s
	})
	// The tier of every tenth ends after many purges. The loop reads the ends more often than retention
	// removes a row.
	loaded, deadline := time.Now().Add(25*time.Second), time.Now().Add(4*time.Minute)
	succeeded := map[string]bool{}
	for finished := false; ; {
		if !finished && time.Now().After(loaded) {
			ld.Finish()
			finished = true
		}
		open, _, err := harness.CountOpen(tr.Context(), tr.Database())
		if err != nil || time.Now().After(deadline) {
			tr.Fatalf("%d callbacks are open: %v", open, err)
		}
		for _, id := range tr.texts(
			`SELECT id FROM callbacks WHERE finished_at > 0 AND state = 'succeeded'`) {
			succeeded["cb_"+id] = true
		}
		if finished && open == 0 {
			break
		}
		time.Sleep(2 * time.Second) // a query over all rows
	}
	payloads, callbacks := tr.sum(purgedMetric, `kind="payload"`), tr.sum(purgedMetric, `kind="callback"`)
	for _, p := range tr.Alive() {
		p.Exit(time.Minute) // stops the purges before the judge reads the rows
	}
	// Only callbacks that were seen as succeeded may be gone. The judge counts any other missing one as lost.
	gone, there := map[string]bool{}, tr.inSQL()
	for _, a := range tr.Accepted {
		if !there[a.ID] && succeeded[a.ID] {
			gone[a.ID] = true
		}
	}
	v := tr.Verdict(judge.Bounds{Unknown: gone, IndexUnread: tr.Backend.Redis == ""})
	if payloads == 0 || callbacks == 0 || len(gone) == 0 {
		tr.Errorf("%v payloads and %v callbacks were purged, %d are gone", payloads, callbacks, len(gone))
	}
	tr.Remark("%d accepted, %v payloads and %v callbacks purged meanwhile: the %d that are gone had "+
		"succeeded before, the rest arrived as accepted; lateness %s",
		v.Accepted, payloads, callbacks, len(gone), v.Lateness)
}

// purgedMetric counts the rows that retention has removed.
const purgedMetric = "dispatcher_purged_total"
