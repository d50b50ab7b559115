package faults

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// sqliteLocked holds SQLite's lock, as a second program that writes to the file does. Accepts wait for a
// moment or are refused.
func sqliteLocked(tr *trial) {
	began := time.Now()
	ld, w := tr.underWay()
	other, err := sql.Open("sqlite", "file:"+filepath.Join(tr.Backend.DataDir,
		"dispatcher.db")+"?_pragma=busy_timeout(20000)")
	if err != nil {
		tr.Fatal(err)
	}
	defer other.Close()
	held, err := other.Conn(tr.Context())
	if err != nil {
		tr.Fatal(err)
	}
	defer held.Close()
	for _, lasts := range []time.Duration{time.Second, 7 * time.Second} {
		tr.MarkFault()
		if _, err := held.ExecContext(tr.Context(), "BEGIN EXCLUSIVE"); err != nil {
			tr.Fatal(err)
		}
		from := time.Now()
		time.Sleep(lasts) // the fault lasts, by the clock
		to := time.Now()
		if _, err := held.ExecContext(tr.Context(), "ROLLBACK"); err != nil {
			tr.Fatal(err)
		}
		tr.MarkFault()
		if err := w.p.AwaitReady(30 * time.Second); err != nil {
			tr.Error(err)
		}
		g := w.during(from, to)
		if n := g.accepts[http.StatusAccepted]; n > 0 {
			tr.Errorf("%d accepts succeeded while another process held the lock: %s", n, g)
		}
		tr.Remark("locked for %s: %s", lasts, g)
		tr.awaitSends(sqlRate)
	}
	tr.conclude(ld, w, began, judge.Bounds{})
}

// limit sets a limit of a running process, with "soft:" or "soft:hard" as prlimit writes it.
func (tr *trial) limit(p *harness.Process, what, value string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "prlimit", "--pid", fmt.Sprint(p.Cmd.Process.Pid),
		"--"+what+"="+value).CombinedOutput()
	if err != nil {
		return fmt.Errorf("prlimit --%s=%s: %w: %s", what, value, err, out)
	}
	return nil
}

// sqliteCannotGrow lets no file of the process grow any more, as a quota does.
func sqliteCannotGrow(tr *trial) {
	began := time.Now()
	ld, w := tr.underWay()
	tr.blackout(w, "files cannot grow", 5*time.Second,
		func() error { return tr.limit(w.p, "fsize", "4096:") },
		func() error { return tr.limit(w.p, "fsize", "unlimited:") })
	tr.conclude(ld, w, began, judge.Bounds{})
}

// killedInTransactions kills the process again and again while it commits, and starts it on what it left: the
// log is replayed.
func killedInTransactions(tr *trial) {
	const kills = 6
	p := tr.Serve("--workers", "128")
	// On many lanes: what a dead process had claimed holds its lane's slots in Redis until its leases run out.
	ld := tr.Load(sqlRate, func(i int) harness.Submission {
		s := tr.Mixed(i)
		s["lane"] = fmt.Sprint("lane-", i%100)
		return s
	})
	inFlight, t := 0, tr.UncommittedClaims()
	for i := range kills {
		tr.awaitSends(sqlRate / 2)
		// Each life is longer than the slowest attempt: who is attempted by six in a row that die counts as
		// poison. And not every one ends at the same point of a commit.
		time.Sleep(500*time.Millisecond + time.Duration(i%7)*3*time.Millisecond)
		inFlight += tr.Recorder.InFlight()
		tr.MarkFault()
		p.Kill()
		t.Take(time.Now(), 0)
		p = tr.Serve("--workers", "128")
		tr.MarkFault()
	}
	got := ld.Finish()
	tr.Settle(3 * time.Minute)
	t.Account()
	crashed, err := tr.crashed()
	if err != nil {
		tr.Fatal(err)
	}
	v := tr.Verdict(t.Bounds(2 * time.Minute))
	tr.Remark("%d kills, %d in flight at them, %d attempts crashed, %d duplicates, %d requests made again",
		kills, inFlight, crashed, v.Duplicates, got.Again)
	tr.intact()
}

// crashed counts the attempts that a dead process had claimed and left without a result.
func (tr *trial) crashed() (n int, err error) {
	err = tr.Database().QueryRowContext(tr.Context(),
		`SELECT count(*) FROM attempts WHERE class = 'crashed'`).Scan(&n)
	return n, err
}

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
	rows, err := harness.ReadRows(tr.Context(), tr.Database())
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
