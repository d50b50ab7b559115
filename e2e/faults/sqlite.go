package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// intact has SQLite check its own file.
func (tr *trial) intact() {
	tr.Helper()
	var said string
	if err := tr.Database().QueryRowContext(tr.Context(), "PRAGMA integrity_check").Scan(&said); err != nil ||
		said != "ok" {
		tr.Errorf("integrity_check says %q: %v", said, err)
	}
}

// logCutOff cuts off a part of SQLite's write-ahead log while no process runs, as a damaged disk does. What
// was committed behind the cut is lost, and nothing else: no promise covers it. What stood before it is all
// there, and the process starts and works.
func logCutOff(tr *trial) {
	const n = 60
	p := tr.Serve()
	var order []string
	for i := range n {
		s := tr.Callback("plain", fmt.Sprint("plain-", i))
		s["delay"] = "20s"
		id, err := harness.AskOne(p.Client, s)
		if err != nil {
			tr.Fatal(err)
		}
		tr.NoteAccepted(id, s["ref"].(string))
		order = append(order, id)
	}
	p.Kill()
	wal := filepath.Join(tr.Backend.DataDir, "dispatcher.db-wal")
	info, err := os.Stat(wal)
	if err != nil {
		tr.Fatal(err)
	}
	tr.MarkFault()
	// Not at the end of a frame: the last one is torn.
	if err := os.Truncate(wal, info.Size()*3/4+100); err != nil {
		tr.Fatal(err)
	}
	p = tr.Serve()
	rows, err := judge.ReadRows(tr.Context(), tr.Database())
	if err != nil {
		tr.Fatal(err)
	}
	there := map[string]bool{}
	for i := range rows {
		there[rows[i].ID] = true
	}
	lost := map[string]bool{}
	for i, id := range order {
		if !there[id] {
			lost[id] = true
		} else if len(lost) > 0 {
			tr.Errorf("callback %d is there, and an earlier one is not: what stood before the cut must be whole", i)
		}
	}
	if len(lost) == 0 || len(lost) == n {
		tr.Errorf("%d of %d were lost: the cut hit nothing, or everything", len(lost), n)
	}
	tr.Backend.LostByDesign(len(lost))
	tr.Remark("log of %d bytes cut to three quarters: %d of %d callbacks behind the cut are gone", info.Size(),
		len(lost), n)
	tr.intact()
	fresh := tr.Callback("plain", "after-the-cut")
	id, err := harness.AskOne(p.Client, fresh)
	if err != nil {
		tr.Fatal(err)
	}
	tr.NoteAccepted(id, "after-the-cut")
	tr.Settle(time.Minute)
	tr.Verdict(judge.Bounds{Unknown: lost, Heal: time.Minute})
	if p.Ended() {
		tr.Error("the process has ended")
	}
}
