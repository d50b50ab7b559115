package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// sqliteLocked holds SQLite's lock, as a second program that writes to the file does. Accepts wait for a moment or are refused.
func sqliteLocked(l *lab) {
	began := time.Now()
	ld, w := l.underWay()
	other, err := sql.Open("sqlite", "file:"+filepath.Join(l.on.dataDir, "dispatcher.db")+"?_pragma=busy_timeout(20000)")
	if err != nil {
		l.Fatal(err)
	}
	defer other.Close()
	held, err := other.Conn(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	defer held.Close()
	for _, lasts := range long(l, []time.Duration{time.Second, 12 * time.Second, 40 * time.Second}, []time.Duration{time.Second, 7 * time.Second}) {
		l.struck()
		if _, err := held.ExecContext(l.Context(), "BEGIN EXCLUSIVE"); err != nil {
			l.Fatal(err)
		}
		from := time.Now()
		time.Sleep(lasts) // the fault lasts, by the clock
		to := time.Now()
		if _, err := held.ExecContext(l.Context(), "ROLLBACK"); err != nil {
			l.Fatal(err)
		}
		l.struck()
		if err := w.p.awaitReady(30 * time.Second); err != nil {
			l.Error(err)
		}
		g := w.during(from, to)
		if n := g.accepts[http.StatusAccepted]; n > 0 {
			l.Errorf("%d accepts succeeded while another process held the lock: %s", n, g)
		}
		l.remark("locked for %s: %s", lasts, g)
		l.awaitSends(l.sqlRate())
	}
	l.conclude(ld, w, began, judge.Bounds{})
}

// limit sets a limit of a running process, with "soft:" or "soft:hard" as prlimit writes it.
func (l *lab) limit(p *process, what, value string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "prlimit", "--pid", fmt.Sprint(p.cmd.Process.Pid), "--"+what+"="+value).CombinedOutput()
	if err != nil {
		return fmt.Errorf("prlimit --%s=%s: %w: %s", what, value, err, out)
	}
	return nil
}

// sqliteCannotGrow lets no file of the process grow any more, as a quota does.
func sqliteCannotGrow(l *lab) {
	began := time.Now()
	ld, w := l.underWay()
	l.blackout(w, "files cannot grow", long(l, 20*time.Second, 5*time.Second),
		func() error { return l.limit(w.p, "fsize", "4096:") },
		func() error { return l.limit(w.p, "fsize", "unlimited:") })
	l.conclude(ld, w, began, judge.Bounds{})
}

// killedInTransactions kills the process again and again while it commits, and starts it on what it left: the log is replayed.
func killedInTransactions(l *lab) {
	kills := long(l, 20, 6)
	p := l.serve("--workers", "128")
	// On many lanes: what a dead process had claimed holds its lane's slots in Redis until its leases run out.
	ld := l.load(l.sqlRate(), func(i int) submission {
		s := l.mixed(i)
		s["lane"] = fmt.Sprint("lane-", i%100)
		return s
	})
	inFlight, t := 0, l.toll()
	for i := range kills {
		l.awaitSends(l.sqlRate() / 2)
		// Each life is longer than the slowest attempt: who is attempted by six in a row that die counts as poison. And not every
		// one ends at the same point of a commit.
		time.Sleep(500*time.Millisecond + time.Duration(i%7)*3*time.Millisecond)
		inFlight += l.w.now()
		l.struck()
		p.kill()
		t.take(time.Now(), 0)
		p = l.serve("--workers", "128")
		l.struck()
	}
	got := ld.finish()
	l.settle(3 * time.Minute)
	t.account()
	crashed, err := l.crashed()
	if err != nil {
		l.Fatal(err)
	}
	v := l.verdict(t.bounds(2 * time.Minute))
	l.remark("%d kills, %d in flight at them, %d attempts crashed, %d duplicates, %d requests made again", kills, inFlight, crashed, v.Duplicates, got.again)
	l.intact()
}

// crashed counts the attempts that a dead process had claimed and left without a result.
func (l *lab) crashed() (n int, err error) {
	err = l.database().QueryRowContext(l.Context(), `SELECT count(*) FROM attempts WHERE class = 'crashed'`).Scan(&n)
	return n, err
}

// intact has SQLite check its own file.
func (l *lab) intact() {
	l.Helper()
	var said string
	if err := l.database().QueryRowContext(l.Context(), "PRAGMA integrity_check").Scan(&said); err != nil || said != "ok" {
		l.Errorf("integrity_check says %q: %v", said, err)
	}
}

// logCutOff cuts off a part of SQLite's write-ahead log while no process runs, as a damaged disk does. What was committed behind the
// cut is lost, and nothing else: no promise covers it. What stood before it is all there, and the process starts and works.
func logCutOff(l *lab) {
	const n = 60
	p := l.serve()
	var order []string
	for i := range n {
		s := l.callback("plain", fmt.Sprint("plain-", i))
		s["delay"] = "20s"
		id, err := askOne(p.client, s)
		if err != nil {
			l.Fatal(err)
		}
		l.note(id, s["ref"].(string))
		order = append(order, id)
	}
	p.kill()
	wal := filepath.Join(l.on.dataDir, "dispatcher.db-wal")
	info, err := os.Stat(wal)
	if err != nil {
		l.Fatal(err)
	}
	l.struck()
	// Not at the end of a frame: the last one is torn.
	if err := os.Truncate(wal, info.Size()*3/4+100); err != nil {
		l.Fatal(err)
	}
	p = l.serve()
	rows, err := readRows(l.Context(), l.database())
	if err != nil {
		l.Fatal(err)
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
			l.Errorf("callback %d is there, and an earlier one is not: what stood before the cut must be whole", i)
		}
	}
	if len(lost) == 0 || len(lost) == n {
		l.Errorf("%d of %d were lost: the cut hit nothing, or everything", len(lost), n)
	}
	l.remark("log of %d bytes cut to three quarters: %d of %d callbacks behind the cut are gone", info.Size(), len(lost), n)
	l.intact()
	fresh := l.callback("plain", "after-the-cut")
	id, err := askOne(p.client, fresh)
	if err != nil {
		l.Fatal(err)
	}
	l.note(id, "after-the-cut")
	l.settle(time.Minute)
	l.verdict(judge.Bounds{Unknown: lost, Heal: time.Minute})
	if p.ended() {
		l.Error("the process has ended")
	}
}
