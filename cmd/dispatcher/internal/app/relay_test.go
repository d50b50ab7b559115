package app_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// requestTo returns the request of a row.
func requestTo(url, ref string) string {
	return fmt.Sprintf(`{"url":%q,"ref":%q,"payload":{"paid":1}}`, url, ref)
}

func insert(t *testing.T, outbox *apptest.Outbox, id, request string) {
	t.Helper()
	if err := outbox.Insert(t.Context(), id, request); err != nil {
		t.Fatal(err)
	}
}

// delivered waits until the callback of a row is delivered.
func delivered(t *testing.T, r *apptest.Running, ref string) {
	t.Helper()
	testserver.Until(t, ref+" is delivered", func() bool {
		found := r.Callbacks(t, "ref="+ref)
		return len(found) == 1 && found[0].State == "succeeded"
	})
}

// TestRelayInServe commits rows in the database of an application. A server delivers their callbacks, and
// moves a row that can never become one aside.
func TestRelayInServe(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real MariaDB")
	}
	receiver := cmdtest.ServeResponse(t, http.StatusOK, "")
	for _, dialect := range []source.Dialect{source.Postgres, source.MySQL} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			outbox := apptest.NewOutbox(t, dialect)
			r := apptest.Start(t, apptest.Settings(t, "--relay="+outbox.Setting(t, "pay", "absent")))
			insert(t, outbox, "order-1", requestTo(receiver, "order-1"))
			insert(t, outbox, "order-2", `{"url":`)
			delivered(t, r, "order-1")
			testserver.Until(t, "the other row is refused", func() bool {
				return outbox.Count(t, "dispatcher_outbox") == 0 &&
					outbox.Count(t, "dispatcher_outbox_refused") == 1
			})
			if by := r.Callbacks(t, "ref=order-1")[0].CreatedBy; by != "relay" {
				t.Errorf("created by %q", by)
			}
			if r.Readyz(t) != http.StatusOK {
				t.Error("a source that cannot be read makes the server unready")
			}
			r.End(t)
		})
	}
}

// TestRelayRoleAlone reads with a process that has no other role, and none of the processes that accept and
// send has the source.
func TestRelayRoleAlone(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real Redis")
	}
	outbox := apptest.NewOutbox(t, source.Postgres)
	common := slices.Concat(cmdtest.BothKeys(), apptest.OwnIndex(t),
		[]string{"--database-url=" + apptest.Migrated(t)})
	server := apptest.Start(t, apptest.Settings(t, append(common, "--roles=api,worker")...))
	reader := apptest.Start(t, apptest.Settings(t,
		append(common, "--roles=relay", "--relay="+outbox.Setting(t, "pay"))...))
	if reader.Web.Addr() != nil {
		t.Error("a process without the role api listens on its address")
	}
	insert(t, outbox, "order-1", requestTo(cmdtest.ServeResponse(t, http.StatusOK, ""), "order-1"))
	delivered(t, server, "order-1")
}

// A relayProcess is a running "dispatcher relay".
type relayProcess struct {
	*app.RelayProcess
	term *cmdtest.Terminal
	stop context.CancelFunc
	err  chan error
}

// startRelay starts a process that reads the source pay and calls a server.
func startRelay(t *testing.T, outbox *apptest.Outbox, server *apptest.Running) *relayProcess {
	t.Helper()
	term := program.Terminal("DISPATCHER_RELAY="+outbox.Setting(t, "pay"),
		"DISPATCHER_OPS_LISTEN=127.0.0.1:0", "DISPATCHER_LOG_FORMAT=json",
		"DISPATCHER_DATABASE_URL=of a server")
	flags := config.RelayFlags()
	l, err := config.LoadRelay(&term.Console, &flags)
	if err != nil {
		t.Fatal(err)
	}
	p := &relayProcess{term: term, err: make(chan error, 1)}
	p.RelayProcess, err = app.NewRelayProcess(&term.Console, &l.Settings,
		remote.Flags{Server: server.Client.Base, Key: server.Settings.AdminKey},
		app.NewLogger(&term.Console, &l.Settings))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	p.stop = stop
	go func() { p.err <- p.Run(ctx) }()
	t.Cleanup(func() { p.end(t) })
	return p
}

// end stops the process as SIGTERM does. It must end without an error.
func (p *relayProcess) end(t *testing.T) {
	t.Helper()
	p.stop()
	select {
	case err := <-p.err:
		if err != nil {
			t.Error(err)
		}
		p.err <- nil // for a second call
	case <-time.After(time.Minute):
		t.Error("the process did not end")
	}
	if t.Failed() {
		t.Logf("log of the relay:\n%s", p.term.Stderr.String())
	}
}

