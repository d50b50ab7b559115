package relay

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// applicationVariable has the settings of a child process of the test: an application that does business
// transactions until the test kills it.
const applicationVariable = "RELAY_TEST_APPLICATION"

// appSettings are those of an application. Its orders are NAME-0, NAME-1 and so on.
type appSettings struct {
	Name, Database, URL string
	Receiver            string
	PerSecond           int
}

// application does business transactions at a rate. It rolls a third of them back at random, half of these by
// the end of its session. It writes a byte for each transaction, and ends when its output is closed.
func application(settings string) (code int) {
	var s appSettings
	if err := json.Unmarshal([]byte(settings), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	on := postgres
	if s.Database == mariadb.name {
		on = mariadb
	}
	err := testserver.Outside(func(tb testing.TB) {
		db := testserver.DB(tb, s.URL)
		db.SetMaxOpenConns(1)
		began := time.Now()
		for i := 0; ; i++ {
			// The application's rate.
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(s.PerSecond))))
			// A transaction fails while the source is down. The table of orders has those that committed.
			err := s.transact(db, on, fmt.Sprintf("%s-%d", s.Name, i), i%2 == 0)
			mark := "."
			if err != nil {
				mark = "x"
			}
			if _, err := os.Stdout.WriteString(mark); err != nil {
				return
			}
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// transact does one business transaction, and may roll it back.
func (s *appSettings) transact(db *sql.DB, on *database, order string, inBody bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	r := row{id: order}
	request := harness.Submission{"url": s.Receiver + "/plain/" + order, "ref": order,
		"policy": harness.Tiers("2s", "500ms", "1s", "1s", "2s", "2s", "5s", "5s", "5s")}
	if inBody {
		request["content_type"], r.body = "application/json", harness.Payload(order)
	} else {
		request["payload"] = harness.Payload(order)
	}
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r.request = string(text)
	if err := on.business(ctx, tx, r); err != nil {
		return err
	}
	switch rand.N(6) {
	case 0:
		return tx.Rollback()
	case 1:
		if _, err := tx.ExecContext(ctx, on.endSession); err == nil {
			return errors.New("the session goes on")
		}
		return nil
	}
	return tx.Commit()
}

// An app is a running application.
type app struct {
	cmd  *exec.Cmd
	name string
	// done counts its transactions, and failed those of them with an error.
	done, failed atomic.Int64
	ended        chan struct{}
}

// startApp starts an application on the outbox.
func (o *outbox) startApp(name string, perSecond int) *app {
	o.tr.Helper()
	settings, err := json.Marshal(appSettings{Name: name, Database: o.on.name, URL: o.url,
		Receiver: o.tr.Receiver.URL, PerSecond: perSecond})
	o.tr.Check(err)
	self, err := os.Executable()
	o.tr.Check(err)
	a := &app{name: name, ended: make(chan struct{})}
	a.cmd = harness.Prepared(o.tr, exec.Command(self), applicationVariable+"="+string(settings))
	out, err := a.cmd.StdoutPipe()
	o.tr.Check(err)
	a.cmd.Stderr = os.Stderr
	o.tr.Check(a.cmd.Start())
	go func() {
		defer close(a.ended)
		marks := bufio.NewReader(out)
		for {
			mark, err := marks.ReadByte()
			if err != nil {
				break
			}
			a.done.Add(1)
			if mark == 'x' {
				a.failed.Add(1)
			}
		}
		a.cmd.Wait() // it is killed
	}()
	o.tr.Cleanup(a.kill)
	return a
}

// kill sends SIGKILL, and returns when the application has ended.
func (a *app) kill() {
	a.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
	<-a.ended
}