// TestRelayProcess inserts rows while processes of the command relay take over from each other. Each row
// becomes one callback.
func TestRelayProcess(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real MariaDB")
	}
	receiver := cmdtest.ServeResponse(t, http.StatusOK, "")
	for _, dialect := range []source.Dialect{source.Postgres, source.MySQL} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			outbox, server := apptest.NewOutbox(t, dialect), apptest.Start(t, apptest.Settings(t))
			first := startRelay(t, outbox, server)
			insert(t, outbox, "row-0", requestTo(receiver, "row-0"))
			delivered(t, server, "row-0")
			for _, path := range []string{"/healthz", "/readyz"} {
				cmdtest.Contains(t, ops(t, first.Web.OpsAddr(), path), `"status":"ok"`)
			}
			second := startRelay(t, outbox, server)

			inserted := make(chan int, 1)
			ctx, enough := context.WithCancel(t.Context())
			go func() {
				n := 1
				for ctx.Err() == nil {
					id := fmt.Sprint("row-", n)
					if err := outbox.Insert(t.Context(), id, requestTo(receiver, id)); err != nil {
						t.Error(err)
						break
					}
					n++
				}
				inserted <- n
			}()
			delivered(t, server, "row-20")
			first.end(t)
			ended := time.Now()
			third := startRelay(t, outbox, server)
			testserver.Until(t, "the second process reads", func() bool {
				return second.reads(t) || third.reads(t)
			})
			if took := time.Since(ended); took > 8*time.Second {
				t.Errorf("the takeover took %s: the lease was not given back", took)
			}
			second.end(t)
			enough()
			rows := <-inserted
			testserver.Until(t, "the table is empty", func() bool {
				return outbox.Count(t, "dispatcher_outbox") == 0
			})
			if n := outbox.Count(t, "dispatcher_outbox_refused"); n != 0 {
				t.Errorf("%d rows are refused", n)
			}
			testserver.Until(t, "each row is one delivered callback", func() bool {
				return server.Counters(t).States.Succeeded == rows
			})
		})
	}
}

// reads reports whether the process reads the source.
func (p *relayProcess) reads(t *testing.T) bool {
	t.Helper()
	return strings.Contains(ops(t, p.Web.OpsAddr(), "/metrics"), `dispatcher_relay_leader{source="pay"} 1`)
}

// ops returns a page of an ops listener.
func ops(t *testing.T, address net.Addr, path string) string {
	t.Helper()
	res, err := http.Get("http://" + address.String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRelayOfAnUnknownProject: it is an error of this source, and of no other one.
func TestRelayOfAnUnknownProject(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL")
	}
	outbox, other := apptest.NewOutbox(t, source.Postgres), apptest.NewOutbox(t, source.Postgres)
	setting := fmt.Sprintf(`[{"name":"pay","dsn":%q,"project":"absent"},{"name":"pay","dsn":%q}]`,
		outbox.DSN, other.DSN)
	r := apptest.Start(t, apptest.Settings(t, "--relay="+setting))
	url := cmdtest.ServeResponse(t, http.StatusOK, "")
	insert(t, outbox, "order-1", requestTo(url, "order-1"))
	insert(t, other, "order-2", requestTo(url, "order-2"))
	delivered(t, r, "order-2")
	testserver.Until(t, "the error is counted", func() bool {
		return !strings.Contains(ops(t, r.Web.OpsAddr(), "/metrics"),
			`dispatcher_relay_errors_total{side="dispatcher",source="absent/pay"} 0`)
	})
	if outbox.Count(t, "dispatcher_outbox") != 1 || r.Readyz(t) != http.StatusOK {
		t.Error("the row has left its table, or the server is not ready")
	}
}

// TestRelayCommand runs the whole command: its start errors, its health, and its end.
func TestRelayCommand(t *testing.T) {
	t.Parallel()
	term := program.Terminal("DISPATCHER_KEY=k")
	term.Ends(t, console.ExitUsage, "relay")
	cmdtest.Contains(t, term.Stderr.String(), "setting relay: is empty")
	relay := `DISPATCHER_RELAY=[{"name":"pay","dsn":"postgres://relay:hidden-password@127.0.0.1:1/d"}]`
	term = program.Terminal(relay, "DISPATCHER_DATA_DIR="+t.TempDir())
	term.Ends(t, console.ExitUsage, "relay")
	cmdtest.Contains(t, term.Stderr.String(), "no API key")

	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	term = program.Terminal(relay, "DISPATCHER_KEY=k", "DISPATCHER_SERVER=http://127.0.0.1:1",
		"NOTIFY_SOCKET="+socket)
	ctx, stop := context.WithCancel(t.Context())
	code := make(chan int)
	go func() { code <- term.InvokeUntil(ctx, "relay", "--ops-listen=127.0.0.1:0", "--log-level=debug") }()
	cmdtest.Contains(t, nextNotice(t, manager), "READY=1\n")
	stop()
	cmdtest.Contains(t, nextNotice(t, manager), "STOPPING=1\n", "EXTEND_TIMEOUT_USEC=20000000")
	if code := <-code; code != console.ExitOK {
		t.Errorf("exit code %d: %s", code, term.Stderr.String())
	}
	cmdtest.Contains(t, term.Stderr.String(), "relay is running", "relay has ended")
	if strings.Contains(term.Stderr.String(), "hidden") {
		t.Errorf("a password is logged: %s", term.Stderr.String())
	}
}
